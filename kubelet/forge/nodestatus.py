"""What the status of a virtual node says: what it offers, and whether its provider is there.

Source: docs/parity.md § 5.4; SEC-A13.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from apis import keys, objects, resources
from apis.objects import Object, merge_patch
from apis.offloading import VirtualNode
from apis.resources import Resources
from kubelet.forge import node as node_
from kubelet.forge.health import Health
from kubelet.forge.node import Identity
from kubelet.pods import conditions as shared

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
    identity: Identity,
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


def _addresses(identity: Identity) -> list[Object]:
    """Return the pod's IP and no name: API servers would try a Hostname first."""
    return [{"type": "InternalIP", "address": identity.address}] if identity.address else []


def _info(identity: Identity, virtual: VirtualNode) -> Object:
    labels = node_.wanted(identity, virtual).labels
    return {
        "kubeletVersion": identity.version,
        "kubeProxyVersion": "",
        "operatingSystem": labels[node_.OS],
        "architecture": labels[node_.ARCH],
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
