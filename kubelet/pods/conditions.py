"""The conditions of a local pod: the provider's, those of readiness gates and others here, Ready.

Source: docs/parity.md § 5.5.5, 5.6.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from apis import keys, objects, texts
from apis.objects import Object
from kubelet.pods.sanitize import Filter, mapping, mappings

OFFLOADED: Final = keys.OFFLOADED_CONDITION
"""Condition of a local pod that the provider refuses; it goes when the pod is taken."""
ADDRESS: Final = keys.ADDRESS_CONDITION
FOREIGN_ADDRESS: Final = "ForeignAddress"
NO_NETWORKS: Final = "NoNetworks"
_NAME_THEM: Final = (
    "nobody named the networks of the provider's pods, so no address is published: run liqoctl "
    "peer once more, with --provider-pod-cidr if it finds none, or annotate the Identity of the "
    f"provider with {keys.POD_NETWORKS}"
)
_OURS: Final = frozenset({OFFLOADED, ADDRESS})
NOTHING_SAID: Final = "NotSaid"
_NO_WORD: Final = "whether the pod is ready cannot be read from what the provider says"
REMOTE_UNAVAILABLE: Final = "RemoteClusterUnavailable"
SCHEDULED: Final = "PodScheduled"
READY: Final = "Ready"
DISRUPTION: Final = "DisruptionTarget"
RESIZE_PENDING: Final = "PodResizePending"
_DEFERRED: Final = "Deferred"
_CONTAINERS_READY: Final = "ContainersReady"
_GATES: Final = "ReadinessGatesNotReady"
_TYPES: Final = frozenset(
    {
        SCHEDULED,
        "PodReadyToStartContainers",
        "Initialized",
        _CONTAINERS_READY,
        READY,
        DISRUPTION,
        RESIZE_PENDING,
        "PodResizeInProgress",
    }
)
_KEPT: Final = frozenset({SCHEDULED, DISRUPTION})
"""Set at the consumer too, by the scheduler and by who evicts: without a word of the provider they
stay, unless the provider said ``DisruptionTarget`` of the Pod that it made before."""


def of(pod: Object) -> list[Object]:
    """Return the conditions; read only."""
    return objects.status(pod).get("conditions") or []


def mirrored(local: Object, remote: Object, clean: Filter, deferred: str = "") -> list[Object]:
    """Return the provider's conditions of known types, then the local ones of other types.

    Readiness gates are judged here, by what anybody here said of them. ``deferred`` says why the
    pod may not grow yet, in which its own kubelet has no part.
    """
    said = _said(remote)
    theirs = {name: item for name, one in said.items() if (item := clean.condition(one))}
    if READY in theirs:
        theirs[READY] = _judged(local, theirs, clean.home.now)
    elif _runs(local, remote):
        theirs[READY] = _not_ready(local, None, (NOTHING_SAID, _NO_WORD), clean.home.now)
    had = {item.get("type"): item for item in of(local)}
    for name, item in theirs.items():
        number = taken_up(local, remote, had.get(name, {}), said.get(name, {}))
        theirs[name] = item if number is None else {**item, "observedGeneration": number}
    if deferred:
        waits = condition(
            local, RESIZE_PENDING, "True", (_DEFERRED, clean.text(deferred)), clean.home.now
        )
        theirs.setdefault(RESIZE_PENDING, waits)
    told = {DISRUPTION} if clean.home.was_disrupted else frozenset()
    others = [item for item in of(local) if _is_others(item, {*theirs, *told})]
    return [*theirs.values(), *others]


def says(remote: Object, type_: str) -> bool:
    return type_ in _said(remote)


def _said(remote: Object) -> dict[str, Object]:
    return {
        item["type"]: item
        for item in mappings(mapping(remote.get("status")).get("conditions"))
        if isinstance(item.get("type"), str) and item["type"] in _TYPES
    }


def _runs(local: Object, remote: Object) -> bool:
    """Whether the pod runs by what is known here and by the provider, and has not ended."""
    phases = {objects.status(pod).get("phase") for pod in (local, remote)}
    has_begun = not phases.isdisjoint({"Running", "Unknown"})
    return has_begun and phases.isdisjoint(objects.FINAL_PHASES)


def is_unavailable(local: Object) -> bool:
    return objects.labels(local).get(keys.REMOTE_UNAVAILABLE) == "true"


def unavailable(local: Object, offered: Object | None, now: datetime) -> Object:
    """Return Ready of a pod whose cluster cannot be reached."""
    message = "the cluster that runs the pod cannot be reached"
    return _not_ready(local, offered, (REMOTE_UNAVAILABLE, message), now)


def not_ready(local: Object, said: tuple[str, str], now: datetime) -> list[Object]:
    """Return the conditions of a pod that is not ready, for a reason of ours and its message."""
    had = next((item for item in of(local) if item.get("type") == READY), None)
    ready = _not_ready(local, had, said, now)
    return [ready, *(item for item in of(local) if item.get("type") != READY)]


def condition(
    local: Object, type_: str, status: str, said: tuple[str, str], now: datetime
) -> Object:
    """Return a condition of ours, which ``said`` explains: a reason and a message."""
    return {
        "type": type_,
        "status": status,
        "reason": said[0],
        "message": said[1],
        "lastTransitionTime": _since(local, type_, status) or objects.timestamp(now),
    }


def _since(local: Object, type_: str, status: str) -> str | None:
    """Return since when the condition has that status; None if it has another."""
    for item in of(local):
        if item.get("type") == type_ and item.get("status") == status:
            return item.get("lastTransitionTime")
    return None


def without_address(local: Object, said: str, now: datetime) -> Object:
    """Return the condition of a pod whose provider says the address ``said``, which it has not."""
    message = (
        f"the provider says {said}, which is in none of the networks that are named for its pods, "
        "or is an address of this cluster: it is not published; liqoctl peer --provider-pod-cidr "
        "names networks"
    )
    return condition(local, ADDRESS, "False", (FOREIGN_ADDRESS, message), now)


def without_networks(local: Object, now: datetime) -> Object:
    """Return the condition of a pod of whose provider nobody named the networks of pods."""
    return condition(local, ADDRESS, "False", (NO_NETWORKS, _NAME_THEM), now)


def failed(condition: Object, now: datetime) -> Object:
    if condition.get("status") != "True" or condition.get("type") in _KEPT:
        return condition
    return {**condition, "status": "False", "lastTransitionTime": objects.timestamp(now)}


def patch(before: list[Object], after: list[Object]) -> list[Object]:
    """Return the strategic merge patch of conditions: of those that differ, by type."""
    had = {item["type"]: item for item in before}
    have = {item["type"]: item for item in after}
    gone: list[Object] = [{"type": name, "$patch": "delete"} for name in had if name not in have]
    changed = [
        {"type": name, **objects.merge_patch(had.get(name, {}), item)}
        for name, item in have.items()
        if had.get(name) != item
    ]
    return [*changed, *gone]


def _not_ready(
    local: Object, offered: Object | None, said: tuple[str, str], now: datetime
) -> Object:
    return {**(offered or {}), **condition(local, READY, "False", said, now)}


def _judged(local: Object, remote: Mapping[str, Object], now: datetime) -> Object:
    """Return Ready: the provider's word, and every gate of the local pod."""
    gates = [gate["conditionType"] for gate in local["spec"].get("readinessGates") or []]
    theirs = remote[READY]
    if not gates:
        return theirs
    if theirs.get("reason") == _GATES:  # of a pod that was sent with its gates
        inside = remote.get(_CONTAINERS_READY, theirs)
        theirs = {**inside, "type": READY}
    if theirs["status"] != "True":
        return theirs
    said = {item.get("type"): item for item in reversed(of(local))}
    if missing := [text for gate in gates if (text := _closed(said.get(gate), gate))]:
        return _not_ready(local, {"type": READY}, (_GATES, texts.clamp(", ".join(missing))), now)
    moved = _since(local, READY, "True") or objects.timestamp(now)
    return {**theirs, "lastTransitionTime": moved}


