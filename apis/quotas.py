"""What a user of a provider is granted, what a pod takes of it, and why it may not.

Source: docs/parity.md § 1.7, 3.8, 3.8.1, 4.10; SEC-A12, SEC-A13.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from apis import objects, resources
from apis.objects import Key, Object, key_of
from apis.resources import Quantity, Resources

EXCEEDED: Final = "QuotaExceeded"
CORDONED: Final = "QuotaCordoned"
ENFORCED: Final = "QuotaEnforced"
MISSING: Final = "QuotaMissing"
UNREADABLE: Final = "RequestsUnreadable"

MAX_LABEL: Final = 63
PODS: Final = "pods"
_ESCAPED: Final = re.compile(r"[^\w\-.]", re.ASCII)
_NEEDED: Final = ("cpu", "memory")
_FREE: Final = re.compile(r" has \S+ free of ")


class QuotaRefusal(NamedTuple):
    """Why a pod may not be created: a CamelCase word, and a sentence with the cure."""

    reason: str
    message: str

    @property
    def without_amounts(self) -> "QuotaRefusal":
        """Return it without how much is free, which changes all the time."""
        return QuotaRefusal(self.reason, _FREE.sub(" has less of ", self.message))


@dataclass(frozen=True)
class QuotaGrant:
    """What a Quota says; ``user`` is the label of whom it limits."""

    key: Key
    user: str
    total: Resources
    enforcement: str = "None"
    is_cordoned: bool = False

    @classmethod
    def parse(cls, quota: Object) -> "QuotaGrant":
        """Return what ``quota`` says.

        Raises:
            ValueError: an amount cannot be read; the message names quota and resource.
        """
        spec: Object = objects.spec(quota)
        key = key_of(quota)
        try:
            total = resources.parse_resources(spec.get("resources"))
        except ValueError as error:
            raise ValueError(f"quota {key} cannot be read: {error}") from error
        return cls(
            key,
            label(str(spec.get("user") or "")),
            total,
            str(spec.get("limitsEnforcement") or "None"),
            bool(spec.get("cordoned")),
        )


@dataclass(frozen=True)
class Demand:
    """What a pod takes, and what enforcement Soft and Hard would have to say to it."""

    usage: Resources
    soft: str = ""
    hard: str = ""

    @classmethod
    def of(cls, spec: Object) -> "Demand":
        """Return what a pod of the PodSpec ``spec`` takes, the pod itself included.

        Raises:
            ValueError: an amount cannot be read or is below zero, or the spec is not of the right
            shape.
        """
        check(spec)
        usage = {**resources.usage(spec), PODS: resources.parse_quantity(1)}
        soft = next(_unsaid(spec), "")
        return cls(usage, soft, soft or next(_unequal(spec), ""))


_CLAIM: Final = ("volumes", "*", "ephemeral", "volumeClaimTemplate", "spec", "resources")
_DIVISOR: Final = ("resourceFieldRef", "divisor")
_ELSEWHERE: Final = (
    ("volumes", "*", "emptyDir", "sizeLimit"),
    (*_CLAIM, "requests", "*"),
    (*_CLAIM, "limits", "*"),
    ("volumes", "*", "downwardAPI", "items", "*", *_DIVISOR),
    ("volumes", "*", "projected", "sources", "*", "downwardAPI", "items", "*", *_DIVISOR),
    *(
        (kind, "*", "env", "*", "valueFrom", *_DIVISOR)
        for kind in ("containers", "initContainers", "ephemeralContainers")
    ),
)
"""Where a PodSpec has amounts besides requests, limits and overhead."""


def label(user: str) -> str:
    """Return ``user`` as the value of the label that says who created a ShadowPod."""
    return _ESCAPED.sub("-", user)


def first(quotas: Iterable[Object], user: str) -> Object | None:
    """Return the Quota of the user with that label: the oldest, should there be several."""
    own = [one for one in quotas if label(str(objects.spec(one).get("user") or "")) == user]
    return min(own, key=age, default=None)


def age(obj: Object) -> tuple[str, Key]:
    """Return what sorts objects by age, and those of one second by name."""
    return str(obj["metadata"].get("creationTimestamp") or ""), key_of(obj)


def missing(user: str) -> QuotaRefusal:
    """Return why nothing is created for a user without a Quota."""
    message = f"user {user!r} has no Quota here"
    return QuotaRefusal(MISSING, f"{message}: ask the provider to grant one with a ResourceSlice")


def never(grant: QuotaGrant, demand: Demand) -> QuotaRefusal | None:
    """Return why a pod of ``demand`` would not fit an empty quota; None if it would."""
    if refusal := _unwanted(grant, demand):
        return refusal
    wanted = counted(grant, demand.usage)
    for name in resources.lacking(wanted, grant.total):
        asked = f"the pod asks for {wanted[name]} of {name}"
        if name not in grant.total:
            return QuotaRefusal(
                EXCEEDED, f"{asked}, of which quota {grant.key} has none: ask for less"
            )
        message = f"{asked}, quota {grant.key} has {grant.total[name]} in all"
        return QuotaRefusal(EXCEEDED, f"{message}: ask for less")
    return None


def refusal(grant: QuotaGrant, demand: Demand, free: Resources) -> QuotaRefusal | None:
    """Return why a pod of ``demand`` does not fit what is ``free`` now; None if it does."""
    if refused := never(grant, demand):
        return refused
    return _unfit(grant, demand.usage, free, "of", "it starts as soon as it fits")


def growth_refusal(
    grant: QuotaGrant, demand: Demand, has: Resources, free: Resources
) -> QuotaRefusal | None:
    """Return why a pod that ``has`` so much may not take ``demand`` now; None if it may.

    A resource is compared again only if the pod takes more of it than before.
    """
    more = resources.more(demand.usage, has)
    wanted = {name: demand.usage[name] for name in more}
    if refused := never(grant, Demand(wanted, demand.soft, demand.hard)):
        return refused
    return _unfit(grant, more, free, "more of", "it grows as soon as it fits")


def _unfit(
    grant: QuotaGrant, amounts: Resources, free: Resources, of: str, then: str
) -> QuotaRefusal | None:
    wanted = counted(grant, amounts)
    for name in resources.lacking(wanted, free):
        left = max(free[name], Quantity())
        message = (
            f"the pod asks for {wanted[name]} {of} {name}, quota {grant.key} has {left} free of "
            f"{grant.total[name]}: {then}; delete other pods, or ask for less"
        )
        return QuotaRefusal(EXCEEDED, message)
    return None


def _unwanted(grant: QuotaGrant, demand: Demand) -> QuotaRefusal | None:
    if grant.is_cordoned:
        message = f"quota {grant.key} is cordoned and takes no new pods: ask the provider"
        return QuotaRefusal(CORDONED, message)
    unmet = {"Soft": demand.soft, "Hard": demand.hard}.get(grant.enforcement, "")
    if unmet:
        what, cure = unmet.rsplit(": ", 1)
        message = f"{what}, which enforcement {grant.enforcement} forbids: {cure}"
        return QuotaRefusal(ENFORCED, message)
    return None


def counted(grant: QuotaGrant, usage: Resources) -> dict[str, Quantity]:
    """Return what counts of ``usage``: amounts above zero, pods only if the quota limits them."""
    return {
        name: amount
        for name, amount in usage.items()
        if amount and (name != PODS or name in grant.total)
    }


def check(spec: Object) -> None:
    """Refuse what is not an amount in the PodSpec ``spec``, and amounts below zero.

    An API server that is sent 1e999999999 computes it, for minutes and in gigabytes.

    Raises:
        ValueError: the message names the field.
    Source: docs/parity.md SEC-A13.
    """
    for path, declared in (("", _mapping(spec.get("resources"), "resources")), *_declared(spec)):
        for part in ("requests", "limits"):
            where = f"spec.pod.{path}resources.{part}"
            check_amounts(_mapping(declared.get(part), where), where)
    check_amounts(_mapping(spec.get("overhead"), "spec.pod.overhead"), "spec.pod.overhead")
    for elsewhere in _ELSEWHERE:
        for amount in _at(spec, elsewhere):
            check_amounts({elsewhere[-1]: amount}, f"spec.pod.{'.'.join(elsewhere[:-1])}")


def check_amounts(amounts: Mapping[str, Any], path: str) -> None:
    """Refuse what is not an amount, and amounts below zero.

    Raises:
        ValueError: the message names the field below ``path``.
    """
    for name, amount in amounts.items():
        try:
            found = resources.parse_quantity(amount)
        except ValueError as error:
            raise ValueError(f"{path}.{name} is no amount ({error}): correct it") from error
        if found < Quantity():
            raise ValueError(f"{path}.{name} is below zero: correct it")


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield what is under ``path``, of which * stands for each item."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if step == "*":
        items = value.values() if isinstance(value, dict) else value
        for item in items if isinstance(value, (dict, list)) else ():
            yield from _at(item, rest)
    elif isinstance(value, dict) and value.get(step) is not None:
        yield from _at(value[step], rest)


def _declared(spec: Object) -> Iterator[tuple[str, Object]]:
    """Yield the ``resources`` of each container, with its path."""
    for field in ("initContainers", "containers"):
        listed = spec.get(field) or []
        if not isinstance(listed, list):
            raise ValueError(f"spec.pod.{field} must be a list: correct it")  # noqa: TRY004  # input, judged
        for index, one in enumerate(listed):
            container = _mapping(one, f"spec.pod.{field}[{index}]")
            path = f"{field}[{index}]."
            yield path, _mapping(container.get("resources"), f"spec.pod.{path}resources")


def _unsaid(spec: Object) -> Iterator[str]:
    for path, declared in _declared(spec):
        requests = _mapping(declared.get("requests"), path)
        for name in _NEEDED:
            if name not in requests:
                yield f"spec.pod.{path}resources.requests.{name} is missing: set it in the pod"


def _unequal(spec: Object) -> Iterator[str]:
    for path, declared in _declared(spec):
        requests, limits = (
            resources.parse_resources(_mapping(declared.get(part), path))
            for part in ("requests", "limits")
        )
        for name, amount in requests.items():
            if limits.get(name) != amount:
                where = f"spec.pod.{path}resources.limits.{name}"
                yield f"{where} differs from its request: set both equal"


def _mapping(value: Any, path: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path} must be an object: correct it")  # noqa: TRY004  # input, judged
    return value
