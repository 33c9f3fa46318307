"""Which pods a virtual node rejects as a kubelet does: those that nobody scheduled onto it.

A pod that came with ``spec.nodeName`` counts against the node for all users while it is Pending.
One that a scheduler bound has the condition PodScheduled, which its binding sets: it waits.
Source: docs/decisions/0013 (8); Kubernetes, pkg/kubelet/lifecycle, predicates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from apis import objects, placement, resources
from apis.objects import Object
from apis.resources import Quantity, Resources
from kubelet.forge import decisions, status

DISABLED: Final = "OffloadingDisabled"
OUT_OF: Final = "OutOf"
_SCHEDULED: Final = "PodScheduled"
_PODS: Final = "pods"


class Rejection(NamedTuple):
    """Why a pod has failed before it began."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod on the node asks for; those that came first have it."""

    age: tuple[str, str]
    amounts: Mapping[str, Quantity]
    is_held_back: bool = False
    """Whether a DaemonSet keeps it here and it does not run, so that the node offers it beside."""


def claim(pod: Object) -> Claim | None:
    """Return what ``pod`` takes of its node; None for one that has ended."""
    if objects.is_finished(pod):
        return None
    amounts = resources.usage_of_stored(pod["spec"])
    is_waiting = status.status_of(pod).get("reason") == status.OFFLOADING_BACK_OFF
    is_held_back = is_waiting and bool(placement.is_pinned(pod))
    return Claim(_age(pod), {**amounts, _PODS: resources.parse_quantity(1)}, is_held_back)


def held_back(claims: Iterable[Claim | None]) -> Resources:
    """Return what those of ``claims`` ask for that are held back, together."""
    return resources.total(one.amounts for one in claims if one and one.is_held_back)


def came_by_name(local: Object) -> bool:
    """Whether nobody scheduled the pod, and nothing was made of it yet."""
    listed = status.status_of(local).get("conditions")
    is_new = not (status.has_started(local) or decisions.is_labelled(local))
    return is_new and not objects.is_condition_true(listed, _SCHEDULED)


def lacking(local: Object, node: Object | None, others: Iterable[Claim]) -> str:
    """Return the resource of which ``node`` has not enough beside what older pods ask for.

    "" if it has, or where nobody says what it has.
    """
    allocatable: Mapping[str, Any] = status.status_of(node or {}).get("allocatable") or {}
    own = claim(local)
    if not allocatable or own is None:
        return ""
    older = [one.amounts for one in others if one.age < own.age]
    free = resources.less(resources.readable(allocatable), resources.total(older))
    wanted = {
        name: amount
        for name, amount in own.amounts.items()
        if amount and (name != _PODS or name in allocatable)
    }
    return next(iter(sorted(resources.lacking(wanted, free))), "")


def rejection(local: Object, disabled: str, missing: str, now: datetime) -> Rejection | None:
    """Return why ``local`` is rejected, None if it is not, or not yet.

    ``disabled`` says why its namespace does not come here, ``missing`` what the node lacks.
    """
    if not came_by_name(local):
        return None
    if missing:
        said = f"the node has not enough {missing} beside the pods that are older"
        return Rejection(f"{OUT_OF}{missing}", f"Pod was rejected: {said}: let it be scheduled")
    if disabled and decisions.patience_s(local, now) <= 0:
        return Rejection(DISABLED, f"Pod was rejected: {disabled}")
    return None


def _age(pod: Object) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp") or ""), objects.uid(pod)
