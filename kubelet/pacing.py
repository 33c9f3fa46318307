"""How often a status is written here, whatever a provider says, and when a quick end is told.

What waits is not kept: the look that may write writes what holds then, so the last state arrives.

Source: docs/parity.md H16; Kubernetes, "Pod Lifecycle", how kubelets restart containers with
delays.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from apis.objects import Object
from kube.ratelimit import Buckets
from kubelet.pods import significance
from kubelet.pods.state import PodStates, Writes

PER_SECOND: Final = 5.0
BURST: Final = 10.0
"""Of one pod: an ordinary start has three to four writes within a second."""
FREE_PER_MINUTE: Final = 10.0
"""So many writes of each pod count for nobody else."""
ALL_PER_SECOND: Final = 300.0
"""Of all pods of a provider, beyond those."""
_SLOT_S: Final = 1 / ALL_PER_SECOND
_BURST_S: Final = 1.0

ENDS_PER_MINUTE: Final = 10.0
"""Quick ends of the pods of one owner that are told at once."""
HELD_S: Final = 1.0
MAX_HELD_S: Final = 300.0
CALM_S: Final = 600.0
"""An owner whose pods no longer end quickly begins with the first pause again."""
_MOST: Final = 4096
"""Owners that are remembered."""


class Pacing:
    """Says when the status of a pod may be written.

    The turn of a pod beyond what is free is reserved: pods that are told of often get one each,
    one after another.
    """

    def __init__(self, memories: PodStates, clock: Callable[[], float]) -> None:
        self._memories, self._clock = memories, clock
        self._next = clock()

    def left_s(self, local: Object, *, is_urgent: bool) -> float:
        """Return in how many seconds it may be written, 0 for now; what is urgent never waits."""
        memory = self._memories.of(local)
        writes = memory.writes = memory.writes or self._begun()
        if is_urgent:
            writes.pace.allows("")
            writes.free.allows("")
            return 0.0
        now = self._clock()
        if writes.turn is not None:
            return self._turn_s(writes, now)
        if (left_s := writes.pace.left_s("")) or writes.free.allows(""):
            return left_s
        writes.turn = self._next = max(self._next, now - _BURST_S) + _SLOT_S
        return self._turn_s(writes, now)

    def _turn_s(self, writes: Writes, now: float) -> float:
        left_s = max(0.0, (writes.turn or now) - now)
        if left_s == 0:
            writes.turn = None
        return left_s

    def _begun(self) -> Writes:
        pace = Buckets(self._clock, per_second=PER_SECOND, burst=BURST)
        free = Buckets(self._clock, per_second=FREE_PER_MINUTE / 60, burst=FREE_PER_MINUTE)
        return Writes(pace, free)


class QuickEnds:
    """Says when the end is told of a pod that failed as soon as it started.

    Its owner makes another at once, which costs this cluster a pod, its binding and its statuses.
    """

    def __init__(self, memories: PodStates, clock: Callable[[], float]) -> None:
        self._memories, self._clock = memories, clock
        self._pace = Buckets(clock, per_second=ENDS_PER_MINUTE / 60, burst=ENDS_PER_MINUTE)
        self._pauses: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def held_s(self, local: Object, wanted: Object, age_s: float) -> float:
        """Return in how many seconds ``wanted`` may be told, 0 for now.

        Units: ``age_s`` is since when the pod runs on the provider.
        """
        memory, now = self._memories.of(local), self._clock()
        if memory.held_until is not None:
            return max(0.0, memory.held_until - now)
        owner = significance.owner_of(local, wanted, age_s)
        if not owner or self._pace.allows(owner):
            return 0.0
        memory.held_until = now + self._pause_s(owner, now)
        return memory.held_until - now

    def _pause_s(self, owner: str, now: float) -> float:
        pause_s, since = self._pauses.pop(owner, (HELD_S / 2, now))
        pause_s = HELD_S if now - since > CALM_S else min(pause_s * 2, MAX_HELD_S)
        self._pauses[owner] = (pause_s, now)
        if len(self._pauses) > _MOST:
            self._pauses.popitem(last=False)
        return pause_s
