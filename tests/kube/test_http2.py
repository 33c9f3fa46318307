"""HTTP/2 to a server that breaks off, floods, lies or is lost. Source: RFC 9113; decision 0018."""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, cast

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys
from apis.objects import Key, Object
from kube import client, errors, http2, peer, transport
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.credentials import Access
from kube.http2 import Http2Connection, Window, Within
from kube.reachability import SILENT_TURNS
from tests.kube.http2front import Front, fronted, tls_http2
from tests.kube.running import serving, until
from tests.kube.test_tls import access_to, proof, tls_serving

WEB: Final = Key("ns", "web")
MIB: Final = 2**20
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, MORE = range(10)
END, END_HEADERS, PADDED = 1, 4, 8
SECRETS: Final = Selection(keys.SECRET, Object, "ns")


def frame(kind: int, flags: int, number: int, said: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(said) << 8 | kind, flags, number) + said


def head(number: int, flags: int = END_HEADERS, status: str = "200", **named: str) -> bytes:
    fields = [(name.replace("_", "-"), value) for name, value in named.items()]
    block = b"".join(
        bytes([0x10, len(name)]) + name.encode() + encoded_size(len(value)) + value.encode()
        for name, value in [(":status", status), *fields]
    )
    return frame(HEADERS, flags, number, block)


