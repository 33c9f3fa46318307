"""Amounts by resource, and what a pod asks for.

Source: docs/parity.md § 3.8.1.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from apis import quantity
from apis.objects import Object
from apis.quantity import Quantity

Resources: TypeAlias = Mapping[str, Quantity]
"""Amounts by name: ``cpu``, ``memory``, ``nvidia.com/gpu``."""


_OF_PODS: Final = frozenset({"cpu", "memory"})
_HUGE_PAGES: Final = "hugepages-"
"""What can be said for a pod as a whole."""


def parse(amounts: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """Return the amounts of a ResourceList.

    Shape: {"cpu": "500m", "memory": "1Gi", "pods": 10}.

    Raises:
        ValueError: the message names the resource.
    """
    return {name: _amount(name, amount) for name, amount in (amounts or {}).items()}


def readable(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the amounts of a ResourceList that are some, and not below zero; no others.

    For what another cluster says, or nobody has judged.
    """
    found: dict[str, Quantity] = {}
    for name, amount in amounts.items():
        with contextlib.suppress(ValueError):
            parsed = quantity.parse(amount)
            if parsed >= Quantity():
                found[name] = parsed
    return found


def to_json(amounts: Resources) -> dict[str, str]:
    """Return ``amounts`` as a ResourceList, in canonical form."""
    return {name: str(amount) for name, amount in amounts.items()}


def line(amounts: Mapping[str, str]) -> str:
    """Return ``amounts`` in one line, as an annotation has them: "cpu=2,memory=4Gi"."""
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


def of_line(text: str) -> dict[str, Quantity]:
    """Return the amounts of such a line; what cannot be read in it is left out."""
    found: dict[str, Quantity] = {}
    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        with contextlib.suppress(ValueError):
            found[name] = quantity.parse(amount)
    return found


def total(parts: Iterable[Resources]) -> dict[str, Quantity]:
    """Return the sum of ``parts``, by resource."""
    summed: dict[str, Quantity] = {}
    for part in parts:
        summed = _joined(summed, part, lambda one, other: one + other)
    return summed


def less(amounts: Resources, used: Resources) -> dict[str, Quantity]:
    """Return what is left of ``amounts``; below zero where more is used than there is."""
    return {name: amount - used.get(name, Quantity()) for name, amount in amounts.items()}


def more(amounts: Resources, than: Resources) -> dict[str, Quantity]:
    """Return by how much ``amounts`` are more, of each resource of which they are."""
    left = less(amounts, than)
    return {name: amount for name, amount in left.items() if amount > Quantity()}


def most(one: Resources, other: Resources) -> dict[str, Quantity]:
    """Return the greater amount of each resource."""
    return _joined(one, other, max)


def lacking(wanted: Resources, free: Resources) -> list[str]:
    """Return the names of which there is not enough; what ``free`` does not name is not there."""
    return [name for name, amount in wanted.items() if name not in free or free[name] < amount]


def fits(wanted: Resources, free: Resources) -> bool:
    """Whether ``free`` has enough of everything; all or nothing."""
    return not lacking(wanted, free)


def usage(pod_spec: Object) -> dict[str, Quantity]:
    """Return what the scheduler will count for a pod.

    Its containers together, or one init container if that is more; a sidecar (an init container
    that is always restarted) runs beside all that start after it. What is said for the pod as a
    whole wins, and its overhead comes on top.

    Shape: ``pod_spec`` is {"containers": [{"resources": {"requests": {}}}], "initContainers": [],
    "resources": {}, "overhead": {}}.

    Raises:
        ValueError: a request is no quantity.
    """
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod_spec.get("initContainers") or []:
        beside = total([sidecars, _requests(container)])
        peak = _joined(peak, beside, max)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    running = [_requests(container) for container in pod_spec.get("containers") or []]
    inside = _joined(total([sidecars, *running]), peak, max)
    overhead = _stored(parse(pod_spec.get("overhead")))
    return total([{**inside, **_whole(pod_spec, inside)}, overhead])


def usage_of_stored(pod_spec: Object) -> dict[str, Quantity]:
    """Return ``usage``; nothing where a request is no amount, as 1e308 that API servers store.

    No node has room for such a Pod, so it takes nothing.
    """
    try:
        return usage(pod_spec)
    except ValueError:
        return {}


def _requests(container: Object) -> dict[str, Quantity]:
    """Return the requests as the API server completes them: where there are none, by the limits."""
    declared = container.get("resources") or {}
    return _stored({**parse(declared.get("limits")), **parse(declared.get("requests"))})


def _stored(amounts: Resources) -> dict[str, Quantity]:
    """Return ``amounts`` as the API server stores those of pods: in whole thousandths."""
    return {name: amount.in_thousandths for name, amount in amounts.items()}


def _whole(pod_spec: Object, inside: Resources) -> dict[str, Quantity]:
    """Return what is requested for the pod as a whole, completed as the API server does."""
    declared = pod_spec.get("resources") or {}
    limits = parse(declared.get("limits"))
    unsaid = {name: inside.get(name, limit) for name, limit in limits.items()}
    said = _stored({**unsaid, **parse(declared.get("requests"))})
    return {
        name: amount
        for name, amount in said.items()
        if name in _OF_PODS or name.startswith(_HUGE_PAGES)
    }


def _amount(name: str, amount: Any) -> Quantity:
    try:
        return quantity.parse(amount)
    except ValueError as error:
        raise ValueError(f"resource {name}: {error}") from error


def _joined(
    one: Resources, other: Resources, join: Callable[[Quantity, Quantity], Quantity]
) -> dict[str, Quantity]:
    if not one or not other:
        return {**one, **other}
    joined = {name: amount for name, amount in other.items() if name not in one}
    both = {
        name: join(amount, other[name]) if name in other else amount for name, amount in one.items()
    }
    return {**both, **joined}
