"""Whatever a server answers, a cache is true once the server is well again, and nothing grows.

``PYLIQO_TEST_EVENTS=1000000`` is the full size of a watch that repeats one event.
Source: docs/parity.md SEC-B8.
"""

import asyncio
import contextlib
import gc
import gzip
import itertools
import json
import os
import struct
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import pytest
from aiohttp import web

from apis import keys
from apis.objects import Key, Object
from kube import client, credentials, errors, peer, remotecommand, transport, wire
from kube.client import ClusterClient
from kube.cluster import MemoryQuota, Selection
from kube.informer import Change, Informer
from kube.peer import PeerCluster
from kube.slim import Packed
from kube.untrusted import decode
from kube.untrusted.decode import PeerDecoder
from tests.conftest import size_of
from tests.kube.running import Answer, Time, running, serving, until

MANY: Final = size_of("PYLIQO_TEST_EVENTS", 3000, 1_000_000)
MIB: Final = 2**20
MOST: Final = 256 * MIB
"""What a script may take here, where both ends are one process."""
TRUTH: Final = {"metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7"}}
LISTED: Final = {"metadata": {"resourceVersion": "9"}, "items": [TRUTH]}


def body(data: bytes, status: int = 200, **headers: str) -> Answer:
    """Answer with ``data``, as JSON unless ``headers`` say something else."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_: web.Request) -> web.StreamResponse:
        said = {"Content-Type": "application/json", **named}
        return web.Response(body=data, status=status, headers=said)

    return answer


def chunks(of: Callable[[], Any], *, is_cut: bool = False) -> Answer:
    """Answer with what ``of`` gives, for as long as anybody reads it; ``is_cut`` breaks it off."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(OSError):
            for chunk in of():
                await response.write(chunk)
        if is_cut and request.transport is not None:
            request.transport.abort()
        return response

    return answer