def encoded_size(size: int) -> bytes:
    return (
        bytes([size]) if size < 127 else bytes([127, (size - 127) % 128 + 128, (size - 127) // 128])
    )


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", name, value))


def answered_whole(number: int, said: bytes = b"{}") -> bytes:
    return head(number) + frame(DATA, END, number, said)


Reaction = Callable[[int], bytes | Iterator[bytes] | None]


def lost(number: int) -> None:
    """Break the connection off."""


def in_turn(*reactions: Reaction, then: Reaction = answered_whole) -> Reaction:
    acts = itertools.chain(reactions, itertools.repeat(then))
    return lambda number: next(acts)(number)  # noqa: PLW0108  # the next at each call


class RawServer:
    """Says, to each request, the frames that a test gives; None breaks the connection off."""

    def __init__(self, reaction: Reaction, first: bytes = frame(SETTINGS, 0, 0)) -> None:
        self.reaction, self.first = reaction, first
        self.connections = self.said = self.lost = self.pings = 0
        self.asked: list[int] = []
        self.reset: list[int] = []
        self.hears, self.breaks_at_a_ping = True, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talking: set[asyncio.Task[None]] = set()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            writer.write(self.first)
            await reader.readexactly(24)
            while self.hears:
                size, _, number = struct.unpack(">IBI", await reader.readexactly(9))
                await reader.readexactly(size >> 8)
                self.pings += size & 0xFF == PING
                if self.pings and self.breaks_at_a_ping:
                    break
                if size & 0xFF == RST:
                    self.reset.append(number)
                if size & 0xFF == HEADERS:
                    self.asked.append(number)
                    said = self.reaction(number)
                    if said is None:
                        break
                    talking.add(asyncio.ensure_future(self.say(said, writer)))
            while not self.hears and not writer.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        self.lost += 1
        for task in talking:
            task.cancel()
        writer.transport.abort()

    async def say(self, frames: bytes | Iterator[bytes], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            for each in [frames] if isinstance(frames, bytes) else frames:
                self.said += len(each)
                writer.write(each)
                await writer.drain()


@contextlib.asynccontextmanager
async def raw(
    reaction: Reaction, *, of_peer: bool = False, authorization: str = "", **rest: Any
) -> AsyncIterator[tuple[RawServer, ClusterClient]]:
    server = RawServer(reaction, **rest)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls_http2())
    opened = peer.connect if of_peer else client.connect
    async with listening:
        access = access_to(listening.sockets[0].getsockname()[1])
        access = dataclasses.replace(access, authorization=authorization)
        async with opened(access, user_agent="tests") as cluster:
            yield server, cluster


LENGTH: Final = b"\x10\x0econtent-length\x01"
MUCH: Final = b"x" * 2**14
BREAKS: Final[dict[str, Callable[[int], bytes]]] = {
    "an answer that nobody asked for": lambda n: frame(PUSH, END_HEADERS, n, b"\0\0\0\2\x88"),
    "a stream of the server": lambda n: frame(DATA, 0, 2, b"x"),
    "a stream to come": lambda n: head(n + 2),
    "a reset of a stream to come": lambda n: frame(RST, 0, n + 2, bytes(4)),
    "a window of a stream to come": lambda n: frame(WINDOW, 0, n + 2, b"\0\0\0\1"),
    "a frame of a mebibyte": lambda n: frame(DATA, 0, n, bytes(MIB)),
    "bytes before an answer": lambda n: frame(DATA, 0, n, b"x"),
    "a window that overflows": lambda n: frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
    "a stream's window that overflows": lambda n: frame(WINDOW, 0, n, b"\x7f\xff\xff\xff"),
    "a window by nothing": lambda n: frame(WINDOW, 0, n, bytes(4)),
    "a window in the settings that is too large": lambda n: setting(4, 2**31),
    "half a setting": lambda n: frame(SETTINGS, 0, 0, b"\0\4\0"),
    "settings of a stream": lambda n: frame(SETTINGS, 0, n),
    "half a ping": lambda n: frame(PING, 0, 0, b"1234"),
    "headers amid headers": lambda n: head(n, 0) + head(n),
    "a ping amid headers": lambda n: head(n, 0) + frame(PING, 0, 0, bytes(8)),
    "headers that go on without a beginning": lambda n: frame(MORE, END_HEADERS, n, b"\x88"),
    "headers without end": lambda n: head(n, 0) + frame(MORE, 0, n, b"\0" * 2**14) * 3,
    "a list of headers that grows": lambda n: frame(HEADERS, END_HEADERS, n, b"\x88" * 2**13),
    "headers that nobody can read": lambda n: frame(HEADERS, END_HEADERS, n, b"\xff" * 9),
    "more padding than there is": lambda n: frame(HEADERS, END_HEADERS | PADDED, n, b"\x09\x88"),
    "no status": lambda n: frame(HEADERS, END_HEADERS, n, b"\x10\1a\1b"),
    "a status of letters": lambda n: head(n, status="two"),
    "an end before an answer": lambda n: head(n, END_HEADERS | END, status="103"),
    "headers in the middle": lambda n: head(n) + head(n),
    "a header with a line of its own": lambda n: head(n, date="x\r\ny: z"),
    "a header in capitals": lambda n: head(n, Date="x"),
    "two lengths": lambda n: frame(
        HEADERS, END_HEADERS, n, b"\x88" + LENGTH + b"1" + LENGTH + b"2"
    ),
    "pings without end": lambda n: frame(PING, 1, 0, bytes(8)) * 30_000,
    "settings without end": lambda n: frame(SETTINGS, 1, 0) * 30_000,
    "empty frames without end": lambda n: head(n) + frame(DATA, 0, n) * 30_000,
    "answers before the answer without end": lambda n: head(n, status="103") * 30_000,
    "unknown frames without end": lambda n: frame(99, 0, 0) * 30_000,
    "headers that go on by nothing": lambda n: head(n, 0) + frame(MORE, 0, n) * 30_000,
}


@pytest.mark.parametrize("act", BREAKS)
async def test_what_breaks_a_rule_ends_its_connection_and_no_other(act: str) -> None:
    async with raw(in_turn(BREAKS[act])) as (server, cluster):
        with pytest.raises(errors.NotReachableError, match="breaks the rules of HTTP/2"):
            await cluster.create(keys.SECRET, {"metadata": {"namespace": "ns", "name": "a"}})
        assert await cluster.get(keys.SECRET, WEB) == {}
    assert server.connections >= 2, "one more after it"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (lost, "closed the connection without an answer|broke off"),
        (lambda n: frame(RST, 0, n, b"\0\0\0\2"), "closed the connection without an answer"),
        (lambda n: head(n) + frame(RST, 0, n, b"\0\0\0\2"), "in the middle of an answer"),
        (lambda n: head(n, content_length="9") + frame(DATA, END, n, b"{}"), "in the middle"),
        (lambda n: head(n, content_length="1") + frame(DATA, END, n, b"{}"), "in the middle"),
        (lambda n: head(n, END | END_HEADERS, content_length="2"), "in the middle"),
    ],
    ids=["nothing", "a reset", "a reset amid", "too little", "too much", "a head alone"],
)
async def test_what_breaks_off_is_told_as_by_http_1(said: Reaction, words: str) -> None:
    async with raw(said) as (_, cluster):
        with pytest.raises(errors.NotReachableError, match=words):
            await cluster.create(keys.SECRET, {"metadata": {"namespace": "ns", "name": "a"}})


