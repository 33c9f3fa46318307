"""Token buckets by name, and reads that callers at the same time share."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

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


class SharedRead(Generic[T]):
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
