"""Label selectors: their syntax, their meaning and their node-selector term."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liqoctl.forge import offloading
from liqoctl.forge.offloading import LabelRequirement


def test_the_term_of_the_documents_example() -> None:
    term = offloading.to_term(offloading.parse("region in (europe,us-west), !staging"))

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
        ("a", (LabelRequirement("a", "Exists"),)),
        ("!a", (LabelRequirement("a", "DoesNotExist"),)),
        ("a=1", (LabelRequirement("a", "In", ("1",)),)),
        ("a == 1", (LabelRequirement("a", "In", ("1",)),)),
        ("a=", (LabelRequirement("a", "In", ("",)),)),
        ("a!=1", (LabelRequirement("a", "NotIn", ("1",)),)),
        ("a notin(2, 1 ,1)", (LabelRequirement("a", "NotIn", ("1", "2")),)),
        ("a in ()", (LabelRequirement("a", "In", ("",)),)),
        ("a>1,a<5", (LabelRequirement("a", "Gt", ("1",)), LabelRequirement("a", "Lt", ("5",)))),
        ("in in (in)", (LabelRequirement("in", "In", ("in",)),)),
        (
            "topology.kubernetes.io/region=eu,x",
            (
                LabelRequirement("topology.kubernetes.io/region", "In", ("eu",)),
                LabelRequirement("x", "Exists"),
            ),
        ),
    ],
)
def test_syntax(text: str, expected: tuple[LabelRequirement, ...]) -> None:
    assert offloading.parse(text) == expected


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
        offloading.parse(text)


@given(st.text(alphabet="ab =!,()<>in1", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        asked = offloading.parse(text)
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
    asked = offloading.parse(text)
    values = (None, "", "1", "2")

    found = {
        value
        for value in values
        if offloading.matches(asked, {} if value is None else {"a": value})
    }

    assert found == expected


def test_all_requirements_must_hold() -> None:
    asked = offloading.parse("a=1,b=1")

    held = [
        offloading.matches(asked, {"a": a, "b": b}) for a, b in itertools.product("12", repeat=2)
    ]

    assert held == [True, False, False, False]