@pytest.mark.parametrize(
    "refusal",
    [lambda n: frame(RST, 0, n, b"\0\0\0\7"), lambda n: frame(GOAWAY, 0, 0, bytes(8))],
    ids=["stream", "connection"],
)
async def test_what_a_server_says_it_did_not_touch_is_sent_once_more(refusal: Reaction) -> None:
    """As an API server does that ends, or that sends some connections elsewhere."""
    async with raw(in_turn(refusal)) as (server, cluster):
        obj = {"metadata": {"namespace": "ns", "name": "a"}}
        assert await cluster.create(keys.SECRET, obj) == {}
        assert len(server.asked) == 2
    async with raw(refusal) as (server, cluster):
        with pytest.raises(errors.NotReachableError):
            await cluster.create(keys.SECRET, obj)
        assert len(server.asked) == 2, "and not for ever"


async def test_a_read_on_a_connection_that_was_lost_meanwhile_is_sent_once_more() -> None:
    async with raw(in_turn(answered_whole, lost, answered_whole, then=lost)) as (server, cluster):
        assert await cluster.get(keys.SECRET, WEB) == {}
        assert await cluster.get(keys.SECRET, WEB) == {}
        assert (len(server.asked), server.connections) == (3, 2)
        with pytest.raises(errors.NotReachableError):
            await cluster.create(keys.SECRET, {"metadata": {"namespace": "ns", "name": "a"}})
        assert len(server.asked) == 4, "a write is not"


async def test_answers_before_the_answer_padding_and_trailers_are_read_over() -> None:
    def said(n: int) -> bytes:
        body = frame(DATA, PADDED, n, b"\3{}\0\0\0")
        return head(n, status="103") + head(n) + body + frame(HEADERS, 5, n, b"\x10\1a\1b")

    async with raw(said) as (_, cluster):
        assert await cluster.get(keys.SECRET, WEB) == {}


@pytest.mark.parametrize(
    "said",
    [
        answered_whole,
        lambda n: head(n, END_HEADERS | END, status="204"),
        lambda n: head(n) + frame(DATA, 0, n, b"ok") + frame(HEADERS, END_HEADERS | END, n),
    ],
    ids=["body", "none", "trailers"],
)
async def test_an_answer_that_is_over_makes_room_for_another_and_is_not_given_up(
    said: Reaction,
) -> None:
    async with raw(said) as (server, cluster):
        for _ in range(http2.AT_ONCE + 1):
            await cluster.get_text("/livez")
    assert server.connections == 1
    assert server.reset == []


async def test_who_gives_up_waiting_for_an_answer_says_so() -> None:
    async with raw(lambda _: b"") as (server, cluster):
        asking = asyncio.ensure_future(cluster.get_text("/livez"))
        await until(lambda: server.asked)
        asking.cancel()
        await until(lambda: server.reset)
    assert server.reset == server.asked


