"""What the status of a local pod is, given the pod that runs for it on the provider.

The provider is the source of truth for statuses, but its word passes a filter: known fields and
containers, bounded sizes, no phase that goes back, nothing that the home API server would refuse.

Source: behaviour.md 5.5.4, 5.5.5; security.md B1, B2.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apis import keys, objects
from apis.objects import Object

FINISHED: Final = frozenset({"Succeeded", "Failed"})
OFFLOADED: Final = keys.OFFLOADED_CONDITION
"""Condition of a local pod that the provider refuses; it goes when the pod is taken."""
FAILED_REFLECTION: Final = keys.FAILED_REFLECTION
REFLECTION_DISABLED: Final = keys.REFLECTION_DISABLED
OFFLOADING_ABORTED: Final = keys.OFFLOADING_ABORTED
OFFLOADING_BACK_OFF: Final = keys.OFFLOADING_BACK_OFF
REMOTE_POD_TERMINATED: Final = "RemotePodTerminated"
REMOTE_UNAVAILABLE: Final = "RemoteClusterUnavailable"

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
)
_CONDITIONS: Final = frozenset(
    {
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
        "DisruptionTarget",
    }
)
_TRUTHS: Final = frozenset({"True", "False", "Unknown"})
_RANKS: Final[Mapping[str, int]] = {
    "Pending": 0,
    "Running": 1,
    "Unknown": 1,
    "Succeeded": 2,
    "Failed": 2,
}
_QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_MESSAGE_LIMIT: Final = 1024
_WORD_LIMIT: Final = 512
_INT32: Final = 2**31 - 1
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_OLDEST: Final = "2010"
_SLACK: Final = timedelta(days=1)


@dataclass(frozen=True)
class LocalContext:
    """What the home side adds: ``restarts`` counts the provider's recreations of the pod."""

    host_ip: str
    now: datetime
    restarts: int = 0


def mirrored(local: Object, remote: Object, home: LocalContext) -> Object:
    """Return the status of ``local`` as ``remote`` has it.

    Shape: both are Pods; the result is a whole ``status``, what is not ours in it kept.
    """
    before, theirs = status_of(local), _mapping(remote.get("status"))
    clean = _Filter(home)
    return _whole(
        local,
        phase=_phase(before, theirs),
        reason=clean.word(theirs.get("reason")),
        message=clean.text(theirs.get("message")),
        startTime=clean.time(theirs.get("startTime")) or before.get("startTime"),
        conditions=_conditions(local, theirs, clean),
        initContainerStatuses=_containers(local, theirs, clean, "initContainers"),
        containerStatuses=_containers(local, theirs, clean, "containers"),
        **_addresses(theirs, home),
    )


def accepted(local: Object, home: LocalContext) -> Object:
    """Return the status of a pod whose ShadowPod is there, and no pod yet."""
    conditions = [item for item in conditions_of(local) if item.get("type") != OFFLOADED]
    gone: Object = {"conditions": conditions, "reason": None, "message": None}
    kept = gone if _is_ours(status_of(local).get("reason")) else {"conditions": conditions}
    return _whole(local, **{"phase": "Pending", **_kept(local), **kept, **_host(home)})


def refused(local: Object, message: str, home: LocalContext) -> Object:
    """Return the status of a pod that the provider does not take: Pending, and why."""
    clean = _Filter(home)
    text = clean.text(message)
    condition = {
        "type": OFFLOADED,
        "status": "False",
        "reason": FAILED_REFLECTION,
        "message": text,
        "lastTransitionTime": _since(local, OFFLOADED, "False") or stamp(home.now),
    }
    others = [item for item in conditions_of(local) if item.get("type") != OFFLOADED]
    return _whole(
        local,
        **{
            **_kept(local),
            "phase": "Pending",
            "reason": FAILED_REFLECTION,
            "message": text,
            "conditions": [*others, condition],
        },
    )


def backed_off(local: Object) -> Object:
    """Return the status of a pod that cannot start, since its namespace is not offloaded."""
    return _whole(
        local,
        **{
            **_kept(local),
            "phase": "Pending",
            "reason": OFFLOADING_BACK_OFF,
            "message": "the namespace is not offloaded to the cluster behind this node",
        },
    )


