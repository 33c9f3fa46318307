"""How much may come home: so many writes at once for an object, and then one a second."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

PER_SECOND: Final = 1.0
BURST: Final = 25.0
MAX_REMEMBERED: Final = 4096


class Pace:
    """A bucket of tokens a name. Source: security.md B7."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Whether ``name`` has a token left; it takes it."""
        now = self._clock()
        left, since = self._buckets.pop(name, (BURST, now))
        left = min(BURST, left + (now - since) * PER_SECOND)
        is_allowed = left >= 1
        self._buckets[name] = (left - is_allowed, now)
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        return is_allowed
