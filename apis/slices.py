"""The ResourceSlice: what a consumer asks of a provider, and what it was granted.

Source: docs/parity.md § 1.8, 2.2, 4.4-4.7, 4.16, 4.17.
"""

from dataclasses import dataclass, field
from typing import Final

from apis import conditions, keys, naming, objects, resources
from apis.objects import Key, Object
from apis.quantity import Quantity
from apis.resources import Resources

DEFAULT_CLASS: Final = "default"
SHARED_CLASS: Final = "shared"
BUILT_IN: Final = (DEFAULT_CLASS, SHARED_CLASS)
"""Anybody who owns another class fills in what its slices are granted."""

AUTHENTICATION: Final = "Authentication"
RESOURCES: Final = "Resources"
ACCEPTED: Final = "Accepted"
DENIED: Final = "Denied"
AUTHENTICATION_DENIED: Final = "ResourceSliceAuthenticationDenied"
"""The reason by which a slice is not certified for what it says itself: request, consumer ID."""
DRAINED: Final = "ResourceSliceDrained"
"""The reason by which a consumer knows that its pods have to leave."""
_FALSE: Final = frozenset({"false", "False", "0"})


@dataclass(frozen=True)
class ResourceSlice:
    """One slice, on either side; on the provider ``consumer`` is the label's, not the spec's."""

    key: Key
    consumer: str = ""
    provider: str = ""
    class_: str = ""
    wanted: Resources = field(default_factory=dict)
    granted: Resources = field(default_factory=dict)
    created: str = ""

    @classmethod
    def parse(cls, obj: Object) -> "ResourceSlice":
        """Return what ``obj`` says.

        Raises:
            ValueError: an amount cannot be read, or is below zero; the message names field and
            resource.
        """
        spec, status = objects.spec(obj), objects.status(obj)
        return cls(
            key=objects.key_of(obj),
            consumer=spec.get("consumerClusterID") or "",
            provider=spec.get("providerClusterID") or "",
            class_=spec.get("class") or "",
            wanted=_amounts(spec, "spec"),
            granted=_amounts(status, "status"),
            created=obj["metadata"].get("creationTimestamp") or "",
        )

    @property
    def user(self) -> str:
        """Return whom its certificate names, and its Quota limits."""
        return naming.quota_name(self.key.name, self.consumer)


def is_accepted(obj: Object, type_: str) -> bool:
    """Whether the provider said yes to ``Authentication`` or ``Resources``."""
    return answer(obj, type_) == ACCEPTED


def answer(obj: Object, type_: str) -> str:
    """Return what the provider said: Accepted, Denied, or nothing yet."""
    found = conditions.find(objects.status(obj).get("conditions"), type_)
    return str(found["status"]) if found else ""


def makes_virtual_node(obj: Object) -> bool:
    """Whether a virtual node is to be made of it."""
    value = objects.annotations(obj).get(keys.CREATE_VIRTUAL_NODE, "")
    return bool(value) and value.lower() != "false"


def is_cordoned(obj: Object) -> bool:
    """Whether the provider lets no more pods in, for this slice or for its whole tenant."""
    return any(says_yes(obj, name) for name in (keys.CORDON, keys.CORDON_TENANT))


def says_yes(obj: Object, name: str) -> bool:
    """Whether the annotation ``name`` is there and does not say no."""
    return objects.annotations(obj).get(name, "false") not in _FALSE


def is_spoiled(obj: Object) -> bool:
    """Whether what its consumer wrote into ``obj`` makes it none of that consumer."""
    found = conditions.find(objects.status(obj).get("conditions"), AUTHENTICATION) or {}
    return found.get("status") == DENIED and found.get("reason") == AUTHENTICATION_DENIED


def is_drained(obj: Object) -> bool:
    """Whether the provider wants the pods of its replica ``obj`` to leave."""
    return says_yes(obj, keys.DRAIN)


def has_to_leave(obj: Object) -> bool:
    """Whether the provider said so, in the status of the slice."""
    found = conditions.find(objects.status(obj).get("conditions"), RESOURCES) or {}
    return found.get("status") == DENIED and found.get("reason") == DRAINED


def _amounts(part: Object, where: str) -> Resources:
    try:
        amounts = resources.parse(part.get("resources"))
    except ValueError as error:
        raise ValueError(f"{where}.resources cannot be read: {error}") from error
    for name, amount in amounts.items():
        if amount < Quantity():
            raise ValueError(f"{where}.resources.{name} is below zero: correct it")
    return amounts
