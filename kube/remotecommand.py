"""A command in a container, over one WebSocket: what goes in, what comes out, how it ended.

Each message begins with the number of its channel. Source: Kubernetes, ``pods/exec``,
subprotocol ``v5.channel.k8s.io``.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kube import errors

if TYPE_CHECKING:
    import aiohttp

PROTOCOLS: Final = ("v5.channel.k8s.io",)
_INPUT, _OUTPUT, _ERRORS, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_MOST_ERRORS: Final = 4096
MAX_MESSAGE: Final = 2**20
"""Bytes of one message; an API server sends 32 KiB at a time."""
MAX_TEXT: Final = 2**20
MAX_STATUS: Final = 2**16


class CommandError(errors.KubeError):
    """A command ended otherwise than with exit status 0; the message is its own last words."""


class RemoteCommand:
    """A command that runs; it goes on while its output is read."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._socket = socket
        self._status: dict[str, Any] | None = None
        self._errors = b""

    async def output(self) -> AsyncGenerator[bytes, None]:
        """Yield what it writes to stdout until it ends, which must be well.

        Raises:
            CommandError: it did not end well.
            NotReachableError: the connection ended before it did.
        """
        async for message in self._socket:
            if message.type.name != "BINARY" or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == _OUTPUT and data:
                yield data
            elif channel == _ERRORS:
                self._errors = (self._errors + data)[-_MOST_ERRORS:]
            elif channel == _STATUS:
                self._status = _status(data)
        self._check()

    async def text(self, *, most: int = MAX_TEXT) -> str:
        """Return all that it writes to stdout, at most so many bytes; as ``output``.

        Raises:
            CommandError: it writes more.
        """
        written = bytearray()
        async with contextlib.aclosing(self.output()) as parts:
            async for part in parts:
                written += part
                if len(written) > most:
                    raise CommandError(f"the command writes more than {most} bytes")
        return written.decode("utf-8", "replace")

    async def write(self, data: bytes) -> None:
        """Pass ``data`` to its stdin; waits while it does not read.

        What comes after its end is dropped: how it ended, its output says.
        """
        await self._send(bytes([_INPUT]) + data)

    async def end_input(self) -> None:
        await self._send(bytes([_CLOSE, _INPUT]))

    async def _send(self, message: bytes) -> None:
        with contextlib.suppress(ConnectionResetError):  # it is closed, or closes now
            await self._socket.send_bytes(message)

    def _check(self) -> None:
        if self._status is None:
            raise errors.NotReachableError("the connection ended before the command did")
        if self._status.get("status") != "Success":
            words = self._errors.decode("utf-8", "replace").strip()
            raise CommandError(words or str(self._status.get("message")))


def _status(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_STATUS:
        raise errors.NotReachableError(f"the status of a command has more than {MAX_STATUS} bytes")
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise errors.NotReachableError("the status of a command is not a JSON object") from error
