"""``python3 -m tests.reflector.fieldnames FILE``: write the field names of the reflected kinds.

They are those of the Go types of Kubernetes' oldest and newest version that pyliqo runs on; ``go
mod download`` brings their modules.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from apis import keys
from apis.objects import Kind

VERSIONS: Final = ("0.31.0", "0.37.2")
"""Of the module k8s.io/api, for Kubernetes 1.31 and 1.37."""
FILE: Final = Path(__file__).with_name("fieldnames.json")
CORE, DISCOVERY, NETWORKING = "core/v1", "discovery/v1", "networking/v1"
PARTS: Final[Mapping[Kind, tuple[str, Mapping[str, str]]]] = {
    keys.CONFIG_MAP: (CORE, {"": "ConfigMap"}),
    keys.SECRET: (CORE, {"": "Secret"}),
    keys.SERVICE: (CORE, {"": "Service", "spec.": "ServiceSpec", "spec.ports[].": "ServicePort"}),
    keys.ENDPOINT_SLICE: (
        DISCOVERY,
        {
            "": "EndpointSlice",
            "endpoints[].": "Endpoint",
            "endpoints[].conditions.": "EndpointConditions",
        },
    ),
    keys.INGRESS: (NETWORKING, {"": "Ingress", "spec.": "IngressSpec"}),
    keys.PERSISTENT_VOLUME_CLAIM: (
        CORE,
        {"": "PersistentVolumeClaim", "spec.": "PersistentVolumeClaimSpec"},
    ),
    keys.EVENT: (CORE, {"": "Event"}),
}
"""Of each kind its package, and its types by the path of their fields; others go whole."""
_DOCUMENT: Final = {
    CORE: "/openapi/v3/api/v1",
    DISCOVERY: "/openapi/v3/apis/discovery.k8s.io/v1",
    NETWORKING: "/openapi/v3/apis/networking.k8s.io/v1",
}
_INLINE: Final = ("apiVersion", "kind")
"""What ``metav1.TypeMeta`` stands for."""


def of_types(api: Path) -> dict[str, list[str]]:
    """Return the paths of the fields of each kind by the sources of k8s.io/api in ``api``."""
    found: dict[str, list[str]] = {}
    for kind, (package, types) in PARTS.items():
        text = (api / package / "types.go").read_text()
        found[kind.kind] = sorted(
            f"{path}{name}" for path, type_ in types.items() for name in _fields(text, type_)
        )
    return found


def _fields(text: str, type_: str) -> Iterator[str]:
    body = re.search(rf"^type {type_} struct {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise ValueError(f"no type {type_}")
    if "metav1.TypeMeta" in body[1]:
        yield from _INLINE
    for line in body[1].splitlines():
        tag = re.search(r'`json:"([^,"]+)', line)
        if tag and not line.lstrip().startswith("//"):
            yield tag[1]


def documents() -> list[str]:
    """Return the paths of the OpenAPI documents that have these kinds."""
    return list(_DOCUMENT.values())


def of_documents(published: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the same by the OpenAPI documents of an API server, by their paths."""
    found: dict[str, list[str]] = {}
    for kind, (package, types) in PARTS.items():
        schemas = published[_DOCUMENT[package]]["components"]["schemas"]
        named = f"io.k8s.api.{package.replace('/', '.')}."
        found[kind.kind] = sorted(
            f"{path}{name}"
            for path, type_ in types.items()
            for name in schemas[f"{named}{type_}"]["properties"]
        )
    return found


def main(file: str) -> None:
    modules = [f"k8s.io/api@v{version}" for version in VERSIONS]
    command = ["go", "mod", "download", "-json", *modules]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout
    paths = [Path(one) for one in re.findall(r'"Dir": "([^"]+)"', said)]
    found = {version: of_types(path) for version, path in zip(VERSIONS, paths, strict=True)}
    Path(file).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
