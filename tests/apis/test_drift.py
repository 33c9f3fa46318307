"""What counts as drift, and what is only somebody else's addition."""

from typing import Any

import pytest

from apis import apply


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1}, True, id="an addition is none"),
        pytest.param({"a": 2}, {"a": 1}, False, id="another value"),
        pytest.param({}, {"a": 1}, False, id="a missing field"),
        pytest.param({}, {"a": {}}, True, id="an empty map may be absent"),
        pytest.param({}, {"a": []}, True, id="an empty list may be absent"),
        pytest.param({"a": [1]}, {"a": []}, False, id="an item too many"),
        pytest.param({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True, id="defaults in items"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="another order"),
        pytest.param({"a": "x"}, {"a": {"b": 1}}, False, id="no map"),
        pytest.param(None, {"a": 1}, False, id="nothing at all"),
    ],
)
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
