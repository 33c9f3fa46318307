"""How often something may be done: token buckets, shared reads, turns, pauses between writes."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from apis.objects import Key

PER_SECOND: Final = 1.0
BURST: Final = 25.0
MAX_REMEMBERED: Final = 4096


class Buckets:
    """A bucket of tokens a name; Units: ``per_second`` tokens come back, up to ``burst``.

    Source: docs/parity.md SEC-B7; H13, H16.
    """

    def __init__(
        self, clock: Callable[[], float], *, per_second: float = PER_SECOND, burst: float = BURST
    ) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Whether ``name`` has a token left; it takes it."""
        return self.left_s(name) == 0

    def left_s(self, name: str) -> float:
        """Take a token of ``name`` and return 0, or return in how many seconds there is one."""
        now = self._clock()
        left, since = self._buckets.pop(name, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        is_allowed = left >= 1
        self._buckets[name] = (left - is_allowed, now)
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1 - left) / self._per_second


# One read for all who want to know the same at a time ---------------------------------------------

T = TypeVar("T")


class SingleFlightRead(Generic[T]):
    """Asks ``read`` once for the one who comes within ``good_s`` of that, or until it is forgotten.

    Who comes while it is under way waits for it; a failure is that of all who waited, and no
    answer for who comes later.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        good_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._good_s, self._clock = read, good_s, clock
        self._asked: asyncio.Future[T] | None = None
        self._at = 0.0

    def forget(self) -> None:
        """Ask again for the next who comes: there is news."""
        self._asked = None

    async def get(self) -> T:
        """Return what was read; it is as old as ``good_s`` at most."""
        asked = self._asked
        if asked is None or self._is_stale(asked):
            self._at = self._clock()
            asked = self._asked = asyncio.ensure_future(self._read())
        return await asyncio.shield(asked)

    def _is_stale(self, asked: "asyncio.Future[T]") -> bool:
        if not asked.done():
            return False
        failed = asked.cancelled() or asked.exception() is not None
        return failed or self._clock() - self._at > self._good_s


# What a provider may have this cluster do. Source: docs/parity.md H13, H16; decision 0013 (6) -----

LOOKS_PER_SECOND: Final = 10.0
"""Live reads of originals that no cache knows, for twins that a provider shows."""
LOOKS_BURST: Final = 10.0
WRITES_PER_SECOND: Final = 50.0
"""Events that are brought to the consumer, and what else a provider has us write here."""
WRITES_BURST: Final = 1000.0
LONGEST_WAIT_S: Final = 60.0
MOST_WAITING: Final = 1024
"""In the line of one namespace; who finds it full asks again after ``LONGEST_WAIT_S``."""
_MOST_GIVEN: Final = 4096
"""Turns that were given, and not taken up yet; some never are."""


class Turns:
    """Turns at a pace, in the order of waiting: the urgent ones first, then namespace by namespace.

    A turn is kept for the one whose it is, so nobody who asks at the right moment is faster.
    """

    def __init__(self, clock: Callable[[], float], *, per_second: float, burst: float) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._left, self._since = burst, clock()
        self._urgent, self._others = _Lines(), _Lines()
        self._given: OrderedDict[Hashable, None] = OrderedDict()

    def left_s(self, who: Hashable, namespace: str, *, is_urgent: bool = False) -> float:
        """Return 0 if it is the turn of ``who``, which is taken; else in how many seconds to ask.

        Who asks in between gets the same answer, and nothing is done for it.
        """
        self._give()
        lines, ahead = (self._urgent if is_urgent else self._others), 0
        if who not in self._given:
            before = lines.join(who, namespace)
            if before is None:
                return LONGEST_WAIT_S
            ahead = before if is_urgent else before + len(self._urgent)
            self._give()
        if who in self._given:
            del self._given[who]
            return 0.0
        return min((ahead + 1 - self._left) / self._per_second, LONGEST_WAIT_S)

    def _give(self) -> None:
        now = self._clock()
        self._left += (now - self._since) * self._per_second
        self._since = now
        for lines in (self._urgent, self._others):
            while self._left >= 1 and len(lines):
                self._given[lines.next()] = None
                self._left -= 1
        self._left = min(self._left, self._burst)
        while len(self._given) > _MOST_GIVEN:
            self._given.popitem(last=False)


class _Lines:
    """Who waits, a line for each namespace, which take turns."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, dict[Hashable, int]] = OrderedDict()
        """Those of a namespace in their order, with consecutive numbers."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, who: Hashable, namespace: str) -> int | None:
        """Let ``who`` stand in line; return how many may come before, None where it is full."""
        line = self._of.setdefault(namespace, {})
        first = next(iter(line.values()), 0)
        if who not in line:
            if len(line) >= MOST_WAITING:
                return None
            line[who] = first + len(line)
            self._count += 1
        return min(self._count, (line[who] - first + 1) * len(self._of)) - 1

    def next(self) -> Hashable:
        """Return who is at the front of the namespace whose turn it is, and let the next follow."""
        namespace, line = next(iter(self._of.items()))
        who = next(iter(line))
        del line[who]
        self._count -= 1
        self._of.move_to_end(namespace)
        if not line:
            del self._of[namespace]
        return who


class Budget:
    """The turns of one provider."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.looks = Turns(clock, per_second=LOOKS_PER_SECOND, burst=LOOKS_BURST)
        self.writes = Turns(clock, per_second=WRITES_PER_SECOND, burst=WRITES_BURST)


# Writes of large objects: each costs the server all of it -----------------------------------------

LARGE_OBJECT: Final = 100
"""Fewer entries are written as often as they change."""
ENTRY_S: Final = 0.001
LONGEST_PAUSE_S: Final = 1.0


class LargeWriteLimit:
    """The first write goes at once, and those of the pause after it go together as one.

    Anybody who finds that a write has to wait comes back after ``left_s``, so the last state is
    written in any case.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Key, float] = {}

    def left_s(self, key: Key) -> float | None:
        """Return the seconds until ``key`` may be written, None for now."""
        left_s = self._until.get(key, 0.0) - self._clock()
        if left_s > 0:
            return left_s
        self._until.pop(key, None)
        return None

    def wrote(self, key: Key, entries: int) -> None:
        if entries >= LARGE_OBJECT:
            self._until[key] = self._clock() + min(entries * ENTRY_S, LONGEST_PAUSE_S)
