"""Flags with structure: ``key=value`` lists, selectors, durations."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return what ``a=1,b=2`` and ``c=3`` say together.

    Raises:
        ValueError: an entry lacks its ``=`` or its key.
    """
    found = {}
    for text in items(texts):
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ValueError(f"{text!r} is not key=value")
        found[name] = value
    return found


def merged(given: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return what a repeated flag says in all; the last word on a key holds."""
    return {name: value for one in given for name, value in one.items()}


def items(texts: Iterable[str]) -> list[str]:
    """Return the parts of comma-separated ``texts``, without blanks."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def switched(args: Iterable[str], switches: Mapping[str, str]) -> list[str]:
    """Return ``args`` with ``--x=true`` as ``--x`` and ``--x=false`` as its opposite.

    Shape: ``switches`` is {"--x": "--no-x"}. What stands behind ``--`` is left as it is.
    Source: Go, ``strconv.ParseBool``, by which kubectl's and Liqo's own flags are read.

    Raises:
        ValueError: the value is neither.
    """
    given = iter(args)
    found = []
    for arg in given:
        found.append(_spelled(arg, switches))
        if arg == "--":
            break
    return [*found, *given]


def _spelled(arg: str, switches: Mapping[str, str]) -> str:
    name, sign, value = arg.partition("=")
    if not sign or name not in switches:
        return arg
    if value not in _TRUE | _FALSE:
        raise ValueError(f"{arg}: {value!r} is neither true nor false")
    return name if value in _TRUE else switches[name]


def seconds(text: str) -> float:
    """Return the length of a duration such as ``20s``, ``1m30s`` or ``500ms``.

    Raises:
        ValueError: ``text`` is not a duration.
    """
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise ValueError(f"{text!r} is not a duration such as 20s or 2m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
