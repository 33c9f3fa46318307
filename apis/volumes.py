"""Volumes that stand for others elsewhere: how the growth of one is told of the other."""

from apis import resources
from apis.objects import Object
from apis.resources import Quantity


def grown(capacity: Object | None, *told: Object) -> bool:
    """Whether one of those ``told`` of a volume says less storage than its ``capacity``.

    A capacity that is no amount tells nothing: another cluster may say anything.

    Shape: ``capacity`` is {"storage": quantity}; ``told`` are specs of volumes and statuses of
    claims, each with such a field ``capacity``.
    """
    now = storage(capacity)
    return any(storage(each.get("capacity")) < now for each in told)


def amount(capacity: Object | None) -> Object:
    """Return what may be told of another volume: the storage of ``capacity``, as we write it."""
    return {"storage": str(storage(capacity))}


def storage(amounts: Object | None) -> Quantity:
    """Return how much storage a ResourceList says; 0 for a value that is not an amount."""
    return resources.readable(amounts or {}).get("storage", Quantity())
