"""Decodes what an API server said: of the own one as it is, of a peer what has its schema.

Source: docs/decisions/0013 (20).
"""

import functools
import itertools
import logging
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from apis import objects, texts
from apis.objects import Key, Kind, Object
from kube import errors, metrics, slim, wire
from kube.cluster import Event, Selection
from kube.slim import Packed, Version
from kube.untrusted import schemas
from kube.untrusted.schemas import CUT, MOST, OTHER, SCHEMAS, Schema
from kube.wire import UntrustedBytes

T = TypeVar("T")
logger = logging.getLogger(__name__)

MAX_PARTS: Final = 200_000
"""Objects and lists in one object of a peer: each costs more memory than it has bytes."""
_BESIDE: Final = 1024
"""Bytes that an object which is kept as JSON takes besides: its key, version and places in maps."""
_MOST_OF_A_NAME: Final = 253
"""Characters of a UID or version that are kept: Kubernetes's have 36, and some digits."""


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: Any = ""
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Page(msgspec.Struct, gc=False):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError, LookupError, TypeError)
_PAGE: Final = msgspec.json.Decoder(_Page)
_FRAME: Final = msgspec.json.Decoder(_Frame)
_HEAD: Final = msgspec.json.Decoder(_Head)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Decoder:
    """Decodes what the own API server says: it is what it is."""

    is_of_peer = False

    def reader(self, of: Selection[T]) -> "Reader[T]":
        """Return what reads the lists and watches of a selection."""
        return Reader(of, self)

    def opened(self, kind: Kind, said: UntrustedBytes) -> Object:
        """Return the object of ``kind`` that was said.

        Raises:
            UnreadableError: it is no JSON object.
        """
        return self.fitted(kind, self.document(said))

    def document(self, said: UntrustedBytes) -> Object:
        """Return the JSON object, of no kind, that was said.

        Raises:
            UnreadableError: it is no JSON object.
        """
        raw = wire.said(said)
        try:
            self.check(raw)
            return _OBJECT.decode(raw)
        except _UNREADABLE as error:
            raise errors.UnreadableError("the answer is not a JSON object") from error

    def text(self, said: UntrustedBytes) -> str:
        return wire.said(said).decode("utf-8", "replace")

    def fitted(self, _kind: Kind, said: Object) -> Object:
        """Return what is believed of an object: all."""
        return said

    def check(self, raw: bytes) -> None:
        """Raise ValueError if ``raw`` is not to be decoded."""


class PeerDecoder(Decoder):
    """Decodes what a peer says: only what has its shape; ``tell`` gets the path of the rest."""

    is_of_peer = True

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def fitted(self, kind: Kind, said: Object) -> Object:
        return fitted(kind, said, self._tell)

    def check(self, raw: bytes) -> None:
        """Raise ValueError if ``raw``, JSON, would take far more memory than bytes."""
        if _parts(raw) > MAX_PARTS and _parts(_STRING.sub(b"", raw)) > MAX_PARTS:
            raise ValueError(f"more than {MAX_PARTS} objects and lists")


_STRING: Final = re.compile(rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)')
"""Of JSON, also without an end: what matches nowhere would be searched from each quote."""


