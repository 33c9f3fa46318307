"""Whatever a provider answers to exec or logs, nobody is led elsewhere, and nothing stays behind.

Frames and headers of SPDY and WebSocket pass as bytes: nothing here reads or inflates them.
Source: docs/parity.md SEC-B10.
"""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from kubelet.api import streams
from tests.kubelet import rigs
from tests.kubelet.rigs import Rig
from tests.kubelet.streams import EXEC, HEAD, SPDY, opened, tasks

LOGS: Final = "/containerLogs/shop/web/main?follow=true"
MIB: Final = 2**20
FLOOD: Final = 64 * MIB
MOST: Final = 16 * MIB
Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK: Final = b"HTTP/1.1 200 OK\r\n"


def says(*pieces: bytes) -> Act:
    """Answer so, and close."""

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return act


def begins(*pieces: bytes) -> Act:
    """Answer so, and say nothing more until the other side is gone."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(*pieces)(reader, writer)
        await reader.read()

    return act


def without_end(head: bytes, piece: bytes) -> Act:
    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return act


WELL: Final = says(OK + b"Content-Length: 0\r\n\r\n")


class ActingProvider:
    """Plays one act to the one who comes; knows who came, and who is still there."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.came = 0
        self.there: set[asyncio.Task[Any]] = set()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.there.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                is_probe = b" /livez " in head  # whether anybody is there, after what was no answer
                self.came += not is_probe
                await (WELL if is_probe else self.act)(reader, writer)
        finally:
            self.there.discard(task)
            writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def hostile_kubelet_api(act: Act) -> AsyncIterator[tuple[Rig, ActingProvider]]:
    """Run a kubelet API whose provider plays ``act``; in the end nothing is left of any stream."""
    provider = ActingProvider(act)
    async with provider.listening() as port, rigs.kubelet_api(port) as rig:
        at_first = await rig.apart.run(tasks())
        yield rig, provider
        async with asyncio.timeout(300):
            while await rig.apart.run(tasks()) > at_first or provider.there:
                pass  # counting takes its time
        assert streams.STREAMS.labels("exec")._value.get() == 0  # noqa: SLF001  # no other way


REFUSALS: Final[dict[str, Act]] = {
    "elsewhere": says(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
    "elsewhere, for good": says(b"HTTP/1.1 308 No\r\nLocation: /elsewhere\r\n\r\n"),
    "nothing": says(),
    "half a head": says(HEAD[:20]),
    "no head": says(b"hello\r\n\r\n"),
    "no number": says(b"HTTP/1.1 many Now\r\n\r\n"),
    "a head without end": without_end(OK, b"X-Much: " + b"x" * 9000 + b"\r\n"),
    "a line without end": without_end(b"HTTP/1.1 101 ", b"x" * 9000),
    "no text": says(b"HTTP/1.1 \xff\xfe\x00\r\n\r\n"),
    "no upgrade": says(OK + b"Content-Length: 2\r\n\r\nok"),
    "a refusal without end": without_end(
        b"HTTP/1.1 403 No\r\nContent-Length: 999999999999\r\n\r\n", b"x" * 9000
    ),
    "a refusal in chunks without end": without_end(
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nxxxxx\r\n"
    ),
    "a chunk that is none": says(
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n"
    ),
    "a length that is none": says(b"HTTP/1.1 500 No\r\nContent-Length: -5\r\n\r\n"),
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in REFUSALS.items()])
async def test_what_is_no_stream_is_a_refusal(act: Act) -> None:
    async with hostile_kubelet_api(act) as (rig, provider):
        async with opened(rig, EXEC, SPDY) as (reader, _), asyncio.timeout(300):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"location" not in head.lower()
        assert provider.came == 1


@pytest.mark.parametrize(
    "act",
    [
        says(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"),
        says(b"hello\r\n\r\n"),
        says(OK + b"X-Much: " + b"x" * MIB + b"\r\n\r\n"),
        says(),
    ],
    ids=["elsewhere", "no head", "a head of a mebibyte", "nothing"],
)
async def test_what_is_no_log_is_a_refusal(act: Act) -> None:
    async with hostile_kubelet_api(act) as (rig, provider):
        status, _ = await rig.get(LOGS)
        assert status == 502
        assert provider.came <= 2, "a read may be tried once more where nothing was answered"


@pytest.mark.parametrize(
    "act",
    [
        says(HEAD),
        says(HEAD, b"\x80\x03\x00\x01\xff\xff\xff\xff"),
        says(HEAD, b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff"),
    ],
    ids=["nothing", "a SPDY frame of 16 MiB", "a WebSocket frame of 2^64"],
)
async def test_frames_that_never_come_are_waited_for_by_nobody(act: Act) -> None:
    async with (
        hostile_kubelet_api(act) as (rig, _),
        opened(rig, EXEC, SPDY) as (reader, _),
        asyncio.timeout(300),
    ):
        await reader.readexactly(len(HEAD))
        await reader.read()


async def test_a_log_that_breaks_off_has_no_end() -> None:
    """Who reads it takes it neither for whole nor for another answer."""
    piece = b"4\r\none\n\r\n"
    act = says(OK + b"Transfer-Encoding: chunked\r\n\r\n" + piece)
    async with (
        hostile_kubelet_api(act) as (rig, _),
        opened(rig, LOGS, {}, "GET") as (reader, _),
        asyncio.timeout(300),
    ):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body in (b"", piece)


@pytest.mark.parametrize("path", [EXEC, LOGS])
async def test_who_leaves_leaves_nothing_behind(path: str) -> None:
    head = HEAD if path == EXEC else OK + b"Content-Length: 9999\r\n\r\none\n"
    headers = SPDY if path == EXEC else {}
    method = "POST" if path == EXEC else "GET"
    async with (
        hostile_kubelet_api(begins(head)) as (rig, _),
        opened(rig, path, headers, method) as (reader, writer),
        asyncio.timeout(300),
    ):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()


@pytest.mark.parametrize("path", [EXEC, LOGS])
async def test_what_nobody_reads_is_not_kept(path: str) -> None:
    """The provider has to wait; what is on its way is in the buffers of the sockets."""
    head = HEAD if path == EXEC else OK + b"Content-Length: %d\r\n\r\n" % FLOOD
    headers, method = (SPDY, "POST") if path == EXEC else ({}, "GET")
    piece, all_sent = bytes(2**16), asyncio.Event()

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _number in range(FLOOD // len(piece)):
            writer.write(piece)
            await writer.drain()
        all_sent.set()

    async with hostile_kubelet_api(act) as (rig, _):
        async with opened(rig, path, headers, method) as (reader, _), asyncio.timeout(300):
            await reader.readuntil(b"\r\n\r\n")
            tracemalloc.start()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):  # what would be kept comes in this time
                        await all_sent.wait()
                got = 0
                while got < FLOOD and (some := await reader.read(2**16)):
                    got += len(some)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert got >= FLOOD
        assert peak < MOST
