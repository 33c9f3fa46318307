"""The algebra of node-selector terms: which nodes they match, and what holds when both hold.

Terms are alternatives; within a term everything holds; an empty term matches no node.
Source: Kubernetes API reference, NodeSelector; docs/parity.md § 3.1 and 11.3.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from apis import naming
from apis.objects import Object, canonical

Term: TypeAlias = Object
"""{"matchExpressions": [{"key", "operator", "values"}], "matchFields": [...]}, both optional."""

MAX_REQUIREMENTS: Final = 100
"""Of one term."""
MAX_IN_ALL: Final = 1000
"""Requirements and values of all terms together."""

_PARTS: Final = ("matchExpressions", "matchFields")
_NAME_FIELD: Final = "metadata.name"
_INTEGER_END: Final = 2**63
_KEY: Final = re.compile(r"[\w./-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\w.-]+", re.ASCII)
_VALUES: Final[dict[str, Callable[[int], bool]]] = {
    "In": lambda count: count > 0,
    "NotIn": lambda count: count > 0,
    "Exists": lambda count: count == 0,
    "DoesNotExist": lambda count: count == 0,
    "Gt": lambda count: count == 1,
    "Lt": lambda count: count == 1,
}


class TooLargeError(ValueError):
    """A conjunction would be larger than its bound; the message says what of it."""


class _NodeSelectorTerm(NamedTuple):
    """A term and its requirements, each as a text that is the same for equal ones."""

    term: Term
    requirements: Mapping[tuple[str, str], Object]
    """By (part, text)."""
    size: int
    """Characters of the term as JSON."""


def conjunction(
    have: Iterable[Term],
    want: Iterable[Term],
    *,
    most_terms: int | None = None,
    most_bytes: int | None = None,
) -> list[Term]:
    """Return the terms that match where ``have`` and ``want`` both do.

    No terms at all mean no condition. Asking twice is asking once: a term that already says
    what one of ``want`` says is kept as it is. An empty term stays, and matches nothing. Each
    requirement is read once, whatever the product of the terms is.

    Raises:
        TooLargeError: more than ``most_terms``, or ``most_bytes`` of JSON, would result; nothing
            larger than that is built.
    """
    found: dict[str, Term] = {}
    size = 0
    for term, more in _pieces([_said(one) for one in have], [_said(one) for one in want]):
        size += term.size + sum(len(text) + 1 for _, text in more)
        if most_bytes is not None and size > most_bytes:
            raise TooLargeError(f"more than {most_bytes // 1024} KiB")
        made = _extended(term.term, more)
        found.setdefault(canonical(made), made)
        if most_terms is not None and len(found) > most_terms:
            raise TooLargeError(f"more than {most_terms} terms")
    return list(found.values())


def remainder(terms: Iterable[Term], known: Iterable[Term]) -> list[Term]:
    """Return the different ones of ``terms`` without the requirements that ``known`` has.

    After ``conjunction(have, known)`` this is, but for what both say, ``have``.
    """
    free = {one for term in known for one in _said(term).requirements}
    found: dict[str, Term] = {}
    for term in terms:
        left = {
            part: [item for item in _part(term, part) if (part, canonical(item)) not in free]
            for part in _PARTS
        }
        found.setdefault(canonical(left), left)
    return list(found.values())


def excess(terms: Iterable[Term]) -> str:
    """Return which size of ``terms`` is over its bound; empty if they are within all.

    It only counts, and so comes before anything that compares. Source: docs/parity.md H8.
    """
    alternatives = list(terms)
    for number, term in enumerate(alternatives):
        count = sum(len(_part(term, part)) for part in _PARTS)
        if count > MAX_REQUIREMENTS:
            what = f"nodeSelectorTerms[{number}] has {count} requirements"
            return f"{what}, {MAX_REQUIREMENTS} are possible"
    count = weight(alternatives)
    if count > MAX_IN_ALL:
        return f"nodeSelectorTerms have {count} requirements and values, {MAX_IN_ALL} are possible"
    return ""


def weight(terms: Iterable[Term]) -> int:
    """Return how many requirements and values ``terms`` have in all."""
    return sum(
        1 + len(item.get("values") or ())
        for term in terms
        for part in _PARTS
        for item in _part(term, part)
    )


def text(terms: Iterable[Term]) -> str | None:
    """Return ``terms`` in words, ``region In eu,us and disk Exists or gpu Exists``.

    No two lists of terms have the same words, and an API server's CEL can write them too
    (``pod.validate.liqo.io``). None for what has none: fields, and a term that is empty.
    """
    written = [_written(term) for term in terms]
    return " or ".join(written) if all(written) else None


def matches(terms: Iterable[Term], labels: Mapping[str, str], name: str) -> bool:
    """Whether a node with these labels and this name meets one of ``terms``.

    Raises:
        ValueError: the terms are malformed; the message says where.
    """
    alternatives = list(terms)
    check(alternatives)
    return any(_holds(term, labels, name) for term in alternatives)


def check(terms: Iterable[Term]) -> None:
    """Check that every term is one that the scheduler understands.

    Raises:
        ValueError: it names the term, the requirement and the rule.
    """
    for number, term in enumerate(terms):
        for part in _PARTS:
            for requirement in _part(term, part):
                problem = _problem(requirement, is_field=part == "matchFields")
                if problem:
                    key = requirement.get("key", "")
                    raise ValueError(f"nodeSelectorTerms[{number}].{part}, key {key!r}: {problem}")


def is_empty(term: Term) -> bool:
    """Whether ``term`` has no requirement, and so matches no node."""
    return not any(_part(term, part) for part in _PARTS)


def _written(term: Term) -> str:
    """Return a term in words; empty where it has none, or where another could have the same."""
    expressions = _part(term, "matchExpressions")
    is_plain = not term.get("matchFields") and all(map(_is_plain, expressions))
    return " and ".join(map(_requirement, expressions)) if is_plain else ""


def _is_plain(expression: Object) -> bool:
    """Whether key and values are single words, and as many as the operator takes."""
    values, takes = expression.get("values") or [], _VALUES.get(expression["operator"])
    is_whole = bool(_KEY.fullmatch(expression["key"])) and all(map(_VALUE.fullmatch, values))
    return is_whole and takes is not None and takes(len(values))


def _requirement(expression: Object) -> str:
    values = ",".join(expression.get("values") or ())
    return " ".join(filter(None, (expression["key"], expression["operator"], values)))


def _part(term: Term, part: str) -> list[Object]:
    return term.get(part) or []


def _said(term: Term) -> _NodeSelectorTerm:
    requirements = {(part, canonical(item)): item for part in _PARTS for item in _part(term, part)}
    return _NodeSelectorTerm(term, requirements, len(canonical(term)))


_Missing: TypeAlias = Mapping[tuple[str, str], Object]


def _pieces(
    have: Sequence[_NodeSelectorTerm], want: Sequence[_NodeSelectorTerm]
) -> Iterator[tuple[_NodeSelectorTerm, _Missing]]:
    """Yield each term of the conjunction: one that is there, and what it lacks."""
    if not have or not want:
        yield from ((term, {}) for term in have or want)
        return
    for term in have:
        yield from _narrowed(term, want)


def _narrowed(
    term: _NodeSelectorTerm, want: Sequence[_NodeSelectorTerm]
) -> Iterator[tuple[_NodeSelectorTerm, _Missing]]:
    """Yield what is left of ``term`` where one of ``want`` holds as well."""
    if not term.requirements or any(_implies(term, other) for other in want):
        yield term, {}
        return
    for other in want:
        if other.requirements:
            yield term, _missing(term, other)
        else:
            yield other, {}


def _implies(term: _NodeSelectorTerm, other: _NodeSelectorTerm) -> bool:
    return bool(other.requirements) and other.requirements.keys() <= term.requirements.keys()


def _missing(term: _NodeSelectorTerm, other: _NodeSelectorTerm) -> _Missing:
    have = term.requirements
    return {one: item for one, item in other.requirements.items() if one not in have}


def _extended(term: Term, more: _Missing) -> Term:
    made = dict(term)
    for (part, _), item in more.items():
        made[part] = [*_part(term, part)] if made.get(part) is term.get(part) else made[part]
        made[part].append(item)
    return made


def _holds(term: Term, labels: Mapping[str, str], name: str) -> bool:
    if is_empty(term):
        return False
    fields = {_NAME_FIELD: name}
    return all(_met(item, labels) for item in _part(term, "matchExpressions")) and all(
        _met(item, fields) for item in _part(term, "matchFields")
    )


def _met(requirement: Object, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    values = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            return _compares(value, int(values[0]), above=operator == "Gt")


def _compares(value: str | None, limit: int, *, above: bool) -> bool:
    number = _integer(value or "")
    if number is None:
        return False
    return number > limit if above else number < limit


def _integer(text: str) -> int | None:
    """Return the 64-bit integer that a label value is, if it is one."""
    number = int(text) if text.isascii() and text.isdigit() else None
    return number if number is None or number < _INTEGER_END else None


def _problem(requirement: Object, *, is_field: bool) -> str:
    """Return what is wrong with ``requirement``; empty if nothing is."""
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator not in _VALUES:
        return f"operator {operator!r} is not one of {', '.join(_VALUES)}"
    if is_field:
        return _field_problem(requirement, operator, values)
    if not naming.is_qualified_name(str(requirement.get("key", ""))):
        return "the key is not a label key"
    if not _VALUES[operator](len(values)):
        return f"operator {operator} does not take {len(values)} values"
    return _value_problem(operator, values)


def _value_problem(operator: str, values: list[str]) -> str:
    wrong = [value for value in values if not naming.is_label_value(value)]
    if wrong:
        return f"{wrong[0]!r} is not a label value"
    if operator in ("Gt", "Lt") and _integer(values[0]) is None:
        return f"{values[0]!r} is not an integer"
    return ""


def _field_problem(requirement: Object, operator: str, values: list[str]) -> str:
    if requirement.get("key") != _NAME_FIELD:
        return f"the only field is {_NAME_FIELD}"
    if operator not in ("In", "NotIn") or len(values) != 1:
        return "a field takes In or NotIn with exactly one value"
    return ""
