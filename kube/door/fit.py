"""Leaves out of an object what does not have its shape.

Source: docs/decisions/0013 (20); docs/parity.md SEC-B2, SEC-B8.
"""

import functools
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from apis.objects import Kind, Object
from kube.door.shapes import CUT, MOST, OTHER, SHAPES, Shape

DEEPEST: Final = 64
"""Levels of JSON in a field without a shape of its own: CRDs and their objects have fewer."""
_ABSENT: Final = object()
_MISFITS: Final = (msgspec.ValidationError, RecursionError, OverflowError)
_UNIONS: Final = (types.UnionType, Union)
_fields_of: Final = functools.cache(msgspec.structs.fields)
"""Each call of it by itself leaves functions that only the collector finds."""
_SHAPED: Final = frozenset({"metadata", "spec", "status"})
_TYPED: Final = ("apiVersion", "kind")


def fitted(kind: Kind, said: Object, tell: Callable[[str], None] = lambda _: None) -> Object:
    """Return of ``said``, an object of ``kind``, what has its shape.

    ``tell`` gets the path of each field that is left out, or cut, such as ``Pod.status.phase``.
    """
    shape = SHAPES.get(kind, OTHER)
    found = {name: value for name, value in said.items() if _is_shallow(value)}
    for name in said.keys() - found.keys():
        tell(f"{kind.kind}.{name}")
    made = _fitted(found, shape, kind.kind, tell)
    names = _TYPED if kind in SHAPES else found.keys() - _SHAPED
    return {**{name: found[name] for name in names if name in found}, **made}


def part(said: Object, shape: Any) -> Object:
    """Return of ``said``, which is no object of a kind, what has that shape."""
    found = _fitted(said, shape, "", lambda _: None)
    return found if isinstance(found, dict) else {}


def _fitted(value: Any, shape: Any, path: str, tell: Callable[[str], None]) -> Any:
    """Return of ``value`` what fits ``shape``, ``_ABSENT`` if nothing does."""
    try:
        return msgspec.to_builtins(msgspec.convert(value, shape))
    except _MISFITS:
        inner, most = _inside(shape)
    if isinstance(value, dict) and _is_shape(inner):
        return _fields(value, inner, path, tell)
    if isinstance(value, list) and get_origin(inner) is list:
        some = enumerate(value[:most])
        return list(_some(some, get_args(inner)[0], path, tell).values())
    if isinstance(value, dict) and get_origin(inner) is dict:
        some_ = itertools.islice(value.items(), most)
        return _some(some_, get_args(inner)[1], path, tell)
    tell(path)
    return _cut(value, shape) if isinstance(value, str) else _ABSENT


def _cut(value: str, shape: Any) -> Any:
    notes = [note for one in _members(shape) for note in get_args(one) if isinstance(note, Meta)]
    most = next((note.max_length for note in notes if note.extra == CUT), None)
    return _ABSENT if most is None else value[:most]


def _fields(value: Object, shape: Any, path: str, tell: Callable[[str], None]) -> Object:
    made = {
        field.encode_name: found
        for field in _fields_of(shape)
        if field.encode_name in value
        and (
            found := _fitted(
                value[field.encode_name], field.type, f"{path}.{field.encode_name}", tell
            )
        )
        is not _ABSENT
    }
    return dict(msgspec.to_builtins(msgspec.convert(made, shape)))


def _some(
    items: Iterable[tuple[Any, Any]], shape: Any, path: str, tell: Callable[[str], None]
) -> dict[Any, Any]:
    """Return those of ``items`` that fit."""
    return {
        name: found
        for name, value in items
        if (found := _fitted(value, shape, path, tell)) is not _ABSENT
    }


def _inside(shape: Any) -> tuple[Any, int]:
    """Return the shape, list or map that ``shape`` may be, and how long it is at most."""
    for one in _members(shape):
        inner, *notes = get_args(one) if get_origin(one) is Annotated else (one,)
        if _is_shape(inner) or get_origin(inner) in {list, dict}:
            most = next((note.max_length for note in notes if isinstance(note, Meta)), None)
            return inner, most or MOST
    return None, 0


def _members(shape: Any) -> tuple[Any, ...]:
    return get_args(shape) if get_origin(shape) in _UNIONS else (shape,)


def _is_shape(inner: Any) -> bool:
    return isinstance(inner, type) and issubclass(inner, Shape)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [child for one in level for child in _children(one)]
        if not level:
            return True
    return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
