"""Who we are to an API server, and the sockets to it: counted, and closed when idle.

HTTP/2 where the server speaks it, with one connection for calls, one for leases and nodes, and one
for a hundred of what lasts; else, by a proxy, and for WebSockets HTTP/1.1. Source: decision 0018.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import aiohappyeyeballs
import yarl
from multidict import CIMultiDict

from apis import texts
from kube import errors, http2, memory, wire
from kube.credentials import Access
from kube.http2 import Http2Connection, Http2Pool, Window, Within

if TYPE_CHECKING:
    import aiohttp

    from kube.http1 import Http1Client

CALLS_AT_ONCE: Final = 64
BUFFER: Final = 2**20
"""Bytes that are read ahead of each answer of the own API server."""
_MOST_WINDOW: Final = 2**24
"""The same of a call by HTTP/2, as long as all of it is read: 12 MB take no longer than before."""
_WATCH_WINDOW: Final = 2**16
"""Of what lasts, by HTTP/2, where hundreds are open."""
_OTHER_ADDRESS_S: Final = 0.25
"""How long one address of a server is waited for before another is tried, too."""
_CLOSING_S: Final = 1.0
"""How long a server may take to say that it, too, ends a TLS connection."""
_LOOK_S: Final = 0.005
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # A peer that vanished without a word is found out after 15 + 3 x 10 s.
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_UNREAD_MS: Final = 45_000
"""How long a server may take nothing of a request: none is read late."""

_CALLS, _FIRST, _LASTING = range(3)
_IN_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "no answer in time"),
    (http2.DisconnectedError, "it closed the connection without an answer"),
    (http2.BrokenOffError, "it closed the connection in the middle of an answer"),
    (ConnectionRefusedError, "nothing listens there (connection refused)"),
    (ConnectionResetError, "it broke off the connection"),
    (BrokenPipeError, "it broke off the connection"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (socket.gaierror, "its name leads nowhere"),
)


def failures() -> tuple[type[BaseException], ...]:
    """Return what a request to a server, or its answer, may raise; aiohttp's if that is used."""
    aiohttp_ = sys.modules.get("aiohttp")
    return (TimeoutError, OSError, *([aiohttp_.ClientError] if aiohttp_ else []))


def in_words(error: BaseException) -> str:
    """Return why a server was not reached, for people; the type of ``error`` is no word for them.

    What the system adds follows: the text of a refused certificate, of an unknown name.
    """
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    for kind, words in _IN_WORDS:
        if isinstance(cause, kind):
            told = getattr(cause, "verify_message", "") or (
                cause.strerror if isinstance(cause, socket.gaierror) else ""
            )
            return f"{words}: {told}" if told else words
    if "kube.http1" in sys.modules:
        from kube import http1  # noqa: PLC0415  # as it is there

        if words := http1.in_words(cause):
            return words
    number = getattr(cause, "errno", None)
    return (
        os.strerror(number)
        if number
        else texts.without_userinfo(str(cause)) or type(cause).__name__
    )


def failure(what: str, error: BaseException) -> errors.KubeError:
    """Return what it means that ``what``, in words, had no answer: it may be our own fault."""
    if memory.are_descriptors_used_up(error):
        return errors.ExhaustedError(f"{what}: {memory.descriptors_in_words()}")
    is_late = type(error) is TimeoutError and error.errno is None  # connected, and none broke it
    kind = errors.UnansweredError if is_late else errors.NotReachableError
    return kind(f"{what}: {in_words(error)}")


