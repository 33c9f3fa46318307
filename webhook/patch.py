"""JSON Patch operations made by hand, from what is there and what is wanted. Pure.

Source: RFC 6902; RFC 6901 for the pointers; decision 0014.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from apis.objects import Object

Operation: TypeAlias = dict[str, Any]
"""One operation: {"op": "add", "path": "/spec/tolerations/-", "value": {...}}."""

Path: TypeAlias = tuple[str, ...]
"""Names from the root of an object down; none of them an index of a list."""


def find(obj: Object, path: Path) -> Any:
    """Return what is at ``path``, None when it or anything above it is missing."""
    found: Any = obj
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def put(obj: Object, path: Path, value: Any) -> list[Operation]:
    """Return what sets ``value`` at ``path`` and makes the objects above it; [] if it is there.

    It looks at ``obj`` as sent: two paths of one patch may not lack the same parent.
    """
    found, depth = obj, 0
    while depth < len(path) and isinstance(found, dict) and found.get(path[depth]) is not None:
        found, depth = found[path[depth]], depth + 1
    if depth == len(path) and found == value:
        return []
    depth = min(depth + 1, len(path))
    for name in reversed(path[depth:]):
        value = {name: value}
    return [{"op": "add", "path": _pointer(path[:depth]), "value": value}]


def append(obj: Object, path: Path, item: Any) -> list[Operation]:
    """Return what adds ``item`` to the end of the list at ``path``, which is made if missing."""
    if find(obj, path) is None:
        return put(obj, path, [item])
    return [{"op": "add", "path": _pointer((*path, "-")), "value": item}]


def applied(obj: Object, operations: Iterable[Operation]) -> Object:
    """Return ``obj`` after ``operations`` of this module; what they leave alone is shared."""
    for operation in operations:
        obj = _with(obj, _names(operation["path"]), operation["value"])
    return obj


def _with(found: Any, names: Sequence[str], value: Any) -> Any:
    name, *below = names
    if name == "-" and isinstance(found, list):
        return [*found, value]
    return {**found, name: _with(found[name], below, value) if below else value}


@functools.lru_cache(maxsize=256)
def _names(pointer: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


@functools.lru_cache(maxsize=256)
def _pointer(path: Path) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
