"""One read for all who want to know the same at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

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
