"""What this cluster has and what of it is taken, and the largest pod that fits a node of it."""

import asyncio
import functools
import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from apis import keys, objects, ownership, quotas, resources, sharing, slices
from apis.objects import Key, Object
from apis.resources import Quantity, Resources
from controllers import watches, writes
from controllers.manager import Controller, Manager
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.informer import Change, Informer
from kube.process import Runnable

_EMPTY: Final = msgspec.Raw(b"{}")
_NOTHING: Final = Quantity()
_ONE: Final = resources.parse_quantity(1)
_READ: Final = msgspec.json.Decoder(dict[str, Any])


class CapacityMeta(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """The metadata that counts; its namespace is in the key."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class NodeSpec(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Whether pods may come."""

    unschedulable: bool = False
    taints: list[dict[str, Any]] | None = None


class NodeStatus(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What there is."""

    allocatable: dict[str, str | int] | None = None
    conditions: list[dict[str, Any]] | None = None


class SlimNode(msgspec.Struct, gc=False):
    """A Node of which its labels are kept, whether it is Ready, and what pods may take of it.

    ``allocatable`` is None while pods of consumers cannot be placed there.
    """

    metadata: CapacityMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    is_ready: bool = False
    allocatable: Any = None

    def __post_init__(self) -> None:
        self.is_ready = objects.is_condition_true(self.status.conditions, "Ready")
        is_usable = sharing.is_usable(msgspec.to_builtins(self))
        amounts = self.status.allocatable or {}
        self.allocatable = resources.readable(amounts) if is_usable else None
        self.spec, self.status = NodeSpec(), NodeStatus()


class Taken(NamedTuple):
    """Where a pod is, for whom, and what it takes."""

    node: str
    user: str
    amounts: Resources


class PodRequests(msgspec.Struct, gc=False):
    """A Pod of which only what it takes is kept."""

    metadata: CapacityMeta
    spec: msgspec.Raw = _EMPTY
    taken: Any = None

    def __post_init__(self) -> None:
        spec = _READ.decode(self.spec)
        user = (self.metadata.labels or {}).get(keys.CREATOR_USER, "")
        taken = resources.total([resources.usage_of_stored(spec), {quotas.PODS: _ONE}])
        amounts = _amounts(*((name, one.nanos, one.form) for name, one in taken.items()))
        node = sys.intern(spec.get("nodeName") or "")
        self.taken = Taken(node, sys.intern(user), amounts)
        found = self.metadata
        self.metadata = CapacityMeta(uid=found.uid, resource_version=found.resource_version)
        self.spec = _EMPTY


@functools.lru_cache(4096)
def _amounts(*amounts: tuple[str, int, resources.Form]) -> Resources:
    """Return the amounts, one and the same for all pods that take as much."""
    return {name: Quantity(nanos, form) for name, nanos, form in amounts}


NODES: Final = Selection(keys.NODE, SlimNode, labels=f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}")
PODS: Final = Selection(
    keys.POD, PodRequests, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)


@dataclass(slots=True, eq=False)
class _Node:
    """A node as ``SlimNode`` says, what of it is left, and what is taken by the user of pods."""

    allocatable: Resources | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    left: dict[str, Quantity] = field(default_factory=dict)
    taken: dict[str, dict[str, Quantity]] = field(default_factory=dict)


class Capacity(Runnable):
    """What is free, by sums that each change of a pod or node keeps up to date; a ``Loop``.

    Nothing is watched before somebody asks: who grants nothing pays nothing.
    """

    name = "capacity"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked = asyncio.Event()
        self._nodes, self._pods = Informer(NODES), Informer(PODS)
        self._pod: dict[Key, Taken] = {}
        self._node: dict[str, _Node] = {}
        self._allocatable: dict[str, Quantity] = {}
        """Of all usable nodes; ``_having`` says how many of them have some of each resource."""
        self._having: Counter[str] = Counter()
        self._taken: dict[str, dict[str, Quantity]] = {}
        """Of those nodes, by user."""
        self._nodes.subscribe(self._on_node)
        self._pods.subscribe(self._on_pod)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever something else may be free."""

        def on_change(change: Change[Any]) -> None:
            if not is_same(change.old, change.new):
                changed()

        for informer in (self._nodes, self._pods):
            informer.subscribe(on_change)

    async def run(self) -> None:
        """Follow nodes and pods for ever, once somebody has asked."""
        await self._asked.wait()
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._nodes, self._pods):
                tasks.create_task(informer.run(self._cluster))

    def free(self, but_of: Container[str]) -> dict[str, Quantity] | None:
        """Return what is free, the pods of the users ``but_of`` not counted; None: unknown yet."""
        if not self._is_known():
            return None
        taken = (amounts for user, amounts in self._taken.items() if user not in but_of)
        return sharing.free([self._allocatable], resources.total(taken))

    def largest(self, selector: Mapping[str, str]) -> dict[str, Quantity] | None:
        """Return the most that one node of those ``selector`` has free now; None: unknown yet."""
        if not self._is_known():
            return None
        wanted = selector.items()
        return sharing.most(
            node.left
            for node in self._node.values()
            if node.allocatable is not None and wanted <= node.labels.items()
        )

    def _is_known(self) -> bool:
        self._asked.set()
        return self._nodes.synced.is_set() and self._pods.synced.is_set()

    def _on_node(self, change: Change[SlimNode]) -> None:
        node = self._node.setdefault(change.key.name, _Node())
        found = change.new
        node.labels = (found.metadata.labels if found else None) or {}
        allocatable: Resources | None = found.allocatable if found else None
        if allocatable != node.allocatable:
            self._count(node, -1)
            node.allocatable = allocatable
            self._count(node, 1)
            node.left = resources.less(allocatable or {}, resources.total(node.taken.values()))
        self._tidy(change.key.name)

    def _count(self, node: _Node, sign: int) -> None:
        """Count the node, if it is usable, and what is taken of it; or take that back."""
        if node.allocatable is None:
            return
        _add(self._allocatable, node.allocatable, sign)
        self._having.update(dict.fromkeys(node.allocatable, sign))
        for name in node.allocatable:
            if not self._having[name]:
                del self._having[name], self._allocatable[name]
        for user, amounts in node.taken.items():
            _add_of(self._taken, user, amounts, sign)

    def _on_pod(self, change: Change[PodRequests]) -> None:
        gone = self._pod.pop(change.key, None)
        if gone is not None:
            self._take(gone, -1)
        if change.new is not None:
            self._pod[change.key] = change.new.taken
            self._take(change.new.taken, 1)

    def _take(self, taken: Taken, sign: int) -> None:
        node = self._node.setdefault(taken.node, _Node())
        _add_of(node.taken, taken.user, taken.amounts, sign)
        if node.allocatable is not None:
            inside = {name: taken.amounts[name] for name in node.left if name in taken.amounts}
            _add(node.left, inside, -sign)
            _add_of(self._taken, taken.user, taken.amounts, sign)
        self._tidy(taken.node)

    def _tidy(self, name: str) -> None:
        if not self._node[name].taken and self._nodes.get(Key("", name)) is None:
            del self._node[name]


def _add(to: dict[str, Quantity], amounts: Resources, sign: int) -> None:
    for name, amount in amounts.items():
        have = to.get(name, _NOTHING)
        to[name] = have + amount if sign > 0 else have - amount


def _add_of(to: dict[str, dict[str, Quantity]], user: str, amounts: Resources, sign: int) -> None:
    """Add to what ``user`` has, which is forgotten once it is nothing."""
    sums = to.setdefault(user, {})
    _add(sums, amounts, sign)
    if not any(sums.values()):
        del to[user]


def is_same(old: SlimNode | PodRequests | None, new: SlimNode | PodRequests | None) -> bool:
    if old is None or new is None:
        return False
    if isinstance(old, PodRequests) and isinstance(new, PodRequests):
        return bool(old.taken == new.taken)
    if isinstance(old, SlimNode) and isinstance(new, SlimNode):
        return bool(old.allocatable == new.allocatable)
    return False


# The largest pod ----------------------------------------------------------------------------------
# It is one figure a resource, the most that any one node has free, and never more than was granted:
# no consumer learns how many nodes there are, or how full each is.

LARGEST_POD_S: Final = 5.0
"""So long after something changed it is told: a burst of pods costs each slice few writes."""
NOT_YET_S: Final = 0.2
EVERY: Final = Key("", "slices")
"""The key of them all, once something else may be free."""


class LargestPodReconciler(Controller):
    """One slice of a consumer; ``largest`` is asked with the labels that its pods' nodes have.

    It is asked once for all slices of the same labels, and again after ``EVERY``.
    """

    name = "room"

    def __init__(
        self, manager: Manager, largest: Callable[[Mapping[str, str]], Resources | None]
    ) -> None:
        super().__init__(manager)
        self._largest = largest
        self._answers: dict[frozenset[tuple[str, str]], Resources] = {}
        self._enqueue: Callable[[Key], None] = lambda _: None

    def watches(self) -> Sequence[WatchSource[Any]]:
        return [self.watch(watches.RESOURCE_SLICES)]

    def runner(self) -> Runner:
        runner = super().runner()
        self._enqueue = runner.enqueue
        return runner

    async def reconcile(self, key: Key) -> float | None:
        if key == EVERY:
            self._answers.clear()
            for each in await self.all(watches.RESOURCE_SLICES):
                self._enqueue(each)
            return None
        obj = await self.cached.get(keys.RESOURCE_SLICE, key)
        if obj is None or not _is_granted(obj):
            return None
        status = obj["status"]
        largest = self._answer(status.get("nodeSelector") or {})
        if largest is None:
            return NOT_YET_S
        told = {**status, "largestPod": largest_pod(status.get("resources") or {}, largest)}
        await writes.write_status(self.cached, keys.RESOURCE_SLICE, obj, told)
        return None

    def _answer(self, selector: Mapping[str, str]) -> Resources | None:
        labels = frozenset(selector.items())
        if labels not in self._answers:
            largest = self._largest(selector)
            if largest is None:
                return None
            self._answers[labels] = largest
        return self._answers[labels]


def largest_pod(granted: Mapping[str, str], largest: Resources) -> dict[str, str]:
    """Return ``largest`` of what was ``granted``, and no more than that; pure."""
    bounds = resources.parse_resources(granted)
    nothing = resources.less(bounds, bounds)
    return resources.to_json(
        {name: min(largest.get(name, nothing[name]), bound) for name, bound in bounds.items()}
    )


def _is_granted(obj: Object) -> bool:
    is_there = ownership.is_foreign(obj) and not objects.is_terminating(obj)
    return is_there and slices.is_accepted(obj, slices.RESOURCES)
