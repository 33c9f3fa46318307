"""What goes over the wire to an API server and comes back, bounded, and as bytes until here."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
import yarl

from apis import naming, texts
from apis.objects import Key, Kind, Object
from kube import errors, metrics
from kube.cluster import Event, Selection
from kube.slim import Packed, Version

T = TypeVar("T")
Fit = Callable[[Kind, Object], Object]
logger = logging.getLogger(__name__)

MAX_ANSWER: Final = 64 * 2**20
MAX_EVENT: Final = 16 * 2**20
MAX_REFUSAL: Final = 2**20
FREELY: Final = 2**16
"""Bytes of each answer, and of each line of a watch, that a peer may have read at once."""
LARGE_S: Final = 30.0
"""How long a larger one may take from then on."""
MAX_PARTS: Final = 200_000
"""Objects and lists in one object of a peer: each costs more memory than it has bytes."""
_BESIDE: Final = 1024
"""Bytes that an object which is kept as JSON takes besides: its key, version and places in maps."""
_MOST_OF_A_NAME: Final = 253
"""Characters of a UID or version that are kept: Kubernetes's have 36, and some digits."""
_FREELY_NAMED: Final = frozenset({"rbac.authorization.k8s.io", "certificates.k8s.io"})
"""Groups whose objects may have any name that is a segment of a path, such as ``system:node``."""
_SEGMENT: Final = re.compile(r"[^/%\x00-\x1f\x7f]{1,253}")

_MAX_RETRY_AFTER_S: Final = 30.0


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
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
    """Return the path of an object.

    Raises:
        InvalidError: no object has that key; an empty name would mean all of them.
    """
    if not is_key(kind, key):
        raise errors.InvalidError(f"{kind.resource} {str(key)!r:.300} is not the name of an object")
    rest = f"/{subresource}" if subresource else ""
    return f"{collection(kind, key.namespace)}/{quote(key.name, safe='')}{rest}"


def collection(kind: Kind, namespace: str = "") -> str:
    """Return the path of all objects in a namespace, or in the whole cluster.

    Raises:
        InvalidError: no namespace has that name.
    """
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not kind.namespaced or not namespace:
        return f"{root}/{kind.plural}"
    if not naming.is_dns_label(namespace):
        raise errors.InvalidError(f"{namespace!r:.300} is not the name of a namespace")
    return f"{root}/namespaces/{namespace}/{kind.plural}"


def is_key(kind: Kind, key: Key) -> bool:
    """Whether an object of ``kind`` may have that key."""
    if kind.namespaced and not naming.is_dns_label(key.namespace):
        return False
    if kind.group in _FREELY_NAMED:
        return bool(_SEGMENT.fullmatch(key.name)) and key.name not in {".", ".."}
    return naming.is_dns_subdomain(key.name)


def is_selected(of: Selection[Any], key: Key) -> bool:
    """Whether an object with that key may be among what is selected."""
    return is_key(of.kind, key) and of.namespace in {"", key.namespace}


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


class Turn:
    """What lets one answer of a peer after another be large, and ends one that is slow then.

    All others have at most ``FREELY`` bytes meanwhile: many watches, and lists at once, might take
    all of the memory together. Source: hostile.md H14; part 2, cause 2.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator["Large"]:
        """Yield what takes the turn once it is needed, and gives it back.

        Raises:
            NotReachableError: what is large did not arrive within ``LARGE_S``.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                large = Large(self._lock, limit)
                try:
                    yield large
                finally:
                    large.over()
        except TimeoutError as error:
            if not limit.expired():
                raise  # another limit than that of the turn
            message = f"what is larger than {FREELY} bytes took longer than {LARGE_S:.0f} s"
            raise errors.NotReachableError(message) from error


class Large:
    """One answer, or line of a watch, that may become large."""

    def __init__(self, lock: asyncio.Lock, limit: asyncio.Timeout) -> None:
        self._lock, self._limit, self._holds = lock, limit, False

    async def grown(self, size: int) -> None:
        """Wait for the turn before more than ``FREELY`` bytes are read; ``size`` are."""
        if size > FREELY and not self._holds:
            await self._lock.acquire()
            self._holds = True
            self._limit.reschedule(asyncio.get_running_loop().time() + LARGE_S)

    def over(self) -> None:
        """Give the turn back: what was large has been read."""
        if self._holds:
            self._holds = False
            self._lock.release()
            if not self._limit.expired():
                self._limit.reschedule(None)


@contextlib.asynccontextmanager
async def _in_turn(turn: Turn | None) -> AsyncIterator[Large | None]:
    if turn is None:
        yield None
        return
    async with turn.taken() as large:
        yield large


async def whole(answer: aiohttp.ClientResponse, *, most: int, turn: Turn | None = None) -> bytes:
    """Return the body. Nothing else reads one: each caller says how much it takes at ``most``.

    Of a peer one large answer after another is read, by ``turn``.

    Raises:
        LargerError: it is larger than ``most`` bytes.
        NotReachableError: it is compressed.
    """
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise errors.NotReachableError("the answer is compressed, which was not asked for")
    whole = bytearray()
    async with _in_turn(turn) as large:
        async for chunk in answer.content.iter_any():
            whole += chunk
            if len(whole) > most:
                answer.close()
                raise errors.LargerError(f"the answer is larger than {most} bytes")
            if large is not None:
                await large.grown(len(whole))
        return bytes(whole)


