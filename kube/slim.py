"""What a large cache keeps of an object, and of what a reconciler wrote last.

10,000 pods take 460 MiB as dicts. Metadata decoded and the rest as it came (``Slim``, 75 MiB; a
write starts from the live object), or all of it as JSON, decoded for the one who reads it
(``Packed``; without its spec ``PackedState``). Of a large object only an outline is kept: users
choose the size of what a shared process caches.
"""

import zlib
from typing import Any, Final, Self

import msgspec

from apis import objects
from apis.objects import Key, Object

_EMPTY = msgspec.Raw(b"{}")
_DEFLATED_UP_TO: Final = 2**15
"""Bytes of JSON that are worth the time: larger objects are few, and would take milliseconds."""
KEPT_WHOLE: Final = 2**15
"""Bytes of JSON of the largest object that a cache keeps whole."""
_OF_A_FIELD: Final = 1024
"""Bytes of JSON of the largest field in an outline."""
_OUTLINED: Final = ("metadata", "spec", "status")
_NOTED: Final = ("labels", "annotations")
_OURS: Final = "liqo.io/"
_WINDOW_BITS, _MEMORY = 12, 5
"""32 KiB for the time of one call, where zlib by itself takes 256."""


class SlimMeta(objects.Meta, gc=False, frozen=True):
    """Metadata without managedFields."""

    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Slim(msgspec.Struct, gc=False):
    """An object with ``spec`` and ``status`` undecoded."""

    metadata: SlimMeta
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        # A Raw is a view that would keep its whole page of 500 objects alive.
        self.spec = self.spec.copy()
        self.status = self.status.copy()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    def decoded_spec(self) -> dict[str, Any]:
        """Return ``spec`` decoded: a new dict each time."""
        return _decoded(self.spec)

    def decoded_status(self) -> dict[str, Any]:
        """Return ``status`` decoded: a new dict each time."""
        return _decoded(self.status)


class Partial(msgspec.Struct, gc=False, frozen=True):
    """An object of which only the metadata matters."""

    metadata: SlimMeta

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


class _PlacedMeta(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _PlacedSpec(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    node_name: str = ""
    runtime_class_name: str = ""


class PlacedPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A pod without its containers: where it runs, and whether it may."""

    metadata: _PlacedMeta
    spec: _PlacedSpec = _PlacedSpec()

    def to_object(self) -> Object:
        made: Object = msgspec.to_builtins(self)
        return {"spec": {}, **made}


class Version(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Which object it is, and which version of it."""

    uid: str = ""
    resource_version: str = ""


class Packed(msgspec.Struct, gc=False, frozen=True):
    """A whole object, for caches of which one object at a time is read."""

    metadata: Version
    packed: bytes
    """JSON, as it is or deflated."""
    is_outline: bool = False
    """Whether it lacks what is large: the server has the object."""

    @classmethod
    def of(cls, obj: Object) -> Self:
        return cls(msgspec.convert(obj["metadata"], Version), _packed(msgspec.json.encode(obj)))

    @classmethod
    def noted(cls, key: Key, version: Version) -> Self:
        """Return an outline with key, UID and version alone."""
        metadata = {**key._asdict(), **msgspec.to_builtins(version)}
        return cls(version, msgspec.json.encode({"metadata": metadata}), is_outline=True)

    @classmethod
    def cached(cls, obj: Object) -> Self:
        """Return what a cache keeps of ``obj``, an outline of a large one (docs/parity.md H18)."""
        json = msgspec.json.encode(obj)
        is_large = len(json) > KEPT_WHOLE
        kept = msgspec.json.encode(outline(obj)) if is_large else json
        return cls(msgspec.convert(obj["metadata"], Version), _packed(kept), is_large)

    def json(self) -> bytes:
        return self.packed if self.packed.startswith(b"{") else zlib.decompress(self.packed)

    def whole(self) -> Object:
        """Return the object: a new dict each time."""
        return msgspec.json.decode(self.json(), type=dict[str, Any])


class PackedWhole(Packed, gc=False, frozen=True):
    """As ``Packed``, however large it is: of kinds that are few, and that no user makes."""

    @classmethod
    def cached(cls, obj: Object) -> Self:
        return cls.of(obj)


class PackedState(Packed, gc=False, frozen=True):
    """As ``Packed``, without ``spec``: of whom only metadata and status are read."""

    @classmethod
    def of(cls, obj: Object) -> Self:
        return super().of(_without_spec(obj))

    @classmethod
    def cached(cls, obj: Object) -> Self:
        return super().cached(_without_spec(obj))


def outline(obj: Object) -> Object:
    """Return ``obj`` without its large fields, and of its labels and annotations ours.

    Shape: as the object. ``metadata``, ``spec`` and ``status`` lack fields of more than 1 KiB.
    """
    kept = {name: value for name, value in obj.items() if name in _OUTLINED or _is_small(value)}
    for name in _OUTLINED:
        if isinstance(kept.get(name), dict):
            kept[name] = _small(kept[name])
    for name in _NOTED:
        noted = {
            key: text for key, text in (obj["metadata"].get(name) or {}).items() if _OURS in key
        }
        kept["metadata"].update({name: _small(noted)} if noted else {})
    return kept


def with_shared_parts(obj: Object) -> Object:
    """Return ``obj`` with its lists and maps, and those of its metadata, as ``objects.shared``."""
    return {
        name: with_shared_parts(part)
        if name == "metadata"
        else objects.shared(part)
        if isinstance(part, dict | list)
        else part
        for name, part in obj.items()
    }


def _small(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if _is_small(value)}


def _is_small(value: Any) -> bool:
    return len(msgspec.json.encode(value)) <= _OF_A_FIELD


def _without_spec(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name != "spec"}


def _packed(json: bytes) -> bytes:
    """Return ``json``, deflated to about a third unless it is large."""
    if len(json) > _DEFLATED_UP_TO:
        return json
    made = zlib.compressobj(1, zlib.DEFLATED, _WINDOW_BITS, _MEMORY)
    return made.compress(json) + made.flush()


def _decoded(raw: msgspec.Raw) -> dict[str, Any]:
    return msgspec.json.decode(raw, type=dict[str, Any])


# What a reconciler wrote last ---------------------------------------------------------------------


class ReadYourWrites:
    """What we wrote and the cache has not shown yet, lest the same be written again.

    In a burst that is hundreds of objects, of 16 KiB each as a dict: they are kept packed.
    """

    def __init__(self) -> None:
        self._made: dict[Key, tuple[set[str], Packed]] = {}

    def add(self, before: Object, made: Object) -> None:
        """Remember that ``made`` came of ``before``."""
        older, _ = self._made.get(objects.key_of(made), (set(), None))
        self._made[objects.key_of(made)] = ({*older, _version(before)}, Packed.of(made))

    def newest(self, key: Key, cached: Object | None) -> Object | None:
        """Return ``cached``, or what we made of that very version since."""
        older, made = self._made.get(key, (set(), None))
        if made is not None and cached is not None and _version(cached) in older:
            return made.whole()
        self._made.pop(key, None)
        return cached

    def forget(self, key: Key) -> None:
        self._made.pop(key, None)


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
