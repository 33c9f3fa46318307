"""How long a pod that ends is left alone: most are gone before their end is worth a write."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from apis.objects import Object
from kubelet.memories import Lingering, Memories

LINGER_S: Final = 2.0
"""What a pod that ends says for that long is told; a kubelet takes as long to let go of it."""
MAX_LINGER_S: Final = 10.0
"""After what each change is told, of a pod that takes its time."""
CONFIRM_S: Final = 2.0
"""A provider sees by then itself that a pod has ended at the consumer."""


class Endings:
    """Remembers since when pods end."""

    def __init__(self, memories: Memories, monotonic: Callable[[], float]) -> None:
        self._memories, self._monotonic = memories, monotonic

    def lingers_s(self, local: Object, remote: Object) -> float:
        """Return the seconds until what ``remote`` says of its end is worth a write."""
        now, version = self._monotonic(), str(remote["metadata"]["resourceVersion"])
        memory = self._memories.of(local)
        known = memory.lingering or Lingering(now, now, version)
        if known.version != version:
            known = replace(known, changed=now, version=version)
        memory.lingering = known
        left_s = LINGER_S - (now - known.changed)
        return min(left_s, MAX_LINGER_S - (now - known.began))

    def confirms_s(self, local: Object) -> float:
        """Return the seconds until the provider should have seen the end of the pod itself."""
        now, memory = self._monotonic(), self._memories.of(local)
        memory.ended = now if memory.ended is None else memory.ended
        return CONFIRM_S - (now - memory.ended)