def _closed(found: Object | None, gate: str) -> str:
    """Return why the gate is not open, in the words of a kubelet; empty if it is."""
    if found is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    if found.get("status") == "True":
        return ""
    return f'the status of pod readiness gate "{gate}" is not "True", but {found.get("status")}'


def _is_others(item: Object, told: Collection[str]) -> bool:
    name = item.get("type")
    return name not in told and name not in _OURS and name not in (_TYPES - _KEPT)


# Which generation of a local pod the provider speaks of -------------------------------------------
# Source: docs/parity.md § 5.5.5; Kubernetes, Pod, status.observedGeneration and that of
# conditions.

_MOST_DIGITS: Final = 18
"""More than a generation of 64 bits ever has to say here."""


def taken_up(local: Object, remote: Object, before: Object, theirs: Object) -> int | None:
    """Return the generation of ``local`` that ``theirs`` tells of; None if nobody says.

    Shape: ``theirs`` is the status of the Pod ``remote`` or one of its conditions, ``before`` what
    ``local`` had in its place.
    """
    had: int | None = before.get("observedGeneration")
    seen = theirs.get("observedGeneration")
    has, wants = remote["metadata"].get("generation"), local["metadata"].get("generation")
    if not all(isinstance(one, int) for one in (seen, has, wants)):
        return had
    sent = _sent(remote)
    if seen < has or sent is None:
        return had
    return int(max(had or 0, min(sent, wants)))


def _sent(remote: Object) -> int | None:
    """Return of which generation of the local pod ``remote`` was made; None if that is no number.

    Source: docs/parity.md H25.
    """
    noted: object = objects.annotations(remote).get(keys.LOCAL_POD_GENERATION, "1")
    if not isinstance(noted, str) or not noted.isascii() or len(noted) > _MOST_DIGITS:
        return None
    return int(noted) if noted.isdecimal() else None
