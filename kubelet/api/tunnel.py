"""A connection to an API server that stops being HTTP: heads are exchanged, then bytes pass.

What passes is never looked at: SPDY and WebSocket, of any version, are the same here. asyncio's own
loop is required: uvloop loses the tail of a TLS stream that is closed with data buffered.
Source: KEP-4006; docs/parity.md SEC-B4, SEC-B8, SEC-B10.
"""

import asyncio
import base64
import contextlib
import fcntl
import http.client
import io
import socket
import sys
import termios
from collections.abc import AsyncIterator, Iterable
from typing import Final, cast
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
import msgspec
import yarl

from apis import texts
from apis.objects import Object
from kube import connection, errors
from kube.credentials import Access

MAX_HEAD: Final = 2**16
UNREAD_S: Final = 60.0
"""How long nobody may take anything of what is left of a stream that ended, before that is lost."""
_LOOK_S: Final = 0.01
_STATE: Final = (socket.IPPROTO_TCP, socket.TCP_INFO)
_CLOSE_WAIT: Final = 8
"""In Linux' include/net/tcp_states.h."""


class TunnelEnd(asyncio.Protocol):
    """One end of a tunnel: what it receives goes to ``other``, no faster than that one takes it.

    Before it has another end it keeps what comes, a head's worth of it.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: TunnelEnd | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.heard_at = loop.time()
        """When something came last, by the clock of the loop."""
        self._now = loop.time
        self._early = bytearray()
        self._news = asyncio.Event()
        self._is_over = False
        self._is_closing = False
        self._why: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._now()
        if self.other is not None:
            self.other.send(data)
            return
        self._early += data
        if len(self._early) > MAX_HEAD and self.transport is not None:
            self.transport.pause_reading()
        self._news.set()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        self._over()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._why = exc
        self.transport = None  # nobody closes it again: before Python 3.11.4 that is an error
        self._over()
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, data: bytes) -> None:
        """Send ``data``; nothing to who has ended, since a write that fails drops what he said."""
        if self.transport is not None and not _has_ended(self.transport):
            self.transport.write(data)

    def close(self) -> None:
        """Send what is buffered, and close once the machine of the other side has it.

        Not before: TLS that is told the end by us takes the next byte that comes for a failure,
        such as a ping of SPDY, and whatever is on its way to a slow reader would be dropped.
        """
        if not self._is_closing:
            self._is_closing = True
            self._look(1, UNREAD_S)

    def _look(self, before: int, left_s: float) -> None:
        """Close if nothing is unsent, now and at the last look; else look again soon."""
        if self.transport is None:
            return
        unsent = _unsent(self.transport)
        if left_s <= 0 or not (before or unsent):
            self.transport.close()
            return
        left_s = left_s - _LOOK_S if unsent == before else UNREAD_S
        asyncio.get_running_loop().call_later(_LOOK_S, self._look, unsent, left_s)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def lead_to(self, other: "TunnelEnd") -> None:
        """Pass on to ``other`` from now on, what came early first."""
        self.other = other
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)
        if self.transport is not None:
            self.transport.resume_reading()
        if self._is_over:
            other.close()

    async def until(self, mark: bytes, most: int) -> bytes:
        """Return what came first, up to and with ``mark``.

        Raises:
            NotReachableError: it closed before, or sent more than ``most`` bytes.
        """
        while (end := self._early.find(mark)) < 0:
            await self._more(most)
        return self._take(end + len(mark))

    async def exactly(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or as many as come before it closes."""
        while len(self._early) < size and not self._is_over:
            await self._more(size)
        return self._take(size)

    async def _more(self, most: int) -> None:
        if len(self._early) > most:
            raise errors.NotReachableError(f"its answer has more than {most} bytes and no end")
        if self._is_over:
            raise self._why or aiohttp.ServerDisconnectedError
        self._news.clear()
        await self._news.wait()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._early[:size])
        del self._early[:size]
        return taken

    def _over(self) -> None:
        self._is_over = True
        self._news.set()
        if self.other is not None:
            self.other.close()