def aborted(local: Object, now: datetime) -> Object:
    """Return the final status of a pod that ran in a namespace which is no longer offloaded."""
    return _whole(
        local,
        **{
            **_kept(local),
            "phase": "Failed",
            "reason": OFFLOADING_ABORTED,
            "message": "the namespace is no longer offloaded to the cluster behind this node",
            "conditions": [_failed(item, now) for item in conditions_of(local)],
            **_all_ended(local, OFFLOADING_ABORTED, 1, now),
        },
    )


def vanished(local: Object, phase: str, now: datetime) -> Object:
    """Return the final status of a pod whose ShadowPod ended in ``phase``, its pod gone since."""
    return _whole(
        local,
        **{
            **_kept(local),
            "phase": phase,
            "reason": REMOTE_POD_TERMINATED,
            "message": "the pod ended on the provider and was removed there",
            "conditions": [_failed(item, now) for item in conditions_of(local)],
            **_all_ended(local, REMOTE_POD_TERMINATED, int(phase == "Failed"), now),
        },
    )


def is_finished(pod: Object) -> bool:
    """Whether its phase is final."""
    return status_of(pod).get("phase") in FINISHED


def is_aborted(pod: Object) -> bool:
    """Whether it failed because its namespace is no longer offloaded."""
    status: dict[str, object] = status_of(pod)
    return status.get("phase") == "Failed" and status.get("reason") == OFFLOADING_ABORTED


def has_started(pod: Object) -> bool:
    """Whether it ever left Pending."""
    return str(status_of(pod).get("phase", "Pending")) != "Pending"


def is_significant(before: Object, after: Object) -> bool:
    """Whether the step from one status to the other is worth a write.

    While a pod is Pending its container runtime's small steps are not: they would double
    the writes of a pod up to Running. What explains a pod that stays Pending is.
    """
    if before.get("phase") != "Pending" or after.get("phase") != "Pending":
        return not is_same(before, after)
    return _explanation(before) != _explanation(after)


def is_same(before: Object, after: Object) -> bool:
    """Whether both say the same: a server writes out what is empty, such as lastState."""
    return _pruned(before) == _pruned(after)


def restart_count(pod: Object) -> int:
    """Return the restart count of the first container, 0 without any."""
    first = next(iter(_mappings(status_of(pod).get("containerStatuses"))), {})
    return _bounded(first.get("restartCount"), 0, _INT32) or 0


def status_of(pod: Object) -> Object:
    """Return the status, {} where there is none; read only."""
    status: Object = pod.get("status") or {}
    return status


def conditions_of(pod: Object) -> list[Object]:
    """Return the conditions; read only."""
    return status_of(pod).get("conditions") or []


