"""What is asked of an API server, and what it answers, unread. Source: docs/decisions/0013 (20)."""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, final
from urllib.parse import quote

import yarl
from multidict import MultiMapping

from apis import naming
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Selection


@final
class UntrustedBytes:
    """Bytes that arrived, whose number is all that code sees of them.

    mypy holds everybody to it: they have no other method, and ``kube.untrusted.decode`` opens them.
    """

    __slots__ = ("_said",)

    def __init__(self, said: bytes) -> None:
        self._said = said

    def __len__(self) -> int:
        return len(self._said)


def said(by: UntrustedBytes) -> bytes:
    """Return the bytes: for ``kube.untrusted.decode`` alone, which a test of all sources holds."""
    return by._said  # noqa: SLF001  # the way in, in one place


# What goes over the wire to an API server ---------------------------------------------------------

T = TypeVar("T")

MAX_ANSWER: Final = 64 * 2**20
MAX_EVENT: Final = 16 * 2**20
FREELY: Final = 2**15
"""Bytes of each answer, and of each line of a watch, that a peer may have read at once."""
LARGE_S: Final = 30.0
"""How long a larger one may take from then on."""
_FREELY_NAMED: Final = frozenset({"rbac.authorization.k8s.io", "certificates.k8s.io"})
"""Groups whose objects may have any name that is a segment of a path, such as ``system:node``."""
_SEGMENT: Final = re.compile(r"[^/%\x00-\x1f\x7f]{1,253}")


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
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


# What is answered --------------------------------------------------------------------------------


class Body(Protocol):
    """The bytes of an answer as they come."""

    def iter_any(self) -> AsyncIterator[bytes]: ...


class HttpAnswer(Protocol):
    """The head of an answer, by whichever version of HTTP, and what its body is read from."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> MultiMapping[str]: ...

    @property
    def content(self) -> Body: ...

    def close(self) -> None: ...


class Turn:
    """What lets one answer of a peer after another be large, and ends one that is slow then.

    All others have at most ``FREELY`` bytes meanwhile: many watches, and lists at once, might take
    all of the memory together. Source: docs/parity.md H14; part 2, cause 2.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator["Large"]:
        """Yield what takes the turn once it is needed, and gives it back.

        Raises:
            SlowError: what is large did not arrive within ``LARGE_S``.
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
            raise errors.SlowError(message) from error


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


def _check_encoding(answer: HttpAnswer) -> None:
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise errors.NotReachableError("the answer is compressed, which was not asked for")


async def whole(answer: HttpAnswer, *, most: int, turn: Turn | None = None) -> UntrustedBytes:
    """Return the body: each caller says how much it takes at ``most``.

    Of a peer one large answer after another is read, by ``turn``.

    Raises:
        LargerError: it is larger than ``most`` bytes.
        SlowError: it came in part only before the time was over.
        NotReachableError: it is compressed.
    """
    _check_encoding(answer)
    whole = bytearray()
    try:
        async with _in_turn(turn) as large:
            async for chunk in answer.content.iter_any():
                whole += chunk
                del chunk
                if len(whole) > most:
                    answer.close()
                    raise errors.LargerError(f"the answer is larger than {most} bytes")
                if large is not None:
                    await large.grown(len(whole))
            return UntrustedBytes(bytes(whole))
    except TimeoutError as error:
        if not whole:
            raise
        raise errors.SlowError(f"{len(whole)} bytes of an answer came in time") from error
    finally:
        # An answer that breaks off and its error refer to each other, and to this frame: they stay
        # until the collector finds them.
        whole.clear()


async def whole_lines(
    answer: HttpAnswer, *, most: int, longest: int
) -> AsyncIterator[UntrustedBytes]:
    """Yield the body as it arrives, whole lines at a time, of those larger than ``longest`` a part.

    Raises:
        LargerError: it is larger than ``most`` bytes.
        NotReachableError: it is compressed.
    """
    _check_encoding(answer)
    rest, size = bytearray(), 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > most:
            answer.close()
            raise errors.LargerError(f"the answer is larger than {most} bytes")
        end = chunk.rfind(b"\n") + 1
        if end:
            yield UntrustedBytes(bytes(rest + chunk[:end]))
            rest.clear()
        rest += chunk[end:]
        del rest[longest + 1 :]
    yield UntrustedBytes(bytes(rest))


async def lines(
    content: Body, *, most: int, turn: Turn | None = None
) -> AsyncIterator[UntrustedBytes]:
    """Yield the lines that say something; of a peer one large line after another, by ``turn``.

    Raises:
        ExpiredError: one is larger than ``most`` bytes.
    """
    # Not readline(): its limit depends on the version of aiohttp, and an event may have 3 MB.
    rest: list[bytes] = []
    size = 0
    try:
        async with _in_turn(turn) as large:
            async for chunk in content.iter_any():
                parts = deque(chunk.split(b"\n"))
                del chunk  # while the next one is waited for, only what begins a line is kept
                while len(parts) > 1:
                    full, size = b"".join([*rest, parts.popleft()]), 0
                    rest.clear()
                    if large is not None:
                        large.over()
                    if full.strip():
                        yield UntrustedBytes(full)
                    del full
                size += len(parts[0])
                rest.append(parts.pop())
                if size > most:
                    raise errors.ExpiredError(f"an event is larger than {most} bytes")
                if large is not None:
                    await large.grown(size)
    finally:
        rest.clear()  # as in ``whole``
