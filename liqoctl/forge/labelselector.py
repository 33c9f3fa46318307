"""Label selectors as users type them: ``region in (europe,us-west), !staging``.

Source: Kubernetes, "Labels and Selectors"; docs/parity.md § 7.2 for the node-selector term.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apis import naming, nodeselector
from apis.objects import Object

_REQUIREMENT: Final = re.compile(
    r"\s*(?:"
    r"!\s*(?P<absent>[^\s,=!<>()]+)"
    r"|(?P<key>[^\s,=!<>()]+)(?:"
    r"\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|\s*(?P<sign>==|=|!=|>|<)\s*(?P<value>[^\s,=!<>()]*)"
    r")?)\s*(?P<end>,|$)"
)
_OPERATORS: Final = {
    "in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt",
}  # fmt: skip


@dataclass(frozen=True)
class Requirement:
    """One condition on one label; ``operator`` is a node selector's: In, NotIn, Exists, ..."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def parse(text: str) -> tuple[Requirement, ...]:
    """Return the conditions in ``text``, all of which must hold; () for an empty text.

    Raises:
        ValueError: it is no label selector; the message says where.
    """
    found: list[Requirement] = []
    position = 0
    while text[position:].strip() or (found and text[position - 1] == ","):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a label selector: see {text[position:].strip()!r}")
        found.append(_checked(_requirement(match), text))
        position = match.end()
        if match["end"] != ",":
            break
    return tuple(found)


def to_term(requirements: Iterable[Requirement]) -> Object:
    """Return the node-selector term that asks the same.

    Shape: {"matchExpressions": [{"key", "operator", "values"}]}; no "values" for operators without.
    """
    return {"matchExpressions": [_expression(requirement) for requirement in requirements]}


def matches(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet all of ``requirements``; none are met by everything."""
    asked = tuple(requirements)
    return not asked or nodeselector.matches([to_term(asked)], labels, "")


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], "DoesNotExist")
    word = match["set"] or match["sign"]
    if not word:
        return Requirement(match["key"], "Exists")
    if match["set"]:
        values = sorted({value.strip() for value in match["values"].split(",")})
        return Requirement(match["key"], _OPERATORS[word], tuple(values))
    return Requirement(match["key"], _OPERATORS[word], (match["value"],))


def _checked(requirement: Requirement, text: str) -> Requirement:
    if not naming.is_qualified_name(requirement.key):
        raise ValueError(f"{requirement.key!r} in {text!r} is not a label key")
    for value in requirement.values:
        if not naming.is_label_value(value):
            raise ValueError(f"{value!r} in {text!r} is not a label value")
        if requirement.operator in ("Gt", "Lt") and not value.isdecimal():
            raise ValueError(f"{value!r} in {text!r} is not an integer")
    return requirement


def _expression(requirement: Requirement) -> Object:
    expression: Object = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        expression["values"] = list(requirement.values)
    return expression
