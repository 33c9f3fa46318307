"""What a virtual node looks like: metadata, taints and status, and whether its provider is there.

Metadata and taints are merged three ways against what was written last (recorded on the Node), so
that what administrators and Kubernetes add stays, and what the VirtualNode drops goes.
Source: docs/parity.md § 5.3, 5.4; SEC-A13, SEC-B3.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from apis import apply, keys, objects, resources
from apis.objects import Key, Object, merge_patch, named
from apis.offloading import VirtualNode
from apis.resources import Resources
from kubelet.pods import conditions as shared

FALLBACK_VERSION: Final = "v1.25.0"

_TAINT: Final = {
    "key": keys.VIRTUAL_NODE_TAINT,
    "value": keys.VIRTUAL_NODE_TAINT_VALUE,
    "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
}


@dataclass(frozen=True)
class NodeIdentity:
    """Which node it is; of this only the version of the cluster changes."""

    name: str
    cluster_id: str
    address: str
    port: int
    version: str = FALLBACK_VERSION
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "0"
    """Our own version."""


@dataclass(frozen=True)
class NodeMetadata:
    """The part of a Node that is ours."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Sequence[Object]

    def record(self) -> str:
        return apply.record(
            labels=self.labels, annotations=self.annotations, taints=map(_mark, self.taints)
        )


ROLE: Final = "kubernetes.io/role"
OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"
_TOLD_OTHERWISE: Final = frozenset({ROLE, OS, ARCH})
"""What an administrator may know better, such as the architecture of a provider's nodes."""


def wanted(identity: NodeIdentity, virtual: VirtualNode) -> NodeMetadata:
    """Return labels, annotations and taints; ours win over those of the VirtualNode."""
    own = {
        keys.HOSTNAME: identity.name,
        ROLE: "agent",
        OS: "linux",
        ARCH: "amd64",
        keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE,
        "type": keys.VIRTUAL_KUBELET,
        keys.REMOTE_CLUSTER_ID: identity.cluster_id,
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        keys.STORAGE_AVAILABLE: "true" if virtual.storage_classes else "false",
    }
    protected = {name: own[name] for name in own if name not in _TOLD_OTHERWISE}
    suggested = {name: virtual.labels[name] for name in virtual.labels if name in virtual.suggested}
    given = {name: virtual.labels[name] for name in virtual.labels if name not in suggested}
    others = [dict(taint) for taint in virtual.taints if _mark(taint) != _mark(_TAINT)]
    return NodeMetadata(
        labels={**own, **suggested, **identity.labels, **given, **protected},
        annotations={**identity.annotations, **virtual.annotations, **_offers(virtual)},
        taints=[_TAINT, *others],
    )


def _offers(virtual: VirtualNode) -> dict[str, str]:
    """Return what one pod can have there, and the class of its claims.

    Capacity is a sum over nodes, and says nothing of the first.
    """
    largest, class_ = resources.line(virtual.largest_pod), virtual.storage_class
    told = {keys.LARGEST_POD: largest, keys.OFFERED_STORAGE_CLASS: class_}
    return {name: value for name, value in told.items() if value}


def fresh(identity: NodeIdentity, want: NodeMetadata) -> Object:
    return named(
        keys.NODE,
        Key("", identity.name),
        metadata={
            "labels": dict(want.labels),
            "annotations": {**want.annotations, keys.APPLIED_META: want.record()},
        },
        spec={"taints": list(want.taints)},
    )


def changes(node: Object, want: NodeMetadata) -> Object:
    """Return the merge patch for metadata and taints of ``node``, {} if it is as wanted."""
    before = apply.recorded(node) or {}
    patch: Object = {"metadata": {}}
    annotations = {**want.annotations, keys.APPLIED_META: want.record()}
    for name, new in (("labels", dict(want.labels)), ("annotations", annotations)):
        if part := apply.three_way(node["metadata"].get(name) or {}, before.get(name, []), new):
            patch["metadata"][name] = part
    have = node.get("spec", {}).get("taints") or []
    taints = _taints(have, before.get("taints", []), want.taints)
    if taints != have:
        patch["spec"] = {"taints": taints}
        patch["metadata"]["resourceVersion"] = node["metadata"].get("resourceVersion")
    return patch if patch["metadata"] or "spec" in patch else {}


def _taints(
    have: Sequence[Object], before: Collection[str], want: Sequence[Object]
) -> list[Object]:
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


# Whether a provider counts as there, by pings, and how far its clock is from ours -----------------

