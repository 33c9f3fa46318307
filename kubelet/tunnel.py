"""A connection to an API server that stops being HTTP: heads are exchanged, then bytes pass.

What passes is never looked at: SPDY and WebSocket, of any version, are the same here. asyncio's own
loop is required: uvloop loses the tail of a TLS stream that is closed with data buffered.

Source: KEP-4006; docs/parity.md SEC-B4, SEC-B8, SEC-B10.
"""

import asyncio
import base64
import contextlib
import http.client
import io
from collections.abc import AsyncIterator, Iterable
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
import msgspec
import yarl

from apis import texts
from apis.objects import Object
from kube import connection, errors
from kube.credentials import Access
from kubelet.leg import MAX_HEAD, Leg

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
) -> tuple[bytes, Leg]:
    """Ask the API server of ``access`` to upgrade; return its head and the end that leads there.

    Shape: ``path`` and ``query`` as the server shall see them, quoted by nobody yet; ``headers``
    are those of the upgrade, ours are added. The head has nothing but what an upgrade needs, and
    its blank line: cookies and whatever else the server says there stay here.

    Raises:
        KubeError: it refused, or did not answer in time.
    """
    url = urlsplit(access.server)
    leg: Leg | None = None
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


def _abort(leg: Leg | None) -> None:
    if leg is not None:
        leg.abort()


async def _connect(access: Access, host: str, port: int | None) -> Leg:
    loop = asyncio.get_running_loop()
    port = port or (443 if access.tls else 80)
    if access.proxy:
        return await _through(access, host, port)
    transport, leg = await loop.create_connection(
        Leg,
        host,
        port,
        ssl=access.tls,
        happy_eyeballs_delay=EYEBALLS_S,
        server_hostname=(access.server_name or host) if access.tls else None,
        ssl_shutdown_timeout=CLOSE_S if access.tls else None,
    )
    connection.keep_alive(transport.get_extra_info("socket"))
    return leg


async def _through(access: Access, host: str, port: int) -> Leg:
    """Connect by the proxy of the kubeconfig; one of https is verified as the server is.

    So does aiohttp for all other requests.
    """
    proxy, said = urlsplit(access.proxy), texts.without_userinfo(access.proxy)
    is_tls = proxy.scheme == "https"
    if is_tls and not access.tls:
        raise errors.NotReachableError(f"the proxy {said} needs TLS, the server has none")
    loop = asyncio.get_running_loop()
    transport, leg = await loop.create_connection(
        Leg,
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


async def _upgrade(leg: Leg, head: bytes) -> bytes:
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


async def _body(leg: Leg, answer: http.client.HTTPResponse) -> bytes:
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
