"""How much a provider may have this cluster do, whatever it says: one for the whole process.

Source: docs/parity.md H13, H16; docs/decisions/0013 (6).
"""

import time
from collections.abc import Callable, Hashable
from typing import Final

LOOKS_PER_SECOND: Final = 10.0
"""Live reads of originals that no cache knows, for twins that a provider shows."""
LOOKS_BURST: Final = 10.0
WRITES_PER_SECOND: Final = 50.0
"""Events that are brought to the consumer, and what else a provider has us write here."""
WRITES_BURST: Final = 1000.0
LONGEST_S: Final = 60.0
LATE_S: Final = 5.0
"""Who does not come back so long after its turn has lost its place: it may be gone."""
_AT_ONCE_S: Final = 1e-6
_MOST: Final = 4096
"""Who has a place in the line of one namespace."""


class _Line:
    """Who waits in one namespace, in order."""

    def __init__(self) -> None:
        self._places: dict[Hashable, tuple[int, float]] = {}
        """The number of each, and when it is expected back."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._places)

    def before(self, who: Hashable) -> int:
        """Return how many go before ``who``, who left its place early counted still."""
        number, _ = self._places.get(who, (self._next, 0.0))
        first, _ = next(iter(self._places.values()), (self._next, 0.0))
        return number - first

    def wait(self, who: Hashable, until: float) -> None:
        if who in self._places:
            self._places[who] = (self._places[who][0], until)
        elif len(self._places) < _MOST:
            self._places[who] = (self._next, until)
            self._next += 1

    def leave(self, who: Hashable) -> None:
        self._places.pop(who, None)

    def forget_late(self, now: float) -> None:
        while self._places and next(iter(self._places.values()))[1] + LATE_S < now:
            self._places.pop(next(iter(self._places)))


class Turns:
    """A token bucket whose callers wait in line: one line a namespace, and by turns among these.

    What is ``urgent`` goes before all that is not. A caller takes a token if one is left beside
    those of the callers before it.
    """

    def __init__(self, clock: Callable[[], float], *, per_second: float, burst: float) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._tokens, self._since = burst, clock()
        self._lines: dict[tuple[bool, str], _Line] = {}

    def left_s(self, who: Hashable, namespace: str = "", *, urgent: bool = False) -> float:
        """Return 0 if it is the turn of ``who``, which is taken; else in how many seconds to ask.

        Who asks in between keeps its place, and nothing is done for it.
        """
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._per_second)
        self._since = now
        self._forget(now)
        line = self._lines.get((urgent, namespace)) or _Line()
        left_s = (
            self._before(line.before(who), urgent=urgent) + 1 - self._tokens
        ) / self._per_second
        if left_s <= _AT_ONCE_S:
            self._tokens -= 1
            line.leave(who)
            return 0.0
        left_s = min(left_s, LONGEST_S)
        line.wait(who, now + left_s)
        self._lines[urgent, namespace] = line
        return left_s

    def _before(self, place: int, *, urgent: bool) -> int:
        """Return how many go before who has ``place`` in its line: as many of each other line."""
        return sum(
            min(len(line), place) if is_urgent is urgent else len(line)
            for (is_urgent, _), line in self._lines.items()
            if is_urgent or not urgent
        )

    def _forget(self, now: float) -> None:
        for key, line in list(self._lines.items()):
            line.forget_late(now)
            if not line:
                del self._lines[key]


class Budget:
    """The turns of one provider."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.looks = Turns(clock, per_second=LOOKS_PER_SECOND, burst=LOOKS_BURST)
        self.writes = Turns(clock, per_second=WRITES_PER_SECOND, burst=WRITES_BURST)
