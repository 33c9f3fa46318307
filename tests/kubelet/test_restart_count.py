"""How often a pod was made again follows from what is noted on it, whatever that is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import keys
from apis.objects import Object
from kubelet.pods import status
from tests.kubelet.worlds import running


def local(note: str | None, restarts: int = 0) -> Object:
    notes = {} if note is None else {keys.REMOTE_POD: note}
    return {"metadata": {"annotations": notes}, "status": running(restarts=restarts)}


def remote(uid: str = "b", restarts: int = 0) -> Object:
    return {"metadata": {"uid": uid}, "status": running(restarts=restarts)}


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("b 0", 0),
        ("b 5", 5),
        ("b 5 DisruptionTarget", 5),
        ("a 5 DisruptionTarget", 6),
        ("a 0", 1),
        ("a 5", 6),
        ("a 2147483647", 2**31 - 1),
        ("a 9999999999", 2**31 - 1),
        (None, 2),
        ("", 2),
        ("b", 2),
        ("b -1", 2),
        ("b many", 2),
        ("b \u0663", 2),
        ("b 99999999999", 2),
    ],
)
def test_a_note_counts_and_what_is_none_leaves_it_to_the_counts(
    note: str | None, expected: int
) -> None:
    assert status.restarts(local(note, restarts=3), remote(restarts=1)) == expected


def test_a_pod_that_never_ran_was_not_restarted() -> None:
    pod = {**local("a 3"), "status": {"phase": "Pending"}}

    assert status.restarts(pod, remote()) == 0
    assert status.note(pod, remote()) == {keys.REMOTE_POD: "b 0"}


def test_what_is_noted_is_not_noted_again() -> None:
    assert status.note(local("b 4"), remote()) == {}
    assert status.note(local("b 4"), None) == {}
    assert status.note(local("a 4"), remote()) == {keys.REMOTE_POD: "b 5"}


@given(st.text(max_size=2000))
def test_a_note_is_short_and_read_again_whatever_a_provider_calls_its_pods(uid: str) -> None:
    noted = status.note(local("a 1"), remote(uid))[keys.REMOTE_POD] if uid != "a" else "a 1"

    assert len(noted) < 100
    noted.encode()
    if uid:
        assert status.restarts(local(noted), remote(uid)) == int(noted.split(" ")[-1])
