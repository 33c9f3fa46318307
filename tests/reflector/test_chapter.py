"""The chapter of the docs says what the tables of the code do, and those have every field."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from apis import reflection
from apis.objects import Object
from kube import client
from reflector.kinds import networking, storage
from reflector.kinds.contract import KindReflection, ReflectionContext
from reflector.kinds.fields import FIELDS, Fate
from reflector.kinds.table import KIND_REFLECTIONS
from sandbox.controlplane import Plane
from tests import factories
from tests.reflector import chapter, fieldnames
from tests.reflector.looks import Seen
from tests.reflector.pairs import PAIR

CHAPTER = Path(__file__).parents[2] / "docs" / "what-is-reflected.md"
KNOWN: Final[dict[str, dict[str, list[str]]]] = json.loads(fieldnames.FILE.read_text())
SCENE: Final = ReflectionContext(PAIR, lister=Seen())
KINDS: Final = {kind.kind: kind for kind in FIELDS}


def test_the_table_of_the_docs_is_the_one_that_is_made() -> None:
    assert chapter.written_reflection(CHAPTER.read_text()) == CHAPTER.read_text()


def test_each_kind_of_the_table_has_a_forge() -> None:
    assert list(KIND_REFLECTIONS) == list(reflection.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_oldest_and_the_newest_kubernetes_has_a_row(kind: str) -> None:
    both = {name for version in fieldnames.VERSIONS for name in KNOWN[version][kind]}
    assert set(FIELDS[KINDS[kind]]) == both


@pytest.mark.cluster
async def test_every_field_of_the_api_server_has_a_row(plane: Plane) -> None:
    async with client.connect(plane.kubeconfig) as real:
        published = {path: json.loads(await real.get_text(path)) for path in fieldnames.documents()}

    for kind, names in fieldnames.of_documents(published).items():
        assert set(names) <= set(FIELDS[KINDS[kind]]), kind
        assert names, kind


def test_what_is_not_sent_as_it_is_has_a_reason() -> None:
    for fields in FIELDS.values():
        for path, field in fields.items():
            assert bool(field.why) is (field.fate is not Fate.SENT), path


TOLD: Final[list[tuple[KindReflection, str, Any]]] = [
    (networking.SERVICE_REFLECTION, "externalIPs", ["192.0.2.1"]),
    (networking.SERVICE_REFLECTION, "loadBalancerIP", "192.0.2.1"),
    (networking.SERVICE_REFLECTION, "trafficDistribution", "PreferClose"),
    (storage.CLAIM_REFLECTION, "dataSource", {"kind": "VolumeSnapshot", "name": "a"}),
    (storage.CLAIM_REFLECTION, "dataSourceRef", {"kind": "VolumeSnapshot", "name": "a"}),
    (storage.CLAIM_REFLECTION, "selector", {"matchLabels": {"a": "b"}}),
    (storage.CLAIM_REFLECTION, "volumeAttributesClassName", "gold"),
]


@pytest.mark.parametrize(("forge", "name", "value"), TOLD, ids=[name for _, name, _ in TOLD])
def test_a_field_that_is_set_and_not_sent_is_told(
    forge: KindReflection, name: str, value: Any
) -> None:
    local: Object = {**factories.service("foo", "web"), "spec": {name: value}}
    told = forge.lacks(local, SCENE)
    assert told.startswith(f"spec.{name} does not go to {PAIR.destination}: ")
    assert forge.lacks({**local, "spec": {}}, SCENE) == ""


def test_all_that_is_told_is_tried() -> None:
    tried = {(forge.row.kind, f"spec.{name}") for forge, name, _ in TOLD}
    rows = {
        (kind, path)
        for kind in FIELDS
        for path, one in FIELDS[kind].items()
        if one.fate is Fate.TOLD
    }
    assert tried == rows


def test_what_is_made_for_the_provider_is_told_to_nobody() -> None:
    local = {**factories.service("foo", "web"), "spec": {"ingressClassName": "nginx"}}
    assert networking.INGRESS_REFLECTION.lacks(local, SCENE) == ""
