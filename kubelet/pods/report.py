"""What the consumer learns of a pod: its status, once it is worth a write, with an Event.

How often a status is written is bounded, whatever a provider says. What waits is not kept: the
look that may write writes what holds then, so the last state arrives.
Source: docs/parity.md § 5.5.4; H16; bench/goals.py row 5; Kubernetes, "Pod Lifecycle", how kubelets
restart containers with delays.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import Gauge

from apis import keys, objects
from apis.objects import Object
from apis.offloading import MappedNamespace
from kube import errors
from kube.cluster import Cluster
from kube.metrics import REGISTRY
from kube.ratelimit import Buckets
from kube.slim import ReadYourWrites
from kubelet.pods import decide, significance, status
from kubelet.pods.conditions import is_unavailable
from kubelet.pods.decide import Rejection
from kubelet.pods.sanitize import LocalContext
from kubelet.pods.state import (
    REFUSED_S,
    TAKEN_S,
    PodState,
    PodStates,
    Recorder,
    VirtualNodeContext,
    Writes,
)

UNANSWERED: Final = Gauge(
    "pyliqo_kubelet_unanswered_pods",
    "Pods whose ShadowPod the provider took a minute ago, and made no Pod of",
    registry=REGISTRY,
)


ANSWER_S: Final = 60.0
"""A provider that takes a ShadowPod makes its Pod sooner: else the user is told."""
MAX_REFUSED_S: Final = 300.0


class PodStatuses:
    """Writes the statuses of the pods of ``node``; remembers what the cache does not show yet."""

    def __init__(  # noqa: PLR0913  # where it writes, who remembers and tells, and two clocks
        self,
        local: Cluster,
        memories: PodStates,
        *,
        node: VirtualNodeContext,
        recorder: Recorder,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._local, self._memories, self._node = local, memories, node
        self._recorder, self._clock, self._monotonic = recorder, clock, monotonic
        self.written = ReadYourWrites()
        """Statuses that the cache does not show yet."""
        self._pacing, self._quick_ends = StatusRate(monotonic), QuickEndDelay(monotonic)
        self._unkept: significance.Paths = frozenset()
        """Fields that the API server here does not keep."""
        UNANSWERED.set_function(memories.unanswered)

    def begin(self, local: Object) -> None:
        memory = self._memories.of(local)
        memory.refused_s, memory.taken_s = REFUSED_S, TAKEN_S
        memory.begun = self._monotonic()

    def has_begun(self, local: Object) -> bool:
        return self._memories.of(local).begun is not None

    # What is worth a write -------------------------------------------------------------------

    def mirrored(self, local: Object, remote: Object) -> Object:
        return status.mirrored(local, remote, status.with_note(self.home(), local, remote))

    async def write(self, local: Object, wanted: Object, remote: Object | None = None) -> None:
        """Write the status if it is worth it, with what says whose pod it is, and of which Pod."""
        memory = self._memories.of(local)
        age_s = memory.age_s(self._monotonic())
        held_s = self._quick_ends.held_s(memory, significance.owner_of(local, wanted, age_s))
        if held_s > 0:  # an end that comes too soon: told is that it waits
            memory.owe(held_s)
            wanted = significance.held_status(local, self.home())
        change = significance.change(local, wanted, remote, age_s, self._unkept)
        if change.is_due and not await self._patch(local, wanted, change.metadata):
            return
        for reason, message in change.troubles.items():
            self._recorder.event(keys.POD, local, "Warning", reason, f"remotely, {message}")

    async def end(self, local: Object, phase: str, remote: Object | None) -> None:
        """Let a pod that is about to go have ended, if somebody counts it by its phase.

        ``phase`` is the final one of its twins, and ``remote`` its Pod, if that was seen.
        Source: Kubernetes, "Pod Lifecycle", pod phase; "Jobs", pod replacement policy.
        """
        if objects.is_finished(local) or not decide.is_counted(local):
            return
        told = [] if remote is None else [self.mirrored(local, remote)]
        for wanted in (*told, status.removed(local, phase, self._clock())):
            with contextlib.suppress(errors.InvalidError):  # a refusal does not keep it here
                await self._patch(local, wanted, {})
                return

    # What keeps a pod from running -----------------------------------------------------------

    async def refuse(self, local: Object, message: str) -> float:
        """Leave the pod Pending and say why; return in how many seconds to try again."""
        wanted = status.refused(local, message, self.home())
        await self._say(local, wanted, status.FAILED_REFLECTION, message)
        memory = self._memories.of(local)
        pause_s, memory.refused_s = memory.refused_s, min(memory.refused_s * 2, MAX_REFUSED_S)
        return pause_s

    async def refuse_debugger(self, local: Object, container: Object, message: str) -> None:
        """Tell that the provider does not take an ephemeral container: it has ended."""
        wanted = status.without_debugger(local, container, message, self.home())
        await self._patch(local, wanted, {})

    async def reject(self, local: Object, rejection: Rejection) -> None:
        """Let a pod fail that nobody scheduled here, and that cannot run here."""
        wanted = status.rejected(local, *rejection)
        await self._say(local, wanted, rejection.reason, rejection.message)

    async def disable(self, local: Object, wanted: Object) -> None:
        """Tell that the pod's namespace is not offloaded, and what becomes of it."""
        await self._say(local, wanted, status.REFLECTION_DISABLED, str(wanted["message"]))

    async def await_answer(self, local: Object, pair: MappedNamespace) -> float:
        """Tell that the provider makes no Pod, once it had a minute; return what is left of it."""
        memory = self._memories.of(local)
        left_s = ANSWER_S - memory.age_s(self._monotonic())
        if left_s > 0:
            return left_s
        message = f"cluster {pair.destination} took the pod and has made no Pod of it in a minute"
        wanted = status.unanswered(local, f"{message}: ask its administrator", self.home())
        await self._say(local, wanted, keys.NO_REMOTE_POD, message)
        memory.is_unanswered = True
        return left_s

    async def out_of_reach(self, local: Object) -> None:
        """Mark a pod that runs on a provider that is silent."""
        wanted = status.out_of_reach(local, self._clock())
        if not self._is_same(local, wanted) or not is_unavailable(local):
            await self._patch(local, wanted, {"labels": {keys.REMOTE_UNAVAILABLE: "true"}})

    # Writing ---------------------------------------------------------------------------------

    async def _say(self, local: Object, wanted: Object, reason: str, message: str) -> None:
        if not self._is_same(local, wanted) and await self._patch(local, wanted, {}):
            self._recorder.event(keys.POD, local, "Warning", reason, message)

    def _is_same(self, local: Object, wanted: Object) -> bool:
        both = objects.status(local), wanted
        return significance.is_same(*(significance.without(one, self._unkept) for one in both))

    async def _patch(self, local: Object, wanted: Object, metadata: Object) -> bool:
        """Write the status; return whether that was its turn. If not, a later look writes."""
        before, memory = objects.status(local), self._memories.of(local)
        left_s = self._pacing.left_s(memory, is_urgent=significance.is_urgent(before, wanted))
        if left_s > 0:
            memory.owe(left_s)
            return False
        changes = significance.patch(before, wanted)
        metadata = {"uid": objects.uid(local), **metadata}
        key = objects.key_of(local)
        made = await self._local.patch_status(keys.POD, key, changes, metadata=metadata)
        self._unkept = significance.unkept(self._unkept, changes, objects.status(made))
        self.written.add(local, made)
        return True

    def home(self) -> LocalContext:
        """Return what is added here to what a provider says."""
        node = self._node
        return LocalContext(node.host_ip, self._clock(), addresses=node.addresses())


# How often a status is written here, whatever a provider says, and when a quick end is told -------

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


class StatusRate:
    """Says when the status of a pod may be written.

    The turn of a pod beyond what is free is reserved: pods that are told of often get one each,
    one after another.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock()

    def left_s(self, memory: PodState, *, is_urgent: bool) -> float:
        """Return in how many seconds it may be written, 0 for now; what is urgent never waits."""
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


class QuickEndDelay:
    """Says when the end is told of a pod that failed as soon as it started.

    Its owner makes another at once, which costs this cluster a pod, its binding and its statuses.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pace = Buckets(clock, per_second=ENDS_PER_MINUTE / 60, burst=ENDS_PER_MINUTE)
        self._pauses: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def held_s(self, memory: PodState, owner: str) -> float:
        """Return in how many seconds the end of a pod of ``owner`` may be told, 0 for now.

        ``owner`` is "" of a pod that does not end, or not that soon.
        """
        now = self._clock()
        if memory.held_until is not None:
            return max(0.0, memory.held_until - now)
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
