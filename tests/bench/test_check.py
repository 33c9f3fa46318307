"""The guard of regressions: what grew is named, and today nothing has grown."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import check, checks
from bench.counters import Component
from bench.observe import Life
from bench.plan import SHARES, Plan
from bench.result import Request
from bench.settings import SUITES
from kube.errors import ForbiddenError, NotReachableError
from sandbox.audit import Call

PHASE = "20 pods up to Running"


def call(
    verb: str = "patch", resource: str = "pods/status", namespace: str = "demo", name: str = "web"
) -> Call:
    agent = "pyliqo-kubelet/0.1.0"
    return Call(agent, "somebody", verb, resource, namespace, name, 200, dry_run=False)


def test_what_grew_is_named_with_agent_verb_and_resource() -> None:
    counted = {PHASE: {"pyliqo-kubelet patch pods/status": 60}}
    expected = {PHASE: {"pyliqo-kubelet patch pods/status": 40}}

    (line,) = check.excess(counted, expected)

    assert "pyliqo-kubelet patch pods/status" in line
    assert PHASE in line
    assert "60" in line


@pytest.mark.parametrize("expected", [0, 20, 40])
def test_one_write_more_a_pod_is_one_too_many(expected: int) -> None:
    what = "pyliqo-kubelet patch pods/status"
    before = {PHASE: {what: expected}}

    assert check.excess({PHASE: {what: expected + check.PODS}}, before)


def test_a_write_more_for_some_pods_is_a_matter_of_who_is_faster() -> None:
    what = "pyliqo-kubelet patch pods/status"

    assert check.excess({PHASE: {what: 40 + check.PODS // 2}}, {PHASE: {what: 40}}) == []


def test_a_read_that_nobody_expected_is_told_when_every_pod_makes_two() -> None:
    assert check.excess({PHASE: {"pyliqo-kubelet list pods": 2 * check.PODS}}, {})


def test_fewer_calls_are_fine() -> None:
    expected = {PHASE: {"pyliqo-kubelet patch pods/status": 40}}

    assert check.excess({PHASE: {"pyliqo-kubelet patch pods/status": 20}}, expected) == []


def test_only_our_calls_in_the_scene_count_and_watches_do_not() -> None:
    calls = [call(), call(verb="watch"), call(namespace="elsewhere"), call(resource="leases")]

    assert check.counts(calls, ["demo"]) == {"pyliqo-kubelet patch pods/status": 1}


def test_events_of_a_pod_that_a_busy_machine_started_late_do_not_count() -> None:
    calls = [call(resource="events", name=f"{pod}.18ab.0f") for pod in ("web-1", "web-11")]

    assert check.counts(calls, ["demo"], {"web-1"}) == {"pyliqo-kubelet patch events": 1}


def test_a_write_is_allowed_in_whole_calls_for_each_object() -> None:
    assert check.ceiling("pyliqo-kubelet patch pods/status", 17) == 20
    assert check.ceiling("pyliqo-kubelet patch pods/status", 41) == 40


def test_reads_depend_on_who_is_faster() -> None:
    assert check.ceiling("pyliqo-kubelet get pods", 40) == 60


def test_events_count_in_whichever_phase_they_are_written() -> None:
    said, changed = "pyliqo-reflector create events", "pyliqo-reflector patch configmaps"
    counted = {"created": {said: 15, changed: 20}, "changed": {said: 5, changed: 20}}

    assert check.apart(counted) == {
        "created": {changed: 20}, "changed": {changed: 20}, check.EVENTS: {said: 20},
    }  # fmt: skip


def test_what_was_allowed_stays_allowed() -> None:
    write, read, gone = "a patch pods", "a get pods", "a list pods"

    allowed = check.allowance({PHASE: {write: 20, read: 50}}, {PHASE: {write: 40, gone: 20}})

    assert allowed == {PHASE: {write: 40, read: 80, gone: 20}}
    assert check.excess({PHASE: {write: 20, read: 50}}, allowed) == []


@pytest.mark.journey
async def test_no_process_asks_for_more_than_it_did(kubeconfigs: Mapping[str, Path]) -> None:
    counted = await check.count(kubeconfigs)

    assert check.excess(counted, check.read()) == []


# What voids a run.


def life(*, created: float = 1.0, ready: float | None = 2.0, gone: float | None = None) -> Life:
    return Life("1", created, ready=ready, gone=gone)


def test_all_that_should_run_runs() -> None:
    assert checks.arrived(2, {"a": life(), "b": life()}, {"a": life(), "b": life()}) == []


def test_a_pod_that_is_not_ready_is_told() -> None:
    assert checks.arrived(1, {"a": life(ready=None)}) == ["0 of 1 pods became ready"]


def test_twins_without_each_other_are_told() -> None:
    lost, foreign = checks.arrived(1, {"a": life()}, {"b": life()})

    assert "without a remote pod: a" in lost
    assert "without a local one: b" in foreign


def test_a_local_pod_never_runs_before_its_remote_one() -> None:
    (line,) = checks.arrived(1, {"a": life(ready=2.0)}, {"a": life(created=4.0)})

    assert "before" in line


def test_two_watches_may_tell_in_another_order_than_it_was() -> None:
    assert checks.arrived(1, {"a": life(ready=2.0)}, {"a": life(created=2.1)}) == []


def test_what_is_left_is_told() -> None:
    assert checks.gone({"a": life(gone=3.0)}) == []
    assert checks.gone({"a": life()}) == ["left behind: a"]


def test_many_names_are_told_in_short() -> None:
    assert checks.doubled(["a", "b", "c", "d", "e"]) == ["made twice: a, b, c and 2 more"]


def test_a_process_of_ours_that_ended_is_told() -> None:
    ours, theirs = Component("kubelet", "rome", 7), Component("node", "rome", 8)

    (line,) = checks.restarts([ours, theirs], [])

    assert "kubelet of rome" in line


def test_a_refused_write_of_ours_is_told_but_a_lost_race_is_not() -> None:
    def request(verb: str, agent: str = "pyliqo-kubelet") -> Request:
        return Request("rome", agent, verb, "pods", 1)

    assert checks.refusals([request("patch (403)")])
    assert checks.refusals([request("patch (409)"), request("patch")]) == []
    assert checks.refusals([request("patch (403)", "kubectl")]) == []


def test_the_last_state_has_to_arrive() -> None:
    have = life()
    have.latest = "2"

    assert checks.delivered({"a": "2"}, {"a": have}) == []
    assert checks.delivered({"a": "3"}, {"a": have}) == ["the last state was not delivered: a"]


def test_a_log_that_lacks_a_pod_is_told() -> None:
    made = Request("rome", "kube-controller-manager", "create", "pods", 10)

    assert checks.logged(10, [made]) == []
    assert checks.logged(20, [made]) == ["the audit logs show 10 of 20 pods"]


# A run that has little time repeats less, and says so; nothing is left out altogether.


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


# What the command says of a failure.


def test_the_first_failure_is_told_before_that_of_the_cleanup() -> None:
    failure = RuntimeError("the namespace stays")
    failure.__context__ = NotReachableError("no answer")

    assert command.told(failure) == "no answer; then: the namespace stays"


def test_why_the_cleanup_failed_does_not_hide_the_first_failure() -> None:
    timeout = TimeoutError()
    timeout.__cause__ = timeout.__context__ = asyncio.CancelledError()
    timeout.__context__.__context__ = ForbiddenError("the policy says no")
    failure = RuntimeError("the namespace stays")
    failure.__cause__ = failure.__context__ = timeout

    assert command.told(failure) == "the policy says no; then: the namespace stays"


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["check", "--nonsense"])
    assert "usage" in capsys.readouterr().err
