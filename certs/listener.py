"""An HTTPS listener: its certificate, and who signs its clients' certificates, can change.

Source: docs/parity.md § 5.7.4; SEC-D1.
"""

import asyncio
import asyncio.sslproto
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from certs.keypair import Keypair
from kube import (
    authz,
    connection,
    credentials,
    http1,  # noqa: F401  # it frees the authorities that aiohttp reads
    memory,
    metrics,
)
from kube.authz import Authorizer, NotAuthorizedError, UnauthenticatedError

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 30.0
"""How long TLS may take, on either side: of hundreds of clients at once the last waits for all."""
SILENT_S: Final = 30.0
"""How long a new connection may take then to send the head of a request."""
CLOSE_S: Final = 60.0
"""How long a slow client may take to read what is left of a stream that ended."""
IDLE_S: Final = 30.0
"""How long a connection is kept for another request."""
_REFUSED: Final = frozenset({401, 403})


class Most(NamedTuple):
    """How many connections there may be at once: a source that has its part gets no more."""

    in_all: int
    of_source: int


ORDINARY: Final = Most(in_all=1000, of_source=500)
"""An API server opens one for each stream of kubectl."""


class Server:
    """Listens once it has a certificate and knows who signs its clients' certificates.

    A connection that sends no request for ``silent_s`` is closed.
    """

    def __init__(
        self,
        app: web.Application,
        port: int,
        host: str | None = None,
        *,
        silent_s: float = SILENT_S,
        most: Most = ORDINARY,
    ) -> None:
        app.on_response_prepare.append(_close_refused)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,
            shutdown_timeout=5,
            keepalive_timeout=IDLE_S,
        )
        self._connections = _Connections(most)
        self._host, self._port, self._silent_s = host, port, silent_s
        self._listener: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._context: ssl.SSLContext | None = None
        self._pair: Keypair | None = None
        self._client_ca: str | None = None
        self.port = 0
        """Where it listens, 0 while it does not."""

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    async def certify(self, pair: Keypair) -> None:
        """Serve new connections with ``pair``; old ones live on."""
        self._pair = pair
        if self._context is not None:
            load(self._context, pair)
        else:
            await self._listen()

    async def trust(self, client_ca: str) -> None:
        """Take certificates signed by ``client_ca`` (PEM, "" for none) as who a client is.

        An authority cannot be taken out of a context, so another one needs a new listener.
        """
        if client_ca == self._client_ca:
            return
        self._client_ca = client_ca
        self._stop()
        await self._listen()

    async def close(self) -> None:
        self._stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._runner.cleanup()

    async def _listen(self) -> None:
        if self._pair is None or self._client_ca is None:
            return
        context = tls(self._pair, self._client_ca)
        if self._runner.server is None:
            await self._runner.setup()
            self._sweeping = asyncio.create_task(self._sweep())
        arrivals = Handshakes(
            context,
            lambda: _Arrival(self._connections, self._runner),
            most=self._connections.most.in_all // 2,
            handshake_s=HANDSHAKE_S,
            close_s=CLOSE_S,
        )
        listener = await asyncio.get_running_loop().create_server(
            arrivals.accept, self._host, self._port, reuse_address=True, start_serving=False
        )
        for each in listener.sockets:
            connection.keep_alive(each)  # Linux gives it to all that it accepts
        await listener.start_serving()
        self._listener, self._context = listener, context
        self.port = listener.sockets[0].getsockname()[1]
        logger.info("Listens", extra={"port": self.port})

    async def _sweep(self) -> None:
        """Close connections on which no request came; the web server would wait for ever."""
        before: set[web.RequestHandler] = set()
        while self._runner.server is not None:
            await asyncio.sleep(self._silent_s / 2)
            there = self._runner.server.connections if self._runner.server else []
            # aiohttp has no public way to ask.
            silent = {one for one in there if not one._request_count}  # noqa: SLF001
            for one in silent & before:
                if one.transport is not None:
                    one.transport.abort()
            before = silent

    def _stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener, self._context, self.port = None, None, 0