def stamp(now: datetime) -> str:
    """Return ``now`` as Kubernetes writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


# The whole ---------------------------------------------------------------------------------------


def _whole(local: Object, **ours: Any) -> Object:
    """Return what is not ours of the local status, and of ours what is not empty."""
    kept = {name: value for name, value in status_of(local).items() if name not in _MANAGED}
    return {**kept, **{name: value for name, value in ours.items() if value not in (None, "", [])}}


def _kept(local: Object) -> Object:
    status = status_of(local)
    return {name: status[name] for name in _MANAGED if name in status}


def _is_ours(reason: object) -> bool:
    return reason in (FAILED_REFLECTION, OFFLOADING_BACK_OFF)


def _phase(before: Object, theirs: Object) -> str:
    """Return the later of both phases: a phase never goes back, and a final one stays."""
    have = str(before.get("phase") or "Pending")
    offered = theirs.get("phase")
    want = offered if isinstance(offered, str) and offered in _RANKS else have
    if have in FINISHED:
        return have
    return want if _RANKS[want] >= _RANKS.get(have, 0) else have


def _addresses(theirs: Object, home: LocalContext) -> Object:
    address = pod_address(theirs.get("podIP"))
    own: Object = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
    return {**own, **_host(home)}


def _host(home: LocalContext) -> Object:
    if not home.host_ip:
        return {}
    return {"hostIP": home.host_ip, "hostIPs": [{"ip": home.host_ip}]}


def pod_address(offered: object) -> str:
    """Return the address if a pod may have it, else "": no loopback, link-local or multicast."""
    try:
        address = ipaddress.ip_address(offered if isinstance(offered, str) else "")
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return ""
    private = address.is_loopback or address.is_link_local or address.is_multicast
    return "" if private or address.is_unspecified else str(address)


# Conditions --------------------------------------------------------------------------------------


def _conditions(local: Object, theirs: Object, clean: "_Filter") -> list[Object]:
    """Return the provider's conditions of known types, then the local ones of other types.

    A readiness gate's condition is whoever sets it: the provider's, if it has one.
    """
    gates = {gate.get("conditionType") for gate in local["spec"].get("readinessGates") or []}
    wanted = _CONDITIONS | gates
    offered = {
        item["type"]: clean.condition(item)
        for item in _mappings(theirs.get("conditions"))
        if isinstance(item.get("type"), str) and item["type"] in wanted
    }
    remote = {name: item for name, item in offered.items() if item}
    if objects.labels(local).get(keys.REMOTE_UNAVAILABLE) == "true":
        remote["Ready"] = _unavailable(local, remote.get("Ready"), clean.home.now)
    others = [item for item in conditions_of(local) if _is_others(item, remote)]
    return [*remote.values(), *others]


def _is_others(item: Object, remote: Mapping[str, Object]) -> bool:
    name = item.get("type")
    return name not in remote and name != OFFLOADED and name not in (_CONDITIONS - {"PodScheduled"})


def _unavailable(local: Object, offered: Object | None, now: datetime) -> Object:
    since = _since(local, "Ready", "False") or stamp(now)
    return {
        **(offered or {"type": "Ready"}),
        "status": "False",
        "reason": REMOTE_UNAVAILABLE,
        "message": "the cluster that runs the pod cannot be reached",
        "lastTransitionTime": since,
    }


def _since(local: Object, type_: str, status: str) -> str | None:
    for item in conditions_of(local):
        if item.get("type") == type_ and item.get("status") == status:
            return item.get("lastTransitionTime")
    return None


def _failed(condition: Object, now: datetime) -> Object:
    if condition.get("status") != "True" or condition.get("type") == "PodScheduled":
        return condition
    return {**condition, "status": "False", "lastTransitionTime": stamp(now)}


# Containers --------------------------------------------------------------------------------------


def _containers(local: Object, theirs: Object, clean: "_Filter", which: str) -> list[Object]:
    """Return the provider's statuses of the containers that the local pod has, in its order."""
    field = which.removesuffix("s") + "Statuses"
    offered = {str(item.get("name")): item for item in _mappings(theirs.get(field))}
    have = {str(item.get("name")): item for item in status_of(local).get(field) or []}
    policy = str(local["spec"].get("restartPolicy") or "Always")
    made = []
    for container in local["spec"].get(which) or []:
        name = container["name"]
        after = clean.container(container, offered[name]) if name in offered else None
        always = container.get("restartPolicy") == "Always"
        made.append(_settled(have.get(name), after, "Always" if always else policy))
    return [item for item in made if item is not None]


def _settled(before: Object | None, after: Object | None, policy: str) -> Object | None:
    """Return ``after``, unless the API server refuses to let the container leave its end.

    Source: Kubernetes, pkg/apis/core/validation, ValidateContainerStateTransition.
    """
    ended = _mapping(_mapping((before or {}).get("state")).get("terminated"))
    restarts = policy == "Always" or (policy == "OnFailure" and ended.get("exitCode") != 0)
    if not ended or restarts or "terminated" in _mapping((after or {}).get("state")):
        return after
    return before


def _all_ended(local: Object, reason: str, exit_code: int, now: datetime) -> Object:
    status = status_of(local)
    ended: Object = {}
    for which in ("initContainers", "containers"):
        field = which.removesuffix("s") + "Statuses"
        have = {item["name"]: item for item in status.get(field) or []}
        names = [item["name"] for item in local["spec"].get(which) or []]
        ended[field] = [
            _ended(local, have.get(name), name, (reason, exit_code, now))
            for name in names
            if name in have or which == "containers"
        ]
    return ended


