"""Requests to one API server: bounded in number and time, sent again where that is safe.

None is sent while the server is known to be silent; every failure to reach it is one error.
"""

import asyncio
import contextlib
import functools
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Histogram

from kube import errors, memory, metrics, wire
from kube.connection import BUFFER, Connection, CurrentConnection, failure, failures
from kube.credentials import Access
from kube.http2 import Within
from kube.reachability import Reachability
from kube.untrusted import decode
from kube.wire import UntrustedBytes

if TYPE_CHECKING:
    import aiohttp

CALL_S: Final = 30.0
CONNECT_S: Final = 5.0
PROBE_S: Final = 3.0
BULK_AT_ONCE: Final = 32
"""Requests in flight; leases and nodes do not wait for their turn behind these."""

MAX_REFUSAL: Final = 2**20
_MAX_RETRY_AFTER_S: Final = 30.0
_RETRIES: Final = 3
_WAIT_HERE_S: Final = 5.0
_SPREAD_S: Final = 0.5
_FIRST: Final = frozenset({"leases", "nodes"})
_SUCCESS: Final = range(200, 300)
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""Source: Kubernetes blog, "Warning: Helpful Warnings Ahead"; RFC 7234, section 5.5."""
_UNAUTHORIZED, _TOO_MANY, _UNAVAILABLE = 401, 429, 503


async def refusal(answer: wire.HttpAnswer) -> errors.KubeError:
    """Return what an answer that is no success means, in the server's own words."""
    try:
        said = await wire.whole(answer, most=MAX_REFUSAL)
    except errors.NotReachableError:
        said = UntrustedBytes(b"")
    again_s = _retry_after(answer.headers.get("Retry-After", ""))
    return decode.refusal(answer.status, said, retry_after_s=again_s)


def _retry_after(header: str) -> float | None:
    return min(float(header), _MAX_RETRY_AFTER_S) if header.isdecimal() else None


def _warnings(answer: wire.HttpAnswer) -> Iterator[str]:
    for header in answer.headers.getall("Warning", ()):
        for quoted in _WARNING.findall(header):
            yield re.sub(r"\\(.)", r"\1", quoted)


