"""exec, attach and port-forward are a tunnel of bytes, of which nothing is lost or looked at."""

import asyncio
import contextlib
import hashlib
import secrets
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import listener
from kube import credentials, errors
from kube.credentials import Access
from kubelet.api import streams, tunnel
from tests.conftest import size_of
from tests.kubelet import rigs
from tests.kubelet.rigs import Rig
from tests.kubelet.streams import EXEC, HEAD, SPDY, opened, tasks
from tests.world import descriptors

WEBSOCKET = {
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    "Sec-WebSocket-Version": "13",
    "User-Agent": "caf\xe9/1 \udce9",  # text, and a byte that is none
}
UPGRADE = {
    "Connection",
    "Upgrade",
    "X-Stream-Protocol-Version",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Protocol",
}
"""What of a provider's head is passed on."""
NOT_PASSED_ON = {
    "Authorization": "Bearer mine",
    "Impersonate-User": "root",
    "X-Remote-User": "root",
    "X-Forwarded-For": "1.2.3.4",
    "Cookie": "a=b",
    "Sec-WebSocket-Extensions": "permessage-deflate",
}

SHAPES = size_of("PYLIQO_TEST_SHAPES", 300, 10_000)
UNREAD_S = size_of("PYLIQO_TEST_UNREAD_S", 0.2, 90.0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (EXEC, "exec?stdin=true&stdout=true&container=main&command=ls&command=a%26b%3Dc+d"),
        ("/attach/shop/web/main?tty=true&error=1", "attach?stderr=true&tty=true&container=main"),
        ("/portForward/shop/web", "portforward"),
        ("/portForward/shop/web?port=80,443&port=1", "portforward?ports=80&ports=443&ports=1"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_request_is_made_anew(rig: Rig, path: str, expected: str, method: str) -> None:
    rig.more = "Set-Cookie: a=b\r\nAlt-Svc: h3\r\nX-Odd: c\r\n d\r\nServer: milan\r\n"
    async with opened(rig, path, {**SPDY, **WEBSOCKET, **NOT_PASSED_ON}, method) as (reader, _):
        assert await reader.readexactly(len(HEAD)) == HEAD

    assert rig.seen == [f"/api/v1/namespaces/shop-rome/pods/web/{expected}"]
    headers = dict(rig.headers[0])
    assert headers.pop("Host").startswith("127.0.0.1:")
    assert headers == {**SPDY, **WEBSOCKET}


async def test_bytes_pass_in_both_directions_and_none_is_lost_at_the_end(rig: Rig) -> None:
    rig.greeting = b"early"
    sent = secrets.token_bytes(2**20) * 8 + b"bye"
    got = hashlib.sha256()
    async with opened(rig, EXEC, SPDY) as (reader, writer):
        await reader.readexactly(len(HEAD) + 5)
        writer.write(sent)
        sending = asyncio.create_task(writer.drain())
        while piece := await reader.read(2**16):
            got.update(piece)
        await sending
    assert got.digest() == hashlib.sha256(sent).digest()


async def test_what_an_upgrade_needs_comes_back_and_nothing_folded(rig: Rig) -> None:
    agreed = "Sec-WebSocket-Accept: abc=\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
    rig.more = f"{agreed}X-Stream-Protocol-Version: v4\r\n Set-Cookie: a=b\r\n"
    async with opened(rig, EXEC, {**SPDY, **WEBSOCKET}) as (reader, _):
        assert await reader.readuntil(b"\r\n\r\n") == HEAD[:-2] + f"{agreed}\r\n".encode()


async def test_a_stream_in_which_nothing_passes_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubelets end one."""
    assert streams.IDLE_S == 4 * 60 * 60
    monkeypatch.setattr(streams, "IDLE_S", 0.2)
    async with opened(rig, EXEC, SPDY) as (reader, writer):
        await reader.readexactly(len(HEAD))
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_slow_reader_gets_all_that_was_sent(rig: Rig) -> None:
    assert listener.CLOSE_S >= 60
    rig.greeting = secrets.token_bytes(2**22)
    got = bytearray()
    async with opened(rig, EXEC, SPDY) as (reader, writer):
        await reader.readexactly(len(HEAD))
        writer.write(b"bye")
        while piece := await reader.read(2**15):
            got += piece
            await asyncio.sleep(0.002)
    assert bytes(got) == rig.greeting + b"bye"


async def test_a_process_that_reads_late_is_waited_for() -> None:
    """So does a kubelet: anybody who is there and reads nothing has not vanished."""
    sent = secrets.token_bytes(2**24)
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await asyncio.sleep(UNREAD_S)  # what is tested: that nothing is read, and it goes on
        try:
            got.set_result(await reader.readexactly(len(sent)))
        except (OSError, asyncio.IncompleteReadError) as cut_off:
            got.set_exception(cut_off)
        writer.close()

    there = await asyncio.start_server(provider, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    async with there, rigs.kubelet_api(port) as rig, opened(rig, EXEC, SPDY) as (reader, writer):
        await reader.readexactly(len(HEAD))
        writer.write(sent)
        async with asyncio.timeout(300 + UNREAD_S):
            assert await got == sent


async def test_no_limit_of_tcp_ends_a_stream_that_is_not_read() -> None:
    async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await reader.read()
        writer.close()

    there = await asyncio.start_server(provider, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{there.sockets[0].getsockname()[1]}", None)
    _, leg = await tunnel.dial(access, "POST", "/exec", [], SPDY.items())
    assert leg.transport
    of = leg.transport.get_extra_info("socket")
    assert of.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    leg.abort()
    await leg.ended
    there.close()


async def test_of_both_sides_it_is_found_out_when_they_vanish(rig: Rig) -> None:
    """Nobody says anything, and Linux asks both within 15 s whether they are there still."""
    async with opened(rig, EXEC, SPDY) as (reader, _), asyncio.timeout(300):
        await reader.readexactly(len(HEAD))
        provider = rig.streams[0].transport.get_extra_info("sockname")[1]
        while not (is_asked(local=rig.server.port) and is_asked(remote=provider)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # until the kernel has what was sent last acknowledged


def is_asked(local: int = 0, remote: int = 0) -> bool:
    """Whether a connection of that port has a timer of keepalive that ends within 15 s."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, _, timer, *_ = line.split()
        ports = int(here.partition(":")[2], 16), int(there.partition(":")[2], 16)
        kind, _, when = timer.partition(":")
        is_one = local == ports[0] or remote == ports[1]
        if is_one and (state, kind) == ("01", "02") and int(when, 16) <= 15 * 100:
            return True
    return False


async def test_what_comes_after_the_end_costs_nothing_of_what_is_on_its_way(rig: Rig) -> None:
    """An API server pings each stream of SPDY, also one whose end it has not read yet."""
    rig.greeting = secrets.token_bytes(2**19)
    got = await asyncio.to_thread(read_and_ping, rig)
    assert got.partition(b"\r\n\r\n")[2] == rig.greeting + b"bye"


def has_ended(port: int) -> bool:
    """Whether who listens on ``port`` has closed a stream, and all of it has arrived."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = {state for _, local, _, state, *_ in lines if local.endswith(f":{port:04X}")}
    return bool(mine & {"05", "06"})  # FIN_WAIT2, TIME_WAIT


def read_and_ping(rig: Rig) -> bytes:
    """Return all that a client gets who reads late, and goes on talking."""
    got = bytearray()
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        plain.connect(("127.0.0.1", rig.server.port))
        with rig.context("admin").wrap_socket(plain, server_hostname="127.0.0.1") as client:
            head = [f"POST {EXEC} HTTP/1.1", "Host: me", *(f"{k}: {v}" for k, v in SPDY.items())]
            client.sendall("\r\n".join([*head, "", ""]).encode())
            got += client.recv(len(HEAD))
            client.sendall(b"bye")
            provider = rig.streams[0].transport.get_extra_info("sockname")[1]
            while not has_ended(provider):
                time.sleep(0.01)  # noqa: TID251  # in a thread, beside the loop
            while piece := client.recv(2**15):
                got += piece
                if len(got) < len(rig.greeting) - 2**18:
                    client.send(b"ping")
    return bytes(got)


async def test_a_refusal_is_an_answer_as_any_other(rig: Rig) -> None:
    rig.answer = (403, "not yours")
    async with opened(rig, EXEC, SPDY) as (reader, _):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
        assert b"not yours" in await reader.readline()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"X-A: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nX-A: " + b"b" * 2**16 + b"\r\n\r\n",
        b"HTTP/1.1 " + b"9" * 5_000 + b" x\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
    ],
    ids=["101 headers", "a header of 64 KiB", "a status of 5,000 digits", "not HTTP"],
)
async def test_a_head_that_nobody_reads_is_a_refusal(answer: bytes) -> None:
    async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    there = await asyncio.start_server(provider, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    async with there, rigs.kubelet_api(port) as rig, opened(rig, EXEC, SPDY) as (reader, _):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
        assert len(await reader.readline()) < 2**11


STATUS_LINES = (
    b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 403 No",
    b"HTTP/1.1 200 OK", b"HTTP/1.1 302 Found", b"HTTP/9.9 101 x", b"HTTP/1.1 -1 x", b"\xff", b"",
)  # fmt: skip
LINES = (
    b"Upgrade: SPDY/3.1", b"Connection: Upgrade", b"Set-Cookie: a=b", b" folded", b": empty",
    b"Sec-WebSocket-Accept: \xff\x00\x1b[31m", b"Content-Length: 99999999999", b"Content-Length: x",
    b"Transfer-Encoding: chunked", b"Location: http://169.254.169.254/", b"\x00: \x00", b"no colon",
    b"Upgrade: " + b"x" * 5_000, b"X-Stream-Protocol-Version: v4\rSet-Cookie: a=b",
)  # fmt: skip
BODIES = (b"", b"{", b'{"message": 5}', b"[" * 5_000, b"0\r\n\r\n", b"zz\r\n", b"\xff" * 100)
answers = st.builds(
    lambda status, lines, body, cut: b"\r\n".join([status, *lines, b"", body])[:cut],
    st.sampled_from(STATUS_LINES),
    st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=30)), max_size=8),
    st.one_of(st.sampled_from(BODIES), st.binary(max_size=50)),
    st.one_of(st.none(), st.integers(0, 200)),
)


@settings(max_examples=SHAPES // 30, deadline=None)
@given(said=st.lists(answers, min_size=10, max_size=10))
def test_whatever_a_provider_answers_is_an_upgrade_or_a_refusal(said: list[bytes]) -> None:
    asyncio.run(_dialled(said))


async def _dialled(said: list[bytes]) -> None:
    left, refusals = iter(said), [""]

    async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(left))
        writer.close()

    there = await asyncio.start_server(provider, "127.0.0.1", 0)
    who = credentials.plain(f"http://127.0.0.1:{there.sockets[0].getsockname()[1]}")
    async with there:
        for _ in said:
            try:
                head, leg = await tunnel.dial(who, "POST", "/exec", [], SPDY.items())
            except errors.KubeError as error:
                refusals.append(str(error))
                continue
            leg.abort()
            status, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
            assert status == b"HTTP/1.1 101 Switching Protocols"
            assert {line.partition(b":")[0].decode() for line in lines} <= UPGRADE
            assert b"\x1b" not in head
    assert max(map(len, refusals)) < 2**12


@pytest.mark.parametrize(
    ("is_silent", "said"),
    [
        (False, "exec: it closed the connection without an answer"),
        (True, "exec: connected, but no answer in 0 s"),
    ],
)
async def test_why_the_provider_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_silent: bool, said: str
) -> None:
    if is_silent:
        monkeypatch.setattr(tunnel, "ANSWER_S", 0.2)

    async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if is_silent:
            await reader.read()
        writer.close()

    there = await asyncio.start_server(provider, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    async with there, rigs.kubelet_api(port) as rig, opened(rig, EXEC, SPDY) as (reader, _):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
        text = (await reader.readline()).decode()
    assert text.startswith("the provider does not answer: POST http://127.0.0.1:")
    assert said in text
    said_here = [record.message for record in caplog.records if record.name == "kubelet.api.server"]
    assert said_here == ["Refused a stream"]


def test_a_provider_that_has_much_to_do_is_waited_for_as_its_kubelets_wait() -> None:
    """A kubelet waits for its runtime for two minutes."""
    assert tunnel.ANSWER_S > 120


async def test_an_end_on_either_side_is_an_end_on_both(rig: Rig) -> None:
    async with opened(rig, EXEC, SPDY) as (reader, writer), asyncio.timeout(300):
        await reader.readexactly(len(HEAD))
        writer.transport.abort()
        await rig.streams[0].lost.wait()

    async with opened(rig, EXEC, SPDY) as (reader, writer), asyncio.timeout(300):
        await reader.readexactly(len(HEAD))
        rig.streams[1].transport.abort()
        assert await reader.read() == b""


async def test_streams_that_ended_leave_nothing_behind(rig: Rig) -> None:
    tasks_before, files_before = await rig.apart.run(tasks()), descriptors()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(50):
            reader, _ = await stack.enter_async_context(opened(rig, EXEC, SPDY))
            await reader.readexactly(len(HEAD))
        assert len(rig.streams) == 50
    async with asyncio.timeout(300):
        for stream in rig.streams:
            await stream.lost.wait()
        while await rig.apart.run(tasks()) > tasks_before or descriptors() > files_before:
            pass


async def test_an_idle_stream_ends_with_the_server(rig: Rig) -> None:
    async with opened(rig, EXEC, SPDY) as (reader, _), asyncio.timeout(300):
        await reader.readexactly(len(HEAD))
        await rig.apart.run(rig.server.close())
        assert await reader.read() == b""


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "8080/tcp"])
async def test_a_port_that_makes_no_sense_is_refused(rig: Rig, port: str) -> None:
    path = f"/portForward/shop/web?port={port}"
    async with opened(rig, path, SPDY) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    assert rig.seen == []


async def test_without_an_upgrade_there_is_no_stream(rig: Rig) -> None:
    status, text = await rig.get(EXEC)
    assert (status, "needs a connection upgrade" in text) == (400, True)
    assert rig.seen == []


async def test_who_says_nothing_is_shown_the_door() -> None:
    async with rigs.kubelet_api(silent_s=1.0) as rig, contextlib.AsyncExitStack() as stack:
        silent = [
            await asyncio.open_connection(
                "127.0.0.1", rig.server.port, ssl=rig.context(None), server_hostname="127.0.0.1"
            )
            for _ in range(3)
        ]
        for _, writer in silent:
            stack.callback(writer.close)
        silent[1][1].write(b"GET /healthz HTTP/1.1\r\nHost: me\r\n")  # no end of its head
        silent[2][1].write(b"GET /healthz HTTP/1.1\r\nHost: me\r\n\r\n")
        async with asyncio.timeout(300):
            with contextlib.suppress(OSError):
                assert await silent[0][0].read() == b""
            with contextlib.suppress(OSError):
                assert await silent[1][0].read() == b""
        assert (await silent[2][0].readline()).startswith(b"HTTP/1.1 401 ")
        assert not silent[2][0].at_eof()
