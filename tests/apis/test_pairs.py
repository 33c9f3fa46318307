"""Twins: where they are and how they are known."""

import pytest

from apis.objects import Key
from apis.offloading import MappedNamespace
from liqoctl.forge import offloading

PAIR = MappedNamespace("rome", "milan", "foo", "foo-rome")


def test_twins_have_the_same_name_in_the_other_namespace() -> None:
    original = Key("foo", "web")

    assert PAIR.twin_of(original) == Key("foo-rome", "web")
    assert PAIR.original_of(PAIR.twin_of(original)) == original


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"}, True),
        ({"offloading.liqo.io/origin": "turin", "offloading.liqo.io/destination": "milan"}, False),
        ({"offloading.liqo.io/origin": "rome"}, False),
        (None, False),
    ],
)
def test_only_its_own_objects_are_reflected(labels: dict[str, str] | None, expected: bool) -> None:  # noqa: FBT001  # a table
    assert PAIR.reflects({"metadata": {"name": "web", "labels": labels}}) == expected
    assert offloading.matches(offloading.parse(PAIR.selector()), labels or {}) == expected


def test_what_carries_its_labels_is_reflected() -> None:
    assert PAIR.reflects({"metadata": {"name": "web", "labels": {**PAIR.labels(), "app": "web"}}})
