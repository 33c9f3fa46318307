"""The queue between events and workers: each key once, never twice at a time, later after an error.

Source: docs/parity.md C-16 to C-17; client-go, ``util/workqueue``.
"""

import asyncio
import heapq
import itertools
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BASE_S: Final = 0.005
MAX_S: Final = 1000.0
RETRIES_PER_S: Final = 10.0
BURST: Final = 100
LINES: Final = 4096
"""Of so many lines the retries are counted: those that retried last."""
AWAY_BASE_S: Final = 0.2
AWAY_MAX_S: Final = 5.0
"""While a server is away keys wait no longer: it may be back at any moment (docs/parity.md F-4)."""

WITHHELD_MAX_S: Final = 20.0
"""So long at most a key waits for a right or a kind that was taken away, or for a server that says
that it cannot now, as one whose webhooks are down does: nothing tells when that is over, and all
goes on within 30 s of it (docs/parity.md F-34)."""
_JITTER: Final = 0.25


class QueueClosedError(Exception):
    """The queue was shut down and is empty: the worker ends."""


class Queue(Generic[K]):
    """For the workers of one event loop; after ``shutdown`` it takes no more keys."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
        line: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        """``line`` names the tenant or namespace of a key; lines take turns, however long."""
        self._clock, self._dice, self._line = clock, dice, line
        self._ration = _Ration()
        self._held_bucket = _Bucket()
        self._held: set[K] = set()
        self._waiting: dict[K, None] = {}
        self._called: set[K] = set()
        self._ready = _Ready(line)
        self._dirty: dict[K, float] = {}
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._away: dict[K, int] = {}
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        return not self._dirty and not self._processing

    def oldest_age_s(self) -> float:
        """Return how long the key at the front has waited, 0 without one."""
        now = self._clock()
        return max(0.0, now - next(iter(self._dirty.values()), now))

    def add(self, key: K) -> None:
        """Make ``key`` ready, or ready again after the one who works on it is done."""
        if not self._is_closed:
            self._make_ready(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Make ``key`` ready in ``seconds``, or when an earlier call said."""
        if seconds <= 0:
            self.add(key)
        else:
            self._delay(key, seconds)

    def retry(self, key: K, *, at_least_s: float = 0.0, at_most_s: float = MAX_S) -> float:
        """Add ``key`` after its back-off and return that: doubled each time, and rationed.

        ``at_most_s`` bounds what is doubled, not the ration.
        """
        self._leave(key)
        ration_s = self._ration.reserve(self._line(key), self._clock())
        return self._delay(key, max(self._own_s(key, at_most_s), ration_s, at_least_s))

    def hold(self, key: K, *, at_least_s: float = 0.0, at_most_s: float = WITHHELD_MAX_S) -> float:
        """Add ``key``, which its server does not let, after its back-off, and return that.

        What it waits for others wait for, too: they are due as soon as one of them is let. No
        ration keeps it for longer than ``at_most_s``; it only spreads what is tried sooner, and
        those that wait longest do not all come at once.
        """
        if key in self._called:  # it was called too early: now it waits in peace
            self._called.discard(key)
        else:
            self._waiting[key] = None
        self._held.add(key)
        spread_s = self._held_bucket.reserve(self._clock(), at_most_s)
        own_s = max(self._own_s(key, at_most_s), spread_s)
        return self._delay(key, max(own_s * (1 - _JITTER * self._dice()), at_least_s))

    def await_server(self, key: K) -> float:
        """Add ``key`` after a short back-off and return that: nobody answered, and no ration.

        It says nothing about ``key`` itself, whose own back-off stays what it is.
        """
        times = self._away.get(key, 0)
        self._away[key] = times + 1
        return self._delay(key, min(AWAY_BASE_S * 2.0 ** min(times, 16), AWAY_MAX_S))

    def server_is_back(self) -> None:
        """Let no key wait any more for a server that did not answer, or did not let it."""
        for key in self._away:
            self._delay(key, 0)
        self._away.clear()
        self._let()

    def failures(self, key: K) -> int:
        """Return how often ``key`` has been retried since it was forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Let the next back-off of ``key`` be the shortest; what was held like it is ready."""
        self._failures.pop(key, None)
        self._away.pop(key, None)
        if self._leave(key):
            self._let()

    def take(self) -> K | None:
        """Return the next key to work on, None when none is ready; call ``done`` after."""
        now = self._clock()
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._make_ready(key)
        if not self._ready:
            return None
        key = self._ready.take()
        del self._dirty[key]
        self._processing.add(key)
        return key

    async def get(self) -> K:
        """Wait for the next key; call ``done`` with it after the work.

        Raises:
            QueueClosedError: shut down, and nothing is left.
        """
        while (key := self.take()) is None:
            if self._is_closed and self.is_idle:
                self._wake_all()
                raise QueueClosedError
            await self._wait()
        if self._ready:
            self._wake()
        return key

    def done(self, key: K) -> None:
        """End the work on ``key``; it is ready again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:  # what is worked on is not among those that are ready
            self._ready.add(key)
        if self.is_idle:
            self._idle.set()
        if self._is_closed and self.is_idle:
            self._wake_all()
        else:
            self._wake()

    async def idle(self) -> None:
        """Wait until a queue that was shut down is empty and nobody works."""
        while not self.is_idle:
            self._idle.clear()
            await self._idle.wait()

    def shutdown(self) -> None:
        """Take no more keys, drop the delayed ones; workers end when the rest is done."""
        self._is_closed = True
        self._due.clear()
        self._heap.clear()
        self._wake_all()

    def next_due(self) -> float | None:
        """Return when the next of the delayed keys is ready."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)  # an earlier time took its place
        return self._heap[0][0] if self._heap else None

    def _make_ready(self, key: K) -> None:
        if key not in self._dirty:
            self._dirty[key] = self._clock()
            if key not in self._processing:
                self._ready.add(key)

    def _delay(self, key: K, seconds: float) -> float:
        """Make ``key`` ready in ``seconds``, which are returned, or when an earlier call said."""
        if self._is_closed:
            return 0.0
        when = self._clock() + seconds
        if key not in self._due or when < self._due[key][0]:
            self._due[key] = (when, next(self._order))
            heapq.heappush(self._heap, (*self._due[key], key))
            self._wake()
        return seconds

    def _own_s(self, key: K, at_most_s: float) -> float:
        failures = self.failures(key)
        self._failures[key] = failures + 1
        return min(BASE_S * 2.0 ** min(failures, 64), at_most_s)

    def _let(self) -> None:
        """Make ready what is held, once until it is held again."""
        for key in self._waiting:
            self._delay(key, 0)
        self._called.update(self._waiting)
        self._waiting.clear()

    def _leave(self, key: K) -> bool:
        """No longer hold ``key``; whether it was held."""
        was_held = key in self._held
        self._held.discard(key)
        self._called.discard(key)
        self._waiting.pop(key, None)
        return was_held

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        due = self.next_due()
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
        while self._waiters:
            self._wake()


