"""Volumes that stand for others elsewhere: how the growth of one is told of the other."""

from apis import quantity
from apis.objects import Object


def grown(capacity: Object | None, *told: Object) -> bool:
    """Whether one of those ``told`` of a volume says less storage than its ``capacity``.

    Shape: ``capacity`` is {"storage": quantity}; ``told`` are specs of volumes and statuses of
    claims, each with such a field ``capacity``.
    """
    now = (capacity or {}).get("storage")
    return now is not None and any(_storage(each) < quantity.parse(now) for each in told)


def _storage(told: Object) -> quantity.Quantity:
    return quantity.parse((told.get("capacity") or {}).get("storage", "0"))
