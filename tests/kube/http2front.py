"""An HTTP/2 server, of other code than the client's, before a test's HTTP/1.1 server."""

import asyncio
import contextlib
import dataclasses
import io
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import yarl

from certs import listener
from kube.credentials import Access
from tests.kube.running import whole_session
from tests.kube.test_tls import access_to, proof

_HOP: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "upgrade", "host"})


def tls_http2() -> ssl.SSLContext:
    """Return how a server shows who it is, and that it speaks HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load(context, proof())
    context.set_alpn_protocols(["h2"])
    return context


@contextlib.asynccontextmanager
async def fronted(url: str, authorization: str = "") -> AsyncIterator[tuple[Access, "Front"]]:
    """Yield access, by HTTP/2, to the server at ``url``."""
    async with whole_session(auto_decompress=False) as session:
        front = Front(url, session)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(front.accepted, "127.0.0.1", 0, ssl=tls_http2())
        try:
            who = access_to(server.sockets[0].getsockname()[1])
            yield front.named(who, authorization), front
        finally:
            server.close()
            for each in front.connections:
                each.end()


class Front:
    """What its connections have in common; ``most_streams`` at a time on each."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session
        self.connections: list[Served] = []
        self.most_streams = 100
        self.pings = 0

    def falls_silent(self) -> None:
        for each in self.connections:
            if each.transport is not None:
                each.transport.pause_reading()

    def accepted(self) -> "Served":
        made = Served(self)
        self.connections.append(made)
        return made

    def named(self, who: Access, authorization: str) -> Access:
        return dataclasses.replace(who, authorization=authorization)


class Served(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, front: Front) -> None:
        self.front = front
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        self.http = h2.connection.H2Connection(config)
        most = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: front.most_streams}
        self.http.local_settings = h2.settings.Settings(client=False, initial_values=most)
        self.asked: dict[int, tuple[dict[str, str], bytearray]] = {}
        self.transport: asyncio.Transport | None = None
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.windows = asyncio.Event()
        self.relay: asyncio.Task[None] | None = None
        self.other: asyncio.Transport | None = None
        self.early, self.is_lost = b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            self.relay = asyncio.ensure_future(self.pass_on())
            return
        self.http.initiate_connection()
        self.flush()

    def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        if self.transport is not None:
            self.transport.abort()

    async def pass_on(self) -> None:
        """Be no server of HTTP/2 for who does not speak it, as for a WebSocket."""
        port = yarl.URL(self.front.url).port or 0
        assert self.transport is not None
        to = self.transport
        other, _ = await asyncio.get_running_loop().create_connection(
            lambda: Relayed(to), "127.0.0.1", port
        )
        self.other = other
        other.write(self.early)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self.other is not None:
            self.other.abort()
        for task in self.tasks.values():
            task.cancel()

    def flush(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(self.http.data_to_send())

    def say(self, act: Callable[..., Any], *args: Any, **named: Any) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            act(*args, **named)
        self.flush()

    def data_received(self, data: bytes) -> None:  # noqa: C901  # one branch an event
        if self.other is not None:
            self.other.write(data)
            return
        if self.relay is not None:
            self.early += data
            return
        for event in self.http.receive_data(data):
            number = getattr(event, "stream_id", None) or 0
            if isinstance(event, h2.events.RequestReceived):
                self.asked[number] = (dict(event.headers), bytearray())  # type: ignore[arg-type]
            elif isinstance(event, h2.events.DataReceived):
                self.asked[number][1].extend(event.data)
                self.http.acknowledge_received_data(event.flow_controlled_length, number)
            elif isinstance(event, h2.events.StreamEnded):
                self.tasks[number] = asyncio.ensure_future(self.answer(number))
            elif isinstance(event, h2.events.StreamReset) and number in self.tasks:
                self.tasks[number].cancel()
            elif isinstance(event, h2.events.PingReceived):
                self.front.pings += 1
            elif isinstance(event, h2.events.WindowUpdated):
                self.windows.set()
        self.flush()

    async def answer(self, number: int) -> None:
        head, body = self.asked.pop(number)
        headers = {name: value for name, value in head.items() if name[0] != ":"}
        url = self.front.url + head[":path"]
        try:
            async with self.front.session.request(
                head[":method"], yarl.URL(url, encoded=True), headers=headers,
                data=io.BytesIO(body) if body else None, allow_redirects=False,
                timeout=aiohttp.ClientTimeout(),
            ) as answer:  # fmt: skip
                said = [(n.lower(), v) for n, v in answer.headers.items() if n.lower() not in _HOP]
                self.say(self.http.send_headers, number, [(":status", str(answer.status)), *said])
                async for chunk in answer.content.iter_any():
                    await self.send(number, chunk)
            self.say(self.http.end_stream, number)
        except (aiohttp.ClientError, OSError):
            self.say(self.http.reset_stream, number, 2)
        finally:
            del self.tasks[number]

    async def send(self, number: int, data: bytes) -> None:
        while data:
            room = min(
                self.http.local_flow_control_window(number), self.http.max_outbound_frame_size
            )
            if room <= 0:
                self.windows.clear()
                await self.windows.wait()
                continue
            self.say(self.http.send_data, number, data[:room])
            data = data[room:]


class Relayed(asyncio.Protocol):
    """The way back of a connection that is passed on as it is."""

    def __init__(self, to: asyncio.Transport) -> None:
        self.to = to

    def data_received(self, data: bytes) -> None:
        self.to.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.to.close()
