"""Label selectors: their syntax, their meaning and their node-selector term."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liqoctl.forge import labelselector
from liqoctl.forge.labelselector import Requirement


def test_the_term_of_the_documents_example() -> None:
    term = labelselector.to_term(labelselector.parse("region in (europe,us-west), !staging"))

    assert term == {
        "matchExpressions": [
            {"key": "region", "operator": "In", "values": ["europe", "us-west"]},
            {"key": "staging", "operator": "DoesNotExist"},
        ]
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("  ", ()),
        ("a", (Requirement("a", "Exists"),)),
        ("!a", (Requirement("a", "DoesNotExist"),)),
        ("a=1", (Requirement("a", "In", ("1",)),)),
        ("a == 1", (Requirement("a", "In", ("1",)),)),
        ("a=", (Requirement("a", "In", ("",)),)),
        ("a!=1", (Requirement("a", "NotIn", ("1",)),)),
        ("a notin(2, 1 ,1)", (Requirement("a", "NotIn", ("1", "2")),)),
        ("a in ()", (Requirement("a", "In", ("",)),)),
        ("a>1,a<5", (Requirement("a", "Gt", ("1",)), Requirement("a", "Lt", ("5",)))),
        ("in in (in)", (Requirement("in", "In", ("in",)),)),
        (
            "topology.kubernetes.io/region=eu,x",
            (
                Requirement("topology.kubernetes.io/region", "In", ("eu",)),
                Requirement("x", "Exists"),
            ),
        ),
    ],
)
def test_syntax(text: str, expected: tuple[Requirement, ...]) -> None:
    assert labelselector.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        ",", "a,", "a, ", ",a", "a,,b", "a b", "a in b", "a in (b", "a in b)", "a=b=c", "!a=b",
        "=b", "a>x", "a>", "a=b c", "a in (b))", "-a", "a/b/c", "a=-b", "UPPER.example/x=1",
        "a=" + "b" * 64, "(a)", "a!b", "!",
    ],
)  # fmt: skip
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|does not"):
        labelselector.parse(text)


@given(st.text(alphabet="ab =!,()<>in1", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        asked = labelselector.parse(text)
    except ValueError:
        return
    assert bool(asked) == bool(text.strip())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"1"}),
        ("a!=1", {None, "", "2"}),
        ("a in (1,2)", {"1", "2"}),
        ("a notin (1,2)", {None, ""}),
        ("a", {"", "1", "2"}),
        ("!a", {None}),
        ("a>1", {"2"}),
        ("a<2", {"1"}),
        ("a,a!=1", {"", "2"}),
        ("", {None, "", "1", "2"}),
    ],
)
def test_what_matches(text: str, expected: set[str | None]) -> None:
    asked = labelselector.parse(text)
    values = (None, "", "1", "2")

    found = {
        value
        for value in values
        if labelselector.matches(asked, {} if value is None else {"a": value})
    }

    assert found == expected


def test_all_requirements_must_hold() -> None:
    asked = labelselector.parse("a=1,b=1")

    held = [
        labelselector.matches(asked, {"a": a, "b": b}) for a, b in itertools.product("12", repeat=2)
    ]

    assert held == [True, False, False, False]
