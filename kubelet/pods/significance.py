"""What of a status is worth a write or an Event, and which ends are so quick that they wait.

Source: docs/parity.md § 5.5.5; H16; bench/goals.py row 5.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from apis import keys, objects
from apis.objects import Object
from kubelet.pods import conditions, status
from kubelet.pods.conditions import OFFLOADED
from kubelet.pods.decide import is_labelled
from kubelet.pods.sanitize import LocalContext, mapping

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
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
Path: TypeAlias = tuple[str, ...]
Paths: TypeAlias = frozenset[Path]
_ITEM: Final = "*"
"""Any item of a list."""
QUIET_S: Final = 10.0
"""A pod that starts has its first status then at the latest: what comes before it says little."""
_QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


class SignificantChange(NamedTuple):
    """Whether a status is written, with which metadata, and which troubles it is the first to have.

    Shape: ``metadata`` is {"labels": {...}, "annotations": {...}}; troubles are messages by reason.
    """

    is_due: bool
    metadata: Object
    troubles: Mapping[str, str]


def change(
    local: Object, wanted: Object, remote: Object | None, age_s: float, unkept_: Paths
) -> SignificantChange:
    """Return what is new in the status ``wanted`` of ``local``, which tells of ``remote``.

    ``age_s`` is for how long the provider has the pod; ``unkept_`` is what ``unkept`` returns.
    """
    before, labels = objects.status(local), dict[str, str | None]()
    is_news = is_significant(without(before, unkept_), without(wanted, unkept_))
    if keys.REMOTE_UNAVAILABLE in objects.labels(local):
        labels[keys.REMOTE_UNAVAILABLE] = None
    if not is_labelled(local) and (is_news or age_s >= QUIET_S):
        labels[keys.SHADOW_POD_LABEL] = "true"  # it runs, is in trouble, or takes its time
    metadata = {"labels": labels, "annotations": status.note(local, remote)}
    said = {name: value for name, value in metadata.items() if value}
    had = troubles(before)
    new = {reason: text for reason, text in troubles(wanted).items() if reason not in had}
    return SignificantChange(bool(labels) or is_news, said, new)


def is_significant(before: Object, after: Object) -> bool:
    """Whether the step from one status to the other is worth a write.

    While a pod is Pending its container runtime's small steps are not: they would double
    the writes of a pod up to Running. What explains a pod that stays Pending is.
    """
    if before.get("phase") != "Pending" or after.get("phase") != "Pending":
        return not is_same(before, after)
    return _explanation(before) != _explanation(after)


def is_urgent(before: Object, after: Object) -> bool:
    """Whether it is written at once: that a pod is not ready any more, or has ended."""
    had_ended, has_ended = (one.get("phase") in objects.FINAL_PHASES for one in (before, after))
    sides = before.get("conditions"), after.get("conditions")
    was_ready, is_ready = (objects.is_condition_true(one, conditions.READY) for one in sides)
    return (has_ended and not had_ended) or (was_ready and not is_ready)


def unkept(known: Paths, changes: Object, made: Object) -> Paths:
    """Return the fields of statuses that the API server here does not keep, by one answer more.

    ``changes`` were sent and ``made`` came back. An older API server drops fields that it does not
    know, or whose feature is off: what is sent of them is no news.
    """
    lost, kept = set[Path](), set[Path]()
    for path, value in _fields(changes, made):
        (lost if _pruned(value) in _EMPTY else kept).add(path)
    return frozenset((known | lost) - kept)


def without(status: Object, paths: Paths) -> Object:
    return _without(status, paths) if paths else status


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


# What the API server here does not keep ----------------------------------------------------------


def _fields(sent: Object, made: Object, at: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the path of each field that was ``sent`` and is not empty, with what came of it."""
    for name, value in sent.items():
        path, found = (*at, name), made.get(name)
        if name.startswith("$") or _pruned(value) in _EMPTY:
            continue
        yield path, found
        if isinstance(value, dict) and isinstance(found, dict):
            yield from _fields(value, found, path)
        elif isinstance(value, list) and isinstance(found, list):
            there = {_name(item): item for item in found if isinstance(item, dict)}
            for item in value:
                if isinstance(item, dict) and _name(item) in there:
                    yield from _fields(item, there[_name(item)], (*path, _ITEM))


def _name(item: Object) -> object:
    return item.get("name") or item.get("type")


def _without(value: Any, paths: Paths, at: Path = ()) -> Any:
    if isinstance(value, list):
        return [_without(item, paths, (*at, _ITEM)) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without(item, paths, (*at, name))
        for name, item in value.items()
        if (*at, name) not in paths
    }


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
    return {name: item for name, item in pruned.items() if item not in _EMPTY}


# Which ends of pods come so soon after the start that their owner's next pod has to wait ----------
# Source: docs/parity.md H16; § 5.5.5.

QUICK_S: Final = 10.0


def owner_of(local: Object, wanted: Object, age_s: float) -> str:
    """Return the UID of who makes another pod at once after ``wanted``; "" if nobody does.

    Pods of Jobs, and those that nobody owns, end by their own will: they are written at once.
    """
    always = local["spec"].get("restartPolicy", "Always") == "Always"
    is_end = wanted.get("phase") == "Failed" and not objects.is_finished(local)
    owner = objects.controller_of(local)
    if owner is None or not (always and is_end and age_s < QUICK_S):
        return ""
    return str(owner.get("uid") or "")


def held_status(local: Object, home: LocalContext) -> Object:
    """Return the status of ``local`` while its end is not written yet: not ready, and why."""
    message = (
        "the pod failed within 10 s of its start, as others of its owner did: that is told after a"
        " pause, which doubles up to 5 min"
    )
    listed = conditions.of(local)
    if status.has_started(local):
        listed = conditions.not_ready(local, (status.OFFLOADING_BACK_OFF, message), home.now)
    return status.waiting(local, message, listed)
