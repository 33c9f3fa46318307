"""Flags that may be repeated, and Go's booleans."""

from collections.abc import Iterable, Mapping
from typing import Final

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


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
