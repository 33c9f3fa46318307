"""What every Kubernetes object has: a kind, a key, a UID, owners, a life that may be ending."""

import copy
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a part of one: exactly its JSON."""


class Key(NamedTuple):
    """Where an object is: ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Kind:
    """What an object is; travels beside it, since items of a list do not say so themselves."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return its name in RBAC and messages: ``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.kind.lower()


def key_of(obj: Mapping[str, Any]) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace") or "", metadata["name"])


def canonical(value: object) -> str:
    """Return a text that is the same for equal JSON values, so that many are compared by a set."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


OUTLINED: Final = "-outlined"
"""Marks what a cache keeps of a large object, without its large fields (``kube.slim.outline``)."""


def is_outlined(obj: Mapping[str, Any] | None) -> bool:
    """Whether ``obj`` is not all of the object: the server has that."""
    return obj is not None and OUTLINED in obj


UNTRACKED: Final[Object] = {"managedFields": [{}]}
"""Metadata of a patch after which the server no longer keeps who wrote each field of the object.

With a thousand entries that is more than they are, and most of what a write of them costs. No patch
of a subresource does that. Source: Kubernetes, "Server-Side Apply", "Clearing managedFields".
"""


def named(kind: Kind, key: Key, **rest: Any) -> Object:
    """Return a new object of ``kind`` called ``key``; ``rest`` are its other top-level fields.

    ``metadata=`` in ``rest`` adds to the metadata that ``key`` gives.
    """
    metadata: Object = {"name": key.name, **rest.pop("metadata", {})}
    if key.namespace:
        metadata["namespace"] = key.namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def uid(obj: Mapping[str, Any]) -> str:
    """Return the UID, empty for an object that no server has seen."""
    return str(obj["metadata"].get("uid", ""))


