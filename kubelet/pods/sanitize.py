"""What of a provider's word about a pod is believed: known fields, bounded sizes, real addresses.

Source: docs/parity.md § 5.5.5; SEC-B1, SEC-B2.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeGuard

from apis import networks, objects, resources, texts
from apis.networks import PodNetworks
from apis.objects import Object
from apis.resources import Quantity

_RECURSIVE: Final = frozenset({"Disabled", "IfPossible", "Enabled"})
_TRUTHS: Final = frozenset({"True", "False", "Unknown"})
_WORD_LIMIT: Final = 512
MESSAGE_BYTES: Final = 4096
_OF_POD_BYTES: Final = 12 * 1024
"""All termination messages of a pod. Source: Kubernetes, "Determine the reason for pod failure"."""
_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
_INT32: Final = 2**31 - 1
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_OLDEST: Final = "2010"
_SLACK: Final = timedelta(days=1)


@dataclass(frozen=True)
class LocalContext:
    """What the home side adds: ``restarts`` counts the provider's recreations of the pod."""

    host_ip: str
    now: datetime
    restarts: int = 0
    addresses: PodNetworks | None = field(default_factory=PodNetworks)
    """By which addresses the provider's pods are reached from here; None: nobody is told any."""
    was_disrupted: bool = False
    """Whether the provider said before that the pod is the target of a disruption there."""


def pod_address(offered: object) -> str:
    """Return the address if a pod may have it, else "": none that is loopback or special."""
    try:
        address = ipaddress.ip_address(offered if isinstance(offered, str) else "")
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return ""
    ends = networks.reached_addresses(address)
    return "" if any(map(networks.is_special_address, ends)) else str(address)