def _has_ended(transport: asyncio.Transport) -> bool:
    """Whether the other side has closed, though what it said may not be read yet."""
    of = transport.get_extra_info("socket")
    return bool(of.fileno() >= 0 and of.getsockopt(*_STATE, 1)[0] == _CLOSE_WAIT)


def _unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes the other side has not acknowledged. Source: tcp(7), SIOCOUTQ."""
    of = transport.get_extra_info("socket")
    if of.fileno() < 0:
        return 0
    queued = fcntl.ioctl(of.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)


# A connection to an API server that stops being HTTP: heads are exchanged, then bytes pass --------
# What passes is never looked at: SPDY and WebSocket, of any version, are the same here. asyncio's
# own loop is required: uvloop loses the tail of a TLS stream that is closed with data buffered.
# Source: KEP-4006; docs/parity.md SEC-B4, SEC-B8, SEC-B10.

CONNECT_S: Final = 30.0
"""How long a connection to the API server may take, its TLS included."""
ANSWER_S: Final = 150.0
"""How long the API server may take then to upgrade it: it waits for a kubelet, which gives its
runtime two minutes (``--runtime-request-timeout``), and a node with many commands to start at once
takes its time for each. A server that falls silent is found out sooner, by keepalive, and anybody
who asked and gives up ends the wait."""
MAX_REFUSAL: Final = 2**16
EYEBALLS_S: Final = 0.25
"""After which the next address of a name is tried, too. Source: RFC 8305, section 8."""
CLOSE_S: Final = 5.0
"""How long a server that was told the end may take to say so too, before it is cut off."""

_OF_UPGRADE: Final = (
    "Connection",
    "Upgrade",
    "X-Stream-Protocol-Version",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Protocol",
)

Headers = Iterable[tuple[str, str]]
_UNANSWERED: Final = (
    errors.NotReachableError,
    aiohttp.ServerDisconnectedError,
    OSError,
    ValueError,
    http.client.HTTPException,
)


async def dial(
    access: Access, method: str, path: str, query: Headers, headers: Headers
) -> tuple[bytes, TunnelEnd]:
    """Ask the API server of ``access`` to upgrade; return its head and the end that leads there.

    Shape: ``path`` and ``query`` as the server shall see them, quoted by nobody yet; ``headers``
    are those of the upgrade, ours are added. The head has nothing but what an upgrade needs, and
    its blank line: cookies and whatever else the server says there stay here.

    Raises:
        KubeError: it refused, or did not answer in time.
    """
    url = urlsplit(access.server)
    leg: TunnelEnd | None = None
    try:
        async with _within(CONNECT_S, "no connection"):
            leg = await _connect(access, url.hostname or "", url.port)
        async with _within(ANSWER_S, "connected, but no answer"):
            return await _upgrade(leg, _head(access, method, path, query, headers)), leg
    except _UNANSWERED as error:
        _abort(leg)
        raise connection.failure(f"{method} {access.server}{path}", error) from error
    except BaseException:
        _abort(leg)
        raise


@contextlib.asynccontextmanager
async def _within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise errors.NotReachableError(f"{otherwise} in {seconds:.0f} s") from error


def _abort(leg: TunnelEnd | None) -> None:
    if leg is not None:
        leg.abort()


async def _connect(access: Access, host: str, port: int | None) -> TunnelEnd:
    loop = asyncio.get_running_loop()
    port = port or (443 if access.tls else 80)
    if access.proxy:
        return await _through(access, host, port)
    transport, leg = await loop.create_connection(
        TunnelEnd,
        host,
        port,
        ssl=access.tls,
        happy_eyeballs_delay=EYEBALLS_S,
        server_hostname=(access.server_name or host) if access.tls else None,
        ssl_shutdown_timeout=CLOSE_S if access.tls else None,
    )
    connection.keep_alive(transport.get_extra_info("socket"))
    return leg


async def _through(access: Access, host: str, port: int) -> TunnelEnd:
    """Connect by the proxy of the kubeconfig; one of https is verified as the server is.

    So does aiohttp for all other requests.
    """
    proxy, said = urlsplit(access.proxy), texts.without_userinfo(access.proxy)
    is_tls = proxy.scheme == "https"
    if is_tls and not access.tls:
        raise errors.NotReachableError(f"the proxy {said} needs TLS, the server has none")
    loop = asyncio.get_running_loop()
    transport, leg = await loop.create_connection(
        TunnelEnd,
        proxy.hostname or "",
        proxy.port or (443 if is_tls else 80),
        ssl=access.tls if is_tls else None,
        happy_eyeballs_delay=EYEBALLS_S,
        server_hostname=proxy.hostname if is_tls else None,
    )
    connection.keep_alive(transport.get_extra_info("socket"))
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    signed_in = _proxy_authorization(proxy)
    head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{signed_in}\r\n"
    transport.write(head.encode("ascii"))
    if _parsed(await leg.until(b"\r\n\r\n", MAX_HEAD)).status != http.client.OK:
        leg.abort()
        raise errors.NotReachableError(f"the proxy {said} does not connect to {where}")
    if access.tls:
        leg.transport = await loop.start_tls(
            transport,
            leg,
            access.tls,
            server_hostname=access.server_name or host,
            ssl_shutdown_timeout=CLOSE_S,
        )
    return leg


def _proxy_authorization(proxy: SplitResult) -> str:
    """Return the header line for user and password of the proxy's URL, empty without. RFC 7617."""
    if proxy.username is None:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    encoded = base64.b64encode(pair.encode()).decode()
    return f"Proxy-Authorization: Basic {encoded}\r\n"


