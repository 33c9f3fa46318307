"""What goes over the wire to an API server and comes back, bounded, and as bytes until here."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
import yarl

from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Event, Selection
from kube.slim import Packed

T = TypeVar("T")

MAX_ANSWER: Final = 64 * 2**20
MAX_EVENT: Final = 16 * 2**20
MAX_REFUSAL: Final = 2**20

_MAX_RETRY_AFTER_S: Final = 30.0


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815  # as on the wire
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


# What is asked -----------------------------------------------------------------------------------


def path(kind: Kind, key: Key, subresource: str = "") -> str:
    """Return the path of an object; without a name, of all in its namespace or in the cluster."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    segments = ["namespaces", key.namespace] if kind.namespaced and key.namespace else []
    segments += [kind.plural, key.name, subresource]
    return "/".join([root, *(quote(segment, safe="") for segment in segments if segment)])


def url(
    server: str, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]] | None
) -> yarl.URL:
    """Return the address of ``path``, whose parts are quoted already."""
    return yarl.URL(server + path, encoded=True).with_query(query or None)


def query(of: Selection[T]) -> dict[str, str]:
    """Return how a selection is asked for: {"labelSelector": ..., "fieldSelector": ...}."""
    selectors = {"labelSelector": of.labels, "fieldSelector": of.fields}
    return {name: value for name, value in selectors.items() if value}


def typed(kind: Kind, obj: Object) -> Object:
    """Return ``obj`` so that it says what it is."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


# What is answered --------------------------------------------------------------------------------


async def refusal(answer: aiohttp.ClientResponse) -> errors.KubeError:
    """Return what an answer that is no success means, in the server's own words."""
    try:
        said = _OBJECT.decode(await whole(answer, most=MAX_REFUSAL))
    except (*_UNREADABLE, errors.NotReachableError):
        said = {}
    return errors.refusal(
        answer.status, said, retry_after_s=_retry_after(answer.headers.get("Retry-After", ""))
    )


def _retry_after(header: str) -> float | None:
    return min(float(header), _MAX_RETRY_AFTER_S) if header.isdecimal() else None


async def whole(answer: aiohttp.ClientResponse, *, most: int) -> bytes:
    """Return the body. Nothing else reads one: each caller says how much it takes at ``most``.

    Raises:
        NotReachableError: it is larger than ``most`` bytes, or compressed.
    """
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise errors.NotReachableError("the answer is compressed, which was not asked for")
    whole = bytearray()
    async for chunk in answer.content.iter_any():
        whole += chunk
        if len(whole) > most:
            answer.close()
            raise errors.NotReachableError(f"the answer is larger than {most} bytes")
    return bytes(whole)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines that say something.

    Raises:
        ExpiredError: one is larger than ``MAX_EVENT``.
    """
    # Not readline(): its limit depends on the version of aiohttp, and an event may have 3 MB.
    rest: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *whole, last = chunk.split(b"\n")
        for line in whole:
            full, rest, size = b"".join([*rest, line]), [], 0
            if full.strip():
                yield full
        rest.append(last)
        size += len(last)
        if size > MAX_EVENT:
            raise errors.ExpiredError(f"an event is larger than {MAX_EVENT} bytes")


class Page(NamedTuple, Generic[T]):
    """A part of a list; ``token`` asks for the next one, empty after the last."""

    items: dict[Key, T]
    version: str
    token: str


class Shaped(Generic[T]):
    """Decodes the objects of a selection."""

    def __init__(self, of: Selection[T]) -> None:
        self._kind = of.kind
        self._packed = packed(of.shape)
        shape: type[Any] = Object if self._packed else of.shape
        self._decoder = msgspec.json.Decoder(shape)

    def page(self, raw: bytes) -> Page[T]:
        """Return a page of a list."""
        try:
            page = _PAGE.decode(raw)
            items = dict(self._item(item) for item in page.items or [])
        except _UNREADABLE as error:
            raise errors.NotReachableError(f"unreadable list of {self._kind.resource}") from error
        return Page(items, page.metadata.resourceVersion, page.metadata.continue_)

    def event(self, line: bytes) -> Event[T]:
        """Return a line of a watch. What cannot be read might be a deletion: list again."""
        try:
            frame = _FRAME.decode(line)
            if frame.type == "ERROR":
                raise errors.refusal(0, _OBJECT.decode(frame.object))
            meta = _HEAD.decode(frame.object).metadata
            shaped = self._shape(frame.object) if frame.type != "BOOKMARK" else _nothing()
        except _UNREADABLE as error:
            raise errors.ExpiredError(f"unreadable event of {self._kind.resource}") from error
        return Event(frame.type, Key(meta.namespace, meta.name), meta.resourceVersion, shaped)

    def _item(self, raw: msgspec.Raw) -> tuple[Key, T]:
        meta = _HEAD.decode(raw).metadata
        return Key(meta.namespace, meta.name), self._shape(raw)

    def _shape(self, raw: msgspec.Raw) -> Any:
        shaped = self._decoder.decode(raw)
        if isinstance(shaped, dict):
            shaped["metadata"].pop("managedFields", None)
            # Items of a list do not say what they are, events do: here both do.
            shaped.setdefault("apiVersion", self._kind.api_version)
            shaped.setdefault("kind", self._kind.kind)
        return self._packed.of(shaped) if self._packed else shaped


def packed(shape: Any) -> type[Packed] | None:
    """Return ``shape`` if it keeps objects as JSON."""
    return shape if isinstance(shape, type) and issubclass(shape, Packed) else None


def _nothing() -> Any:
    return {}


def decoded(raw: bytes) -> Object:
    """Return the object that ``raw`` is.

    Raises:
        NotReachableError: it is none.
    """
    try:
        return _OBJECT.decode(raw)
    except _UNREADABLE as error:
        raise errors.NotReachableError("the answer is not a JSON object") from error
