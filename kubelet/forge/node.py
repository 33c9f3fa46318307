"""What the Node of a virtual node looks like, and the patches that make one look so.

Metadata and taints are merged three ways against what was written last (recorded on the Node), so
that what administrators and Kubernetes add stays, and what the VirtualNode drops goes.

Source: behaviour.md 5.3, 5.4; security.md B3.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from apis import conditions, keys, quantity, resources
from apis.objects import Key, Object, merge_patch, named
from apis.offloading import VirtualNode

LAST_APPLIED: Final = "virtual-kubelet.io/last-applied-object-meta"
FALLBACK_VERSION: Final = "v1.25.0"
HEARTBEAT: Final = timedelta(minutes=5)
READY: Final = "KubeletReady"
NOT_READY: Final = "KubeletNotReady"
NOT_REACHABLE: Final = "ProviderNotReachable"
CLOCK: Final = "ClockSkew"
ABSENCE: Final = keys.MASS_ABSENCE
"""Conditions that are there only while they are true."""
TOLERATED: Final = timedelta(minutes=5)
"""How far clocks may be apart: leases, tokens and certificates bear it. Source: faults.md F28."""

_TAINT: Final = {
    "key": keys.VIRTUAL_NODE_TAINT,
    "value": keys.VIRTUAL_NODE_TAINT_VALUE,
    "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
}


@dataclass(frozen=True)
class Identity:
    """What never changes while the process lives."""

    name: str
    cluster_id: str
    address: str
    port: int
    version: str = FALLBACK_VERSION
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """What the pings of the provider say; a few lost ones in a row are not an outage.

    Nor is one answer its end: ``successes`` in a row are, lest a flapping link flap the Node.
    """

    threshold: int = 3
    failures: int = 0
    reason: str = ""
    ahead: timedelta = timedelta()
    """By how much the provider's clock is ahead of ours."""
    successes: int = 1
    answers: int = 0
    is_reachable: bool = True
    """Whether the provider counts as there."""
    missing: int = 0
    """How many objects a list lacked at once that were there before: a breaker is open."""

    @property
    def is_in_step(self) -> bool:
        """Whether the provider's clock and ours say the same, nearly."""
        return abs(self.ahead) <= TOLERATED

    def after(self, failure: str, ahead: timedelta = timedelta()) -> "Health":
        """Return the health after one more ping; ``failure`` is empty when it was answered."""
        if failure:
            failures = min(self.failures + 1, self.threshold)
            there = self.is_reachable and failures < self.threshold
            return replace(self, failures=failures, reason=failure, answers=0, is_reachable=there)
        answers = min(self.answers + 1, self.successes)
        there = self.is_reachable or answers >= self.successes
        reason = "" if there else self.reason
        return replace(
            self, failures=0, reason=reason, ahead=ahead, answers=answers, is_reachable=there
        )


@dataclass(frozen=True)
class Wanted:
    """The part of a Node that is ours."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Sequence[Object]

    def record(self) -> str:
        """Return what is remembered of it on the Node."""
        taints = [_mark(taint) for taint in self.taints]
        kept = {
            "labels": sorted(self.labels),
            "annotations": sorted(self.annotations),
            "taints": sorted(taints),
        }
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


_TOLD_OTHERWISE: Final = frozenset({"kubernetes.io/role", "kubernetes.io/os", "kubernetes.io/arch"})
"""What an administrator may know better, such as the architecture of a provider's nodes."""


def wanted(identity: Identity, virtual: VirtualNode) -> Wanted:
    """Return labels, annotations and taints; ours win over those of the VirtualNode."""
    own = {
        keys.HOSTNAME: identity.name,
        "kubernetes.io/role": "agent",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE,
        "type": keys.VIRTUAL_KUBELET,
        keys.REMOTE_CLUSTER_ID: identity.cluster_id,
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        keys.STORAGE_AVAILABLE: "true" if virtual.storage_classes else "false",
    }
    protected = {name: own[name] for name in own if name not in _TOLD_OTHERWISE}
    others = [dict(taint) for taint in virtual.taints if _mark(taint) != _mark(_TAINT)]
    return Wanted(
        labels={**own, **identity.labels, **virtual.labels, **protected},
        annotations={**identity.annotations, **virtual.annotations, **_room(virtual)},
        taints=[_TAINT, *others],
    )


def _room(virtual: VirtualNode) -> dict[str, str]:
    """Return what one pod can have there: capacity is a sum over nodes, and says nothing of it."""
    return {keys.LARGEST_POD: resources.line(virtual.largest_pod)} if virtual.largest_pod else {}