class Connection:
    """Requests as one identity: calls, those that do not wait for others, what lasts (watches)."""

    def __init__(self, access: Access, user_agent: str, *, buffer: int = BUFFER) -> None:
        """``buffer`` bytes of each answer are read ahead, twice as many at most."""
        self.access = access
        self._buffer = buffer
        self._said = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._headers = {**self._said, "Accept": "*/*"}
        calls, lasting = Window(16 * buffer, _MOST_WINDOW), min(buffer, _WATCH_WINDOW)
        self._pools = {
            _CALLS: Http2Pool(self._dialed, calls),
            _FIRST: Http2Pool(self._dialed, calls),
            _LASTING: Http2Pool(self._dialed, Window(lasting, lasting)),
        }
        self._is_http2 = access.tls_http2 is not None and not access.proxy
        self._watches: set[wire.HttpAnswer] = set()
        self._http1: Http1Client | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_retired = self._is_closed = False

    @property
    def has_pings(self) -> bool:
        """Whether HTTP/2's PING asks the API server itself, as far as is known.

        It has seen our certificate, which no proxy that ends TLS can pass on, as it can a token.
        """
        return self._is_http2 and not self.access.authorization

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        url: yarl.URL,
        *,
        is_watch: bool = False,
        is_lasting: bool = False,
        is_first: bool = False,
        **rest: Any,
    ) -> AsyncIterator[wire.HttpAnswer]:
        """Send a request; redirects are not followed, and answers not inflated.

        One that ``is_first`` waits for no other behind which it would arrive late.
        """
        is_lasting = is_lasting or is_watch
        pool = self._pools[_LASTING if is_lasting else _FIRST if is_first else _CALLS]
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._counted())
            answer: wire.HttpAnswer | None = await self._by_http2(pool, method, url, **rest)
            if answer is not None:
                stack.callback(answer.close)
            else:
                rest |= self._identity(rest)
                within = rest.pop("timeout", None)
                answer = await stack.enter_async_context(
                    self._by_http1().request(method, url, within, is_lasting=is_lasting, **rest)
                )
            if is_watch:
                stack.enter_context(self._watching(answer))
            yield answer

    async def _by_http2(
        self, pool: Http2Pool, method: str, url: yarl.URL, **rest: Any
    ) -> http2.Http2Answer | None:
        """Return the answer by HTTP/2, None where that is not spoken."""
        if not self._is_http2:
            return None
        head = [
            (":method", method),
            (":scheme", url.scheme),
            (":authority", url.host_port_subcomponent or ""),
            (":path", url.raw_path_qs),
        ]
        body = rest.get("data") or b""
        headers = self._identity(rest)["headers"]
        for name, value in self._headers.items():
            headers.setdefault(name, value)
        if body:
            headers["Content-Length"] = str(len(body))
        head += [(name.lower(), value) for name, value in headers.items()]
        try:
            return await pool.request(head, body, rest.get("timeout") or Within())
        except http2.NotSpokenError:
            self._is_http2 = False
            return None

    async def _dialed(self, made: Callable[[], Http2Connection]) -> Http2Connection:
        loop, url = asyncio.get_running_loop(), yarl.URL(self.access.server)
        host, port = url.host or "", url.port or 0
        try:
            found = socket.getaddrinfo(  # of an address, without a look-up
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            found = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        opened = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=_OTHER_ADDRESS_S, interleave=1, socket_factory=_socket
        )
        self._sockets.add(opened)
        _, connection = await loop.create_connection(
            made,
            sock=opened,
            ssl=self.access.tls_http2,
            server_hostname=self.access.server_name or host.rstrip("."),
        )
        return connection

    def _by_http1(self) -> "Http1Client":
        if self._is_closed:
            raise ConnectionError("Connection closed")
        if self._http1 is None:
            from kube.http1 import Http1Client  # noqa: PLC0415  # see there

            self._http1 = Http1Client(
                self.access, self._said, self._buffer, self._opened, at_once=CALLS_AT_ONCE
            )
        return self._http1

    def _opened(self, address: Any) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    @contextlib.asynccontextmanager
    async def websocket(
        self,
        what: str,
        url: yarl.URL,
        *,
        most: int,
        within_s: float | None = None,
        close_s: float = 10.0,
        **rest: Any,
    ) -> AsyncIterator["aiohttp.ClientWebSocketResponse"]:
        """Open a WebSocket, within so many seconds; a message of ``most`` bytes or more ends it.

        Raises:
            KubeError: the server refused ``what``.
        """
        rest |= {"max_msg_size": most, **self._identity({})}
        with self._counted():
            async with self._by_http1().websocket(
                what, url, within_s=within_s, close_s=close_s, **rest
            ) as opened:
                yield opened

    def start_anew(self) -> None:
        """Let calls open new connections, as those there are may lead nowhere; no watch ends."""
        if not self._is_closed:
            if self._http1 is not None:
                self._http1.start_anew()
            for each in (_CALLS, _FIRST):
                self._pools[each].let_go()

    def _identity(self, rest: dict[str, Any]) -> dict[str, Any]:
        headers = CIMultiDict[str](rest.get("headers") or {})
        if self.access.authorization:
            headers["Authorization"] = self.access.authorization
        headers.extend(self.access.impersonation)
        identity: dict[str, Any] = {"headers": headers}
        if self.access.server_name:
            identity["server_hostname"] = self.access.server_name
        if self.access.proxy:
            identity["proxy"] = self.access.proxy
        return identity

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    @contextlib.contextmanager
    def _watching(self, answer: wire.HttpAnswer) -> Iterator[None]:
        self._watches.add(answer)
        if self._is_retired:
            answer.close()
        try:
            yield
        finally:
            self._watches.discard(answer)

    async def retire(self) -> None:
        """End the watches, let the rest finish, and close."""
        self._is_retired = True
        for answer in list(self._watches):
            answer.close()
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """Close all sockets; return once they are, or the server takes too long to agree."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()
        if self._http1 is not None:
            await self._http1.close()
        # A TLS socket left in the middle of a watch closes when the server has answered to that.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)


def _socket(address: Any) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    keep_alive(made)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    return made


def keep_alive(of: socket.socket) -> None:
    """Let the kernel find out when the other side of ``of`` vanishes without a word.

    One that is there and reads nothing, as a process in a container may for hours, is no such side.
    """
    for level, option, value in _KEEP_ALIVE:
        of.setsockopt(level, option, value)


# Who we are to an API server ----------------------------------------------------------------------

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 10.0
"""How often credentials are looked at, whether they are outdated."""


class CurrentConnection:
    """Follows ``access`` as its credentials are renewed; connections of before end in peace."""

    def __init__(
        self,
        access: Access,
        user_agent: str,
        on_change: Callable[[], None] = lambda: None,
        *,
        buffer: int = BUFFER,
    ) -> None:
        """``on_change`` is called when we have become somebody else."""
        self.user_agent, self._buffer = user_agent, buffer
        self._on_change = on_change
        self.connection = Connection(access, user_agent, buffer=buffer)
        """The one for what is new; anybody who waited meanwhile asks ``current``."""
        self._retiring: dict[asyncio.Task[None], Connection] = {}
        self._renewing = asyncio.Lock()
        self._looked = time.monotonic()

    @property
    def access(self) -> Access:
        return self.connection.access

    async def close(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for task, old in self._retiring.items():
                task.cancel()
                stack.push_async_callback(old.close)
            stack.push_async_callback(self.connection.close)

    def replace(self, access: Access) -> None:
        """Go on as ``access``: watches open again, other requests finish as who they began."""
        old = self.connection
        self.connection = Connection(access, self.user_agent, buffer=self._buffer)
        task = asyncio.get_running_loop().create_task(old.retire())
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)
        self._tell(old.access)

    async def current(self) -> Connection:
        """Return the connection; every ten seconds look first whether we are outdated."""
        now = time.monotonic()
        if now - self._looked > LOOK_AGAIN_S:
            self._looked = now
            if self.access.is_outdated():
                async with self._renewing:
                    await self._renew()
        return self.connection

    async def renew_after(self, refused: Access) -> bool:
        """Whether we are somebody else than who was refused, once our identity was read again."""
        async with self._renewing:  # one reading for all that were refused together
            return self.access is not refused or await self._renew()

    async def _renew(self) -> bool:
        old = self.access
        if old.renew is None:
            return False
        try:
            new = await old.renew()
        except (errors.KubeError, ValueError, OSError) as error:
            logger.warning("kept credentials that may be outdated", extra={"error": str(error)})
            return False
        if new.digest != old.digest:
            self.replace(new)
        else:
            self.connection.access = new
            self._tell(old)
        return _who(new) != _who(old)

    def _tell(self, old: Access) -> None:
        if _who(self.access) != _who(old):
            self._on_change()


def _who(someone: Access) -> tuple[str, str]:
    return someone.digest, someone.authorization