async def silence(request: web.Request) -> web.StreamResponse:
    """Answer with a head and nothing more."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


async def drip(request: web.Request) -> web.StreamResponse:
    """Answer a byte at a time, each of them soon enough."""
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(OSError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)
    return response


def new_pages() -> Answer:
    """Answer with a page of nothing that leads to another one, for ever."""
    tokens = itertools.count()

    async def answer(_: web.Request) -> web.StreamResponse:
        head = {"resourceVersion": "9", "continue": str(next(tokens))}
        return web.json_response({"metadata": head, "items": []})

    return answer


def said(type_: str, obj: Any = TRUTH) -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def events(*lines: bytes, is_cut: bool = False) -> Answer:
    return chunks(lambda: lines, is_cut=is_cut)


def older(version: str) -> Object:
    return {"metadata": {**TRUTH["metadata"], "resourceVersion": version}}


ENDLESS: Final = b'{"type":"ERROR","object":{"code":%s}}\n' % (b"9" * 5_000)
GONE: Final = said("ERROR", {"code": 410, "reason": "Expired"})
SPACES: Final = b" " * MIB
BOMB: Final = gzip.compress(bytes(16 * MIB), 1)
LISTS: Final[dict[str, Answer]] = {
    "a bomb": body(BOMB, Content_Encoding="gzip"),
    "a bomb that says nothing of it": body(BOMB),
    "an error without end": chunks(lambda: itertools.repeat(SPACES)),
    "pages without end": new_pages(),
    "a byte at a time": drip,
    "a head and no body": silence,
    "a head of a mebibyte": body(b"{}", X_Much="x" * MIB),
    "busy for thirty years": body(b"{}", 429, Retry_After="1000000000"),
    "unavailable": body(b"{}", 503, Retry_After="soon"),
    "elsewhere": body(b"{}", 302, Location="http://127.0.0.1:9/"),
    "a page for people": body(b"<html>", Content_Type="text/html"),
    "less than promised": body(b'{"metadata"', Content_Length="100000"),
    "nothing": body(b""),
    "no list": body(b"[]"),
    "no text": body(b"\xff\xfe\x00"),
    "no end of brackets": body(b'{"a":' * 200_000),
    "items that are none": body(b'{"metadata":{"resourceVersion":"1"},"items":[1,null,"x"]}'),
    "a version that is a number": body(b'{"metadata":{"resourceVersion":5},"items":[]}'),
    "an error in an error": body(b'{"reason":{"a":[]},"code":"x","message":5}', 500),
}
WATCHES: Final[dict[str, Answer]] = {
    "one event again and again": chunks(lambda: itertools.repeat(said("MODIFIED"), MANY)),
    "gone": events(GONE),
    "of yesterday": events(said("MODIFIED", older("3")), said("BOOKMARK", older("2")), GONE),
    "an event without end": chunks(lambda: itertools.repeat(SPACES)),
    "nothing": events(),
    "silence": silence,
    "half an event": events(said("MODIFIED")[:30], is_cut=True),
    "no JSON": events(b"{broken}\n"),
    "no object": events(b'{"type":"ADDED","object":{"metadata":5}}\n'),
    "no text": events(b"\xff\xff\n"),
    "an error whose code is a word": events(said("ERROR", {"code": "abc"})),
    "an error whose code has no end": events(ENDLESS),
    "a version of 5,000 digits": events(said("MODIFIED", older("9" * 5_000)), GONE),
    "a type that nobody knows": events(said("NOISE"), GONE),
    "the end of what never was": events(
        said("DELETED", {"metadata": {"namespace": "ns", "name": "never"}}), GONE
    ),
    "a bomb": body(BOMB, Content_Encoding="gzip"),
    "a refusal": body(b"{}", 500),
}


class AnsweringServer:
    """Plays an act a few times where it is asked for it, and tells the truth otherwise."""

    def __init__(self, act: Answer, times: int, *, is_watch: bool) -> None:
        self.act, self.left, self.is_watch = act, times, is_watch
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/livez":
            return web.Response()
        self.asked += 1
        is_watch = "watch" in request.query
        if is_watch == self.is_watch and self.left:
            # A page leads to the next: all of them are one list.
            self.left -= "continue" not in request.query
            return await self.act(request)
        if "continue" in request.query:
            return await self.act(request)
        return await (silence(request) if is_watch else body(json.dumps(LISTED).encode())(request))


@pytest.mark.parametrize(
    ("act", "is_watch"),
    [
        *(pytest.param(act, False, id=f"list: {name}") for name, act in LISTS.items()),
        *(pytest.param(act, True, id=f"watch: {name}") for name, act in WATCHES.items()),
    ],
)
async def test_a_cache_is_true_once_its_server_is_well(
    monkeypatch: pytest.MonkeyPatch, act: Answer, *, is_watch: bool
) -> None:
    monkeypatch.setattr(transport, "CALL_S", 1.0)
    monkeypatch.setattr(client, "LIST_S", 1.5)
    time, told = Time(), list[Change[Object]]()
    server = AnsweringServer(act, times=2, is_watch=is_watch)
    informer = Informer(
        Selection(keys.CONFIG_MAP, Object),
        clock=time, dice=lambda: 1.0, sleep=time.sleep, silent_s=(1.0, 1.0),
    )  # fmt: skip
    informer.subscribe(told.append)
    tracemalloc.start()
    try:
        async with (
            serving(server.answer) as url,
            client.connect(credentials.plain(url), user_agent="pyliqo-test/1") as cluster,
            running(informer.run(cluster)),
        ):
            await until(lambda: not server.left, within_s=120)
            asked = server.asked
            await until(lambda: server.asked > asked and list(informer.items()) == [A], 120)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert informer.items()[A]["metadata"]["uid"] == "u"
    assert peak < MOST
    assert max(time.slept, default=0) <= 30, "nobody is believed that says: in thirty years"
    assert all(change.new is not None for change in told), "nothing was taken for gone"


A: Final = Key("ns", "a")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_answer_sends_a_request_or_a_websocket_elsewhere(status: int) -> None:
    """Else a provider has the consumer ask any address, its own network included."""
    asked: list[str] = []

    async def victim(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response()

    async with serving(victim) as elsewhere:

        async def away(_: web.Request) -> web.StreamResponse:
            headers = {"Location": f"{elsewhere}/latest/meta-data"}
            return web.Response(status=status, headers=headers)

        async with (
            serving(away) as url,
            client.connect(credentials.plain(url), user_agent="tests") as cluster,
        ):
            with pytest.raises(errors.KubeError):
                await cluster.get_live(keys.SECRET, Key("ns", "a"))
            with pytest.raises(errors.KubeError):
                async with cluster.pulse(Selection(keys.SECRET, dict)):
                    pass
            with pytest.raises(errors.KubeError):
                async with cluster.execute(Key("ns", "a"), "app", ["true"]):
                    pass

    assert asked == []


class Taken:
    """Says what has no end, and counts how much of it is taken."""

    def __init__(self, head: bytes = b"") -> None:
        self._head, self.bytes = head, 0

    async def without_end(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._say(response.write)
        return response

    async def frame(self, request: web.Request) -> web.StreamResponse:
        """Upgrade, and begin one frame of a tebibyte."""
        socket = web.WebSocketResponse(protocols=remotecommand.PROTOCOLS)
        await socket.prepare(request)
        transport_ = request.transport
        assert isinstance(transport_, asyncio.Transport)
        transport_.write(bytes([0x82, 127]) + struct.pack("!Q", 2**40))

        async def write(chunk: bytes) -> None:
            if transport_.is_closing():
                raise ConnectionResetError
            if not transport_.get_write_buffer_size():
                transport_.write(chunk)
            else:
                self.bytes -= len(chunk)
            await asyncio.sleep(0)

        await self._say(write)
        return socket

    async def _say(self, write: Callable[[bytes], Any]) -> None:
        with contextlib.suppress(OSError):
            while self.bytes < MOST:
                self.bytes += len(SPACES)
                await write(SPACES)


async def test_a_ping_takes_no_answer_without_end() -> None:
    taken = Taken()
    async with (
        serving(taken.without_end) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        with pytest.raises(errors.NotReachableError, match="larger than"):
            await cluster.ping()

    assert taken.bytes <= 16 * MIB, "what the sockets' buffers hold"


async def test_a_pulse_and_a_command_take_no_frame_of_a_tebibyte() -> None:
    pulse, command = Taken(), Taken()

    async def answer(request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        return await (pulse if is_watch else command).frame(request)

    async with (
        asyncio.timeout(60),
        serving(answer) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        async with cluster.pulse(Selection(keys.SECRET, dict)) as beat:
            assert not await beat.follow(lambda: None), "the watch is over"
        with pytest.raises(errors.NotReachableError):
            async with cluster.execute(A, "app", ["true"]) as running_:
                await running_.text()

    assert pulse.bytes <= 16 * MIB
    assert command.bytes <= 16 * MIB


NAMELESS: Final = {"metadata": {"resourceVersion": "7"}}
ODD: Final = [
    NAMELESS,
    {"metadata": {"namespace": "ns", "name": "..", "resourceVersion": "7"}},
    {"metadata": {"namespace": "other", "name": "a", "resourceVersion": "7"}},
]


async def test_what_was_not_asked_for_reaches_nobody() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            lines = [*(said("ADDED", each) for each in ODD), said("MODIFIED", older("8"))]
            return await events(*lines)(request)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [*ODD, TRUTH]})

    of = Selection(keys.SECRET, dict, "ns")
    async with (
        serving(answer) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        assert list((await cluster.list(of)).items) == [A]
        assert [each.key async for each in cluster.watch(of, "1")] == [A]


@pytest.mark.parametrize("is_watch", [False, True])
async def test_of_what_the_consumer_does_not_have_no_more_is_kept_than_where_it_is(
    *, is_watch: bool
) -> None:
    """It takes less than the object would, and has the same bound."""
    many = [
        {
            "metadata": {"namespace": "ns", "name": f"m{number}"},
            "data": {"x": os.urandom(9_000).hex()},
        }
        for number in range(20)
    ]
    items = [TRUTH, *many, {"metadata": {"namespace": "ns", "name": "odd", "uid": 5}}]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await events(*(said("ADDED", each) for each in items))(request)
        there = [] if is_watch else items
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": there})

    async def kept(keeps: Callable[[Key], bool], most: int = 40_000) -> Informer[Packed]:
        of = Selection(keys.SECRET, Packed, "ns", kept=MemoryQuota(most), keeps=keeps)
        time = Time()
        informer = Informer(of, clock=time, dice=lambda: 1.0, sleep=time.sleep)
        async with (
            serving(answer) as url,
            peer.connect(credentials.plain(url), user_agent="tests") as cluster,
            running(informer.run(cluster)),
        ):
            await until(lambda: informer.too_much or len(informer.items()) > 21, within_s=30)
        return informer

    ours = await kept(A.__eq__)
    assert not ours.too_much
    assert {key for key, item in ours.items().items() if not item.is_outline} == {A}
    noted = ours.items()[Key("ns", "m7")].whole()
    assert noted["metadata"]["name"] == "m7"
    assert set(noted) == {"metadata"}
    assert ours.items()[Key("ns", "odd")].metadata.uid == ""
    everything = await kept(lambda _: True)
    assert "more than is kept of a peer, 40000 bytes" in everything.too_much
    few = await kept(A.__eq__, most=10_000)
    assert "more than is kept of a peer, 10000 bytes" in few.too_much


async def test_what_is_kept_of_a_peer_is_counted_together_and_given_back() -> None:
    big = {"metadata": {"namespace": "ns", "name": "a"}, "x": "y" * 6_000}

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await events(said("DELETED", big))(request)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [big]})

    kept = MemoryQuota(10_000)
    time = Time()
    first, second = (
        Informer(Selection(kind, Object, "ns", kept=kept), clock=time, sleep=time.sleep)
        for kind in (keys.SECRET, keys.CONFIG_MAP)
    )
    async with (
        serving(answer) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        kept.used = 9_000
        async with running(second.run(cluster)):
            await until(lambda: second.too_much, within_s=30)
            kept.used = 0
            await until(lambda: not second.too_much, within_s=30)
        async with running(first.run(cluster)):
            await until(first.synced.is_set, within_s=30)
        assert kept.used == 0, "what is followed no longer takes nothing"


async def test_lists_that_arrive_at_once_are_counted_together_and_given_back() -> None:
    """Each is small enough by itself; the first page of both is there before any second."""
    page = {"metadata": {"namespace": "ns", "name": "a"}, "x": os.urandom(3_000).hex()}
    kept, both_wait, waiting = MemoryQuota(10_000), asyncio.Event(), 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        if "continue" not in request.query:
            rest = {"resourceVersion": "1", "continue": "more"}
            return web.json_response({"metadata": rest, "items": [page]})
        waiting += 1
        if waiting == 2:
            both_wait.set()
        await asyncio.wait_for(both_wait.wait(), 30)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with (
        serving(answer) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        lists = (
            cluster.list(Selection(kind, Packed, "ns", kept=kept))
            for kind in (keys.SECRET, keys.CONFIG_MAP, keys.SERVICE)
        )
        found = await asyncio.gather(*lists, return_exceptions=True)
        refused = [one for one in found if isinstance(one, errors.TooMuchError)]
        assert len(refused) == 1, found
        again = await cluster.list(Selection(keys.SECRET, Packed, "ns", kept=kept))
        assert list(again.items) == [A], "what has arrived or failed takes nothing"


@pytest.mark.parametrize("is_watch", [False, True])
async def test_many_lists_and_watches_that_wait_keep_nothing_of_what_was_said_last(
    *, is_watch: bool
) -> None:
    """Hundreds of lists without an end kept a page each until the next one came."""
    many, waiting, told = 50, 0, 0
    small = {"metadata": {"namespace": "ns", "name": "large", "resourceVersion": "8"}}
    large = {**small, "data": {"x": os.urandom(MIB // 2).hex()}}
    page = body(json.dumps({"metadata": {"continue": "more"}, "items": [large]}).encode())
    listed = body(json.dumps({"metadata": {"resourceVersion": "7"}, "items": [small]}).encode())
    gone = said("DELETED", large)

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        if "continue" in request.query:
            waiting += 1
            return await silence(request)
        if "watch" not in request.query:
            return await (listed if is_watch else page)(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(gone)
        await asyncio.Event().wait()
        return response

    def see(change: Change[Object]) -> None:
        nonlocal told
        told += change.new is None

    def follow(of: Selection[Object], cluster: PeerCluster) -> Coroutine[Any, Any, None]:
        informer = Informer(of)
        informer.subscribe(see)
        return informer.run(cluster)

    of = Selection(keys.SECRET, Object, "ns")
    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="x") as found,
    ):
        tracemalloc.start()
        try:
            packed = Selection(keys.SECRET, Packed, "ns", keeps=A.__eq__)
            work = [follow(of, found) if is_watch else found.list(packed) for _ in range(many)]
            async with running(*work):
                await until(lambda: told == many or waiting == transport.BULK_AT_ONCE)
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert kept < 16 * MIB, f"{kept / MIB:.0f} MiB"


async def test_a_page_that_is_too_large_is_asked_for_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PeerCluster, "_most_answer", 2**16)
    items = [
        {"metadata": {"namespace": "ns", "name": f"m{number:03}"}, "x": "y" * 4_000}
        for number in range(40)
    ]
    limits: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        limit, begin = int(request.query["limit"]), int(request.query.get("continue", "0"))
        limits.append(limit)
        rest = str(begin + limit) if begin + limit < len(items) else ""
        metadata = {"resourceVersion": "1", "continue": rest}
        return web.json_response({"metadata": metadata, "items": items[begin : begin + limit]})

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="x") as found,
    ):
        assert len((await found.list(Selection(keys.SECRET, Object, "ns"))).items) == len(items)
    assert limits == [500, 62, 7, 7, 7, 7, 7, 7]


async def test_an_object_of_a_million_parts_is_not_decoded() -> None:
    parts = b'{"metadata":{"namespace":"ns","name":"a"},"x":[%s]}' % b",".join([b"{}"] * 10**6)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=parts, content_type="application/json")

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="x") as found,
    ):
        with pytest.raises(errors.NotReachableError, match="not a JSON object"):
            await found.get(keys.SECRET, Key("ns", "a"))


async def test_an_object_of_a_peer_that_is_larger_than_any_server_stores_is_not_read() -> None:
    """A page may have 16 MiB; of objects many workers hold one each."""
    large = body(json.dumps({**TRUTH, "data": {"x": "y" * 5 * MIB}}).encode())

    async with serving(large) as url, peer.connect(credentials.plain(url), user_agent="x") as found:
        with pytest.raises(errors.LargerError):
            await found.get(keys.SECRET, Key("ns", "a"))


@pytest.mark.parametrize("is_watch", [False, True])
async def test_a_large_answer_that_does_not_go_on_lets_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch, *, is_watch: bool
) -> None:
    """Two are large: the first stops in the middle, the second is read once that took too long."""
    monkeypatch.setattr(wire, "LARGE_S", 0.3)
    secret = json.dumps({**TRUTH, "x": "y" * 2 * wire.FREELY}).encode()
    stuck = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=secret, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":' + secret[:-1])
        stuck.set()
        await asyncio.sleep(60)
        return response

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="x") as found,
    ):

        async def follow() -> None:
            async for _ in found.watch(Selection(keys.SECRET, Object, "ns"), "1"):
                pass

        following = asyncio.ensure_future(follow())
        await stuck.wait()
        if is_watch:
            with pytest.raises(errors.NotReachableError, match="took longer than 0 s"):
                await following
        else:
            assert await found.get(keys.SECRET, A)
            with pytest.raises(errors.NotReachableError):
                await following


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_an_answer_that_breaks_off_leaves_nothing_behind(verb: str) -> None:
    """Also before the collector comes: an error of aiohttp's and its answer refer to each other."""
    piece, failures = b" " * MIB, 20

    async def answer(request: web.Request) -> web.StreamResponse:
        is_list = "watch" not in request.query
        if is_list and verb == "watch":
            return web.json_response(LISTED)
        if is_list and "continue" not in request.query:
            noted = {**TRUTH, "metadata": {**TRUTH["metadata"], "annotations": {"x": "y" * MIB}}}
            rest = {"resourceVersion": "1", "continue": "more"}
            return web.json_response({"metadata": rest, "items": [noted]})
        return await chunks(lambda: [b'{"items":[', piece, piece], is_cut=True)(request)

    time = Time()
    informer = Informer(Selection(keys.SECRET, Packed, "ns", kept=MemoryQuota(4 * MIB)),
                        clock=time, dice=lambda: 1.0, sleep=time.sleep)  # fmt: skip
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with (
            serving(answer) as url,
            peer.connect(credentials.plain(url), user_agent="tests") as cluster,
            running(informer.run(cluster)),
        ):
            await until(lambda: len(time.slept) >= failures, within_s=60)
            left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < failures * MIB / 2, "less than a part of each answer"


