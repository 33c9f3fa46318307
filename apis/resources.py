"""Amounts of resources as Kubernetes writes them, by resource, and what a pod asks for. Pure.

An amount is an integer of billionths, the finest that Kubernetes knows; no float is ever made.
Source: Kubernetes, apimachinery ``resource.Quantity``; docs/parity.md § 3.8.1.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from enum import Enum
from typing import Any, Final, TypeAlias

from apis.objects import Object

NANO: Final = 10**9
_MILLI: Final = 10**6
_LONGEST: Final = 64
_MAX_EXPONENT: Final = 30
_BINARY_CAP: Final = (2**63 - 1) * NANO
_SMALLEST_BINARY: Final = 1024 * NANO
_EXACT: Final = Context(prec=200)

_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,4}))?",
    re.ASCII,
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class Form(Enum):
    """How an amount was written, and so how it is written again."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


@dataclass(frozen=True, order=True)
class Quantity:
    """An amount; equal and ordered by value alone, whatever the form.

    Units: ``nanos`` are billionths of one core, byte or piece.
    """

    nanos: int = 0
    form: Form = field(default=Form.DECIMAL, compare=False)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.form if self.nanos else other.form)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.form)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the canonical text: no fraction, the largest suffix that loses nothing."""
        if not self.nanos:
            return "0"
        if self.form is Form.BINARY and _shows_binary(self.nanos):
            return _binary_text(self.nanos // NANO)
        return _decimal_text(self.nanos, self.form)

    @property
    def value(self) -> Decimal:
        return Decimal(self.nanos).scaleb(-9, context=_EXACT)

    @property
    def in_thousandths(self) -> "Quantity":
        """Return the amount rounded up (away from zero) to a thousandth."""
        up = -(-abs(self.nanos) // _MILLI) * _MILLI
        return Quantity(up if self.nanos > 0 else -up, self.form)

    @property
    def whole(self) -> int:
        """Return the number, rounded up to an integer."""
        return -(-self.nanos // NANO)


def parse_quantity(text: str | int) -> Quantity:
    """Return the amount that ``text`` means, rounded up (away from zero) to a billionth.

    Exponents beyond 30 and texts beyond 64 characters are refused, since nobody means them.

    Raises:
        ValueError: not a quantity; the message carries the value.
    """
    return _parsed(_written(text))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Quantity:
    match = _TEXT.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise ValueError(f"{text!r:.80} is not a quantity: write for example 100m, 2 or 1.5Gi")
    digits, places = f"{match['whole']}{match['part'] or ''}", len(match["part"] or "")
    form, numerator, power = _scale(match["suffix"] or "", match["exponent"])
    nanos = _scaled(int(digits) * numerator, power + 9 - places)
    if form is Form.BINARY:
        nanos = min(nanos, _BINARY_CAP)
    return Quantity(-nanos if match["sign"] == "-" else nanos, form)


def _written(text: object) -> str:
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise ValueError(f"{text!r:.80} is not a quantity: only texts and integers are")  # noqa: TRY004  # callers refuse input by one exception
    if isinstance(text, int):
        if text.bit_length() > _LONGEST * 3:
            raise ValueError("a quantity has at most 64 digits")
        return str(text)
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r}... is too long for a quantity")
    return text


def _scale(suffix: str, exponent: str | None) -> tuple[Form, int, int]:
    """Return the form, the factor and the power of ten that a suffix stands for."""
    if exponent is None:
        if suffix in _BINARY:
            return Form.BINARY, 1 << _BINARY[suffix], 0
        return Form.DECIMAL, 1, _DECIMAL[suffix]
    power = int(exponent)
    if abs(power) > _MAX_EXPONENT:
        raise ValueError(f"the exponent {exponent} is beyond {_MAX_EXPONENT}")
    return Form.EXPONENT, 1, power


def _scaled(number: int, power: int) -> int:
    """Return ``number`` times ten to the ``power``, rounded up."""
    if power >= 0:
        return int(number * 10**power)
    return int(-(-number // 10**-power))


def _shows_binary(nanos: int) -> bool:
    """Whether the binary form loses nothing, says something and is read as the same."""
    return _SMALLEST_BINARY <= abs(nanos) <= _BINARY_CAP and nanos % NANO == 0


def _binary_text(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < max(_BINARY.values()):
        number, power = number // 1024, power + 10
    return f"{number}{_BINARY_SUFFIX[power]}"


def _decimal_text(nanos: int, form: Form) -> str:
    number, power = nanos, -9
    while number % 1000 == 0 and (form is Form.EXPONENT or power < max(_DECIMAL.values())):
        number, power = number // 1000, power + 3
    if form is Form.EXPONENT:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX[power]}"


_DECIMAL_SUFFIX: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}


# Amounts by resource, and what a pod asks for -----------------------------------------------------

Resources: TypeAlias = Mapping[str, Quantity]
"""Amounts by name: ``cpu``, ``memory``, ``nvidia.com/gpu``."""


_OF_PODS: Final = frozenset({"cpu", "memory"})
_HUGE_PAGES: Final = "hugepages-"
"""What can be said for a pod as a whole."""


def parse_resources(amounts: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """Return the amounts of a ResourceList.

    Shape: {"cpu": "500m", "memory": "1Gi", "pods": 10}.

    Raises:
        ValueError: the message names the resource.
    """
    return {name: _amount(name, amount) for name, amount in (amounts or {}).items()}


def readable(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the amounts of a ResourceList that are some, and not below zero; no others.

    For what another cluster says, or nobody has judged.
    """
    found: dict[str, Quantity] = {}
    for name, amount in amounts.items():
        with contextlib.suppress(ValueError):
            parsed = parse_quantity(amount)
            if parsed >= Quantity():
                found[name] = parsed
    return found