def _head(access: Access, method: str, path: str, query: Headers, headers: Headers) -> bytes:
    url = yarl.URL(access.server + path, encoded=True).with_query(list(query) or None)
    ours = [("Host", url.raw_authority)]
    if access.authorization:
        ours.append(("Authorization", access.authorization))
    ours.extend(access.impersonation)
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1", *(f"{k}: {v}" for k, v in [*ours, *headers])]
    if any("\r" in line or "\n" in line for line in lines):
        raise errors.InvalidError("a header of the request has a line break")
    # As the web server decodes headers, whatever bytes they have.
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


async def _upgrade(leg: TunnelEnd, head: bytes) -> bytes:
    if leg.transport is not None:
        leg.transport.write(head)
    answered = await leg.until(b"\r\n\r\n", MAX_HEAD)
    answer = _parsed(answered)
    if answer.status == http.client.SWITCHING_PROTOCOLS:
        return _upgraded(answer)
    body = await _body(leg, answer)
    leg.close()
    raise errors.refusal(answer.status, _said(_parsed(answered + body).read()))


def _upgraded(answer: http.client.HTTPResponse) -> bytes:
    """Return the head that says so to who asked. Source: RFC 6455, 4.2.2."""
    said = [(name, answer.headers.get(name, "")) for name in _OF_UPGRADE]
    lines = [f"{name}: {value}" for name, value in said if value and value.isprintable()]
    head = "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines])
    return f"{head}\r\n\r\n".encode("latin-1", "replace")


async def _body(leg: TunnelEnd, answer: http.client.HTTPResponse) -> bytes:
    if answer.chunked:
        return await leg.until(b"0\r\n\r\n", MAX_REFUSAL)
    size = MAX_REFUSAL if answer.length is None else answer.length
    return await leg.exactly(min(size, MAX_REFUSAL))


def _said(body: bytes) -> Object:
    try:
        return msgspec.json.decode(body, type=Object)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {"message": body.decode("utf-8", "replace").strip()[:1024]}


class _Received:
    """Raw bytes where ``http.client`` wants a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parsed(raw: bytes) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(_Received(raw))  # type: ignore[arg-type]
    answer.begin()
    return answer
