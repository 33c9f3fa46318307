"""How long a pod that ends is left alone: most are gone before their end is worth a write."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from apis.objects import Key, Object

LINGER_S: Final = 2.0
"""What a pod that ends says for that long is told; a kubelet takes as long to let go of it."""
MAX_LINGER_S: Final = 10.0
"""After what each change is told, of a pod that takes its time."""
CONFIRM_S: Final = 2.0
"""A provider sees by then itself that a pod has ended at home."""


class Endings:
    """Remembers since when pods end."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lingering: dict[Key, _Lingering] = {}
        self._ended: dict[Key, datetime] = {}

    def lingers_s(self, key: Key, remote: Object) -> float:
        """Return the seconds until what ``remote`` says of its end is worth a write."""
        now, version = self._clock(), str(remote["metadata"]["resourceVersion"])
        known = self._lingering.get(key) or _Lingering(now, now, version)
        if known.version != version:
            known = replace(known, changed=now, version=version)
        self._lingering[key] = known
        left_s = LINGER_S - (now - known.changed).total_seconds()
        return min(left_s, MAX_LINGER_S - (now - known.began).total_seconds())

    def confirms_s(self, key: Key) -> float:
        """Return the seconds until the provider should have seen the end of the pod itself."""
        now = self._clock()
        return CONFIRM_S - (now - self._ended.setdefault(key, now)).total_seconds()

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone."""
        self._lingering.pop(key, None)
        self._ended.pop(key, None)


@dataclass(frozen=True)
class _Lingering:
    """Of a pod that ends: since when, and since when the remote one is of this version."""

    began: datetime
    changed: datetime
    version: str