def to_json(amounts: Resources) -> dict[str, str]:
    """Return ``amounts`` as a ResourceList, in canonical form."""
    return {name: str(amount) for name, amount in amounts.items()}


def line(amounts: Mapping[str, str]) -> str:
    """Return ``amounts`` in one line, as an annotation has them: "cpu=2,memory=4Gi"."""
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


def of_line(text: str) -> dict[str, Quantity]:
    """Return the amounts of such a line; what cannot be read in it is left out."""
    found: dict[str, Quantity] = {}
    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        with contextlib.suppress(ValueError):
            found[name] = parse_quantity(amount)
    return found


def total(parts: Iterable[Resources]) -> dict[str, Quantity]:
    summed: dict[str, Quantity] = {}
    for part in parts:
        summed = _joined(summed, part, lambda one, other: one + other)
    return summed


def less(amounts: Resources, used: Resources) -> dict[str, Quantity]:
    """Return what is left of ``amounts``; below zero where more is used than there is."""
    return {name: amount - used.get(name, Quantity()) for name, amount in amounts.items()}


def more(amounts: Resources, than: Resources) -> dict[str, Quantity]:
    """Return by how much ``amounts`` are more, of each resource of which they are."""
    left = less(amounts, than)
    return {name: amount for name, amount in left.items() if amount > Quantity()}


def most(one: Resources, other: Resources) -> dict[str, Quantity]:
    return _joined(one, other, max)


def lacking(wanted: Resources, free: Resources) -> list[str]:
    """Return the names of which there is not enough; what ``free`` does not name is not there."""
    return [name for name, amount in wanted.items() if name not in free or free[name] < amount]


def fits(wanted: Resources, free: Resources) -> bool:
    return not lacking(wanted, free)


def usage(pod_spec: Object) -> dict[str, Quantity]:
    """Return what the scheduler will count for a pod.

    Its containers together, or one init container if that is more; a sidecar (an init container
    that is always restarted) runs beside all that start after it. What is said for the pod as a
    whole wins, and its overhead comes on top.

    Shape: ``pod_spec`` is {"containers": [{"resources": {"requests": {}}}], "initContainers": [],
    "resources": {}, "overhead": {}}.

    Raises:
        ValueError: a request is no quantity.
    """
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod_spec.get("initContainers") or []:
        beside = total([sidecars, _requests(container)])
        peak = _joined(peak, beside, max)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    running = [_requests(container) for container in pod_spec.get("containers") or []]
    inside = _joined(total([sidecars, *running]), peak, max)
    overhead = _stored(parse_resources(pod_spec.get("overhead")))
    return total([{**inside, **_whole(pod_spec, inside)}, overhead])


def usage_of_stored(pod_spec: Object) -> dict[str, Quantity]:
    """Return ``usage``; nothing where a request is no amount, as 1e308 that API servers store.

    No node has room for such a Pod, so it takes nothing.
    """
    try:
        return usage(pod_spec)
    except ValueError:
        return {}


def _requests(container: Object) -> dict[str, Quantity]:
    """Return the requests as the API server completes them: where there are none, by the limits."""
    declared = container.get("resources") or {}
    return _stored(
        {**parse_resources(declared.get("limits")), **parse_resources(declared.get("requests"))}
    )


def _stored(amounts: Resources) -> dict[str, Quantity]:
    """Return ``amounts`` as the API server stores those of pods: in whole thousandths."""
    return {name: amount.in_thousandths for name, amount in amounts.items()}


def _whole(pod_spec: Object, inside: Resources) -> dict[str, Quantity]:
    """Return what is requested for the pod as a whole, completed as the API server does."""
    declared = pod_spec.get("resources") or {}
    limits = parse_resources(declared.get("limits"))
    unsaid = {name: inside.get(name, limit) for name, limit in limits.items()}
    said = _stored({**unsaid, **parse_resources(declared.get("requests"))})
    return {
        name: amount
        for name, amount in said.items()
        if name in _OF_PODS or name.startswith(_HUGE_PAGES)
    }


def _amount(name: str, amount: Any) -> Quantity:
    try:
        return parse_quantity(amount)
    except ValueError as error:
        raise ValueError(f"resource {name}: {error}") from error


def _joined(
    one: Resources, other: Resources, join: Callable[[Quantity, Quantity], Quantity]
) -> dict[str, Quantity]:
    if not one or not other:
        return {**one, **other}
    joined = {name: amount for name, amount in other.items() if name not in one}
    both = {
        name: join(amount, other[name]) if name in other else amount for name, amount in one.items()
    }
    return {**both, **joined}