def fresh(identity: Identity, want: Wanted) -> Object:
    """Return the Node to create."""
    return named(
        keys.NODE,
        Key("", identity.name),
        metadata={
            "labels": dict(want.labels),
            "annotations": {**want.annotations, LAST_APPLIED: want.record()},
        },
        spec={"taints": list(want.taints)},
    )


def changes(node: Object, want: Wanted) -> Object:
    """Return the merge patch for metadata and taints of ``node``, {} if it is as wanted."""
    before = _recorded(node)
    patch: Object = {"metadata": {}}
    annotations = {**want.annotations, LAST_APPLIED: want.record()}
    for name, new in (("labels", dict(want.labels)), ("annotations", annotations)):
        if part := _three_way(node["metadata"].get(name) or {}, before.get(name, []), new):
            patch["metadata"][name] = part
    have = node.get("spec", {}).get("taints") or []
    taints = _taints(have, before.get("taints", []), want.taints)
    if taints != have:
        patch["spec"] = {"taints": taints}
        patch["metadata"]["resourceVersion"] = node["metadata"].get("resourceVersion")
    return patch if patch["metadata"] or "spec" in patch else {}


def status(
    node: Object, identity: Identity, virtual: VirtualNode, health: Health, now: datetime
) -> Object:
    """Return the whole status of ``node``, its heartbeats as they were."""
    before: Object = node.get("status") or {}
    offered = _offered(virtual)
    return {
        **before,
        "capacity": _resources(before.get("capacity") or {}, offered),
        "allocatable": _resources(before.get("allocatable") or {}, offered),
        "conditions": _conditions(before.get("conditions") or [], virtual, health, now),
        "addresses": _addresses(identity),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": identity.port}},
        "nodeInfo": {**(before.get("nodeInfo") or {}), **_info(identity)},
        "images": list(virtual.images),
    }


def alarm(node: Object, want: Object) -> str:
    """Return what to tell now that much is missing at once; "" if nothing is, or it was told."""
    before = conditions.find((node.get("status") or {}).get("conditions"), ABSENCE)
    now = conditions.find(want["conditions"], ABSENCE)
    return str(now["message"]) if now and not before else ""


def status_changes(node: Object, want: Object, now: datetime) -> Object:
    """Return the merge patch for the status, {} if nothing changed and the heartbeat is young.

    Resources that a VirtualNode does not offer any more go.
    """
    before: Object = node.get("status") or {}
    same = all(_plain(before.get(name)) == _plain(want[name]) for name in want)
    if same and not _is_old(before.get("conditions") or [], now):
        return {}
    beating = [
        {**item, "lastHeartbeatTime": _stamp(now)} if item["type"] in _OURS else item
        for item in want["conditions"]
    ]
    return merge_patch(before, {**want, "conditions": beating})


# Conditions --------------------------------------------------------------------------------------

_PRESSURES: Final[Mapping[str, tuple[str, str]]] = {
    "MemoryPressure": ("RemoteClusterHasSufficientMemory", "RemoteClusterHasMemoryPressure"),
    "DiskPressure": ("RemoteClusterHasNoDiskPressure", "RemoteClusterHasDiskPressure"),
    "PIDPressure": ("RemoteClusterHasNoPIDPressure", "RemoteClusterHasPIDPressure"),
}
"""Each pressure with its reason when there is none, and when there is."""
_OURS: Final = frozenset({"Ready", *_PRESSURES, CLOCK, ABSENCE})


def _conditions(
    have: Sequence[Object], virtual: VirtualNode, health: Health, now: datetime
) -> list[Object]:
    known = {item["type"]: item for item in have}
    is_offering = _has(virtual, "cpu") and _has(virtual, "memory")
    made = [_condition(known.get("Ready"), _ready(health, is_offering=is_offering), now)]
    for type_, (fine, pressed) in _PRESSURES.items():
        want = (type_, "False", fine) if is_offering else (type_, "True", pressed)
        made.append(_condition(known.get(type_), (*want, ""), now))
    if not health.is_in_step:
        made.append(_condition(known.get(CLOCK), _skewed(health), now))
    if health.missing:
        made.append(_condition(known.get(ABSENCE), _absent(health), now))
    return [*made, *(item for item in have if not _is_ours(item))]


def _is_ours(condition: Object) -> bool:
    """Whether it is made here: that of the network is, and goes while no fabric is checked."""
    is_network = str(condition.get("reason", "")).startswith("LiqoNetworking")
    return condition["type"] in _OURS or is_network


