"""How a webhook ends: it serves on for a while, and leaves no request without an answer.

Source: docs/parity.md A-36; F-36.
"""

import time
from typing import Final

DRAIN_S: Final = 10.0
"""What a process that is to end serves on, not ready any more: all API servers know it by then."""
LINGER_S: Final = 2.0
"""What connections have after that, for a request that is on its way already."""
BEGUN_S: Final = 15.0
"""What was begun then has, at most; with the drain less than the pod is given."""


class Drain:
    """How long the process serves on after it was told to end."""

    def __init__(self, seconds: float = DRAIN_S) -> None:
        self.seconds = seconds
        self._ends: float | None = None

    def begin(self) -> None:
        """Say that the process was told to end."""
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds

    @property
    def has_begun(self) -> bool:
        """Whether it was told to end."""
        return self._ends is not None

    @property
    def is_over(self) -> bool:
        """Whether it may end now."""
        return self._ends is not None and time.monotonic() >= self._ends
