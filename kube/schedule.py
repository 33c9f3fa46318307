"""Which key is next: once each, never twice at a time, later after an error. Pure.

Source: docs/parity.md C-16 to C-17; client-go, ``util/workqueue``.
"""

import heapq
import itertools
import math
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


class Schedule(Generic[K]):
    """Decides alone; all times are seconds on the caller's clock."""

    def __init__(
        self,
        *,
        per_s: float = RETRIES_PER_S,
        dice: Callable[[], float] = lambda: 0.0,
        line: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        """``dice`` returns from 0 to 1; without it nothing is left to chance.

        ``line`` names the tenant or namespace of a key. Lines take turns, however long they are.
        """
        self._line = line
        self._ration = _Ration(per_s)
        self._held_bucket = _Bucket(per_s, BURST)
        self._dice = dice
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

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        return not self._dirty and not self._processing

    def add(self, key: K, now: float) -> None:
        """Make ``key`` ready, or ready again after the one who works on it is done."""
        if key in self._dirty:
            return
        self._dirty[key] = now
        if key not in self._processing:
            self._ready.add(key)

    def add_at(self, key: K, when: float) -> None:
        """Add ``key`` at ``when``, or at the earlier time that was asked for before."""
        if key in self._due and self._due[key][0] <= when:
            return
        self._due[key] = (when, next(self._order))
        heapq.heappush(self._heap, (*self._due[key], key))

    def retry(
        self, key: K, now: float, *, at_least_s: float = 0.0, at_most_s: float = MAX_S
    ) -> float:
        """Add ``key`` after its back-off and return that: doubled each time, and rationed.

        ``at_most_s`` bounds what is doubled, not the ration.
        """
        self._leave(key)
        ration_s = self._ration.reserve(self._line(key), now)
        delay_s = max(self._own_s(key, at_most_s), ration_s, at_least_s)
        self.add_at(key, now + delay_s)
        return delay_s

    def hold(
        self, key: K, now: float, *, at_least_s: float = 0.0, at_most_s: float = WITHHELD_MAX_S
    ) -> float:
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
        own_s = max(self._own_s(key, at_most_s), self._held_bucket.reserve(now, at_most_s))
        delay_s = max(own_s * (1 - _JITTER * self._dice()), at_least_s)
        self.add_at(key, now + delay_s)
        return delay_s

    def await_server(self, key: K, now: float) -> float:
        """Add ``key`` after a short back-off and return that: nobody answered, and no ration.

        It says nothing about ``key`` itself, whose own back-off stays what it is.
        """
        times = self._away.get(key, 0)
        self._away[key] = times + 1
        delay_s = min(AWAY_BASE_S * 2.0 ** min(times, 16), AWAY_MAX_S)
        self.add_at(key, now + delay_s)
        return delay_s

    def server_is_back(self, now: float) -> None:
        """Let no key wait any more for a server that did not answer, or did not let it."""
        for key in self._away:
            self.add_at(key, now)
        self._away.clear()
        self.let(now)

    def let(self, now: float) -> None:
        for key in self._waiting:
            self.add_at(key, now)
        self._called.update(self._waiting)
        self._waiting.clear()

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> bool:
        self._failures.pop(key, None)
        self._away.pop(key, None)
        return self._leave(key)

    def take(self, now: float) -> K | None:
        """Return the next key to work on, None when none is ready; call ``done`` after."""
        self._promote(now)
        if not self._ready:
            return None
        key = self._ready.take()
        del self._dirty[key]
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """End the work on ``key``; it is ready again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:  # what is worked on is not among those that are ready
            self._ready.add(key)

    def next_due(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)  # an earlier time took its place
        return self._heap[0][0] if self._heap else None

    def drop_delayed(self) -> None:
        self._due.clear()
        self._heap.clear()

    def oldest(self) -> float | None:
        """Return when the key that has been waiting longest was added."""
        return next(iter(self._dirty.values()), None)

    def _own_s(self, key: K, at_most_s: float) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(BASE_S * 2.0 ** min(failures, 64), at_most_s)

    def _leave(self, key: K) -> bool:
        """No longer hold ``key``; whether it was held."""
        was_held = key in self._held
        self._held.discard(key)
        self._called.discard(key)
        self._waiting.pop(key, None)
        return was_held

    def _promote(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key, now)


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

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._all = _Bucket(per_s, BURST)
        self._lines: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def reserve(self, line: Hashable, now: float) -> float:
        """Take a token and return in how many seconds it is there."""
        own = self._lines.pop(line, None) or _Bucket(self._per_s, BURST)
        self._lines[line] = own
        if len(self._lines) > LINES:
            self._lines.popitem(last=False)
        return min(self._all.reserve(now), own.reserve(now))


class _Bucket:
    """Tokens that come in at ``per_s`` up to ``burst``; a debt is a delay."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float, at_most_s: float = math.inf) -> float:
        """Take a token and return in how many seconds it is there; none that is later."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        wait_s = max(0.0, (1 - self._tokens) / self._per_s)
        if wait_s > at_most_s:
            return at_most_s
        self._tokens -= 1
        return wait_s
