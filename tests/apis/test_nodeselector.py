"""Node-selector terms: what they match, and their conjunction against brute force."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apis import nodeselector
from apis.nodeselector import Term
from tests import factories

A: Term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}
B: Term = {"matchExpressions": [{"key": "b", "operator": "Exists"}]}
S1: Term = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
S2: Term = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["us"]}]}
VN: Term = {"matchExpressions": [{"key": "t", "operator": "In", "values": ["vn"]}]}
NOT_VN: Term = {"matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["vn"]}]}
EMPTY: Term = {}
PINNED: Term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


def both(*terms: Term) -> Term:
    return {"matchExpressions": [item for term in terms for item in term["matchExpressions"]]}


@pytest.mark.parametrize(
    ("have", "want", "expected"),
    [
        ([], [], []),
        ([A], [], [A]),
        ([], [S1, S2, NOT_VN], [S1, S2, NOT_VN]),
        ([A, B], [S1, NOT_VN], [both(A, S1), both(A, NOT_VN), both(B, S1), both(B, NOT_VN)]),
        ([A], [both(S1, VN), both(S2, VN)], [both(A, S1, VN), both(A, S2, VN)]),
        ([A, EMPTY], [VN], [both(A, VN), EMPTY]),
        ([A], [EMPTY], [EMPTY]),
        ([A], [A], [A]),
        ([PINNED], [VN], [{**PINNED, **VN}]),
    ],
)
def test_conjunction(have: list[Term], want: list[Term], expected: list[Term]) -> None:
    snapshot = copy.deepcopy((have, want))

    found = nodeselector.conjunction(have, want)

    assert found == expected
    assert (have, want) == snapshot


expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from("ab"),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from("12"), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from("ab"),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: {"key": key, "operator": operator, "values": [value]},
        st.sampled_from("ab"),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from("12"),
    ),
)
fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n1", "n2"]),
)
terms = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.one_of(st.none(), st.lists(expressions, max_size=2)),
            "matchFields": st.one_of(st.none(), st.lists(fields, max_size=1)),
        },
    ),
    max_size=3,
)
NODES = [
    ({key: value for key, value in (("a", a), ("b", b)) if value}, name)
    for a, b, name in itertools.product(["", "1", "2"], ["", "1", "2"], ["n1", "n2"])
]


def allows(selector: Sequence[Term], labels: Mapping[str, str], name: str) -> bool:
    """Whether a pod with this selector may run there; no terms are no condition."""
    return not selector or nodeselector.matches(selector, labels, name)


@given(terms, terms)
def test_a_conjunction_allows_the_nodes_that_both_allow(have: list[Term], want: list[Term]) -> None:
    found = nodeselector.conjunction(have, want)

    for labels, name in NODES:
        expected = allows(have, labels, name) and allows(want, labels, name)
        assert allows(found, labels, name) == expected


@given(terms, terms)
def test_asking_twice_is_asking_once(have: list[Term], want: list[Term]) -> None:
    once = nodeselector.conjunction(have, want)

    assert nodeselector.conjunction(once, want) == once


def reference(requirement: dict[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    present = key in labels
    answers = {
        "In": present and labels[key] in values,
        "NotIn": not present or labels[key] not in values,
        "Exists": present,
        "DoesNotExist": not present,
        "Gt": present and values and int(labels[key]) > int(values[0]),
        "Lt": present and values and int(labels[key]) < int(values[0]),
    }
    return bool(answers[requirement["operator"]])


@given(st.lists(expressions, max_size=3))
def test_a_term_matches_where_all_its_requirements_hold(requirements: list[Any]) -> None:
    for labels, name in NODES:
        expected = bool(requirements) and all(reference(one, labels) for one in requirements)
        term = {"matchExpressions": requirements}
        assert nodeselector.matches([term], labels, name) == expected


@pytest.mark.parametrize("value", ["", "x", "1x", "9" * 20, "9" * 63, "1.5"])
def test_what_is_no_integer_is_neither_greater_nor_less(value: str) -> None:
    for operator in ("Gt", "Lt"):
        term = {"matchExpressions": [{"key": "a", "operator": operator, "values": ["5"]}]}
        assert not nodeselector.matches([term], {"a": value}, "n1")


@factories.cases("part, requirement, problem")
def test_a_malformed_term_is_named(part: str, requirement: Term, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        nodeselector.matches([A, {part: [requirement]}], {}, "n1")

    assert f"nodeSelectorTerms[1].{part}" in str(refused.value)


def test_no_term_matches_nothing() -> None:
    assert not nodeselector.matches([], {}, "n1")
    assert not nodeselector.matches([EMPTY, {"matchExpressions": None}], {}, "n1")


EXPRESSIONS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from(["a", "b", "a In", "or", "x.io/y"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["1", "", "2", "1,2", "1 and b Exists", "-3"]), max_size=2),
)
PLAIN_TERMS = st.lists(
    st.builds(lambda items: {"matchExpressions": items}, st.lists(EXPRESSIONS, max_size=2))
    | st.sampled_from([EMPTY, PINNED]),
    max_size=2,
)


def not_in(key: str, *values: str) -> list[Term]:
    return [{"matchExpressions": [{"key": key, "operator": "NotIn", "values": list(values)}]}]


@given(PLAIN_TERMS, PLAIN_TERMS)
@example(not_in("a In"), not_in("a In", ""))
@example(not_in("a", "1", "2"), not_in("a", "1,2"))
def test_no_two_lists_of_terms_have_the_same_words(one: list[Term], two: list[Term]) -> None:
    words = nodeselector.text(one)

    if words is not None and words == nodeselector.text(two):
        assert [term["matchExpressions"] for term in one] == [
            term["matchExpressions"] for term in two
        ]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ([], ""),
        ([S1], "region In eu"),
        ([both(S1, B), NOT_VN], "region In eu and b Exists or t NotIn vn"),
        ([EMPTY], None),
        ([PINNED], None),
        ([A, {**S1, **PINNED}], None),
    ],
)
def test_terms_in_words(terms: list[Term], words: str | None) -> None:
    assert nodeselector.text(terms) == words