async def measured(act: Answer, ask: Callable[[ClusterClient], Awaitable[object]]) -> int:
    """Return how many bytes it takes here to ``ask`` a server that answers by ``act``."""
    async with (
        serving(act) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
    ):
        tracemalloc.start()
        try:
            with pytest.raises(errors.KubeError):
                await ask(cluster)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


async def test_what_a_command_writes_is_bounded() -> None:
    async def talks(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=remotecommand.PROTOCOLS)
        await socket.prepare(request)
        with contextlib.suppress(OSError):
            while not socket.closed:
                await socket.send_bytes(b"\x01" + b"x" * 2**15)
        return socket

    async def asks(cluster: ClusterClient) -> None:
        async with cluster.execute(A, "app", ["yes"]) as command:
            await command.text()

    assert await measured(talks, asks) < 16 * MIB


async def test_what_changed_before_a_list_that_is_too_much_is_told_after_it() -> None:
    def secret(name: str, version: str, size: int = 100) -> Object:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version}
        return {"metadata": metadata, "x": "y" * size}

    there = [secret("a", "1"), secret("b", "1")]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": there})

    time = Time()
    kept = MemoryQuota(10_000)
    kept.take("another watch of the peer", 6_000, 0)  # so it is the informer that refuses the list
    of = Selection(keys.SECRET, Object, "ns", kept=kept)
    informer: Informer[Object] = Informer(of, clock=time, sleep=time.sleep)
    seen: list[tuple[str, str]] = []
    async with (
        serving(answer) as url,
        client.connect(credentials.plain(url), user_agent="tests") as cluster,
        running(informer.run(cluster)),
    ):
        await until(informer.synced.is_set, within_s=30)
        informer.subscribe(
            lambda change: (
                seen.append((change.key.name, change.new["metadata"]["resourceVersion"]))
                if change.new
                else seen.append((change.key.name, "gone"))
            )
        )
        seen.clear()
        there[:] = [secret("b", "2"), secret("big", "1", 5_000)]
        await until(lambda: informer.too_much, within_s=30)
        assert seen == []
        assert set(informer.items()) == {Key("ns", "a"), Key("ns", "b")}
        there[:] = [secret("b", "2")]
        await until(lambda: not informer.too_much, within_s=30)
        await until(lambda: len(seen) == 2, within_s=30)

    assert sorted(seen) == [("a", "gone"), ("b", "2")]


