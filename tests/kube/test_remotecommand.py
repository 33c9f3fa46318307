"""A command in a container, over a WebSocket as an API server speaks it."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import test_utils, web

from kube import errors
from kube.remotecommand import PROTOCOLS, CommandError, RemoteCommand

SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()
FAILURE = b"\x03" + json.dumps({"status": "Failure", "message": "exit code 2"}).encode()
END_OF_INPUT = b"\xff\x00"


@dataclass
class StreamServer:
    """Hears what it is given until stdin ends, and then says its frames."""

    frames: Sequence[bytes] = ()
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        async for message in socket:
            self.heard.append(message.data)
            if message.data == END_OF_INPUT:
                break
        for frame in self.frames:
            await socket.send_bytes(frame)
        await socket.close()
        return socket


@pytest.fixture
async def streaming_server() -> AsyncIterator[tuple[StreamServer, test_utils.BaseTestServer]]:
    app, served = web.Application(), StreamServer()
    app.router.add_get("/exec", served.serve)
    async with test_utils.TestServer(app) as listening:
        yield served, listening


async def stream_text(
    server: tuple[StreamServer, test_utils.BaseTestServer], *frames: bytes
) -> str:
    """Return what a command that answers ``frames`` writes to stdout."""
    served, listening = server
    served.frames = frames
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(listening.make_url("/exec"), protocols=PROTOCOLS) as socket,
    ):
        command = RemoteCommand(socket)
        await command.write(b"some ")
        await command.write(b"bytes")
        await command.end_input()
        return await command.text()


async def test_stdout_is_returned_and_stdin_sent(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer],
) -> None:
    found = await stream_text(
        streaming_server, b"\x01", b"\x01one ", b"\x02noise", b"\x01two", SUCCESS
    )

    assert found == "one two"
    assert streaming_server[0].heard == [b"\x00some ", b"\x00bytes", END_OF_INPUT]


@pytest.mark.parametrize(
    ("frames", "error", "says"),
    [
        ([b"\x02no space left", FAILURE], CommandError, "no space left"),
        ([b"\x01part", FAILURE], CommandError, "exit code 2"),
        ([b"\x01part"], errors.NotReachableError, "ended before the command did"),
        ([], errors.NotReachableError, "ended before the command did"),
    ],
    ids=["its own words", "its status", "cut off", "cut off at once"],
)
async def test_a_command_that_does_not_end_well_is_an_error(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer],
    frames: list[bytes],
    error: type[errors.KubeError],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        await stream_text(streaming_server, *frames)


async def test_a_flood_of_errors_is_cut_to_its_end(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer],
) -> None:
    with pytest.raises(CommandError) as raised:
        await stream_text(streaming_server, b"\x02" + b"x" * 3000, b"\x02" + b"y" * 3000, FAILURE)

    assert len(str(raised.value)) == 4096
    assert str(raised.value).endswith("y" * 3000)


async def test_what_is_written_after_its_end_is_dropped(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer],
) -> None:
    """As tar ends at the end of an archive, and not at that of its stdin."""
    served, listening = streaming_server
    served.frames = [b"\x01done", SUCCESS]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(listening.make_url("/exec"), protocols=PROTOCOLS) as socket,
    ):
        command = RemoteCommand(socket)
        await command.end_input()
        assert await command.text() == "done"

        await command.write(b"zeros")
        await command.end_input()

        assert await command.text() == "", "it ended well, still"
    assert served.heard == [END_OF_INPUT]


async def test_what_a_command_writes_has_a_bound(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer],
) -> None:
    much = [b"\x01" + bytes(2**19)] * 3
    with pytest.raises(CommandError, match="more than 1048576 bytes"):
        await stream_text(streaming_server, *much, SUCCESS)


@pytest.mark.parametrize("status", [b"{" + b" " * 2**16 + b"}", b"[]", b"{", b"\xff"])
async def test_a_status_that_is_none_is_a_lost_connection(
    streaming_server: tuple[StreamServer, test_utils.BaseTestServer], status: bytes
) -> None:
    with pytest.raises(errors.NotReachableError, match="the status of a command"):
        await stream_text(streaming_server, b"\x03" + status)
