"""Since when clusters are asked to give twins of namespaces up, and how long that is waited for.

A cluster that never says that its twin is gone keeps no namespace of the consumer from its end.
Source: docs/parity.md H4; docs/decisions/0013 (13).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis.objects import Key

REVOKED_S: Final = 60.0
"""After this the virtual kubelet has no rights in the namespace, whatever its provider says."""
LET_GO_S: Final = REVOKED_S + 120.0
"""After this the namespace is free, whatever may be left at the provider."""


@dataclass(frozen=True)
class Withdrawal:
    """How long a cluster has been asked to give one twin up; Units: seconds."""

    age_s: float

    @property
    def is_revoked(self) -> bool:
        """Whether the rights of its virtual kubelet end now."""
        return self.age_s >= REVOKED_S

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any longer."""
        return self.age_s >= LET_GO_S

    @property
    def left_s(self) -> float:
        """Return in how many seconds something changes."""
        return (LET_GO_S if self.is_revoked else REVOKED_S) - self.age_s


class Withdrawals:
    """Remembers them by namespace and by the key of the cluster's NamespaceMap.

    The status of the NamespaceOffloading says it too, so that a restart goes on counting.
    """

    def __init__(self, clock: Callable[[], datetime], tick: Callable[[], float]) -> None:
        self._clock, self._tick = clock, tick
        self._since: dict[str, dict[Key, float]] = {}

    def has(self, namespace: str, map_: Key) -> bool:
        """Whether that cluster is asked to give its twin of ``namespace`` up."""
        return map_ in self._since.get(namespace, {})

    def going(self, namespace: str, map_: Key, since: datetime | None = None) -> Withdrawal:
        """Return how long that has been so; it began at ``since``, or begins now."""
        known, now = self._since.setdefault(namespace, {}), self._tick()
        if map_ not in known:
            before_s = (self._clock() - since).total_seconds() if since else 0.0
            known[map_] = now - max(0.0, before_s)
        return Withdrawal(now - known[map_])

    def ended(self, namespace: str, map_: Key) -> None:
        """Forget it: the twin is gone, or wanted."""
        known = self._since.get(namespace, {})
        known.pop(map_, None)
        if not known:
            self._since.pop(namespace, None)

    def forget(self, namespace: str) -> None:
        """Forget the namespace."""
        self._since.pop(namespace, None)

    def next_s(self, namespace: str) -> float | None:
        """Return in how many seconds something changes in ``namespace``; None if nothing does."""
        left = [
            going.left_s
            for map_ in self._since.get(namespace, {})
            if not (going := self.going(namespace, map_)).is_over
        ]
        return min(left, default=None)
