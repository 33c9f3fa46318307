"""What this cluster has and what of it is taken, and the largest pod that fits a node of it."""

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from apis import keys, objects, ownership, quotas, resources, sharing, slices
from apis.objects import Key, Object
from apis.resources import Quantity, Resources
from controllers import writes
from kube.cluster import Cluster, Selection
from kube.informer import Change, Informer

_EMPTY: Final = msgspec.Raw(b"{}")
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


class SlimNode(msgspec.Struct, gc=False, frozen=True):
    """A Node without what does not count: 50 names of images, for one."""

    metadata: CapacityMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def allocatable(self) -> Resources | None:
        """Return what it has for consumers' pods; None while they cannot be placed there."""
        whole: Object = msgspec.to_builtins(self)
        return (
            resources.parse_resources(self.status.allocatable) if sharing.is_usable(whole) else None
        )


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
        self.taken = Taken(spec.get("nodeName") or "", user, taken)
        self.spec = _EMPTY


NODES: Final = Selection(keys.NODE, SlimNode, labels=f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}")
PODS: Final = Selection(
    keys.POD, PodRequests, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)


class Capacity:
    """What is free, by sums over pods that each change of one keeps up to date; a ``Loop``.

    Nothing is watched before somebody asks: who shares nothing pays nothing.
    """

    name = "capacity"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked = asyncio.Event()
        self._nodes, self._pods = Informer(NODES), Informer(PODS)
        self._taken: dict[Key, Taken] = {}
        self._sums: dict[tuple[str, str], dict[str, Quantity]] = {}
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

    def is_alive(self) -> bool:
        return True

    async def drain(self) -> None:
        return

    def free(self, but_of: Container[str]) -> dict[str, Quantity] | None:
        """Return what is free, the pods of the users ``but_of`` not counted; None: unknown yet."""
        if not self._is_known():
            return None
        usable = self._usable({})
        used = resources.total(
            amounts
            for (node, user), amounts in self._sums.items()
            if node in usable and user not in but_of
        )
        return sharing.free(usable.values(), used)

    def largest(self, selector: Mapping[str, str]) -> dict[str, Quantity] | None:
        """Return the most that one node of those ``selector`` has free now; None: unknown yet."""
        if not self._is_known():
            return None
        taken: dict[str, list[Resources]] = {}
        for (node, _), amounts in self._sums.items():
            taken.setdefault(node, []).append(amounts)
        return sharing.most(
            resources.less(amounts, resources.total(taken.get(name, ())))
            for name, amounts in self._usable(selector).items()
        )

    def _is_known(self) -> bool:
        self._asked.set()
        return self._nodes.synced.is_set() and self._pods.synced.is_set()

    def _usable(self, selector: Mapping[str, str]) -> dict[str, Resources]:
        return {
            key.name: amounts
            for key, node in self._nodes.items().items()
            if selector.items() <= (node.metadata.labels or {}).items()
            and (amounts := node.allocatable()) is not None
        }

    def _on_pod(self, change: Change[PodRequests]) -> None:
        gone = self._taken.pop(change.key, None)
        if gone is not None:
            where = (gone.node, gone.user)
            sums = resources.less(self._sums[where], gone.amounts)
            self._sums[where] = {name: amount for name, amount in sums.items() if amount}
        if change.new is not None:
            taken = self._taken[change.key] = change.new.taken
            where = (taken.node, taken.user)
            self._sums[where] = resources.total([self._sums.get(where, {}), taken.amounts])


def is_same(old: SlimNode | PodRequests | None, new: SlimNode | PodRequests | None) -> bool:
    if old is None or new is None:
        return False
    if isinstance(old, PodRequests) and isinstance(new, PodRequests):
        return bool(old.taken == new.taken)
    if isinstance(old, SlimNode) and isinstance(new, SlimNode):
        return old.allocatable() == new.allocatable()
    return False


# The largest pod ----------------------------------------------------------------------------------
# It is one figure a resource, the most that any one node has free, and never more than was granted:
# no consumer learns how many nodes there are, or how full each is.

LARGEST_POD_S: Final = 5.0
"""So long after something changed it is told: a burst of pods costs each slice few writes."""
NOT_YET_S: Final = 0.2


@dataclass(frozen=True)
class LargestPodReconciler:
    """One slice of a consumer; ``largest`` is asked with the labels that its pods' nodes have."""

    cluster: Cluster
    largest: Callable[[Mapping[str, str]], Resources | None]

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(keys.RESOURCE_SLICE, key)
        if obj is None or not _is_granted(obj):
            return None
        status = obj["status"]
        largest = self.largest(status.get("nodeSelector") or {})
        if largest is None:
            return NOT_YET_S
        told = {**status, "largestPod": largest_pod(status.get("resources") or {}, largest)}
        await writes.write_status(self.cluster, keys.RESOURCE_SLICE, obj, told)
        return None


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