TOLERATED: Final = timedelta(minutes=5)
"""How far clocks may be apart: leases, tokens and certificates bear it.

Source: docs/parity.md F-28.
"""


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
    is_proven: bool = True
    """Whether pings have decided that: at first nobody knows."""
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
            is_over = failures >= self.threshold
            return replace(
                self,
                failures=failures,
                reason=failure,
                answers=0,
                is_reachable=self.is_reachable and not is_over,
                is_proven=self.is_proven or is_over,
            )
        answers = min(self.answers + 1, self.successes)
        is_enough = answers >= self.successes
        there = self.is_reachable or is_enough
        return replace(
            self,
            failures=0,
            reason="" if there else self.reason,
            ahead=ahead,
            answers=answers,
            is_reachable=there,
            is_proven=self.is_proven or is_enough,
        )


# What the status of a virtual node says: what it offers, and whether its provider is there --------
# Source: docs/parity.md § 5.4; SEC-A13.

HEARTBEAT: Final = timedelta(minutes=5)
READY: Final = "KubeletReady"
NOT_READY: Final = "KubeletNotReady"
NOT_REACHABLE: Final = "ProviderNotReachable"
NOT_PROVEN: Final = "ProviderNotProven"
CLOCK: Final = "ClockSkew"
ABSENCE: Final = keys.MASS_ABSENCE
"""Conditions that are there only while they are true."""


def status(  # noqa: PLR0913  # what a Node's status tells of
    node: Object,
    identity: NodeIdentity,
    virtual: VirtualNode,
    health: Health,
    now: datetime,
    *,
    held_back: Resources = MappingProxyType({}),
) -> Object:
    """Return the whole status of ``node``, its heartbeats as they were.

    ``held_back`` is what bound pods ask for that never run: it is offered beside the rest.
    """
    before: Object = objects.status(node)
    offered = _offered(virtual, held_back)
    return {
        **before,
        "capacity": _resources(before.get("capacity") or {}, offered),
        "allocatable": _resources(before.get("allocatable") or {}, offered),
        "conditions": _conditions(before.get("conditions") or [], virtual, health, now),
        "addresses": _addresses(identity),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": identity.port}},
        "nodeInfo": {**(before.get("nodeInfo") or {}), **_info(identity, virtual)},
        "images": list(virtual.images),
    }


def alarm(node: Object, want: Object) -> str:
    """Return what to tell now that much is missing at once; "" if nothing is, or it was told."""
    before = objects.find_condition(objects.status(node).get("conditions"), ABSENCE)
    now = objects.find_condition(want["conditions"], ABSENCE)
    return str(now["message"]) if now and not before else ""


def is_heartbeat_due(node: Object, now: datetime) -> bool:
    """Whether the status is written now, even if nothing changed."""
    return _is_old(objects.status(node).get("conditions") or [], now)


def status_changes(node: Object, want: Object, now: datetime) -> Object:
    """Return the patch of the status, {} if nothing changed and the heartbeat is young.

    It is a strategic merge patch: of conditions only those that differ are sent, since others
    write theirs meanwhile. Resources that a VirtualNode does not offer any more go.
    """
    before: Object = objects.status(node)
    same = all(_plain(before.get(name)) == _plain(want[name]) for name in want)
    if same and not is_heartbeat_due(node, now):
        return {}
    beating = [
        {**item, "lastHeartbeatTime": objects.timestamp(now)} if item["type"] in _OURS else item
        for item in want["conditions"]
    ]
    changes = merge_patch(before, {**want, "conditions": beating})
    changes["conditions"] = shared.patch(before.get("conditions") or [], beating)
    if "addresses" in changes:
        changes["addresses"] = [{"$patch": "replace"}, *changes["addresses"]]
    return changes


# Conditions --------------------------------------------------------------------------------------

_PRESSURES: Final[Mapping[str, tuple[str, str]]] = {
    "MemoryPressure": ("RemoteClusterHasSufficientMemory", "RemoteClusterHasMemoryPressure"),
    "DiskPressure": ("RemoteClusterHasNoDiskPressure", "RemoteClusterHasDiskPressure"),
    "PIDPressure": ("RemoteClusterHasNoPIDPressure", "RemoteClusterHasPIDPressure"),
}
"""Each pressure with its reason while it is False, and while it is True."""
_OURS: Final = frozenset({"Ready", *_PRESSURES, CLOCK, ABSENCE})


def _conditions(
    have: Sequence[Object], virtual: VirtualNode, health: Health, now: datetime
) -> list[Object]:
    """Return all conditions in the server's order: it puts a new one where it likes."""
    known = {item["type"]: item for item in have}
    places = {type_: place for place, type_ in enumerate(known)}
    is_offering = _has(virtual, "cpu") and _has(virtual, "memory")
    made = [_known_ready(known.get("Ready"), health, now, is_offering=is_offering)]
    for type_, (fine, pressed) in _PRESSURES.items():
        want = (type_, "False", fine) if is_offering else (type_, "True", pressed)
        made.append(_condition(known.get(type_), (*want, ""), now))
    if not health.is_in_step:
        made.append(_condition(known.get(CLOCK), _skewed(health), now))
    if health.missing:
        made.append(_condition(known.get(ABSENCE), _absent(health), now))
    made += (item for item in have if not _is_ours(item))
    return sorted(made, key=lambda item: places.get(item["type"], len(places)))


