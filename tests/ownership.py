"""Who owns which field, for the fake: server-side apply in a hundred lines.

A field is a path; lists that Kubernetes merges by key count item by item. Source: Kubernetes,
"Server-Side Apply", "Merge strategy".
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from apis.objects import Kind, Object

Path: TypeAlias = tuple[Any, ...]

_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "ownerReferences": ("uid",),
    "webhooks": ("name",),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "conditions": ("type",),
}
_EVERYWHERE: Final = {"ownerReferences"}
_SETS: Final = {"finalizers"}
_IDENTITY: Final = {
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("metadata", "resourceVersion"),
    ("metadata", "creationTimestamp"),
    ("metadata", "generation"),
}


def fields(kind: Kind, obj: Object) -> dict[Path, Any]:
    """Return the value of each field that somebody may own."""
    return {path: value for path, value in _leaves(kind, obj, ()) if path not in _IDENTITY}


def put(obj: Object, path: Path, value: Any) -> None:
    """Set the field at ``path`` of ``obj``."""
    at: Any = obj
    for step, following in itertools.pairwise(path):
        at = _step_in(at, step, [] if isinstance(following, tuple) else {})
    if isinstance(path[-1], tuple):  # an element of a set
        at.append(value) if value not in at else None
    else:
        at[path[-1]] = value


def drop(obj: Object, paths: Iterable[Path]) -> None:
    """Remove the fields at ``paths`` of ``obj``, and whatever holds nothing any more."""
    for path in sorted(paths, key=_is_merge_key):  # an item is found by its key: that goes last
        _drop(obj, path)


def _is_merge_key(path: Path) -> bool:
    return len(path) > 1 and isinstance(path[-2], tuple) and path[-1] in dict(path[-2])


def _drop(obj: Object, path: Path) -> None:
    trail: list[tuple[Any, Any, Any]] = []
    at: Any = obj
    for step in path:
        found = _look_in(at, step)
        if found is None:
            return
        trail.append((at, step, found))
        at = found
    for holder, step, held in reversed(trail):
        if isinstance(holder, dict):
            holder.pop(step)
        else:
            holder[:] = [item for item in holder if item is not held]
        if holder:
            return


def _leaves(kind: Kind, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(kind, inner, (*path, name))
    elif isinstance(value, list) and path[-1] in _SETS:
        for item in value:
            yield (*path, (("", item),)), item
    elif isinstance(value, list) and (names := _keys(kind, path[-1], value)):
        for item in value:
            step = tuple((name, item[name]) for name in names)
            yield from _leaves(kind, item, (*path, step))
    else:
        yield path, value


def _keys(kind: Kind, name: Any, items: list[Any]) -> tuple[str, ...]:
    is_builtin = "." not in kind.group or kind.group.endswith(".k8s.io")
    names = _KEYS.get(name, ()) if is_builtin or name in _EVERYWHERE else ()
    whole = all(isinstance(item, dict) and all(n in item for n in names) for item in items)
    return names if whole else ()


def _step_in(at: Any, step: Any, empty: Any) -> Any:
    found = _look_in(at, step)
    if isinstance(found, dict | list):
        return found
    if isinstance(step, tuple):
        at.append(dict(step))
        return at[-1]
    at[step] = empty
    return empty


def _look_in(at: Any, step: Any) -> Any:
    if isinstance(at, dict):
        return at.get(step)
    if not isinstance(at, list) or not isinstance(step, tuple):
        return None
    if step[0][0] == "":
        return step[0][1] if step[0][1] in at else None
    return next((item for item in at if all(item.get(n) == v for n, v in step)), None)