class Transport:
    """The way to one API server, in the name of ``access``."""

    def __init__(
        self,
        access: Access,
        user_agent: str,
        *,
        most: int = wire.MAX_ANSWER,
        turn: wire.Turn | None = None,
    ) -> None:
        """``most`` bytes of an answer are read; of a peer large ones by ``turn``."""
        self._most, self._turn = most, turn
        self.reach = Reachability(self._probe, self._start_anew)
        buffer = BUFFER if turn is None else wire.FREELY
        self.identity = CurrentConnection(access, user_agent, self.reach.is_another, buffer=buffer)
        self._bulk = asyncio.Semaphore(BULK_AT_ONCE)
        self.on_warning: Callable[[str], None] | None = None

    async def close(self) -> None:
        try:
            await self.reach.close()
        finally:
            await self.identity.close()

    async def request(
        self, verb: str, resource: str, method: str, path: str, **rest: Any
    ) -> UntrustedBytes:
        """Return the whole answer; what the server could not take in now is sent again.

        Shape: ``verb`` and ``resource`` are how it is counted; ``rest`` is as for ``answer``.

        Raises:
            KubeError: the server refused, or did not answer in time.
        """
        turn = self._first() if resource in _FIRST else self._bulk
        self._check_reach(f"{method} {path}")
        async with deadline(CALL_S + _RETRIES * _WAIT_HERE_S, f"{method} {path}"), turn:
            for attempt in range(_RETRIES + 1):
                try:
                    return await self._once(verb, resource, method, path, **rest)
                except errors.BusyError as error:
                    if attempt == _RETRIES or not _is_worth_waiting(error, method):
                        raise
                    await asyncio.sleep(error.retry_after_s)
        raise AssertionError  # pragma: no cover  # the last attempt raises

    @contextlib.asynccontextmanager
    async def lasting(
        self, verb: str, resource: str, method: str, path: str, *, idle_s: float | None, **rest: Any
    ) -> AsyncIterator[wire.HttpAnswer]:
        """Open an answer that the caller reads, however long it is.

        Units: ``idle_s`` without a byte end it; None waits for ever.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        within = Within(connect_s=CONNECT_S, idle_s=idle_s)
        async with self._answer(verb, resource, method, path, timeout=within, **rest) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def websocket(
        self,
        what: str,
        path: str,
        query: Mapping[str, str] | Sequence[tuple[str, str]],
        **rest: Any,
    ) -> AsyncIterator[tuple["aiohttp.ClientWebSocketResponse", Connection]]:
        """Open a WebSocket for ``what``, in words; return on which connection, too.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        connection = await self.identity.current()
        url = wire.url(connection.access.server, path, query)
        with self._translated(what):
            async with connection.websocket(what, url, **rest) as socket:
                yield socket, connection

    @contextlib.asynccontextmanager
    async def _first(self) -> AsyncIterator[None]:
        """Let what must be in time wait for nobody; what was not is followed on new connections.

        Anybody who gives up waiting for an answer, as a lease does, cancels its request.
        """
        try:
            yield
        except (asyncio.CancelledError, errors.NotReachableError):
            self.identity.connection.start_anew()
            raise

    async def wait_for_return(self, what: str) -> None:
        """Let lists and watches, which follow for ever, go on the moment the server is back.

        Raises:
            NotReachableError: it is not back within ``CALL_S``.
        """
        if self.reach.is_lost and await self.reach.wait(CALL_S):
            await asyncio.sleep(secrets.SystemRandom().uniform(0, _SPREAD_S))
        self._check_reach(what)

    def _check_reach(self, what: str) -> None:
        if self.reach.is_lost:
            server, seconds = self.identity.access.server, f"{self.reach.lost_s():.0f} s"
            raise errors.NotReachableError(f"{what}: {server} is silent for {seconds}")

    def _start_anew(self) -> None:
        # What was sent meanwhile on the old ones may wait for minutes for TCP to try again.
        self.identity.replace(self.identity.access)

    async def _probe(self) -> bool:
        access = self.identity.access
        connection = Connection(access, self.identity.user_agent)
        try:
            async with (
                asyncio.timeout(PROBE_S),
                connection.request("GET", wire.url(access.server, "/livez", None)),
            ):
                return True  # whatever it says
        except failures() as error:
            # Who cannot ask has learnt nothing.
            return memory.are_descriptors_used_up(error) and not self.reach.is_lost
        finally:
            await connection.close()

    async def _once(
        self, verb: str, resource: str, method: str, path: str, most: int | None = None, **rest: Any
    ) -> UntrustedBytes:
        within = Within(CALL_S, CONNECT_S)
        async with self._answer(verb, resource, method, path, timeout=within, **rest) as answer:
            if self.on_warning is not None:
                for text in _warnings(answer):
                    self.on_warning(text)
            return await wire.whole(answer, most=most or self._most, turn=self._turn)

    @contextlib.asynccontextmanager
    async def _answer(
        self, verb: str, resource: str, method: str, path: str, **rest: Any
    ) -> AsyncIterator[wire.HttpAnswer]:
        what = f"{method} {self.identity.access.server}{path}"
        async with contextlib.AsyncExitStack() as stack:
            with self._translated(what):
                rest["is_first"] = resource in _FIRST
                with _measured(verb, resource) as codes:
                    answer = await self._open(stack, method, path, **rest)
                    codes.append(answer.status)
                if answer.status not in _SUCCESS:
                    raise await refusal(answer)
                yield answer

    async def _open(
        self,
        stack: contextlib.AsyncExitStack,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> wire.HttpAnswer:
        connection = await self.identity.current()
        who = connection.access
        answer = await stack.enter_async_context(
            connection.request(method, wire.url(connection.access.server, path, query), **rest)
        )
        if answer.status != _UNAUTHORIZED or not await self.identity.renew_after(who):
            return answer
        answer.close()
        connection = self.identity.connection
        return await stack.enter_async_context(
            connection.request(method, wire.url(connection.access.server, path, query), **rest)
        )

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except failures() as error:
            failed = failure(what, error)
            if isinstance(failed, errors.NotReachableError):
                self.reach.doubt()
            raise failed from error


@contextlib.asynccontextmanager
async def deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Give ``what``, in words, so long; then it is a NotReachableError."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise errors.NotReachableError(f"{what}: no answer in {seconds:.0f} s") from error


def _is_worth_waiting(error: errors.BusyError, method: str) -> bool:
    # 429 was not processed, whatever it was; of the rest only a read may be sent again.
    is_safe = error.status == _TOO_MANY or (method == "GET" and error.status == _UNAVAILABLE)
    return is_safe and error.retry_after_s <= _WAIT_HERE_S


@contextlib.contextmanager
def _measured(verb: str, resource: str) -> Iterator[list[int]]:
    began, codes = time.monotonic(), [0]
    try:
        yield codes
    finally:
        _metrics_of(verb, resource, codes[-1]).inc()
        _seconds_of(verb).observe(time.monotonic() - began)


@functools.cache
def _metrics_of(verb: str, resource: str, code: int) -> Counter:
    return metrics.REQUESTS.labels(verb, resource, str(code))


@functools.cache
def _seconds_of(verb: str) -> Histogram:
    return metrics.REQUEST_SECONDS.labels(verb)
