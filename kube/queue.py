"""The queue between events and workers: what is next, a ``Schedule`` says."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic

from kube.schedule import MAX_S, WITHHELD_MAX_S, K, Schedule


class QueueClosedError(Exception):
    """The queue was shut down and is empty: the worker ends."""


class Queue(Generic[K]):
    """A ``Schedule`` with somebody who waits for it: the workers of one event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        line: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._schedule: Schedule[K] = Schedule(dice=random.random, line=line)
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._schedule)

    @property
    def is_idle(self) -> bool:
        return self._schedule.is_idle

    def oldest_age_s(self) -> float:
        """Return how long the key at the front has waited, 0 without one."""
        added = self._schedule.oldest()
        return 0.0 if added is None else max(0.0, self._clock() - added)

    def add(self, key: K) -> None:
        if not self._is_closed:
            self._schedule.add(key, self._clock())
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Make ``key`` ready in ``seconds``, or when an earlier call said."""
        if seconds <= 0:
            self.add(key)
        elif not self._is_closed:
            self._schedule.add_at(key, self._clock() + seconds)
            self._wake()

    def retry(self, key: K, *, at_least_s: float = 0.0, at_most_s: float = MAX_S) -> float:
        """Make ``key`` ready after its back-off, and return that in seconds."""
        if self._is_closed:
            return 0.0
        now = self._clock()
        delay_s = self._schedule.retry(key, now, at_least_s=at_least_s, at_most_s=at_most_s)
        self._wake()
        return delay_s

    def hold(self, key: K, *, at_least_s: float = 0.0, at_most_s: float = WITHHELD_MAX_S) -> float:
        """Make ``key``, which its server does not let, ready after a while, which is returned.

        It is ready at once when another such key is let.
        """
        if self._is_closed:
            return 0.0
        now = self._clock()
        delay_s = self._schedule.hold(key, now, at_least_s=at_least_s, at_most_s=at_most_s)
        self._wake()
        return delay_s

    def await_server(self, key: K) -> float:
        """Make ``key`` ready when a server that does not answer may, and return that in seconds."""
        if self._is_closed:
            return 0.0
        delay_s = self._schedule.await_server(key, self._clock())
        self._wake()
        return delay_s

    def server_is_back(self) -> None:
        """Make those keys ready that wait for a server that did not answer, or let them."""
        if not self._is_closed:
            self._schedule.server_is_back(self._clock())
            self._wake()

    def failures(self, key: K) -> int:
        """Return how often ``key`` has been retried since it was forgotten."""
        return self._schedule.failures(key)

    def forget(self, key: K) -> None:
        """Let the next back-off of ``key`` be the shortest; what was held like it is ready."""
        if self._schedule.forget(key) and not self._is_closed:
            self._schedule.let(self._clock())
            self._wake()

    async def get(self) -> K:
        """Wait for the next key; call ``done`` with it after the work.

        Raises:
            QueueClosedError: shut down, and nothing is left.
        """
        while (key := self._schedule.take(self._clock())) is None:
            if self._is_closed and self._schedule.is_idle:
                self._wake_all()
                raise QueueClosedError
            await self._wait()
        if len(self._schedule):
            self._wake()
        return key

    def done(self, key: K) -> None:
        self._schedule.done(key)
        if self._schedule.is_idle:
            self._idle.set()
        if self._is_closed and self._schedule.is_idle:
            self._wake_all()
        else:
            self._wake()

    async def idle(self) -> None:
        """Wait until a queue that was shut down is empty and nobody works."""
        while not self._schedule.is_idle:
            self._idle.clear()
            await self._idle.wait()

    def shutdown(self) -> None:
        """Take no more keys, drop the delayed ones; workers end when the rest is done."""
        self._is_closed = True
        self._schedule.drop_delayed()
        self._wake_all()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        due = self._schedule.next_due()
        within_s = None if due is None else max(0.0, due - self._clock())
        try:
            await asyncio.wait([waiter], timeout=within_s)
        except asyncio.CancelledError:
            if waiter.done():  # the call was for a worker that leaves: pass it on
                self._wake()
            raise
        finally:
            if not waiter.done():
                self._waiters.remove(waiter)
                waiter.cancel()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