def _parts(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


def refusal(status: int, said: UntrustedBytes, *, retry_after_s: float | None) -> errors.KubeError:
    try:
        told = _OBJECT.decode(wire.said(said))
    except _UNREADABLE:
        told = {}
    return errors.refusal(status, part(told, schemas.STATUS), retry_after_s=retry_after_s)


class Page(NamedTuple, Generic[T]):
    """A part of a list; ``token`` asks for the next one, empty after the last."""

    items: dict[Key, T]
    version: str
    token: str
    sizes: dict[Key, int]
    """Bytes of each item, as they came."""


class Reader(Generic[T]):
    """Reads the objects of a selection that ``decoder`` lets in."""

    def __init__(self, of: Selection[T], decoder: Decoder) -> None:
        self._of, self._kind, self._decoder = of, of.kind, decoder
        self._is_told = False
        self._packed = packed(of.shape)
        shape: type[Any] = Object if self._packed or decoder.is_of_peer else of.shape
        self._json = msgspec.json.Decoder(shape)

    def page(self, said: UntrustedBytes) -> Page[T]:
        """Return a page of a list.

        Raises:
            UnreadableError: it is not a page of a list.
        """
        try:
            page = _PAGE.decode(wire.said(said))
            items: dict[Key, T] = {}
            sizes: dict[Key, int] = {}
            for item in page.items or []:
                meta = _HEAD.decode(item).metadata
                key = self._key(meta)
                if key is not None:
                    items[key], sizes[key] = self._sized(key, meta, item)
        except _UNREADABLE as error:
            raise errors.UnreadableError(f"unreadable list of {self._kind.resource}") from error
        return Page(items, page.metadata.resource_version, page.metadata.continue_, sizes)

    def event(self, line: UntrustedBytes) -> Event[T] | None:
        """Return a line of a watch; None of an object that was not asked for.

        Raises:
            ExpiredError: it cannot be read: it might be a deletion, so list again.
            KubeError: it is an error of the server.
        """
        try:
            frame = _FRAME.decode(wire.said(line))
            if frame.type == "ERROR":
                raise refusal(0, UntrustedBytes(bytes(frame.object)), retry_after_s=None)
            meta = _HEAD.decode(frame.object).metadata
            if frame.type == "BOOKMARK":
                return Event(
                    frame.type, Key(meta.namespace, meta.name), meta.resource_version, _nothing()
                )
            key = self._key(meta)
            if key is None:
                return None
            is_last = frame.type == "DELETED"
            shaped, size = self._sized(key, meta, frame.object, is_last=is_last)
        except _UNREADABLE as error:
            raise errors.ExpiredError(f"unreadable event of {self._kind.resource}") from error
        return Event(frame.type, key, meta.resource_version, shaped, size)

    def _key(self, meta: _Meta) -> Key | None:
        """Return whose metadata that is; None of what the selection cannot have, which is told."""
        key = Key(sys.intern(meta.namespace), meta.name)  # of many objects there
        if wire.is_selected(self._of, key):
            return key
        metrics.DROPPED.labels(self._kind.resource).inc()
        if not self._is_told:
            self._is_told = True
            fields = {"resource": self._kind.resource, "object": texts.clamp(str(key), 300)}
            logger.warning("Left out an object that was not asked for", extra=fields)
        return None

    def _sized(
        self, key: Key, meta: _Meta, raw: msgspec.Raw, *, is_last: bool = False
    ) -> tuple[Any, int]:
        """Return the object, and how many bytes of memory it takes if it is kept.

        Whole is what the selection keeps, and the last state of what has gone.
        """
        keeps = self._of.keeps
        if self._packed and keeps is not None and not is_last and not keeps(key):
            return self._noted(self._packed, key, meta)
        try:
            shaped = self._shape(raw)
        except _UNREADABLE:
            if not self._packed:
                raise
            # It is there: what is too much, or makes no sense, hides no other object of the list.
            metrics.DROPPED.labels(self._kind.resource).inc()
            fields = {"resource": self._kind.resource, "object": texts.clamp(str(key), 300)}
            logger.warning("Cannot read an object, and keeps its name alone", extra=fields)
            return self._noted(self._packed, key, meta)
        is_packed = isinstance(shaped, Packed)
        return shaped, _BESIDE + (len(shaped.packed) if is_packed else len(memoryview(raw)))

    def _noted(self, shape: type[Packed], key: Key, meta: _Meta) -> tuple[Packed, int]:
        """Return an outline that has no more than key, UID and version."""
        uid = meta.uid if isinstance(meta.uid, str) else ""
        version = Version(uid[:_MOST_OF_A_NAME], meta.resource_version[:_MOST_OF_A_NAME])
        noted = shape.noted(key, version)
        return noted, _BESIDE + len(noted.packed)

    def _shape(self, raw: msgspec.Raw) -> Any:
        is_of_peer = self._decoder.is_of_peer
        if is_of_peer:
            self._decoder.check(bytes(raw))
        shaped = self._json.decode(raw)
        if is_of_peer:
            shaped = self._decoder.fitted(self._kind, shaped)
        if isinstance(shaped, dict):
            shaped["metadata"].pop("managedFields", None)
            # Items of a list do not say what they are, events do: here both do.
            shaped.setdefault("apiVersion", self._kind.api_version)
            shaped.setdefault("kind", self._kind.kind)
            shaped = kept(self._of, shaped, len(memoryview(raw)))
        if self._packed:
            return self._packed.cached(shaped)
        is_whole = not is_of_peer or self._of.shape is Object
        return shaped if is_whole else msgspec.convert(shaped, self._of.shape)


def kept(of: Selection[Any], obj: Object, size: int) -> Object:
    """Return what a selection has of ``obj``, of ``size`` bytes of JSON: all, or the outline."""
    is_small = not of.whole_up_to or size <= of.whole_up_to
    if is_small or (of.is_needed_whole and of.is_needed_whole(obj)):
        return slim.with_shared_parts(obj) if of.is_alike else obj
    return {**slim.outline(obj), objects.OUTLINED: True}


def packed(shape: Any) -> type[Packed] | None:
    """Return ``shape`` if it keeps objects as JSON."""
    return shape if isinstance(shape, type) and issubclass(shape, Packed) else None


def _nothing() -> Any:
    return {}


# Leaves out of an object what does not have its shape ---------------------------------------------

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
    shape = SCHEMAS.get(kind, OTHER)
    found = {name: value for name, value in said.items() if _is_shallow(value)}
    for name in said.keys() - found.keys():
        tell(f"{kind.kind}.{name}")
    made = _fitted(found, shape, kind.kind, tell)
    names = _TYPED if kind in SCHEMAS else found.keys() - _SHAPED
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
    return isinstance(inner, type) and issubclass(inner, Schema)


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
