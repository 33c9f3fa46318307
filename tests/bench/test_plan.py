"""A run that has little time repeats less, and says so; nothing is left out altogether."""

import pytest

from bench.plan import SHARES, Plan
from bench.settings import SUITES

ARMS = ["ideal", "ours"]
MINUTE_S = 60.0


class Clock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def done(plan: Plan, clock: Clock, seconds: float, repetitions: int = 5) -> int:
    """Run as many repetitions of ``seconds`` as ``plan`` lets; return how many."""
    count = 0
    for _ in plan.rounds("burst", ARMS, repetitions):
        clock.now += seconds
        count += 1
    return count


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_arms_run_forwards_then_backwards(clock: Clock) -> None:
    rounds = list(Plan(1.0, ["burst"], clock).rounds("burst", ["a", "b", "c"], 2))

    assert rounds == [(0, ["a", "b", "c"]), (1, ["c", "b", "a"])]


def test_all_repetitions_run_while_there_is_time(clock: Clock) -> None:
    plan = Plan(1.0, ["burst"], clock)

    assert done(plan, clock, 10.0) == 5
    assert plan.cut == []


def test_no_repetition_begins_that_would_not_fit(clock: Clock) -> None:
    plan = Plan(1.0, ["burst"], clock)

    assert done(plan, clock, 25.0) == 2
    assert plan.cut == ["burst: 2 of 5 repetitions"]


def test_the_first_repetition_runs_in_any_case(clock: Clock) -> None:
    plan = Plan(1.0, ["burst"], clock)
    clock.now = 10 * MINUTE_S

    assert done(plan, clock, 1.0) == 1


def test_a_suite_leaves_the_others_their_time(clock: Clock) -> None:
    plan = Plan(2.0, ["offload", "burst"], clock)
    plan.enter("offload")

    whole = 2 * MINUTE_S * SHARES["offload"] / (SHARES["offload"] + SHARES["burst"])

    assert done(plan, clock, 1.0, repetitions=1000) <= whole


def test_what_a_suite_leaves_the_next_one_has(clock: Clock) -> None:
    plan = Plan(2.0, ["offload", "burst"], clock)
    plan.enter("offload")
    plan.enter("burst")

    assert done(plan, clock, 1.0, repetitions=1000) == 2 * MINUTE_S


def test_every_suite_has_a_share() -> None:
    assert tuple(SHARES) == SUITES
