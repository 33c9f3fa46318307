"""Signs of life of an API server that cost it no request: pings on a watch by WebSocket.

Its process answers them itself, so one that hangs is found out, for which its kernel would still
answer. Time is counted in turns of the loop here: who is late himself calls nobody silent.

Source: RFC 6455, 5.5.2 and 5.5.3; docs/parity.md § 4.14.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp

MAX_MESSAGE: Final = 2**16
"""Bytes of a message: the watch is one that has nothing to tell."""
TURN_S: Final = 0.25
PING_TURNS: Final = 2
DOUBT_TURNS: Final = 4
"""So many turns without a word are worth a question."""
SILENT_TURNS: Final = 7
SILENT_S: Final = SILENT_TURNS * TURN_S
OPTIONS: Final[Mapping[str, Any]] = {
    "autoping": False,  # or pongs are not told
    "timeout": aiohttp.ClientWSTimeout(ws_close=0.2),
}
"""Of the WebSocket; it needs an ``Origin``, too, or an API server refuses."""


class Pulse:
    """One watch that is open; what it tells does not count, only that it does."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, is_current: Callable[[], bool]
    ) -> None:
        """``is_current`` says whether its client still uses that connection for what is new."""
        self._socket, self.is_current = socket, is_current
        self._unheard = 0

    async def follow(self, on_doubt: Callable[[], None], *, turn_s: float = TURN_S) -> bool:
        """Ping until the server is silent (True), or until the watch ends (False)."""
        listening = asyncio.create_task(self._listen())
        try:
            for turn in itertools.count():
                await asyncio.wait({listening}, timeout=turn_s)
                if listening.done() or not self.is_current():
                    return False
                self._unheard += 1
                if self._unheard == DOUBT_TURNS:
                    on_doubt()
                if self._unheard >= SILENT_TURNS:
                    return True
                if turn % PING_TURNS == 0:
                    await self._socket.ping()
        finally:
            listening.cancel()
            await asyncio.wait({listening})
        raise AssertionError  # pragma: no cover  # it counts for ever

    async def _listen(self) -> None:
        async for _ in self._socket:
            self._unheard = 0
