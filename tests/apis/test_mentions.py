"""Whatever in a PodSpec names a ConfigMap or a Secret is known as a mention of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from apis import keys, reflectionpolicy
from apis.objects import Kind, Object
from kube import client
from sandbox.controlplane import Plane

KINDS: Final = {"secret": keys.SECRET, "configmap": keys.CONFIG_MAP}
PATHS: Final = [(kind, path) for kind, paths in reflectionpolicy.PATHS.items() for path in paths]


def spec(path: str, value: str) -> Object:
    """Return a PodSpec with ``value`` at ``path``, beside one that is somebody else's."""
    made: Any = value
    for step in reversed(path.split(".")):
        field = step.removesuffix("[]")
        made = {field: made if field == step else [{"name": "other"}, made]}
    found: Object = made
    return found


@pytest.mark.parametrize(("kind", "path"), PATHS)
def test_each_is_found(kind: Kind, path: str) -> None:
    found = reflectionpolicy.mentioned(spec(path, "it"))

    assert (kind, "it") in found
    assert found <= {(kind, "it"), (keys.SECRET, "other")}


def test_what_names_nothing_mentions_nothing() -> None:
    assert not reflectionpolicy.mentioned(
        {"volumes": [{"name": "a", "secret": {}}, {"csi": None}], "other": 1}
    )


@pytest.mark.cluster
async def test_an_api_server_knows_no_other_way_to_name_one(plane: Plane) -> None:
    async with client.connect(plane.kubeconfig) as real:
        published = json.loads(await real.get_text("/openapi/v3/api/v1"))["components"]["schemas"]

    named = set(_named(published, "io.k8s.api.core.v1.PodSpec"))

    assert named == {(KINDS[kind.kind.lower()], path) for kind, path in PATHS}


def _named(
    schemas: Mapping[str, Any], type_: str, at: str = "", under: Kind | None = None
) -> Iterator[tuple[Kind, str]]:
    """Yield where ``type_`` names one: by a ``name`` below a field of its kind, or by itself."""
    for field, schema in schemas[type_].get("properties", {}).items():
        kind = next((kind for word, kind in KINDS.items() if word in field.lower()), under)
        inner = schema.get("items", schema)
        types = [one["$ref"] for one in inner.get("allOf", [inner]) if "$ref" in one]
        path = f"{at}{field}{'[]' if schema.get('type') == 'array' else ''}"
        if types:
            yield from _named(schemas, types[0].rsplit("/")[-1], f"{path}.", kind)
        elif kind is not None and (field == "name" or field.lower().endswith("secretname")):
            yield kind, path
