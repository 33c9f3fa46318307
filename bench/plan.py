"""The time of a run: which repetitions still fit, so that a slow machine gets fewer, not a void."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import monotonic
from typing import Final

from bench import figures

SHARES: Final = {
    "admission": 5.0,
    "offload": 4.0,
    "reflection": 4.0,
    "memory": 8.0,
    "idle": 5.0,
    "burst": 10.0,
}
"""How the time is shared, in the order in which the suites run; what one leaves, the next has."""
_MINUTE_S: Final = 60.0


@dataclass
class Plan:
    """Hands out the repetitions of each suite while there is time, and one of each in any case."""

    minutes: float
    suites: Sequence[str]
    clock: Callable[[], float] = monotonic
    cut: list[str] = field(default_factory=list)
    """What was left out."""
    _began: float = field(init=False)
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._until = self._began + self.minutes * _MINUTE_S

    def enter(self, suite: str) -> None:
        """Let ``suite`` run up to the end of its share."""
        shares = [SHARES[name] for name in self.suites]
        ends = dict(zip(self.suites, accumulate(shares), strict=True))
        self._until = self._began + self.minutes * _MINUTE_S * ends[suite] / sum(shares)

    def rounds(
        self, what: str, arms: Sequence[str], repetitions: int
    ) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield (repetition, arms in their order) as long as one like the longest yet fits."""
        longest = 0.0
        for repetition in range(repetitions):
            began = self.clock()
            if repetition and began + longest > self._until:
                self.cut.append(f"{what}: {repetition} of {repetitions} repetitions")
                return
            yield repetition, figures.order(arms, repetition)
            longest = max(longest, self.clock() - began)

    def told(self) -> str:
        """Return how much of the time is over."""
        return f"minute {(self.clock() - self._began) / _MINUTE_S:.0f} of {self.minutes:.0f}"
