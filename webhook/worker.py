"""What a worker of gunicorn does: one loop reads and answers, and threads do what has to wait.

aiohttp reads the requests and writes the answers; in between the WSGI app is called, in the loop
where the caches have all that it needs, else in a thread, where it may wait for an API server. So a
client that is slow, or silent, holds no thread, and few reviews change threads. TLS is by a Secret
volume that changes while it is served.
Source: docs/parity.md SEC-D9; F-27; F-36.
"""

import asyncio
import asyncio.sslproto
import functools
import io
import logging
import os
import ssl
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from wsgiref.types import WSGIEnvironment

from aiohttp import web
from gunicorn import sock
from gunicorn.workers import base

from certs import childprocess
from certs.listener import Handshakes
from kube import credentials, memory
from webhook import metrics
from webhook.app import ARRIVED, CERTIFICATE, MAX_BODY
from webhook.reader import MustWaitError
from webhook.serving import BEGUN_S, LINGER_S, Drain

SLOW_S: Final = 3.0
"""What a client may take for its handshake, and for the body of a request."""
LARGE: Final = 256 * 2**10
"""Bytes of a body that other clients should not wait for. One of them is judged at a time, since
Python needs up to twenty times its size for it, and the pod has 384 MiB."""
HELD: Final = 16 * 2**20
"""Bytes of bodies that are being read or judged, of large ones and of others; who brings more is
told to try again. Anybody who announces large ones and sends nothing so keeps no other waiting."""
BUFFER: Final = 32 * 2**10
"""Bytes that asyncio reads at once from a TLS connection, and keeps for as long as that lasts: its
own 256 KiB for each of 1,000 clients would be all the memory that a pod has."""
App: TypeAlias = Callable[..., Iterable[bytes]]
"""As PEP 3333 has it."""
_TICK_S: Final = 0.5
_NAME: Final = "liqo-webhook"
_ALWAYS: Final[WSGIEnvironment] = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": _NAME,
    "SERVER_PORT": "443",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "https",
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
}


@dataclass(frozen=True)
class Service:
    """A WSGI app, and what it needs while it is served."""

    app: App
    waits: Callable[[str, bytes], bool]
    """Whether the answer to that body at that path mostly takes until an API server has answered.

    An app that is called in the loop, and has to wait after all, raises ``MustWaitError``."""
    beside: Callable[[], Coroutine[Any, Any, None]]
    """Runs in the loop that calls the app, as long as that does."""


class RequestServer:
    """Serves the ``Service`` that a worker of gunicorn has loaded.

    Told to end it serves on for a while, and each answer closes its connection: an idle one could
    be closed while a request is on its way, which API servers do not repeat.
    """

    def __init__(self, worker: base.Worker, drain: Drain) -> None:
        self._worker = worker
        self._drain = drain
        self._service: Service = worker.wsgi
        self._most: int = worker.cfg.worker_connections
        self._held = Counter[bool]()
        self._threads = ThreadPoolExecutor(worker.cfg.threads)
        self._large = ThreadPoolExecutor(1)

    def run(self) -> None:
        """Serve until told to end, or until gunicorn itself is gone."""
        asyncio.sslproto.SSLProtocol.max_size = BUFFER
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        config = self._worker.cfg
        beside = [
            asyncio.create_task(one)
            for one in (self._service.beside(), memory.give_back_for_ever())
        ]
        clients = Clients(
            self._answer,
            most=self._most // 2,
            request_factory=_request,
            keepalive_timeout=config.keepalive,
            lingering_time=LINGER_S,
            auto_decompress=False,
            access_log=None,
        )
        config.set("ssl_context", CachedContext().get)
        context = PresentContext(functools.partial(sock.ssl_context, config))
        arrivals = Handshakes(
            context,
            functools.partial(self._accept, clients),
            most=self._most // 2,
            handshake_s=SLOW_S,
        )
        listening = asyncio.get_running_loop().create_server
        listeners = [
            await listening(arrivals.accept, sock=one.sock) for one in self._worker.sockets
        ]
        while self._worker.ppid == os.getppid() and not self._drain.is_over:
            self._worker.notify()
            await asyncio.sleep(_TICK_S)
        for listener in listeners:
            listener.close()
        if clients.connections:
            await asyncio.sleep(LINGER_S)
        clients.pre_shutdown()  # what is idle: a request that comes now would have no answer
        await clients.shutdown(BEGUN_S)
        for task in beside:
            task.cancel()

    def _accept(self, clients: web.Server) -> asyncio.BaseProtocol:
        is_full = len(clients.connections) >= self._most
        return Refusal() if is_full else clients()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        arrived, held = time.monotonic(), _announced(request)
        is_large = held > LARGE
        if self._held[is_large] + held > HELD:
            return _closed(web.Response(status=503, headers={"Retry-After": "1"}))
        self._held[is_large] += held
        try:
            body = await _body(request)
            environ = _environ(request, body, arrived)
            response = await self._called(environ, body)
        except TimeoutError:
            response = _closed(web.Response(status=408))
        except (web.RequestPayloadError, ConnectionError):  # nobody may be there any more
            response = _closed(web.Response(status=400))
        finally:
            self._held[is_large] -= held
        return _closed(response) if self._drain.has_begun else response

    async def _called(self, environ: WSGIEnvironment, body: bytes) -> web.Response:
        if len(body) > LARGE:
            return await _called_in(self._large, self._service.app, environ)
        if not self._service.waits(environ["PATH_INFO"], body):
            return await called(self._service.app, environ, self._threads)
        return await _called_in(self._threads, self._service.app, environ)