async def lines(
    content: aiohttp.StreamReader, *, most: int, turn: Turn | None = None
) -> AsyncIterator[bytes]:
    """Yield the lines that say something; of a peer one large line after another, by ``turn``.

    Raises:
        ExpiredError: one is larger than ``most`` bytes.
    """
    # Not readline(): its limit depends on the version of aiohttp, and an event may have 3 MB.
    rest: list[bytes] = []
    size = 0
    async with _in_turn(turn) as large:
        async for chunk in content.iter_any():
            *whole, last = chunk.split(b"\n")
            for line in whole:
                full, rest, size = b"".join([*rest, line]), [], 0
                if large is not None:
                    large.over()
                if full.strip():
                    yield full
                full = b""  # who waits for the next line keeps none
            rest.append(last)
            size += len(last)
            if size > most:
                raise errors.ExpiredError(f"an event is larger than {most} bytes")
            if large is not None:
                await large.grown(size)


class Page(NamedTuple, Generic[T]):
    """A part of a list; ``token`` asks for the next one, empty after the last."""

    items: dict[Key, T]
    version: str
    token: str
    sizes: dict[Key, int]
    """Bytes of each item, as they came."""


class Shaped(Generic[T]):
    """Decodes the objects of a selection; of a peer's, ``fitted`` returns what is believed."""

    def __init__(self, of: Selection[T], fitted: Fit | None = None) -> None:
        self._of, self._kind, self._fitted = of, of.kind, fitted
        self._is_told, self._is_of_peer = False, fitted is not None
        self._packed = packed(of.shape)
        shape: type[Any] = Object if self._packed or fitted else of.shape
        self._decoder = msgspec.json.Decoder(shape)

    def page(self, raw: bytes) -> Page[T]:
        """Return a page of a list."""
        try:
            page = _PAGE.decode(raw)
            items: dict[Key, T] = {}
            sizes: dict[Key, int] = {}
            for item in page.items or []:
                meta = _HEAD.decode(item).metadata
                key = self._key(meta)
                if key is not None:
                    items[key], sizes[key] = self._sized(key, meta, item)
        except _UNREADABLE as error:
            raise errors.NotReachableError(f"unreadable list of {self._kind.resource}") from error
        return Page(items, page.metadata.resourceVersion, page.metadata.continue_, sizes)

    def event(self, line: bytes) -> Event[T] | None:
        """Return a line of a watch; None of an object that was not asked for.

        What cannot be read might be a deletion: list again.
        """
        try:
            frame = _FRAME.decode(line)
            if frame.type == "ERROR":
                raise errors.refusal(0, decoded(bytes(frame.object), is_of_peer=self._is_of_peer))
            meta = _HEAD.decode(frame.object).metadata
            if frame.type == "BOOKMARK":
                return Event(
                    frame.type, Key(meta.namespace, meta.name), meta.resourceVersion, _nothing()
                )
            key = self._key(meta)
            if key is None:
                return None
            is_last = frame.type == "DELETED"
            shaped, size = self._sized(key, meta, frame.object, is_last=is_last)
        except _UNREADABLE as error:
            raise errors.ExpiredError(f"unreadable event of {self._kind.resource}") from error
        return Event(frame.type, key, meta.resourceVersion, shaped, size)

    def _key(self, meta: _Meta) -> Key | None:
        """Return whose metadata that is; None of what the selection cannot have, which is told."""
        key = Key(meta.namespace, meta.name)
        if is_selected(self._of, key):
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
            version = Version(meta.uid[:_MOST_OF_A_NAME], meta.resourceVersion[:_MOST_OF_A_NAME])
            noted = self._packed.noted(key, version)
            return noted, _BESIDE + len(noted.packed)
        shaped = self._shape(raw)
        is_packed = isinstance(shaped, Packed)
        return shaped, _BESIDE + (len(shaped.packed) if is_packed else len(memoryview(raw)))

    def _shape(self, raw: msgspec.Raw) -> Any:
        if self._is_of_peer:
            check_parts(bytes(raw))
        shaped = self._decoder.decode(raw)
        if self._fitted is not None:
            shaped = self._fitted(self._kind, shaped)
        if isinstance(shaped, dict):
            shaped["metadata"].pop("managedFields", None)
            # Items of a list do not say what they are, events do: here both do.
            shaped.setdefault("apiVersion", self._kind.api_version)
            shaped.setdefault("kind", self._kind.kind)
        if self._packed:
            return self._packed.cached(shaped)
        is_whole = self._fitted is None or self._of.shape is Object
        return shaped if is_whole else msgspec.convert(shaped, self._of.shape)


def check_parts(raw: bytes) -> None:
    """Raise ValueError if ``raw``, JSON of a peer, would take far more memory than bytes."""
    if raw.count(b"{") + raw.count(b"[") > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS} objects and lists")


def packed(shape: Any) -> type[Packed] | None:
    """Return ``shape`` if it keeps objects as JSON."""
    return shape if isinstance(shape, type) and issubclass(shape, Packed) else None


def _nothing() -> Any:
    return {}


def decoded(raw: bytes, *, is_of_peer: bool = False) -> Object:
    """Return the object that ``raw`` is; of a peer's, one that takes not far more memory.

    Raises:
        NotReachableError: it is none.
    """
    try:
        if is_of_peer:
            check_parts(raw)
        return _OBJECT.decode(raw)
    except _UNREADABLE as error:
        raise errors.NotReachableError("the answer is not a JSON object") from error
