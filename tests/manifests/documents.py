"""The objects of ``manifests/``, read as kustomize would: by following the kustomizations."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2] / "manifests"


@functools.cache
def everything() -> list[dict[str, Any]]:
    """Return every object, in the order of the files; read only."""
    return list(_objects(ROOT))


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [obj for obj in everything() if obj["kind"] in kinds]


def named(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    found = [
        obj
        for obj in of_kind(kind)
        if obj["metadata"]["name"] == name and obj["metadata"].get("namespace", "") == namespace
    ]
    assert len(found) == 1, f"{kind} {namespace}/{name}"
    return found[0]


def _objects(folder: Path) -> Iterator[dict[str, Any]]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for resource in kustomization["resources"]:
        path = folder / resource
        if path.is_dir():
            yield from _objects(path)
        else:
            yield from (found for found in yaml.safe_load_all(path.read_text()) if found)
