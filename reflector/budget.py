"""How much a provider may have this cluster do, whatever it says: one for the whole process.

Source: docs/parity.md H13, H16; docs/decisions/0013 (6).
"""

import time
from collections.abc import Callable, Hashable
from typing import Final

from kube.buckets import Buckets

LOOKS_PER_SECOND: Final = 10.0
"""Live reads of originals that no cache knows, for twins that a provider shows."""
LOOKS_BURST: Final = 10.0
WRITES_PER_SECOND: Final = 50.0
"""Events that are brought to the consumer, and what else a provider has us write here."""
WRITES_BURST: Final = 1000.0
LONGEST_S: Final = 60.0
_MOST: Final = 4096


class Turns:
    """A pace whose callers wait for their turn: the longer, the more of them wait."""

    def __init__(self, clock: Callable[[], float], *, per_second: float, burst: float) -> None:
        self._pace = Buckets(clock, per_second=per_second, burst=burst)
        self._per_second = per_second
        self._waiting: set[Hashable] = set()

    def left_s(self, who: Hashable) -> float:
        """Return 0 if it is the turn of ``who``, which is taken; else in how many seconds to ask.

        Who asks in between gets the same answer, and nothing is done for it.
        """
        left_s = self._pace.left_s("")
        if not left_s:
            self._waiting.discard(who)
            return 0.0
        if len(self._waiting) >= _MOST:  # some never come again
            self._waiting.clear()
        self._waiting.add(who)
        return min(left_s + len(self._waiting) / self._per_second, LONGEST_S)


class Budget:
    """The turns of one provider."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.looks = Turns(clock, per_second=LOOKS_PER_SECOND, burst=LOOKS_BURST)
        self.writes = Turns(clock, per_second=WRITES_PER_SECOND, burst=WRITES_BURST)