def filter_of(local: Object, home: LocalContext) -> "Filter":
    count = sum(len(local["spec"].get(name) or []) for name in _LISTS)
    return Filter(home, min(MESSAGE_BYTES, _OF_POD_BYTES // max(1, count)))


@dataclass(frozen=True)
class Filter:
    """Takes of a value what a local kubelet might have said, and nothing else."""

    home: LocalContext
    message_bytes: int = MESSAGE_BYTES
    """Of the termination message of each container."""

    def data(self, value: object) -> str:
        """Return as much of a termination message as a kubelet lets be, for programs to read."""
        return texts.data(value, self.message_bytes)

    def text(self, value: object) -> str:
        """Return at most 1 KiB of it, what cannot be printed escaped."""
        return texts.clamp(value)

    def word(self, value: object) -> str:
        """Return at most half as much of it."""
        return self.text(value)[:_WORD_LIMIT]

    def time(self, value: object) -> str | None:
        """Return the time if it is one, and neither ancient nor of tomorrow."""
        if not is_time(value):
            return None
        latest = objects.timestamp(self.home.now + _SLACK)
        return value if _OLDEST <= value <= latest else None

    def condition(self, item: Object) -> Object | None:
        """Return the condition with known fields, None if its status is unknown."""
        if not isinstance(said := item.get("status"), str) or said not in _TRUTHS:
            return None
        rest = {
            "lastProbeTime": self.time(item.get("lastProbeTime")),
            "lastTransitionTime": self.time(item.get("lastTransitionTime")),
            "reason": self.word(item.get("reason")),
            "message": self.text(item.get("message")),
        }
        return {"type": item["type"], "status": item["status"], **_filled(rest)}

    def container(self, spec: Object, item: Object, before: Object) -> Object:
        """Return the status with its fields bounded; Shape: two ContainerStatuses.

        ``before`` is what the local pod said: while a container shrinks it still has what it had.
        """
        counted = bounded(item.get("restartCount"), 0, _INT32) or 0
        rest = {
            "state": self.state(item.get("state")),
            "lastState": self.state(item.get("lastState")),
            "containerID": self.word(item.get("containerID")),
            "started": _boolean(item.get("started")),
            "allocatedResources": _amounts(
                item.get("allocatedResources"),
                _asked(spec, "requests"),
                mapping(before.get("allocatedResources")),
            ),
            "volumeMounts": _mounts(spec, item.get("volumeMounts")),
            "user": _user(mapping(mapping(item.get("user")).get("linux"))),
        }
        return {
            "name": spec["name"],
            "ready": item.get("ready") is True,
            "restartCount": min(counted + self.home.restarts, _INT32),
            "image": self.word(item.get("image")) or str(spec.get("image", "")),
            "imageID": self.word(item.get("imageID")),
            **{name: value for name, value in rest.items() if value not in (None, "", {}, [])},
            **_resources(spec, item.get("resources"), mapping(before.get("resources"))),
        }

    def state(self, value: object) -> Object:
        """Return the one state among waiting, running and terminated that is set."""
        offered = mapping(value)
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
        return bounded(value, -_INT32, _INT32)


_STATES: Final[Mapping[str, Mapping[str, str]]] = {
    "running": {"startedAt": "time"},
    "terminated": {
        "exitCode": "int32",
        "signal": "int32",
        "reason": "word",
        "message": "data",
        "startedAt": "time",
        "finishedAt": "time",
        "containerID": "word",
    },
    "waiting": {"reason": "word", "message": "text"},
}
"""The fields of each state, and the cleaner of each."""


def _resources(spec: Object, value: object, before: Object) -> Object:
    """Return the requests and limits that are believed, {} if ``value`` has none.

    A container that asks for nothing has resources all the same, once it has run.
    """
    if not isinstance(value, dict):
        return {}
    parts = {
        name: _amounts(value.get(name), _asked(spec, name), mapping(before.get(name)))
        for name in ("limits", "requests")
    }
    return {"resources": {name: amounts for name, amounts in parts.items() if amounts}}


def _asked(spec: Object, name: str) -> Object:
    return mapping(mapping(spec.get("resources")).get(name))


def _amounts(value: object, asked: Object, before: Object) -> Object:
    """Return of ``value`` what was ``asked`` for, each amount at most that or what it was before.

    The scheduler and quotas of the consumer count what stands there. Source: docs/parity.md H24.
    """
    said = mapping(value)
    return {
        name: said[name]
        for name in asked
        if name in said and _is_within(said[name], (asked[name], before.get(name, 0)))
    }


def _is_within(value: object, bounds: Iterable[object]) -> bool:
    found = _parsed(value)
    known = [bound for one in bounds if (bound := _parsed(one)) is not None]
    return found is not None and found >= Quantity() and any(found <= one for one in known)


def _parsed(value: object) -> Quantity | None:
    try:
        return resources.parse_quantity(value) if isinstance(value, (str, int)) else None
    except ValueError:
        return None


def _mounts(spec: Object, value: object) -> list[Object]:
    have = {(one.get("name"), one.get("mountPath")) for one in spec.get("volumeMounts") or []}
    return [
        {
            **{name: one[name] for name in ("name", "mountPath", "readOnly") if name in one},
            **({"recursiveReadOnly": recursive} if recursive in _RECURSIVE else {}),
        }
        for one in mappings(value)
        if isinstance(recursive := one.get("recursiveReadOnly", ""), str)
        and isinstance(one.get("name"), str)
        and isinstance(one.get("mountPath"), str)
        and (one["name"], one["mountPath"]) in have
        and isinstance(one.get("readOnly", False), bool)
    ]


def _user(linux: Object) -> Object:
    who = {name: bounded(linux.get(name), 0, _INT32) for name in ("uid", "gid")}
    listed = linux.get("supplementalGroups")
    groups = listed if isinstance(listed, list) else []
    numbers = [found for one in groups[:64] if (found := bounded(one, 0, _INT32)) is not None]
    if None in who.values():
        return {}
    return {"linux": {**who, **({"supplementalGroups": numbers} if numbers else {})}}


def _filled(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value not in (None, "")}


def is_time(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def bounded(value: object, low: int, high: int) -> int | None:
    """Return ``value`` within the bounds, None if it is no integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return max(low, min(value, high))


def mapping(value: object) -> Object:
    """Return ``value`` if it is an object, else {}."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterable[Object]:
    """Return the objects among the items of ``value``, none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
