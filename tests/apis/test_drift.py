"""What counts as drift, and what is only somebody else's addition."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import apply, objects
from tests import factories


@factories.cases("found, wanted, expected")
def test_keeps(found: Any, wanted: Any, *, expected: bool) -> None:
    assert apply.keeps(found, wanted) is expected


SENT = apply.stamped({"metadata": {"labels": {"app": "web"}}, "data": {"a": "1"}})


@pytest.mark.parametrize(
    ("changes", "current"),
    [
        ({}, True),
        ({"kind": "ConfigMap"}, True),
        ({"data": {"a": "2"}}, False),
        ({"data": {}}, False),
        ({"data": {"a": "1", "theirs": "1"}}, True),
        ({"metadata": {"labels": {"app": "web"}}}, False),
    ],
    ids=["as sent", "completed", "changed", "lost", "added to", "not by us"],
)
def test_what_was_sent_and_is_still_there_is_current(
    *, changes: dict[str, Any], current: bool
) -> None:
    assert apply.is_current(SENT, SENT, {**SENT, **changes}) is current


def test_what_is_no_more_wanted_is_not_current() -> None:
    wanted = apply.stamped({"metadata": {"labels": {"app": "web"}}})

    assert not apply.is_current(wanted, wanted, SENT)


# Conditions: one per type, and a transition time that moves with the status.


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def test_a_new_condition_is_appended() -> None:
    found = objects.set_condition(None, "Ready", "True", "Up", "all is well", NOW)

    assert found == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Up",
            "message": "all is well",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]


def test_the_time_moves_only_with_the_status() -> None:
    first = objects.set_condition([], "Ready", "True", "Up", "", NOW)

    same = objects.set_condition(first, "Ready", "True", "StillUp", "", LATER)
    other = objects.set_condition(first, "Ready", "False", "Down", "", LATER)

    assert same[0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert same[0]["reason"] == "StillUp"
    assert other[0]["lastTransitionTime"] == "2026-01-02T03:05:05Z"


def test_places_and_unknown_fields_stay_and_doubles_go() -> None:
    before: list[dict[str, Any]] = [
        {"type": "A", "status": "True"},
        {"type": "B", "status": "True", "lastTransitionTime": "t", "observedGeneration": 3},
        {"type": "C", "status": "True"},
        {"type": "B", "status": "False"},
    ]
    snapshot = copy.deepcopy(before)

    found = objects.set_condition(before, "B", "True", "r", "m", NOW)

    assert [one["type"] for one in found] == ["A", "B", "C"]
    assert found[1]["observedGeneration"] == 3
    assert found[1]["lastTransitionTime"] == "t"
    assert before == snapshot


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["True", "False"]))))
def test_setting_the_same_again_changes_nothing(history: list[tuple[str, str]]) -> None:
    found: list[dict[str, Any]] = []
    for type_, status in history:
        found = objects.set_condition(found, type_, status, "r", "m", NOW)
        assert objects.set_condition(found, type_, status, "r", "m", LATER) == found
        assert objects.is_condition_true(found, type_) == (status == "True")

    types = [one["type"] for one in found]
    assert len(types) == len(set(types))


def test_a_condition_goes() -> None:
    found = objects.set_condition(None, "Ready", "True", "Up", "", NOW)

    assert objects.without_condition(found, "Ready") == []
    assert objects.find_condition(found, "Other") is None
    assert not objects.is_condition_true(None, "Ready")
