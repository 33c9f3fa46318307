"""How often something may be done for a name: so many times at once, and then a rate."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

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
