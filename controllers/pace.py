"""When what is large may be written again: each write costs the server all of it."""

import time
from collections.abc import Callable
from typing import Final

from apis.objects import Key

LARGE: Final = 100
"""Fewer entries are written as often as they change."""
ENTRY_S: Final = 0.001
MOST_S: Final = 1.0


class Pace:
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
        """Note a write of so many entries."""
        if entries >= LARGE:
            self._until[key] = self._clock() + min(entries * ENTRY_S, MOST_S)