async def test_brackets_in_a_text_are_no_parts_and_one_object_that_is_too_much_hides_no_other() -> (
    None
):
    def config_map(name: str, **rest: Any) -> Object:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}
        return {"metadata": metadata, **rest}

    text = config_map("text", data={"graph.json": "[[]," * 100_000})
    much = config_map("much", data={"a": "b"}, more=[[]] * (decode.MAX_PARTS + 1))
    items = [text, much, config_map("other", data={"a": "b"})]

    async def answer(request: web.Request) -> web.StreamResponse:
        named = {each["metadata"]["name"]: each for each in items}
        said = named.get(request.path.rpartition("/")[2])
        return web.json_response(said or {"metadata": {"resourceVersion": "1"}, "items": items})

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="t") as cluster,
    ):
        listing = await cluster.list(Selection(keys.CONFIG_MAP, Packed, "ns"))
        read = await cluster.get(keys.CONFIG_MAP, Key("ns", "text"))
        with pytest.raises(errors.UnreadableError) as refused:
            await cluster.get(keys.CONFIG_MAP, Key("ns", "much"))

    assert {key.name for key in listing.items} == {"text", "much", "other"}
    assert listing.items[Key("ns", "much")].is_outline
    assert listing.items[Key("ns", "much")].metadata.uid == "much"
    assert listing.items[Key("ns", "other")].whole()["data"] == {"a": "b"}
    assert read is not None
    assert read["data"] == text["data"]
    assert not errors.is_away(refused.value), "nobody looks for its return"


@pytest.mark.parametrize("end", [b"", b"\\", b'"'])
def test_quotes_without_an_end_are_looked_through_once(end: bytes) -> None:
    hostile = b"{" * (decode.MAX_PARTS + 1) + b'"' + b'\\"' * 2_000_000 + end

    with pytest.raises(ValueError, match="more than"):
        PeerDecoder(print).check(hostile)