async def test_a_server_that_reads_nothing_of_what_it_asks_for_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its pings has an answer, which would wait for it in memory."""
    monkeypatch.setattr(http2, "MOST_IDLE_FRAMES", 10**9)
    server_: list[RawServer] = []

    def said(number: int) -> Iterator[bytes]:
        server_[0].hears = False
        return itertools.repeat(frame(PING, 0, 0, bytes(8)) * 10_000, 200)

    async with raw(said) as (server, cluster):
        server_.append(server)
        with pytest.raises(errors.NotReachableError, match="reads nothing"):
            await cluster.create(keys.SECRET, {"metadata": {"namespace": "ns", "name": "a"}})


async def test_many_answers_that_nobody_reads_take_their_windows_and_no_more() -> None:
    """A peer has 32 KiB under way of each until its turn comes. Source: H14."""

    def said(number: int) -> bytes:
        return head(number) + frame(DATA, 0, number, MUCH) * 2

    async with (
        raw(said, of_peer=True) as (server, cluster),
        contextlib.AsyncExitStack() as stack,
    ):
        tracemalloc.start()
        for _ in range(150):
            await stack.enter_async_context(cluster.stream("GET", "/log"))
        await until(lambda: server.said >= 150 * 2 * 2**14)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 24 * MIB
    assert server.connections == 2


async def test_more_than_the_window_of_who_does_not_read_ends_the_connection() -> None:
    async with (
        raw(lambda n: head(n) + frame(DATA, 0, n, MUCH) * 5) as (server, cluster),
        cluster.stream("GET", "/log") as log,
    ):
        await until(lambda: server.lost)
        with pytest.raises(http2.ProtocolError, match="may not send yet"):
            await anext(aiter(log.content.iter_any()))


async def test_a_slow_reader_holds_up_no_other_stream() -> None:
    def said(number: int) -> bytes:
        return answered_whole(number) if number > 1 else head(1) + frame(DATA, 0, 1, MUCH) * 4

    async with raw(said) as (_, cluster), cluster.stream("GET", "/log") as log:
        assert await cluster.ping() == ""
        log.close()
        with pytest.raises(ConnectionError):
            await anext(aiter(log.content.iter_any()))


async def test_times_end_calls_and_what_lasts_as_by_http_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "CALL_S", 0.2)

    def never(number: int) -> Iterator[bytes]:
        yield head(number)

    async with raw(never) as (server, cluster):
        with pytest.raises(errors.UnansweredError, match="no answer in time"):
            await cluster.get(keys.SECRET, WEB)
        await until(lambda: server.reset)
        async with cluster.stream("GET", "/log", idle_s=0.2) as log:
            with pytest.raises(http2.HttpTimeoutError):
                await anext(aiter(log.content.iter_any()))
    async with raw(lambda n: b"", first=b"") as (server, cluster):
        monkeypatch.setattr(transport, "CONNECT_S", 0.2)
        with pytest.raises(errors.NotReachableError, match="no answer in time") as raised:
            await cluster.get(keys.SECRET, WEB)
        assert not isinstance(raised.value, errors.UnansweredError)


async def test_a_large_request_waits_for_the_windows_of_the_server() -> None:
    bodies: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        bodies.append(len(await request.read()))
        return web.json_response({})

    obj = {"metadata": {"namespace": "ns", "name": "a"}, "data": {"a": "x" * 3 * MIB}}
    async with (
        serving(answer) as url,
        fronted(url) as (access, _),
        client.connect(access, user_agent="tests") as cluster,
    ):
        await asyncio.gather(*(cluster.create(keys.CONFIG_MAP, obj) for _ in range(4)))
    assert len(bodies) == 4
    assert min(bodies) > 3 * MIB


@contextlib.asynccontextmanager
async def watches_through_front(
    count: int, most: int = 100
) -> AsyncIterator[tuple[ClusterClient, Front]]:
    """Yield a client with so many watches, of a server that takes ``most`` on a connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(
            b'{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"a","resourceVersion":"7"}}}\n'
        )
        await asyncio.Event().wait()
        return response

    async with (
        serving(answer) as url,
        fronted(url) as (access, front),
        client.connect(access, user_agent="tests") as cluster,
        contextlib.AsyncExitStack() as stack,
    ):
        front.most_streams = most
        watches = [cluster.watch(SECRETS, "5") for _ in range(count)]
        for each in watches:
            stack.push_async_callback(each.aclose)
        await asyncio.gather(*(anext(each) for each in watches))
        yield cluster, front


