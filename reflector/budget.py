"""How much a provider may have this cluster do, whatever it says: one for the whole process.

Source: docs/parity.md H13, H16; docs/decisions/0013 (6).
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

LOOKS_PER_SECOND: Final = 10.0
"""Live reads of originals that no cache knows, for twins that a provider shows."""
LOOKS_BURST: Final = 10.0
WRITES_PER_SECOND: Final = 50.0
"""Events that are brought to the consumer, and what else a provider has us write here."""
WRITES_BURST: Final = 1000.0
LONGEST_S: Final = 60.0
MOST_WAITING: Final = 1024
"""In the line of one namespace; who finds it full asks again after ``LONGEST_S``."""
_MOST: Final = 4096
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
                return LONGEST_S
            ahead = before if is_urgent else before + len(self._urgent)
            self._give()
        if who in self._given:
            del self._given[who]
            return 0.0
        return min((ahead + 1 - self._left) / self._per_second, LONGEST_S)

    def _give(self) -> None:
        now = self._clock()
        self._left += (now - self._since) * self._per_second
        self._since = now
        for lines in (self._urgent, self._others):
            while self._left >= 1 and len(lines):
                self._given[lines.next()] = None
                self._left -= 1
        self._left = min(self._left, self._burst)
        while len(self._given) > _MOST:
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
