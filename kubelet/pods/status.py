"""What the status of a local pod is, given the pod that runs for it on the provider.

The provider is the source of truth for statuses, but its word passes a filter: known fields and
containers, bounded sizes, no phase that goes back, nothing that the home API server would refuse.

Source: docs/parity.md § 5.5.4, 5.5.5; SEC-B1, SEC-B2.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from apis import keys, objects, placement, texts
from apis.objects import Object
from kubelet.pods import conditions, containers
from kubelet.pods.conditions import OFFLOADED
from kubelet.pods.sanitize import (
    Filter,
    LocalContext,
    bounded,
    filter_of,
    mapping,
    mappings,
    pod_address,
)

FAILED_REFLECTION: Final = keys.FAILED_REFLECTION
REFLECTION_DISABLED: Final = keys.REFLECTION_DISABLED
OFFLOADING_ABORTED: Final = keys.OFFLOADING_ABORTED
OFFLOADING_BACK_OFF: Final = keys.OFFLOADING_BACK_OFF
REMOTE_POD_TERMINATED: Final = "RemotePodTerminated"
NOT_FOUND: Final = "ContainerStatusUnknown"
KILLED: Final = 137
"""What kubelets say of a container of which they do not know how it ended."""

_MANAGED: Final = (
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "conditions",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "observedGeneration",
)
_RANKS: Final[Mapping[str, int]] = {
    "Pending": 0,
    "Running": 1,
    "Unknown": 1,
    "Succeeded": 2,
    "Failed": 2,
}


def mirrored(local: Object, remote: Object, home: LocalContext, deferred: str = "") -> Object:
    """Return the status of ``local`` as ``remote`` has it.

    ``deferred`` says why the pod may not grow yet.

    Shape: both are Pods; the result is a whole ``status``, what is not ours in it kept.
    """
    before, theirs = objects.status(local), mapping(remote.get("status"))
    clean = filter_of(local, home)
    said, address = clean.text(theirs.get("podIP")), _address(theirs, home)
    foreign = _unpublished(local, said, home) if said and not address else []
    return _whole(
        local,
        phase=_phase(before, theirs),
        reason=clean.word(theirs.get("reason")),
        message=clean.text(theirs.get("message")),
        startTime=clean.time(theirs.get("startTime")) or before.get("startTime"),
        conditions=[*conditions.mirrored(local, remote, clean, deferred), *foreign],
        initContainerStatuses=containers.mirrored(local, theirs, clean, "initContainers"),
        containerStatuses=containers.mirrored(local, theirs, clean, "containers"),
        ephemeralContainerStatuses=containers.mirrored(local, theirs, clean, "ephemeralContainers"),
        observedGeneration=conditions.taken_up(local, remote, before, theirs),
        **_addresses(address, home),
    )


def out_of_reach(local: Object, now: datetime) -> Object:
    """Return the status of a pod whose provider is silent: as it was, and not ready."""
    had = next((one for one in conditions.of(local) if one.get("type") == conditions.READY), None)
    others = [one for one in conditions.of(local) if one.get("type") != conditions.READY]
    is_down = had is not None and had.get("status") == "False"
    ready = had if is_down else conditions.unavailable(local, had, now)
    return _changed(local, conditions=[ready, *others])


def ending(local: Object, remote: Object, home: LocalContext) -> Object:
    """Return the status of a pod whose remote one ends to be made again: its conditions follow."""
    return _changed(local, conditions=conditions.mirrored(local, remote, Filter(home)))


def accepted(local: Object, home: LocalContext) -> Object:
    """Return the status of a pod whose ShadowPod is there, and no pod yet."""
    others = [item for item in conditions.of(local) if item.get("type") != OFFLOADED]
    gone: Object = {"conditions": others, "reason": None, "message": None}
    kept = gone if _is_ours(objects.status(local).get("reason")) else {"conditions": others}
    return _pending(local, **kept, **_host(home))


def refused(local: Object, message: str, home: LocalContext) -> Object:
    """Return the status of a pod that the provider does not take (any more): why, not ready."""
    clean = Filter(home)
    text = clean.text(message)
    said = FAILED_REFLECTION, text
    condition = conditions.condition(local, OFFLOADED, "False", said, home.now)
    listed = conditions.of(local)
    if has_started(local):
        listed = conditions.not_ready(local, said, home.now)
    others = [item for item in listed if item.get("type") != OFFLOADED]
    listed = [*others, condition]
    return _pending(local, reason=FAILED_REFLECTION, message=text, conditions=listed)


def without_debugger(local: Object, container: Object, message: str, home: LocalContext) -> Object:
    """Return the status of a pod with an ephemeral container that the provider refuses: ended.

    Who waits for it, as ``kubectl debug`` does, is told so.
    """
    text, field = Filter(home).text(message), "ephemeralContainerStatuses"
    told = containers.refused(container, text, home.now)
    have = [
        one for one in objects.status(local).get(field) or [] if one["name"] != container["name"]
    ]
    return _pending(local, **{field: [*have, told]})


def unanswered(local: Object, message: str, home: LocalContext) -> Object:
    """Return the status of a pod whose ShadowPod was accepted, and that got no answer since."""
    made = accepted(local, home)
    said = keys.NO_REMOTE_POD, message
    condition = conditions.condition(local, OFFLOADED, "Unknown", said, home.now)
    return {**made, "conditions": [*(made.get("conditions") or []), condition]}


def backed_off(local: Object) -> Object:
    """Return the status of a pod that cannot start, since its namespace is not offloaded."""
    message = (
        "the namespace is not offloaded to the cluster behind this node: create a "
        "NamespaceOffloading in it, or let its clusterSelector select the node"
    )
    if placement.is_pinned(local):
        message = placement.DAEMON_SET_CURE
    pending = {**local, "status": {**objects.status(local), "phase": "Pending"}}
    return waiting(pending, message, conditions.of(local))


def waiting(local: Object, message: str, listed: list[Object]) -> Object:
    """Return the status of a pod that is held back, with the conditions ``listed``."""
    return _pending(local, reason=OFFLOADING_BACK_OFF, message=message, conditions=listed)


def rejected(local: Object, reason: str, message: str) -> Object:
    """Return the final status of a pod that never began, as kubelets reject one."""
    return _changed(local, phase="Failed", reason=reason, message=message)


def aborted(local: Object, now: datetime) -> Object:
    """Return the final status of a pod that ran in a namespace which is no longer offloaded."""
    message = "the namespace is no longer offloaded to the cluster behind this node"
    said = {"reason": OFFLOADING_ABORTED, "message": message}
    return _ended(local, "Failed", (OFFLOADING_ABORTED, 1, now), **said)


def vanished(local: Object, phase: str, now: datetime) -> Object:
    """Return the final status of a pod whose ShadowPod ended in ``phase``, its pod gone since."""
    message = "the pod ended on the provider and was removed there"
    said = {"reason": REMOTE_POD_TERMINATED, "message": message}
    return _ended(local, phase, (REMOTE_POD_TERMINATED, int(phase == "Failed"), now), **said)


def removed(local: Object, phase: str, now: datetime) -> Object:
    """Return the final status of a pod that is about to go, and of which nothing is left there.

    Of how it ended the provider said ``phase``; if nothing, it has failed, as for a kubelet that
    finds no container of a pod that it ends. Source: Kubernetes, pkg/kubelet/status, TerminatePod.
    """
    if phase:
        return vanished(local, phase, now)
    return _ended(local, "Failed", (NOT_FOUND, KILLED, now))


def is_aborted(pod: Object) -> bool:
    """Whether it failed because its namespace is no longer offloaded."""
    status: dict[str, object] = objects.status(pod)
    return status.get("phase") == "Failed" and status.get("reason") == OFFLOADING_ABORTED


def is_held_up(pod: Object) -> bool:
    """Whether it says that it was refused, or had to wait, for a reason of ours."""
    is_refused = any(one.get("type") == OFFLOADED for one in conditions.of(pod))
    return is_refused or _is_ours(objects.status(pod).get("reason"))


def has_started(pod: Object) -> bool:
    """Whether it ever left Pending."""
    return str(objects.status(pod).get("phase", "Pending")) != "Pending"


def is_running(pod: Object) -> bool:
    """Whether it has started, and not ended."""
    return has_started(pod) and not objects.is_finished(pod)


def restart_count(pod: Object) -> int:
    """Return the restart count of the first container, 0 without any."""
    first = next(iter(mappings(objects.status(pod).get("containerStatuses"))), {})
    return bounded(first.get("restartCount"), 0, 2**31 - 1) or 0


# The whole ---------------------------------------------------------------------------------------


def _whole(local: Object, **ours: Any) -> Object:
    """Return what is not ours of the local status, and of ours what is not empty."""
    kept = {name: value for name, value in objects.status(local).items() if name not in _MANAGED}
    return {**kept, **{name: value for name, value in ours.items() if value not in (None, "", [])}}


def _changed(local: Object, **ours: Any) -> Object:
    """Return the local status with ``ours``, of which None, "" and [] take a field out."""
    made = {**objects.status(local), **ours}
    empty = [name for name in _MANAGED if made.get(name) in (None, "", [])]
    return {name: value for name, value in made.items() if name not in empty}


def _pending(local: Object, **ours: Any) -> Object:
    """Return the local status with ``ours``; it is Pending if it has no phase."""
    return _changed(local, phase=objects.status(local).get("phase", "Pending"), **ours)


def _ended(local: Object, phase: str, end: tuple[str, int, datetime], **said: str) -> Object:
    """Return the local status whose containers have ended: why, by which exit code, and when."""
    listed = [conditions.failed(item, end[2]) for item in conditions.of(local)]
    ended = containers.all_ended(local, *end)
    return _changed(local, phase=phase, **said, conditions=listed, **ended)


def _is_ours(reason: object) -> bool:
    return reason in (FAILED_REFLECTION, OFFLOADING_BACK_OFF)


def _phase(before: Object, theirs: Object) -> str:
    """Return the later of both phases: a phase never goes back, and a final one stays."""
    have = str(before.get("phase") or "Pending")
    offered = theirs.get("phase")
    want = offered if isinstance(offered, str) and offered in _RANKS else have
    if have in objects.FINAL_PHASES:
        return have
    return want if _RANKS[want] >= _RANKS.get(have, 0) else have


def _address(theirs: Object, home: LocalContext) -> str:
    """Return the one address of the pod, as it is reached from here; "" to publish none.

    It is in a network that was agreed for the peer, or that was named. Source: docs/parity.md
    SEC-B1.
    """
    if home.addresses is None:
        return ""
    address = pod_address(home.addresses.remap.of(pod_address(theirs.get("podIP"))))
    return address if address and home.addresses.has(address) else ""


def _unpublished(local: Object, said: str, home: LocalContext) -> list[Object]:
    """Return the condition that says why the address ``said`` is not published."""
    if home.addresses is None:
        return []
    if home.addresses.are_named:
        return [conditions.without_address(local, said, home.now)]
    return [conditions.without_networks(local, home.now)]


def _addresses(address: str, home: LocalContext) -> Object:
    """Return the address of the pod and that of its host; without a remap it loses what it had."""
    if home.addresses is None:
        return {"podIP": None, "podIPs": None, **_host(home)}
    own: Object = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
    return {**own, **_host(home)}


def _host(home: LocalContext) -> Object:
    if not home.host_ip:
        return {}
    return {"hostIP": home.host_ip, "hostIPs": [{"ip": home.host_ip}]}


# Of which Pod of the provider a local pod tells, and how often the provider made it again ---------
# Both are noted on the local pod, in the write of the status that counts them, and whether the
# Pod had the condition ``DisruptionTarget``: it may be set here, too, and only the provider's
# goes with its Pod. So anybody who comes next goes on from there, at whatever moment the one
# before it was killed.
# Source: docs/parity.md § 5.5.5.

_UID_LIMIT: Final = 64
_DISRUPTED: Final = f" {conditions.DISRUPTION}"
_MOST: Final = 2**31 - 1


class _RemotePodNote(NamedTuple):
    """``uid`` is that of the Pod on the provider, ``restarts`` how many there were before it."""

    uid: str
    restarts: int = 0


def restarts(local: Object, remote: Object) -> int:
    """Return how often the provider made the pod again, up to ``remote``.

    A Pod that went before it was told to run does not count. Where nothing is noted, as an older
    virtual kubelet wrote the status, it is what ``local`` counts more than ``remote``.
    """
    return _of(local, remote).restarts


def note(local: Object, remote: Object | None) -> dict[str, str]:
    """Return the annotation to write with a status that tells of ``remote``; {} for none."""
    if remote is None:
        return {}
    uid, count = _of(local, remote)
    mark = _DISRUPTED if conditions.says(remote, conditions.DISRUPTION) else ""
    wanted = {keys.REMOTE_POD: f"{uid} {count}{mark}"}
    return {} if objects.annotations(local).items() >= wanted.items() else wanted


def with_note(home: LocalContext, local: Object, remote: Object) -> LocalContext:
    """Return ``home`` with what ``local`` has noted of Pods that the provider made of it."""
    return replace(home, restarts=restarts(local, remote), was_disrupted=was_disrupted(local))


def was_disrupted(local: Object) -> bool:
    """Whether the provider said ``DisruptionTarget`` of the Pod that ``local`` tells of."""
    return objects.annotations(local).get(keys.REMOTE_POD, "").endswith(_DISRUPTED)


def _of(local: Object, remote: Object) -> _RemotePodNote:
    uid = texts.clamp(objects.uid(remote))[:_UID_LIMIT]
    if not has_started(local):
        return _RemotePodNote(uid)
    noted = _noted(local)
    if noted is None:
        return _RemotePodNote(uid, max(0, restart_count(local) - restart_count(remote)))
    return noted if noted.uid == uid else _RemotePodNote(uid, min(noted.restarts + 1, _MOST))


def _noted(local: Object) -> _RemotePodNote | None:
    note = objects.annotations(local).get(keys.REMOTE_POD, "")
    uid, _, count = note.removesuffix(_DISRUPTED).rpartition(" ")
    is_count = count.isascii() and count.isdecimal() and len(count) <= len(str(_MOST))
    return _RemotePodNote(uid, min(int(count), _MOST)) if uid and is_count else None