@pytest.mark.parametrize(("count", "most", "expected"), [(250, 100, 3), (10, 4, 3), (10, 1000, 1)])
async def test_watches_share_connections(count: int, most: int, expected: int) -> None:
    async with watches_through_front(count, most) as (cluster, front):
        assert len(front.connections) == expected
        await asyncio.gather(*(cluster.get(keys.SECRET, WEB) for _ in range(20)))
        calls = len(front.connections) - expected
        assert calls == 1 if most >= 20 else calls <= 20 / most
        await cluster.get(keys.LEASE, WEB)
        await cluster.get(keys.NODE, Key("", "node"))
        assert len(front.connections) == expected + calls + 1


async def test_a_lease_that_was_not_renewed_in_time_is_followed_on_new_connections() -> None:
    """What was sent on those of before may have led nowhere; no watch ends for that."""
    async with watches_through_front(1) as (cluster, front):
        await cluster.get(keys.LEASE, WEB)
        await cluster.get(keys.SECRET, WEB)
        before = list(front.connections)
        assert len(before) == 3
        connection_ = cluster._transport.identity.connection  # noqa: SLF001
        connection_.start_anew()
        await until(lambda: sum(each.is_lost for each in before) == 2)
        await cluster.get(keys.LEASE, WEB)
        await cluster.get(keys.SECRET, WEB)
        assert len(front.connections) == 5
        assert not before[0].is_lost


# Pings, by HTTP/2 or by a WebSocket ---------------------------------------------------------------


async def without_end(response: web.StreamResponse) -> None:
    while True:
        await response.write(MUCH)


async def says_nothing(response: web.StreamResponse) -> None:
    await asyncio.Event().wait()


def by_http_1(access: Access) -> Access:
    return dataclasses.replace(access, tls_http2=None)


def with_a_token(access: Access) -> Access:
    return dataclasses.replace(access, authorization="Bearer token")


@pytest.mark.parametrize(
    ("to", "talk", "is_websocket"),
    [
        (lambda access: access, says_nothing, False),
        (lambda access: access, without_end, False),
        (by_http_1, says_nothing, True),
        (with_a_token, says_nothing, True),
    ],
)
async def test_a_server_that_falls_silent_is_found_by_pings_of_either_form(
    to: Callable[[Access], Access],
    talk: Callable[[web.StreamResponse], Awaitable[None]],
    is_websocket: bool,  # noqa: FBT001
) -> None:
    """A token may have passed a proxy that ends TLS and answers PINGs itself."""
    pings, doubts = 0, list[bool]()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal pings
        if "Upgrade" in request.headers:
            socket = web.WebSocketResponse(autoping=False)
            await socket.prepare(request)
            async for message in socket:
                pings += 1
                await socket.pong(message.data)
            return socket
        if "watch" not in request.query:
            return web.json_response({})
        response = web.StreamResponse()
        await response.prepare(request)
        await talk(response)
        return response

    async with (
        asyncio.timeout(60),
        serving(answer) as url,
        fronted(url) as (access, front),
        client.connect(to(access), user_agent="tests") as cluster,
        cluster.pulse(SECRETS) as pulse,
    ):
        follows = asyncio.create_task(pulse.follow(lambda: doubts.append(True), turn_s=0.05))
        await until(lambda: front.pings + pings >= 10)
        assert not follows.done()
        doubts.clear()
        front.falls_silent()
        assert await follows
        assert len(doubts) == 1
        assert bool(pings) == is_websocket
        assert bool(front.pings) != is_websocket


async def test_a_server_that_says_nothing_to_pings_is_sent_few() -> None:
    async with (
        raw(in_turn(answered_whole, then=head)) as (server, cluster),
        cluster.pulse(SECRETS) as pulse,
    ):
        assert await pulse.follow(lambda: None, turn_s=0.01)
        await until(lambda: server.pings > 0)
        assert 0 < server.pings <= SILENT_TURNS