def _is_ours(condition: Object) -> bool:
    """Whether it is made here: that of the network is, and goes while no fabric is checked."""
    is_network = str(condition.get("reason", "")).startswith("LiqoNetworking")
    return condition["type"] in _OURS or is_network


def _known_ready(
    have: Object | None, health: Health, now: datetime, *, is_offering: bool
) -> Object:
    """Return Ready: what was said of it last holds until pings have decided."""
    if have and not health.is_proven:
        return have
    return _condition(have, _ready(health, is_offering=is_offering), now)


def _ready(health: Health, *, is_offering: bool) -> tuple[str, str, str, str]:
    if not health.is_proven:
        return "Ready", "False", NOT_PROVEN, "the provider's API server has not answered yet"
    if not health.is_reachable:
        return "Ready", "False", NOT_REACHABLE, health.reason
    if not is_offering:
        return "Ready", "False", NOT_READY, "the VirtualNode offers no cpu or no memory"
    return "Ready", "True", READY, "kubelet is posting ready status"


def _absent(health: Health) -> tuple[str, str, str, str]:
    message = f"{health.missing} pods were missing from one list and had not been seen to go"
    cure = "nothing is deleted or made again for that until it is certain"
    return ABSENCE, "True", "TooMuchAtOnce", f"when this began, {message}: {cure}"


def _skewed(health: Health) -> tuple[str, str, str, str]:
    apart = f"{abs(health.ahead) // timedelta(seconds=1)} s"
    direction = "ahead of" if health.ahead > timedelta() else "behind"
    message = f"when this began, the provider's clock was {apart} {direction} this cluster's"
    return CLOCK, "True", "ClocksDiffer", f"{message}: let both follow a time server"


def _condition(have: Object | None, want: tuple[str, str, str, str], now: datetime) -> Object:
    """Return the condition; its time changes with the status only, its message with the reason."""
    type_, status_, reason, message = want
    if have and have.get("status") == status_:
        is_told = have.get("reason") == reason
        return have if is_told else {**have, "reason": reason, "message": message}
    return {
        "type": type_,
        "status": status_,
        "reason": reason,
        "message": message,
        "lastTransitionTime": objects.timestamp(now),
        "lastHeartbeatTime": objects.timestamp(now),
    }


def _has(virtual: VirtualNode, resource: str) -> bool:
    return bool(resources.readable(virtual.hard).get(resource))


def _is_old(conditions: Sequence[Object], now: datetime) -> bool:
    beats = [item.get("lastHeartbeatTime") or "" for item in conditions if item["type"] in _OURS]
    return min(beats, default="") < objects.timestamp(now - HEARTBEAT)


# Parts -------------------------------------------------------------------------------------------


def _addresses(identity: NodeIdentity) -> list[Object]:
    """Return the pod's IP and no name: API servers would try a Hostname first."""
    return [{"type": "InternalIP", "address": identity.address}] if identity.address else []


def _info(identity: NodeIdentity, virtual: VirtualNode) -> Object:
    labels = wanted(identity, virtual).labels
    return {
        "kubeletVersion": identity.version,
        "kubeProxyVersion": "",
        "operatingSystem": labels[OS],
        "architecture": labels[ARCH],
        "osImage": f"cluster {identity.cluster_id}",
        "kernelVersion": "",
        "containerRuntimeVersion": f"pyliqo://{identity.runtime}",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _offered(virtual: VirtualNode, held_back: Resources) -> dict[str, str]:
    """Return the amounts of ``virtual`` that are some: an API server computes 1e999999999 for ever.

    Source: docs/parity.md SEC-A13.
    """
    known = resources.readable(virtual.hard)
    return {
        name: str(known[name] + held_back[name]) if name in held_back else amount
        for name, amount in virtual.hard.items()
        if name in known
    }


def _resources(have: Mapping[str, str], hard: Mapping[str, str]) -> dict[str, str]:
    """Return ``hard``, in the server's words where the amounts are equal: 1000m is 1 there."""
    return {
        name: have[name] if name in have and _equal(have[name], amount) else amount
        for name, amount in hard.items()
    }


def _equal(one: str, other: str) -> bool:
    return resources.parse_quantity(one) == resources.parse_quantity(other)


def _plain(part: object) -> object:
    """Return ``part`` as it compares: no heartbeats, null and empty alike."""
    if isinstance(part, list):
        return [_plain(item) for item in part] or None
    if isinstance(part, dict):
        plain = {name: _plain(value) for name, value in part.items() if name != "lastHeartbeatTime"}
        return {name: value for name, value in plain.items() if value is not None} or None
    return part or None
