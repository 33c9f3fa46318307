"""Whether an API server still has all that it had: its store may be restored from an older state.

Such a server takes a watch from a version that it does not have yet, and tells nothing of what
happens until it has: who followed it would miss that for ever. So a watch goes on without a
question only where it follows at once on a list, or on a watch that the server ended in peace, and
the server was there all the time. Else the server first says which version it has.
Source: docs/parity.md F-12.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from kube.cluster import Selection

AT_ONCE_S: Final = 10.0
"""Within which no server is stopped, restored and started again. An informer lists, tells its
handlers, and watches in less."""
_LONGEST: Final = 20
"""Digits of the largest version: servers count in 64 bits."""


class Doubts:
    """Of which selections the server may have forgotten something since they were last heard of."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sure: WeakKeyDictionary[Selection[Any], float] = WeakKeyDictionary()
        """Since when it is sure; infinitely long ago for one that was lost."""

    def lost(self, of: Selection[Any]) -> None:
        """Note that the watch of ``of`` broke, was silent, or was given up."""
        self._sure[of] = -math.inf

    def all_lost(self) -> None:
        """Note that the server does not answer."""
        for of in list(self._sure):
            self.lost(of)

    def asked(self, of: Selection[Any]) -> None:
        """Note that the server says which version it has, or ends a watch in peace."""
        self._sure[of] = self._clock()

    def __contains__(self, of: Selection[Any]) -> bool:
        since = self._sure.get(of)
        return since is not None and self._clock() - since > AT_ONCE_S


def is_behind(version: str, since: str) -> bool:
    """Whether ``version``, the server's own, is older than ``since``, which it gave us before.

    Source: Kubernetes API concepts, "Resource versions": of one resource they may be compared.
    """
    return _is_number(version) and _is_number(since) and int(version) < int(since)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _LONGEST
