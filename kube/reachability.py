"""Whether an API server answers at all: asked once for all clients of it, which are notified.

While it does not, nobody waits for timeouts, and one small request a second looks for its return.
Source: docs/parity.md F-4; C-5, C-6.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class Reachability:
    """``probe`` returns whether there was any answer; ``on_return`` is called after an outage."""

    def __init__(
        self,
        probe: Callable[[], Awaitable[bool]],
        on_return: Callable[[], None],
    ) -> None:
        self._probe = probe
        self._start_anew = on_return
        self._on_return: list[Callable[[], None]] = []
        self._on_loss: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._there = asyncio.Event()
        self._there.set()
        self._since = 0.0
        self._is_closed = False

    @property
    def is_lost(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return not self._there.is_set()

    def lost_s(self) -> float:
        """Return for how long it has not answered, 0 when it does."""
        return time.monotonic() - self._since if self.is_lost else 0.0

    def subscribe(self, on_return: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_return`` when it may answer otherwise; return how to stop that.

        That is at the end of each outage, and when our credentials have changed.
        """
        self._on_return.append(on_return)
        return lambda: self._on_return.remove(on_return)

    def subscribe_to_loss(self, on_loss: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_loss`` at the beginning of each outage; return how to stop that."""
        self._on_loss.append(on_loss)
        return lambda: self._on_loss.remove(on_loss)

    def is_another(self) -> None:
        """Take note that we are somebody else now: it may let us do what it did not."""
        _tell(self._on_return)

    def doubt(self) -> None:
        """Look whether it answers: a request had no answer, which may be that request's fault."""
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def wait(self, within_s: float) -> bool:
        """Wait for its return; whether it answers now."""
        try:
            async with asyncio.timeout(within_s):
                await self._there.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> None:
        try:
            while not await self._answers():
                self._lost()
                await asyncio.sleep(LOOK_S)
            self._returned()
        finally:
            self._looking = None

    async def _answers(self) -> bool:
        try:
            return await self._probe()
        except Exception:  # whatever it is: without a next probe nobody would ask again
            logger.exception("server cannot be asked")
            return False

    def _lost(self) -> None:
        if self.is_lost:
            return
        self._since = time.monotonic()
        self._there.clear()
        logger.warning("server does not answer")
        _tell(self._on_loss)

    def _returned(self) -> None:
        if not self.is_lost:
            return  # it was that request alone
        logger.warning("server answers again", extra={"after_s": round(self.lost_s(), 1)})
        self._there.set()
        _tell([self._start_anew, *self._on_return])


def _tell(listeners: Iterable[Callable[[], None]]) -> None:
    for tell in list(listeners):
        try:
            tell()
        except Exception:
            logger.exception("could not tell of the loss or the return of a server")


# Signs of life of an API server that cost it no request -------------------------------------------

MAX_MESSAGE: Final = 2**16
"""Bytes of a message: the watch is one that has nothing to tell."""
TURN_S: Final = 0.25
PING_TURNS: Final = 2
DOUBT_TURNS: Final = 4
"""So many turns without a word are worth a question."""
SILENT_TURNS: Final = 7
SILENT_S: Final = SILENT_TURNS * TURN_S
OPTIONS: Final[Mapping[str, Any]] = {
    "autoping": False,  # or pongs are not reported
    "close_s": 0.2,
}
"""Of the WebSocket; it needs an ``Origin``, too, or an API server refuses."""


class PingMonitor:
    """One watch that is open; what it tells does not count, only that it does."""

    def __init__(
        self,
        ping: Callable[[], Awaitable[None]],
        heard: AsyncIterable[object],
        is_current: Callable[[], bool],
    ) -> None:
        """``heard`` has something whenever the server says something, until the watch ends.

        ``is_current`` says whether its client still uses that connection for what is new.
        """
        self._ping, self._heard, self.is_current = ping, heard, is_current
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
                    await self._ping()
        finally:
            listening.cancel()
            await asyncio.wait({listening})
        raise AssertionError  # pragma: no cover  # it counts for ever

    async def _listen(self) -> None:
        async for _ in self._heard:
            self._unheard = 0
