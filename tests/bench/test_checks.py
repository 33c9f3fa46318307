"""What voids a run."""

from bench import checks
from bench.counters import Component
from bench.observe import Life
from bench.result import Request


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