def _ended(local: Object, have: Object | None, name: str, end: tuple[str, int, datetime]) -> Object:
    reason, exit_code, now = end
    state = _mapping((have or {}).get("state"))
    if "terminated" in state:
        return have or {}
    images = {item["name"]: item.get("image", "") for item in local["spec"]["containers"]}
    terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": stamp(now)}
    started = _mapping(state.get("running")).get("startedAt")
    blank = {"name": name, "restartCount": 0, "image": images.get(name, ""), "imageID": ""}
    return {
        **(have or blank),
        "ready": False,
        "started": False,
        "state": {"terminated": {**terminated, **({"startedAt": started} if started else {})}},
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


def _waits(container: Object) -> str:
    reason = _mapping(_mapping(container.get("state")).get("waiting")).get("reason") or ""
    return "" if reason in _QUIET else str(reason)


def _step(container: Object) -> tuple[str, str, int]:
    state = _mapping(container.get("state"))
    now = next((name for name in ("running", "terminated") if name in state), "")
    return now, _waits(container), container.get("restartCount", 0)


# The filter --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Filter:
    home: LocalContext

    def text(self, value: object) -> str:
        if not isinstance(value, str):
            return ""
        head = value[:_MESSAGE_LIMIT]  # first, lest a long one cost time
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", head)[:_MESSAGE_LIMIT]

    def word(self, value: object) -> str:
        return self.text(value)[:_WORD_LIMIT]

    def time(self, value: object) -> str | None:
        """Return the time if it is one, and neither ancient nor of tomorrow."""
        if not isinstance(value, str) or not _TIME.fullmatch(value):
            return None
        latest = stamp(self.home.now + _SLACK)
        return value if _OLDEST <= value <= latest and _is_date(value) else None

    def condition(self, item: Object) -> Object | None:
        if item.get("status") not in _TRUTHS:
            return None
        rest = {
            "lastProbeTime": self.time(item.get("lastProbeTime")),
            "lastTransitionTime": self.time(item.get("lastTransitionTime")),
            "reason": self.word(item.get("reason")),
            "message": self.text(item.get("message")),
        }
        return {"type": item["type"], "status": item["status"], **_filled(rest)}

    def container(self, spec: Object, item: Object) -> Object:
        """Return the status with its fields bounded; Shape: a ContainerStatus."""
        counted = _bounded(item.get("restartCount"), 0, _INT32) or 0
        rest = {
            "state": self.state(item.get("state")),
            "lastState": self.state(item.get("lastState")),
            "containerID": self.word(item.get("containerID")),
            "started": _boolean(item.get("started")),
        }
        return {
            "name": spec["name"],
            "ready": item.get("ready") is True,
            "restartCount": min(counted + self.home.restarts, _INT32),
            "image": self.word(item.get("image")) or str(spec.get("image", "")),
            "imageID": self.word(item.get("imageID")),
            **{name: value for name, value in rest.items() if value not in (None, "", {})},
        }

    def state(self, value: object) -> Object:
        """Return the one state among waiting, running and terminated that is set."""
        offered = _mapping(value)
        for name, fields in _STATES.items():
            if isinstance(offered.get(name), dict):
                cleaned = {
                    field: getattr(self, how)(offered[name].get(field))
                    for field, how in fields.items()
                }
                must = {"exitCode": 0} if name == "terminated" else {}
                return {name: {**must, **_filled(cleaned)}}
        return {}

    def int32(self, value: object) -> int | None:
        return _bounded(value, -_INT32, _INT32)


_STATES: Final[Mapping[str, Mapping[str, str]]] = {
    "running": {"startedAt": "time"},
    "terminated": {
        "exitCode": "int32",
        "signal": "int32",
        "reason": "word",
        "message": "text",
        "startedAt": "time",
        "finishedAt": "time",
        "containerID": "word",
    },
    "waiting": {"reason": "word", "message": "text"},
}
"""The fields of each state, and the cleaner of each."""


def _pruned(value: object) -> object:
    """Return ``value`` without what is empty, at any depth."""
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    pruned = {name: _pruned(item) for name, item in value.items()}
    return {name: item for name, item in pruned.items() if item not in (None, "", [], {})}


def _filled(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _bounded(value: object, low: int, high: int) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return max(low, min(value, high))


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> Iterable[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
