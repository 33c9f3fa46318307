"""Tells each consumer the largest pod that fits a node now: a slice is a sum over nodes.

It is one figure a resource, the most that any one node has free, and never more than was granted:
no consumer learns how many nodes there are, or how full each is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, resources, slices, whose
from apis.objects import Key, Object
from apis.resources import Resources
from controllers import upkeep
from kube.cluster import Cluster

ROOM_S: Final = 5.0
"""So long after something changed it is told: a burst of pods costs each slice few writes."""
NOT_YET_S: Final = 0.2


@dataclass(frozen=True)
class RoomReconciler:
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
        told = {**status, "largestPod": room(status.get("resources") or {}, largest)}
        await upkeep.write_status(self.cluster, keys.RESOURCE_SLICE, obj, told)
        return None


def room(granted: Mapping[str, str], largest: Resources) -> dict[str, str]:
    """Return ``largest`` of what was ``granted``, and no more than that; pure."""
    bounds = resources.parse(granted)
    nothing = resources.less(bounds, bounds)
    return resources.to_json(
        {name: min(largest.get(name, nothing[name]), bound) for name, bound in bounds.items()}
    )


def _is_granted(obj: Object) -> bool:
    is_there = whose.is_foreign(obj) and not objects.is_terminating(obj)
    return is_there and slices.is_accepted(obj, slices.RESOURCES)
