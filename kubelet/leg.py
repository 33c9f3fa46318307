"""One end of a tunnel: bytes that come go to the other end, and none is lost when one ends.

Source: docs/parity.md SEC-B8, SEC-B10.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from typing import Final, cast

import aiohttp

from kube import errors

MAX_HEAD: Final = 2**16
UNREAD_S: Final = 60.0
"""How long nobody may take anything of what is left of a stream that ended, before that is lost."""
_LOOK_S: Final = 0.01
_STATE: Final = (socket.IPPROTO_TCP, socket.TCP_INFO)
_CLOSE_WAIT: Final = 8
"""In Linux' include/net/tcp_states.h."""


class Leg(asyncio.Protocol):
    """One end of a tunnel: what it receives goes to ``other``, no faster than that one takes it.

    Before it has another end it keeps what comes, a head's worth of it.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Leg | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.heard_at = loop.time()
        """When something came last, by the clock of the loop."""
        self._now = loop.time
        self._early = bytearray()
        self._news = asyncio.Event()
        self._is_over = False
        self._is_closing = False
        self._why: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._now()
        if self.other is not None:
            self.other.send(data)
            return
        self._early += data
        if len(self._early) > MAX_HEAD and self.transport is not None:
            self.transport.pause_reading()
        self._news.set()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        self._over()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._why = exc
        self.transport = None  # nobody closes it again: before Python 3.11.4 that is an error
        self._over()
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, data: bytes) -> None:
        """Send ``data``; nothing to who has ended, since a write that fails drops what he said."""
        if self.transport is not None and not _has_ended(self.transport):
            self.transport.write(data)

    def close(self) -> None:
        """Send what is buffered, and close once the machine of the other side has it.

        Not before: TLS that is told the end by us takes the next byte that comes for a failure,
        such as a ping of SPDY, and whatever is on its way to a slow reader would be dropped.
        """
        if not self._is_closing:
            self._is_closing = True
            self._look(1, UNREAD_S)

    def _look(self, before: int, left_s: float) -> None:
        """Close if nothing is unsent, now and at the last look; else look again soon."""
        if self.transport is None:
            return
        unsent = _unsent(self.transport)
        if left_s <= 0 or not (before or unsent):
            self.transport.close()
            return
        left_s = left_s - _LOOK_S if unsent == before else UNREAD_S
        asyncio.get_running_loop().call_later(_LOOK_S, self._look, unsent, left_s)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def lead_to(self, other: "Leg") -> None:
        """Pass on to ``other`` from now on, what came early first."""
        self.other = other
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)
        if self.transport is not None:
            self.transport.resume_reading()
        if self._is_over:
            other.close()

    async def until(self, mark: bytes, most: int) -> bytes:
        """Return what came first, up to and with ``mark``.

        Raises:
            NotReachableError: it closed before, or sent more than ``most`` bytes.
        """
        while (end := self._early.find(mark)) < 0:
            await self._more(most)
        return self._take(end + len(mark))

    async def exactly(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or as many as come before it closes."""
        while len(self._early) < size and not self._is_over:
            await self._more(size)
        return self._take(size)

    async def _more(self, most: int) -> None:
        if len(self._early) > most:
            raise errors.NotReachableError(f"its answer has more than {most} bytes and no end")
        if self._is_over:
            raise self._why or aiohttp.ServerDisconnectedError
        self._news.clear()
        await self._news.wait()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._early[:size])
        del self._early[:size]
        return taken

    def _over(self) -> None:
        self._is_over = True
        self._news.set()
        if self.other is not None:
            self.other.close()


def _has_ended(transport: asyncio.Transport) -> bool:
    """Whether the other side has closed, though what it said may not be read yet."""
    of = transport.get_extra_info("socket")
    return bool(of.fileno() >= 0 and of.getsockopt(*_STATE, 1)[0] == _CLOSE_WAIT)


def _unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes the other side has not acknowledged. Source: tcp(7), SIOCOUTQ."""
    of = transport.get_extra_info("socket")
    if of.fileno() < 0:
        return 0
    queued = fcntl.ioctl(of.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