class Clients(web.Server):
    """The connections there are, of which each source has ``most``, so that none has them all."""

    def __init__(self, answer: Any, *, most: int, **rest: Any) -> None:
        super().__init__(answer, **rest)
        self._most = most
        self._sources: dict[web.RequestHandler, str] = {}
        self._counts = Counter[str]()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        source, *_ = transport.get_extra_info("peername") or ("",)  # who went at once has none
        self._sources[handler] = source
        self._counts[source] += 1
        if self._counts[source] > self._most:
            transport.close()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        source = self._sources.pop(handler)
        self._counts[source] -= 1
        if not self._counts[source]:
            del self._counts[source]


class Refusal(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _request(  # as aiohttp calls it
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


def _announced(request: web.BaseRequest) -> int:
    """Return how many bytes of a body to expect: of one without a length, as many as may come."""
    length = request.content_length
    if length is None:
        return 0 if request.content.is_eof() else MAX_BODY
    return length if length <= MAX_BODY else 0  # which nobody reads


async def _body(request: web.BaseRequest) -> bytes:
    """Return the body; nothing of one that says that it is too large, for that is refused unread.

    Raises:
        HTTPRequestEntityTooLarge: it turns out to be too large; aiohttp answers with that.
        TimeoutError: it does not come.
        RequestPayloadError: it ends too early, or is not as its head says.
        ConnectionError: the client went.
    """
    if (request.content_length or 0) > MAX_BODY:
        return b""
    async with asyncio.timeout(SLOW_S):
        return await request.read()


def _closed(response: web.Response) -> web.Response:
    response.force_close()
    return response


def _environ(request: web.BaseRequest, body: bytes, arrived: float) -> WSGIEnvironment:
    """Return what PEP 3333 tells an app of ``request``, and two things more."""
    path, _, query = request.raw_path.partition("?")
    transport = request.transport
    headers = {_variable(name): value for name, value in request.headers.items()}
    return {
        **headers,
        **_ALWAYS,
        "REQUEST_METHOD": request.method,
        "PATH_INFO": urllib.parse.unquote(path, "latin-1") if "%" in path else path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(max(len(body), request.content_length or 0)),
        "wsgi.input": io.BytesIO(body),
        ARRIVED: arrived,
        CERTIFICATE: transport.get_extra_info("peercert") if transport else None,
    }


@functools.lru_cache(maxsize=64)
def _variable(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


async def called(app: App, environ: WSGIEnvironment, threads: Executor) -> web.Response:
    """Return what the WSGI ``app`` answers: here, or in a thread if it turns out to have to wait.

    What begins and ends there again has changed nothing before.
    """
    try:
        return _call(app, environ)
    except MustWaitError:
        environ["wsgi.input"].seek(0)
        return await _called_in(threads, app, environ)


async def _called_in(threads: Executor, app: App, environ: WSGIEnvironment) -> web.Response:
    return await asyncio.get_running_loop().run_in_executor(threads, _call, app, environ)


def _call(app: App, environ: WSGIEnvironment) -> web.Response:
    head: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        head[:] = [int(status[:3]), headers]

    parts = app(environ, start_response)
    try:
        body = b"".join(parts)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    status, headers = head
    kept = {name: value for name, value in headers if name != "Content-Length"}
    return web.Response(status=status, headers={"Server": _NAME, **kept}, body=body)


# TLS from a Secret volume -------------------------------------------------------------------------

logger = logging.getLogger(__name__)


class CachedContext:
    """One TLS context for all connections, made again when the Secret volume changes."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[int, int], ...] = ()
        self._context: ssl.SSLContext | None = None
        self._announcing: asyncio.Task[None] | None = None

    def get(self, config: Any, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the context; gunicorn asks for every connection."""
        try:
            files = (config.certfile, config.keyfile, config.ca_certs)
            seen = tuple(_stamp(Path(path)) for path in files if path)
            if self._context is None or seen != self._seen:
                self._context, self._seen = hardened(make()), seen
                served = Path(config.certfile).read_bytes()
                self._announcing = asyncio.create_task(_announce(served))
        except (OSError, ssl.SSLError):  # half-written or gone: the old pair serves on
            if self._context is None:
                raise
        return self._context


def _stamp(path: Path) -> tuple[int, int]:
    file = path.stat()
    return file.st_ino, file.st_mtime_ns


def hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return ``context``, with TLS 1.2 or later, forward secrecy, and clients verified as by Go.

    API servers keep no session to resume, and open a connection for nearly each of many reviews at
    once: what they could resume it by is a tenth of what a handshake costs here.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.num_tickets = 0
    return credentials.verifying(context)


def is_one_of(names: frozenset[str], certificate: Mapping[str, Any]) -> bool:
    """Whether a client ``certificate`` is there, and its common name in ``names`` or these empty.

    Shape: as ``ssl.SSLSocket.getpeercert`` gives it.
    """
    fields = [field for part in certificate.get("subject", ()) for field in part]
    found = [value for name, value in fields if name == "commonName"]
    return len(found) == 1 and (not names or found[0] in names)


async def _announce(certificate: bytes) -> None:
    try:
        ends = await childprocess.expiry(certificate)
    except (OSError, ValueError):
        return
    metrics.CERTIFICATE_EXPIRY.set(ends.timestamp())
    logger.info("Serving certificate", extra={"until": ends.isoformat()})


class PresentContext(ssl.SSLContext):
    """For each new connection the TLS context that is the right one then."""

    def __new__(cls, _current: Callable[[], ssl.SSLContext]) -> Self:
        """Return one for servers."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: Callable[[], ssl.SSLContext]) -> None:
        self._current = current

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin TLS, as asyncio asks for it."""
        return self._current().wrap_bio(*args, **kwargs)