class _Connections:
    """Those that are open, by the address of their client."""

    def __init__(self, most: Most) -> None:
        self.most = most
        self._sources: dict[asyncio.BaseTransport, str] = {}

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether there is room for one more, which is counted."""
        open_ = {one: source for one, source in self._sources.items() if not one.is_closing()}
        self._sources = open_
        source = _source(transport)
        own = sum(one == source for one in open_.values())
        if len(open_) >= self.most.in_all or own >= self.most.of_source:
            return False
        open_[transport] = source
        return True


def _source(transport: asyncio.BaseTransport) -> str:
    address, *_ = transport.get_extra_info("peername") or ("",)  # who went at once has none
    return str(address)


class Handshakes:
    """Accepts connections by TLS: ``protocol`` gets those whose handshake is done.

    Of those that are not, ``most`` are kept: beyond that the oldest of the source that has most of
    them gives way. asyncio's own servers count none of them, and each takes as much memory as one
    that is served.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
        *,
        most: int,
        handshake_s: float,
        close_s: float | None = None,
    ) -> None:
        self._context, self._protocol, self._most = context, protocol, most
        self._handshake_s, self._close_s = handshake_s, close_s
        self._begun: dict[asyncio.Transport, str] = {}

    def accept(self) -> asyncio.Protocol:
        """Return what to give ``loop.create_server``, without a context."""
        return _Accepted(self)

    def begin(self, transport: asyncio.Transport) -> None:
        begun = {one: source for one, source in self._begun.items() if not one.is_closing()}
        begun[transport] = _source(transport)
        self._begun = begun
        if len(begun) > self._most:
            [(largest, _)] = Counter(begun.values()).most_common(1)
            next(one for one, source in begun.items() if source == largest).abort()
        tls = asyncio.sslproto.SSLProtocol(
            asyncio.get_running_loop(), _Secured(self, transport), self._context,
            None,  # type: ignore[arg-type]  # nobody waits for it
            server_side=True,
            ssl_handshake_timeout=self._handshake_s,  # type: ignore[arg-type]  # seconds
            ssl_shutdown_timeout=self._close_s,
        )  # fmt: skip
        transport.set_protocol(tls)
        tls.connection_made(transport)

    def done(self, tcp: asyncio.Transport, tls: asyncio.BaseTransport) -> None:
        self._begun.pop(tcp, None)
        protocol = self._protocol()
        tls.set_protocol(protocol)
        protocol.connection_made(tls)


class _Accepted(asyncio.Protocol):
    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        memory.has_arrived()
        self._handshakes.begin(cast("asyncio.Transport", transport))


class _Secured(asyncio.Protocol):
    def __init__(self, handshakes: Handshakes, tcp: asyncio.Transport) -> None:
        self._handshakes, self._tcp = handshakes, tcp

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.done(self._tcp, transport)


class _Arrival(asyncio.Protocol):
    """Hands a connection on to the web server, or closes it."""

    def __init__(self, connections: _Connections, runner: web.AppRunner) -> None:
        self._connections, self._runner = connections, runner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._runner.server
        if server is None or not self._connections.admits(transport):
            cast("asyncio.Transport", transport).abort()
            return
        handler = server()
        transport.set_protocol(handler)
        handler.connection_made(transport)


async def _close_refused(_: web.Request, response: web.StreamResponse) -> None:
    """Keep no connection of who may do nothing here."""
    if response.status in _REFUSED:
        response.force_close()


def tls(pair: Keypair, client_ca: str) -> ssl.SSLContext:
    """Return the context of the listener: TLS 1.2 or later, HTTP/1.1 only, certificates welcome."""
    context = credentials.verifying(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.CERT_NONE
    if client_ca:
        context.load_verify_locations(cadata=client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    load(context, pair)
    return context


def load(context: ssl.SSLContext, pair: Keypair) -> None:
    """Let new connections of ``context`` be served with ``pair``; no file on a disk has the key."""
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pair.key + pair.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


# The page of metrics: nothing for who may not read it ---------------------------------------------

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def metrics_application(authorizer: Authorizer) -> web.Application:
    """Return the web application; ``authorizer`` says who may read metrics, whatever the path."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            await authz.check_scraper(authorizer, request.headers.get("Authorization", ""))
        except UnauthenticatedError as error:
            raise web.HTTPUnauthorized(text=f"{error}\n", headers=_CHALLENGE) from error
        except NotAuthorizedError as error:
            raise web.HTTPForbidden(text=f"{error}\n") from error
        return await handler(request)

    app = web.Application(middlewares=[guard], client_max_size=1024)
    app.router.add_get(authz.METRICS_PATH, _page)
    return app


async def _page(_: web.Request) -> web.StreamResponse:
    return web.Response(body=metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})
