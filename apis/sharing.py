"""How much of a cluster is free, which part of it is shared, and how several divide that. Exact.

Amounts are cut to what a consumer can use: thousandths of a CPU, mebibytes, whole pieces and pages.
Source: docs/parity.md § 4.17 with the vectors of 11.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from apis import keys, objects, resources
from apis.objects import Object
from apis.providerpolicy import AT_LEAST_ONE, Sharing
from apis.resources import NANO, Quantity, Resources

_MILLI: Final = NANO // 1000
_MEBI: Final = NANO * 2**20
_CPU: Final = "cpu"
_PODS: Final = "pods"
_BYTES: Final = ("memory", "ephemeral-storage")
_PAGES: Final = "hugepages-"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/"
_CLOSED: Final = frozenset({"NoSchedule", "NoExecute"})


class Pool(NamedTuple):
    """What is shared, and where a percentage of something came to no whole piece."""

    amounts: Resources
    notes: Mapping[str, str]
    """By resource."""


def is_usable(node: Object) -> bool:
    """Whether pods of consumers can be placed on ``node``: a real one, ready, and open to them."""
    spec, status = objects.spec(node), objects.status(node)
    if spec.get("unschedulable") or objects.labels(node).get(keys.NODE_TYPE):
        return False
    if any(_is_control_plane(taint) for taint in spec.get("taints") or ()):
        return False
    conditions = status.get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _is_control_plane(taint: Object) -> bool:
    key, effect = taint.get("key") or "", taint.get("effect")
    return key.startswith(_CONTROL_PLANE) and effect in _CLOSED


def free(allocatable: Iterable[Resources], used: Resources) -> dict[str, Quantity]:
    """Return what is left of ``allocatable``, one a node, after ``used``; never below nothing."""
    left = resources.less(resources.total(allocatable), used)
    return {name: max(amount, Quantity()) for name, amount in left.items()}


def most(parts: Iterable[Resources]) -> dict[str, Quantity]:
    """Return the most that one of ``parts`` has, by resource: not all of it need be in one."""
    found: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            if name not in found or amount.nanos > found[name].nanos:
                found[name] = max(amount, Quantity())
    return found


def pool(available: Resources, sharing: Sharing) -> Pool:
    amounts: dict[str, Quantity] = {}
    notes: dict[str, str] = {}
    for name, amount in available.items():
        percent = sharing.percent_of(name)
        part = amount.nanos * percent // 100
        whole = part // unit(name) * unit(name)
        if not whole and part and sharing.rounding == AT_LEAST_ONE and amount.nanos >= unit(name):
            whole = unit(name)
        amounts[name] = Quantity(whole, amount.form)
        if whole != part and (_is_in_pieces(name) or not whole):
            exact = Quantity(part)
            said = f"{percent}% of {amount} free is {exact.value.normalize():f}"
            notes[name] = f"{name}: {said}, granted {amounts[name]} (rounding {sharing.rounding})"
    return Pool(amounts, notes)


def fair(total: int, wants: Sequence[int | None]) -> list[int]:
    """Return how ``total`` is divided: nobody gets more than he wants, and else all the same.

    None wants all. What cannot be divided goes to the first of ``wants``.
    """
    bounded = [total if want is None else min(want, total) for want in wants]
    got, left = [0] * len(bounded), total
    order = sorted(range(len(bounded)), key=lambda index: (bounded[index], -index))
    for rank, index in enumerate(order):
        got[index] = min(bounded[index], left // (len(order) - rank))
        left -= got[index]
    return got


def shares(name: str, total: Quantity, wants: Sequence[Quantity | None]) -> list[Quantity]:
    """Return how ``total`` of the resource ``name`` is divided, in pieces that can be used."""
    size = unit(name)
    asked = [None if want is None else want.nanos // size for want in wants]
    return [Quantity(part * size, total.form) for part in fair(total.nanos // size, asked)]


def unit(name: str) -> int:
    """Return the smallest part of a resource that is given away, in billionths.

    Source: Kubernetes, "Manage HugePages": ``hugepages-<size>``, of which pods get whole pages.
    """
    if name == _CPU:
        return _MILLI
    if name.startswith(_PAGES):
        return _page(name.removeprefix(_PAGES)) or _MEBI
    return _MEBI if name in _BYTES else NANO


def _page(size: str) -> int:
    try:
        return max(resources.parse_quantity(size).nanos, 0)
    except ValueError:
        return 0


def _is_in_pieces(name: str) -> bool:
    return name.startswith(_PAGES) or (unit(name) == NANO and name != _PODS)