class _Ready(Generic[K]):
    """Keys that are ready, in lines that take turns."""

    def __init__(self, line: Callable[[K], Hashable]) -> None:
        self._line = line
        self._lines: OrderedDict[Hashable, deque[K]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: K) -> None:
        self._lines.setdefault(self._line(key), deque()).append(key)
        self._count += 1

    def take(self) -> K:
        """Return the first key of the line whose turn it is."""
        name, line = next(iter(self._lines.items()))
        key = line.popleft()
        self._count -= 1
        if line:
            self._lines.move_to_end(name)
        else:
            del self._lines[name]
        return key


class _Ration:
    """Tokens that all lines share; a line with tokens of its own waits for no other line's debt."""

    def __init__(self) -> None:
        self._all = _Bucket()
        self._lines: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def reserve(self, line: Hashable, now: float) -> float:
        """Take a token and return in how many seconds it is there."""
        own = self._lines.pop(line, None) or _Bucket()
        self._lines[line] = own
        if len(self._lines) > LINES:
            self._lines.popitem(last=False)
        return min(self._all.reserve(now), own.reserve(now))


class _Bucket:
    """``BURST`` tokens, which come back at ``RETRIES_PER_S``; a debt is a delay."""

    def __init__(self) -> None:
        self._tokens, self._at = float(BURST), -math.inf

    def reserve(self, now: float, at_most_s: float = math.inf) -> float:
        """Take a token and return in how many seconds it is there; none that is later."""
        self._tokens = min(BURST, self._tokens + (now - self._at) * RETRIES_PER_S)
        self._at = now
        wait_s = max(0.0, (1 - self._tokens) / RETRIES_PER_S)
        if wait_s > at_most_s:
            return at_most_s
        self._tokens -= 1
        return wait_s
