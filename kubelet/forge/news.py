"""What of a status is news: worth a write, or an Event.

Source: docs/parity.md § 5.5.5; bench/goals.py row 5.
"""

from typing import Final

from apis import conditions as conditions_
from apis import objects
from apis.objects import Object
from kubelet.forge import conditions
from kubelet.forge.clean import mapping
from kubelet.forge.conditions import OFFLOADED

_FINAL: Final = frozenset({"Succeeded", "Failed"})
_REASONS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
        "KillContainerError",
        "KillPodSandboxError",
        "PostStartHookError",
        "PreCreateHookError",
        "PreStartHookError",
        "RunContainerError",
        "RunInitContainerError",
        "NetworkNotReady",
        "SetupNetworkError",
        "VerifyNonRootError",
    }
)
"""Why kubelets let containers wait. Source: Kubernetes, pkg/kubelet/container and pkg/kubelet."""
OTHER: Final = "RemoteTrouble"
"""For any other word: an Event is kept for each reason."""
_QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def is_significant(before: Object, after: Object) -> bool:
    """Whether the step from one status to the other is worth a write.

    While a pod is Pending its container runtime's small steps are not: they would double
    the writes of a pod up to Running. What explains a pod that stays Pending is.
    """
    if before.get("phase") != "Pending" or after.get("phase") != "Pending":
        return not is_same(before, after)
    return _explanation(before) != _explanation(after)


def is_urgent(before: Object, after: Object) -> bool:
    """Whether it is told at once: that a pod is not ready any more, or has ended."""
    ended = after.get("phase") in _FINAL and before.get("phase") not in _FINAL
    sides = before.get("conditions"), after.get("conditions")
    was_ready, is_ready = (conditions_.is_true(one, conditions.READY) for one in sides)
    return ended or (was_ready and not is_ready)


def is_same(before: Object, after: Object) -> bool:
    """Whether both say the same: a server writes out what is empty, such as lastState."""
    return _pruned(_by_type(before)) == _pruned(_by_type(after))


def troubles(status: Object) -> dict[str, str]:
    """Return what keeps a pod from running, by reason, with the provider's message.

    That an image cannot be pulled is one trouble, whether it is tried or waited for.
    """
    found: dict[str, str] = {}
    for item in status.get("conditions") or []:
        if item.get("type") == conditions.SCHEDULED and item.get("status") == "False":
            found["FailedScheduling"] = str(item.get("message") or item.get("reason") or "")
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for item in status.get(field) or []:
            if reason := _waits(item):
                waiting = mapping(mapping(item.get("state")).get("waiting"))
                text = f"container {item.get('name')}: {waiting.get('message') or reason}"
                found[_event(reason)] = text
    return found


def patch(before: Object, wanted: Object) -> Object:
    """Return the strategic merge patch that makes the status ``before`` into ``wanted``.

    Of conditions only those that differ are sent, since others write theirs meanwhile.
    """
    changes = objects.merge_patch(before, wanted)
    if "conditions" in changes:
        had, have = (side.get("conditions") or [] for side in (before, wanted))
        changes["conditions"] = conditions.patch(had, have)
    for name in ("podIPs", "hostIPs"):
        if changes.get(name):
            changes[name] = [{"$patch": "replace"}, *changes[name]]
    return changes


# What explains a Pending pod ---------------------------------------------------------------------


def _explanation(status: Object) -> object:
    scheduled = [
        (item.get("reason"), item.get("message"))
        for item in status.get("conditions") or []
        if item.get("type") == "PodScheduled" and item.get("status") == "False"
    ]
    refusal = any(item.get("type") == OFFLOADED for item in status.get("conditions") or [])
    return (
        status.get("reason"),
        status.get("message"),
        scheduled,
        refusal,
        [_waits(item) for item in status.get("containerStatuses") or [] if _waits(item)],
        [_step(item) for item in status.get("initContainerStatuses") or [] if any(_step(item))],
    )


def _event(reason: str) -> str:
    if "Image" in reason:
        return "FailedImagePull"
    return reason if reason in _REASONS else OTHER


def _waits(container: Object) -> str:
    reason = mapping(mapping(container.get("state")).get("waiting")).get("reason") or ""
    return "" if reason in _QUIET else str(reason)


def _step(container: Object) -> tuple[str, str, int]:
    state = mapping(container.get("state"))
    now = next((name for name in ("running", "terminated") if name in state), "")
    return now, _waits(container), container.get("restartCount", 0)


# Comparing --------------------------------------------------------------------------------------


def _by_type(status: Object) -> Object:
    """Return the status with its conditions by type: their order says nothing."""
    return {**status, "conditions": {one["type"]: one for one in status.get("conditions") or []}}


def _pruned(value: object) -> object:
    """Return ``value`` without what is empty, at any depth."""
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    pruned = {name: _pruned(item) for name, item in value.items()}
    return {name: item for name, item in pruned.items() if item not in (None, "", [], {})}