def _ready(health: Health, *, is_offering: bool) -> tuple[str, str, str, str]:
    if not health.is_reachable:
        return "Ready", "False", NOT_REACHABLE, health.reason
    if not is_offering:
        return "Ready", "False", NOT_READY, "the VirtualNode offers no cpu or no memory"
    return "Ready", "True", READY, "kubelet is posting ready status"


def _absent(health: Health) -> tuple[str, str, str, str]:
    message = f"{health.missing} pods were missing from one list and had not been seen to go"
    cure = "nothing is deleted or made anew for that until it is certain"
    return ABSENCE, "True", "TooMuchAtOnce", f"when this began, {message}: {cure}"


def _skewed(health: Health) -> tuple[str, str, str, str]:
    apart = f"{abs(health.ahead) // timedelta(seconds=1)} s"
    direction = "ahead of" if health.ahead > timedelta() else "behind"
    message = f"when this began, the provider's clock was {apart} {direction} this cluster's"
    return CLOCK, "True", "ClocksDiffer", f"{message}: let both follow a time server"


def _condition(have: Object | None, want: tuple[str, str, str, str], now: datetime) -> Object:
    """Return the condition; time, reason and message change with the status only."""
    type_, status_, reason, message = want
    if have and have.get("status") == status_:
        return have
    return {
        "type": type_,
        "status": status_,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _stamp(now),
        "lastHeartbeatTime": _stamp(now),
    }


def _has(virtual: VirtualNode, resource: str) -> bool:
    return bool(resources.readable(virtual.hard).get(resource))


def _is_old(conditions: Sequence[Object], now: datetime) -> bool:
    beats = [item.get("lastHeartbeatTime") or "" for item in conditions if item["type"] in _OURS]
    return min(beats, default="") < _stamp(now - HEARTBEAT)


# Parts -------------------------------------------------------------------------------------------


def _addresses(identity: Identity) -> list[Object]:
    """Return the pod's IP and no name: API servers would try a Hostname first."""
    return [{"type": "InternalIP", "address": identity.address}] if identity.address else []


def _info(identity: Identity) -> Object:
    return {
        "kubeletVersion": identity.version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
        "osImage": f"cluster {identity.cluster_id}",
        "kernelVersion": "",
        "containerRuntimeVersion": "pyliqo://",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _offered(virtual: VirtualNode) -> dict[str, str]:
    """Return the amounts of ``virtual`` that are some: an API server computes 1e999999999 for ever.

    Source: security.md A13.
    """
    known = resources.readable(virtual.hard)
    return {name: amount for name, amount in virtual.hard.items() if name in known}


def _resources(have: Mapping[str, str], hard: Mapping[str, str]) -> dict[str, str]:
    """Return ``hard``, in the server's words where the amounts are equal: 1000m is 1 there."""
    return {
        name: have[name] if name in have and _equal(have[name], amount) else amount
        for name, amount in hard.items()
    }


def _equal(one: str, other: str) -> bool:
    return quantity.parse(one) == quantity.parse(other)


def _three_way(have: Mapping[str, str], before: Sequence[str], new: Mapping[str, str]) -> Object:
    gone = {name: None for name in before if name in have and name not in new}
    return {**gone, **{name: value for name, value in new.items() if have.get(name) != value}}


def _taints(have: Sequence[Object], before: Sequence[str], want: Sequence[Object]) -> list[Object]:
    """Return ours in their place, and those of others as they are."""
    ours = {_mark(taint): dict(taint) for taint in want}
    kept = [
        ours.pop(_mark(taint), taint)
        for taint in have
        if _mark(taint) in ours or _mark(taint) not in before
    ]
    return [*kept, *ours.values()]


def _mark(taint: Mapping[str, str]) -> str:
    """Return what makes a taint that taint. Source: Kubernetes, Taint.MatchTaint."""
    return f"{taint.get('key', '')}:{taint.get('effect', '')}"


def _recorded(node: Object) -> dict[str, list[str]]:
    text = (node["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {
        name: [item for item in value if isinstance(item, str)]
        for name, value in (found.items() if isinstance(found, dict) else ())
        if isinstance(value, list)
    }


def _plain(part: object) -> object:
    """Return ``part`` as it compares: no heartbeats, null and empty alike."""
    if isinstance(part, list):
        return [_plain(item) for item in part] or None
    if isinstance(part, dict):
        plain = {name: _plain(value) for name, value in part.items() if name != "lastHeartbeatTime"}
        return {name: value for name, value in plain.items() if value is not None} or None
    return part or None


def _stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
