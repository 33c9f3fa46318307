"""Whether a provider counts as there, by pings, and how far its clock is from ours."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

TOLERATED: Final = timedelta(minutes=5)
"""How far clocks may be apart: leases, tokens and certificates bear it.

Source: docs/parity.md F-28.
"""


@dataclass(frozen=True)
class Health:
    """What the pings of the provider say; a few lost ones in a row are not an outage.

    Nor is one answer its end: ``successes`` in a row are, lest a flapping link flap the Node.
    """

    threshold: int = 3
    failures: int = 0
    reason: str = ""
    ahead: timedelta = timedelta()
    """By how much the provider's clock is ahead of ours."""
    successes: int = 1
    answers: int = 0
    is_reachable: bool = True
    """Whether the provider counts as there."""
    is_proven: bool = True
    """Whether pings have decided that: at first nobody knows."""
    missing: int = 0
    """How many objects a list lacked at once that were there before: a breaker is open."""

    @property
    def is_in_step(self) -> bool:
        """Whether the provider's clock and ours say the same, nearly."""
        return abs(self.ahead) <= TOLERATED

    def after(self, failure: str, ahead: timedelta = timedelta()) -> "Health":
        """Return the health after one more ping; ``failure`` is empty when it was answered."""
        if failure:
            failures = min(self.failures + 1, self.threshold)
            is_over = failures >= self.threshold
            return replace(
                self,
                failures=failures,
                reason=failure,
                answers=0,
                is_reachable=self.is_reachable and not is_over,
                is_proven=self.is_proven or is_over,
            )
        answers = min(self.answers + 1, self.successes)
        is_enough = answers >= self.successes
        there = self.is_reachable or is_enough
        return replace(
            self,
            failures=0,
            reason="" if there else self.reason,
            ahead=ahead,
            answers=answers,
            is_reachable=there,
            is_proven=self.is_proven or is_enough,
        )
