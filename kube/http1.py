"""HTTP/1.1 to one API server, and WebSockets: where a server, or the way to it, has no HTTP/2.

It is imported at the first request that needs it: aiohttp takes 7 to 8 MiB of a process.
"""

import asyncio
import contextlib
import functools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import connector

from kube import errors
from kube.credentials import Access
from kube.http2 import Within

_GOODBYE_S: Final = 1.0
"""How long the other end of a WebSocket may take to close it, too."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REASON: Final = 100
"""Characters of what a server or proxy gives as the reason of its status."""

# As it is imported, aiohttp reads all authorities of the machine for who says nothing of TLS: 1 MiB
# of each daemon. Here everybody says whom to trust; who does not trusts nobody.
connector._SSL_CONTEXT_VERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # noqa: SLF001


def in_words(error: BaseException) -> str:
    """Return what an error of aiohttp says to people; empty of any other."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "it closed the connection in the middle of an answer"
    if isinstance(error, aiohttp.ClientResponseError):  # its text has the URL, password and all
        who = "the proxy" if isinstance(error, aiohttp.ClientHttpProxyError) else "it"
        return f"{who} answered {error.status} {error.message[:_REASON]}".rstrip()
    return ""


class Http1Client:
    """Two pools of connections: calls begin anew on theirs, and what lasts has the other."""

    def __init__(
        self, access: Access, headers: dict[str, str], buffer: int, opened: Any, *, at_once: int
    ) -> None:
        """``opened`` makes the socket to an address; ``at_once`` calls are under way at most."""
        self._of_calls = functools.partial(
            _session, access, headers, buffer, limit=at_once, opened=opened
        )
        self._calls = self._of_calls()
        self._lasting = _session(access, headers, buffer, limit=0, opened=opened)
        self._under_way: Counter[aiohttp.ClientSession] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: yarl.URL, within: Within | None, *, is_lasting: bool, **rest: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; redirects are not followed."""
        if within is not None:
            total, connect_s, idle_s = within
            rest["timeout"] = aiohttp.ClientTimeout(
                total=total, connect=connect_s, sock_connect=connect_s, sock_read=idle_s
            )
        session = self._lasting if is_lasting else self._calls
        with self._using(session):
            async with session.request(method, url, allow_redirects=False, **rest) as answer:
                yield answer

    @contextlib.asynccontextmanager
    async def websocket(
        self, what: str, url: yarl.URL, *, within_s: float | None, close_s: float, **rest: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, within so many seconds.

        Raises:
            KubeError: the server refused ``what``.
        """
        closing = aiohttp.ClientWSTimeout(ws_close=close_s)
        opening = self._lasting.ws_connect(url, timeout=closing, **rest)
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
        """Let calls open new connections; those under way end on the old ones."""
        old, self._calls = self._calls, self._of_calls()
        self._let_go(old)

    async def close(self) -> None:
        # One after another: each is closed also when the one who closes them is cancelled, which
        # tasks that have not begun yet would not be.
        async with contextlib.AsyncExitStack() as stack:
            for session in {self._calls, self._lasting, *self._under_way}:
                stack.push_async_callback(session.close)
            if self._closing:
                await asyncio.wait(self._closing)

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
    opened: Callable[[Any], Any],
) -> aiohttp.ClientSession:
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