async def test_pings_end_with_the_watch_the_connection_and_the_identity() -> None:
    async with raw(answered_whole) as (_, cluster), cluster.pulse(SECRETS) as pulse:
        assert not await pulse.follow(lambda: None)
        assert pulse.is_current()
    async with (
        raw(in_turn(answered_whole, then=head)) as (server, cluster),
        cluster.pulse(SECRETS) as pulse,
    ):
        server.breaks_at_a_ping = True
        assert not await pulse.follow(lambda: None)
        assert pulse.is_current()
    async with (
        raw(in_turn(answered_whole, then=head)) as (_, cluster),
        cluster.pulse(SECRETS) as pulse,
    ):
        cluster.replace(dataclasses.replace(cluster.access, digest="another"))
        assert not await pulse.follow(lambda: None)
        assert not pulse.is_current()


async def test_where_a_server_speaks_no_http_2_it_is_asked_by_http_1() -> None:
    async with tls_serving(proof()) as (server, port):
        assert access_to(port).tls_http2 is not None
        async with client.connect(access_to(port), user_agent="t") as cluster:
            assert await cluster.get(keys.POD, Key("shop", "web"))
            assert await cluster.get(keys.POD, Key("shop", "web"))
    assert server.heard.count(b"HTTP/1.1\r\n") == 2


async def test_nothing_that_logs_us_in_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By the library that packs headers, at the level ``debug``."""
    caplog.set_level(logging.DEBUG)
    async with raw(answered_whole, authorization="Bearer s3cr3t") as (_, cluster):
        assert await cluster.get(keys.SECRET, WEB) == {}
    assert "s3cr3t" not in caplog.text


# Whatever comes -----------------------------------------------------------------------------------


class Written:
    """A transport that keeps how much was written, and whether it was closed."""

    def __init__(self) -> None:
        self.size, self.is_closed = 0, False

    def get_extra_info(self, name: str) -> object:
        return self

    def selected_alpn_protocol(self) -> str:
        return "h2"

    def get_write_buffer_size(self) -> int:
        return self.size

    def write(self, data: bytes) -> None:
        self.size += len(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed


NUMBERS: Final = st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1])
SAID: Final = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\x88", b"\x88\x10\x0econtent-length\x011", bytes(4), bytes(8), b"\0\0\0\1"]),
    st.integers(0, 2**14).map(bytes),
)
FRAMES: Final = st.builds(
    frame, st.integers(0, 10), st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 32, 255]), NUMBERS, SAID
)
PIECES: Final = st.lists(st.one_of(FRAMES, FRAMES, st.binary(max_size=30)), max_size=30)


@settings(max_examples=300, deadline=None)
@given(pieces=PIECES, cut=st.integers(1, 5000), reads=st.booleans())
def test_whatever_a_server_says_each_request_ends_and_little_is_kept(
    pieces: list[bytes], cut: int, *, reads: bool
) -> None:
    async def run() -> None:
        lost: list[Http2Connection] = []
        made = Http2Connection(Window(2**15, 2**17), lost.append)
        written = Written()
        made.connection_made(cast("asyncio.Transport", written))
        made.data_received(frame(SETTINGS, 0, 0))
        tasks = [asyncio.ensure_future(request_on(made, reads=reads)) for _ in range(3)]
        await asyncio.sleep(0)
        said = b"".join(pieces)
        for at in range(0, len(said), cut):
            made.data_received(said[at : at + cut])
            assert len(made._unparsed) <= 2**14 + 9  # noqa: SLF001
            if reads:
                await asyncio.sleep(0)
        assert sum(len(each._body) for each in made._streams.values()) <= 3 * 2**17  # noqa: SLF001
        made.connection_lost(None)
        for result in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10):
            assert result is None or isinstance(result, OSError), result
        assert lost == [made]

    asyncio.run(run())


async def request_on(made: Http2Connection, *, reads: bool) -> None:
    answer = await made.ask([(":method", "GET"), (":path", "/")], b"x" * 100, Within(5))
    if reads:
        with contextlib.closing(answer):
            async for _ in answer:
                pass