def labels(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels, empty if there are none. They are not to be changed."""
    found = obj["metadata"].get("labels")
    return found if isinstance(found, dict) else {}


def annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations, empty if there are none. They are not to be changed."""
    found = obj["metadata"].get("annotations")
    return found if isinstance(found, dict) else {}


def spec(obj: Mapping[str, Any] | None) -> Object:
    """Return the spec; empty if it is absent or not an object."""
    return _part(obj, "spec")


def status(obj: Mapping[str, Any] | None) -> Object:
    """Return the status; empty if it is absent or not an object."""
    return _part(obj, "status")


def _part(obj: Mapping[str, Any] | None, name: str) -> Object:
    found = (obj or {}).get(name)
    return found if isinstance(found, dict) else {}


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    """Return the finalizers; read only."""
    return obj["metadata"].get("finalizers") or []


FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


def is_finished(pod: Mapping[str, Any] | None) -> bool:
    return status(pod).get("phase") in FINAL_PHASES


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def reference(kind: Kind, key: Key, uid_: str) -> Object:
    """Return how an object elsewhere names that one: an ObjectReference."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "namespace": key.namespace,
        "name": key.name,
        "uid": uid_,
    }


def image(pod_spec: Object, container: str) -> str:
    """Return the image of ``container``, else of the first: sidecars may be injected before it."""
    containers = pod_spec["containers"]
    named_so = (each for each in containers if each.get("name") == container)
    return str(next(named_so, containers[0])["image"])


def owner_reference(kind: Kind, owner: Mapping[str, Any], *, block: bool = True) -> Object:
    """Return the controller reference by which a dependent in the same namespace names ``owner``.

    Source: Kubernetes, "Owners and dependents".
    """
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


def controller_of(obj: Mapping[str, Any]) -> Object | None:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether ``owner``, that very object by UID, is the controller of ``obj``."""
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == uid(owner)


def merge_patch(old: Object, new: Object) -> Object:
    """Return the JSON merge patch that makes ``old`` into ``new``; {} when they are equal.

    Source: RFC 7386; lists are replaced whole, a key that goes is sent as null.
    """
    patch: Object = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            inner = merge_patch(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = copy.deepcopy(value)
    return patch


# What caches keep ---------------------------------------------------------------------------------


_PARTS: Final[dict[bytes, Any]] = {}
_MOST_PARTS: Final = 4096
_OF_A_PART: Final = 1024
"""Bytes of JSON."""


def shared(part: Any) -> Any:
    """Return the equal part of JSON that was given before, if any, so that one is kept for many.

    Of what many objects have in common, such as labels and subjects; nobody may change it.
    """
    json_ = msgspec.json.encode(part)
    if len(json_) > _OF_A_PART:
        return part
    if json_ not in _PARTS and len(_PARTS) >= _MOST_PARTS:
        del _PARTS[next(iter(_PARTS))]
    return _PARTS.setdefault(json_, part)


class Meta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Which object it is, and in which version; a kind of cache adds the fields it needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


# Conditions ---------------------------------------------------------------------------------------


def find_condition(conditions: Iterable[Object] | None, type_: str) -> Object | None:
    """Return the condition of this type, if there is one.

    What another cluster says may be of any shape: items that are not conditions are passed over.
    """
    listed = conditions if isinstance(conditions, Iterable) else ()
    fit = (found for found in listed if isinstance(found, dict))
    return next((found for found in fit if found.get("type") == type_), None)


def condition(obj: Mapping[str, Any] | None, type_: str) -> Object:
    """Return the condition of this type in the status of ``obj``; empty if there is none."""
    return find_condition(status(obj).get("conditions"), type_) or {}


def is_condition_true(conditions: Iterable[Object] | None, type_: str) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.get("status") == "True"


def set_condition(  # noqa: PLR0913, PLR0917  # a condition has that many fields
    conditions: Iterable[Object] | None,
    type_: str,
    status: str,
    reason: str,
    message: str,
    now: datetime,
) -> list[Object]:
    """Return ``conditions`` with that of this type set, at its place; the others as they are.

    lastTransitionTime stays where the status does, so setting the same again changes nothing.

    Units: ``now`` is aware UTC.
    """
    before = list(conditions or ())
    old = find_condition(before, type_)
    new = {**(old or {}), "type": type_, "status": status, "reason": reason, "message": message}
    if old is None or old.get("status") != status or not old.get("lastTransitionTime"):
        new["lastTransitionTime"] = timestamp(now)
    if old is None:
        return [*before, new]
    kept = [new if found is old else found for found in before]
    return [found for found in kept if found is new or found.get("type") != type_]


def without_condition(conditions: Iterable[Object] | None, type_: str) -> list[Object]:
    return [found for found in conditions or () if found.get("type") != type_]


# Times, and durations as Go writes them -----------------------------------------------------------

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"([0-9]{1,9}(?:[.][0-9]{1,9})?)(ms|s|m|h)"
_DURATION: Final = re.compile(f"(?:{_PART})+|0")


def timestamp(moment: datetime) -> str:
    """Return ``moment``, which is aware, as a Time: ``2025-01-31T12:00:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """Return ``moment`` as a MicroTime, which Go refuses without its six digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime | None:
    """Return the moment that ``text`` names, aware; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``20s``, ``1m30s``, ``500ms`` or ``0``.

    Source: Go, ``time.ParseDuration``.

    Raises:
        ValueError: ``text`` is not a duration.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 20s or 2m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


# Clocks -------------------------------------------------------------------------------------------


def clock_skew(date: str, now: datetime) -> timedelta:
    """Return by how much who answered with the header ``date`` is ahead of ``now``; 0 for none.

    Shape: an HTTP date (RFC 9110, 5.6.7), of whole seconds.
    """
    try:
        return parsedate_to_datetime(date) - now
    except (TypeError, ValueError, OverflowError):  # none, without a zone, or of no calendar
        return timedelta()


# Our kinds: one Struct each, of which each field has the default of its CRD -----------------------

T = TypeVar("T")


def read(said: Mapping[str, Any], as_: type[T]) -> T:
    """Return what ``said`` says, as the Struct ``as_``; null and empty text count as absent.

    Values that are instances of a field's type already are taken over.

    Raises:
        ValueError: a value is of another type; the message names the path of its field.
    """
    given = {name: value for name, value in said.items() if value is not None and value != ""}
    return msgspec.convert(given, as_)
