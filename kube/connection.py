"""Who we are to an API server, and the sockets to it: counted, and closed when idle."""

import asyncio
import contextlib
import functools
import logging
import os
import socket
import ssl
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import connector
from multidict import CIMultiDict

from apis import texts
from kube import errors, memory, wire
from kube.credentials import Access

CALLS_AT_ONCE: Final = 64
BUFFER: Final = 2**20
"""Bytes that are read ahead of each answer of the own API server."""
_CLOSING_S: Final = 1.0
"""How long a server may take to say that it, too, ends a TLS connection."""
_GOODBYE_S: Final = 1.0
"""How long the other end of a WebSocket may take to close it, too."""
_LOOK_S: Final = 0.005
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # A peer that vanished without a word is found out after 15 + 3 x 10 s.
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNREAD_MS: Final = 45_000
"""How long a server may take nothing of a request: none is read late."""

# As it is imported, aiohttp reads all authorities of the machine for who says nothing of TLS: 1 MiB
# of each daemon. Here everybody says whom to trust; who does not trusts nobody.
connector._SSL_CONTEXT_VERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # noqa: SLF001


_REASON: Final = 100
"""Characters of what a server or proxy gives as the reason of its status."""
_IN_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "no answer in time"),
    (aiohttp.ServerDisconnectedError, "it closed the connection without an answer"),
    (aiohttp.ClientPayloadError, "it closed the connection in the middle of an answer"),
    (ConnectionRefusedError, "nothing listens there (connection refused)"),
    (ConnectionResetError, "it broke off the connection"),
    (BrokenPipeError, "it broke off the connection"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (socket.gaierror, "its name leads nowhere"),
)


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
    if isinstance(cause, aiohttp.ClientResponseError):  # its text has the URL, password and all
        who = "the proxy" if isinstance(cause, aiohttp.ClientHttpProxyError) else "it"
        return f"{who} answered {cause.status} {cause.message[:_REASON]}".rstrip()
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
    """Requests as one identity: those that end, and those that last (watches, logs)."""

    def __init__(self, access: Access, user_agent: str, *, buffer: int = BUFFER) -> None:
        """``buffer`` bytes of each answer are read ahead, twice as many at most."""
        self.access = access
        headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._of_calls = functools.partial(
            _session, access, headers, buffer, limit=CALLS_AT_ONCE, made=self._sockets.add
        )
        self._calls = self._of_calls()
        self._under_way: Counter[aiohttp.ClientSession] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._lasting = _session(access, headers, buffer, limit=0, made=self._sockets.add)
        self._watches: set[wire.HttpAnswer] = set()
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_retired = self._is_closed = False

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        url: yarl.URL,
        *,
        is_watch: bool = False,
        is_lasting: bool = False,
        **rest: Any,
    ) -> AsyncIterator[wire.HttpAnswer]:
        """Send a request; redirects are not followed, and answers not inflated."""
        session = self._lasting if is_lasting or is_watch else self._calls
        identity = self._identity(rest)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._counted())
            stack.enter_context(self._using(session))
            answer: wire.HttpAnswer = await stack.enter_async_context(
                session.request(method, url, allow_redirects=False, **{**rest, **identity})
            )
            if is_watch:
                stack.enter_context(self._watching(answer))
            yield answer

    @contextlib.asynccontextmanager
    async def websocket(
        self, what: str, url: yarl.URL, *, most: int, within_s: float | None = None, **rest: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, within so many seconds; a message of ``most`` bytes or more ends it.

        Raises:
            KubeError: the server refused ``what``.
        """
        with self._counted():
            opening = self._lasting.ws_connect(url, max_msg_size=most, **rest, **self._identity({}))
            try:
                async with asyncio.timeout(within_s):
                    opened = await opening
            except aiohttp.WSServerHandshakeError as error:
                raise errors.refusal(error.status, {"message": what}) from error
            try:
                yield opened
            finally:
                # A server that goes on talking would be listened to until it says goodbye.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GOODBYE_S):
                        await opened.close()

    def start_anew(self) -> None:
        """Let calls open new connections, as those there are may lead nowhere; no watch ends."""
        if not self._is_closed:
            old, self._calls = self._calls, self._of_calls()
            self._let_go(old)

    @contextlib.contextmanager
    def _using(self, session: aiohttp.ClientSession) -> Iterator[None]:
        self._under_way[session] += 1
        try:
            yield
        finally:
            self._under_way[session] -= 1
            self._let_go(session)

    def _let_go(self, session: aiohttp.ClientSession) -> None:
        """Close ``session`` if another took its place and nothing is under way on it."""
        if self._under_way[session] > 0:
            return
        del self._under_way[session]
        if session not in {self._calls, self._lasting}:
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

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
        # One after another: each is closed also when the one who closes them is cancelled, which
        # tasks that have not begun yet would not be.
        async with contextlib.AsyncExitStack() as stack:
            for session in {self._calls, self._lasting, *self._under_way}:
                stack.push_async_callback(session.close)
            if self._closing:
                await asyncio.wait(self._closing)
        # A TLS socket left in the middle of a watch closes when the server has answered to that.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Let no server send a WebSocket elsewhere: aiohttp has no flag for that, as for requests."""
    answer = await handler(request)
    if answer.status in _REDIRECTS and "Upgrade" in request.headers:
        answer.close()
        raise aiohttp.WSServerHandshakeError(
            answer.request_info, answer.history, status=answer.status, message="redirect"
        )
    return answer


def _session(
    access: Access,
    headers: dict[str, str],
    buffer: int,
    *,
    limit: int,
    made: Callable[[socket.socket], None],
) -> aiohttp.ClientSession:
    def opened(address: Any) -> socket.socket:
        new = _socket(address)
        made(new)
        return new

    connector = aiohttp.TCPConnector(
        limit=limit,
        ssl=access.tls if access.tls is not None else True,
        socket_factory=opened,
        keepalive_timeout=60,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        trust_env=False,  # looking for proxies costs 2.6 times the CPU
        auto_decompress=False,
        middlewares=(_refuse_redirects,),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=buffer,
    )


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
