"""JSON Patch operations against plain assignment."""

import copy
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from apis.objects import Object
from webhook import admission

NAMES = st.sampled_from(["spec", "a/b", "c~d", "x"])
OBJECTS = st.recursive(
    st.none() | st.integers() | st.text("ab/~", max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ROOTS = st.dictionaries(NAMES, OBJECTS, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


def assigned(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    made = copy.deepcopy(obj)
    inner = made
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
    inner[path[-1]] = value
    return made


def is_plain(obj: Object, path: tuple[str, ...]) -> bool:
    above = [admission.find(obj, path[:depth]) for depth in range(1, len(path))]
    return all(found is None or isinstance(found, dict) for found in above)


@given(ROOTS, PATHS, st.integers() | st.lists(st.integers(), max_size=2))
def test_put_is_assignment(obj: Object, path: tuple[str, ...], value: Any) -> None:
    if not is_plain(obj, path):
        return
    changes = admission.put(obj, path, value)

    assert jsonpatch.apply_patch(obj, changes) == assigned(obj, path, value)
    assert admission.put(assigned(obj, path, value), path, value) == []


@given(ROOTS, PATHS, st.integers(), st.integers())
def test_what_is_applied_is_what_others_apply(
    obj: Object, path: tuple[str, ...], value: int, item: int
) -> None:
    if not is_plain(obj, path):
        return
    before = copy.deepcopy(obj)
    changes = admission.put(obj, path, [value])

    made = admission.applied(obj, changes)
    more = admission.append(made, path, item)

    assert made == jsonpatch.apply_patch(obj, changes)
    assert admission.applied(made, more) == jsonpatch.apply_patch(made, more)
    assert obj == before


def test_append_makes_the_list_and_what_is_above_it() -> None:
    made = jsonpatch.apply_patch({"spec": {}}, admission.append({"spec": {}}, ("spec", "list"), 1))

    assert made == {"spec": {"list": [1]}}
    assert jsonpatch.apply_patch(made, admission.append(made, ("spec", "list"), 2)) == {
        "spec": {"list": [1, 2]}
    }


def test_a_null_counts_as_missing() -> None:
    sent = {"spec": {"affinity": None, "tolerations": None}}

    changes = [
        *admission.append(sent, ("spec", "tolerations"), {}),
        *admission.put(sent, ("spec", "affinity", "nodeAffinity"), {"x": 1}),
    ]

    assert jsonpatch.apply_patch(sent, changes) == {
        "spec": {"affinity": {"nodeAffinity": {"x": 1}}, "tolerations": [{}]}
    }
