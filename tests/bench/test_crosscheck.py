"""Audit log and API server have to agree on what was asked."""

from bench import crosscheck
from bench.crosscheck import Difference
from sandbox.audit import Call

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="",resource="pods",subresource="",verb="POST"} 100
apiserver_request_total{code="409",group="",resource="pods",subresource="",verb="POST"} 3
apiserver_request_total{code="200",group="",resource="pods",subresource="status",verb="APPLY"} 7
apiserver_request_total{code="0",group="",resource="pods",subresource="",verb="WATCH"} 9
apiserver_request_total{code="200",group="",resource="leases",subresource="",verb="PUT"} 50
apiserver_request_terminations_total{code="200",resource="pods",subresource="",verb="POST"} 5
"""


def call(verb: str = "create", resource: str = "pods") -> Call:
    return Call("agent", "somebody", verb, resource, "demo", "web", 201, dry_run=False)


def test_the_counter_is_summed_over_answers_as_the_log_names_verbs() -> None:
    assert crosscheck.counted(METRICS) == {("create", "pods"): 103, ("patch", "pods/status"): 7}


def test_the_log_counts_everybody_but_no_watches() -> None:
    calls = [call(), call(), call("watch"), call("patch", "pods/status"), call("get", "leases")]

    assert crosscheck.logged(calls) == {("create", "pods"): 2, ("patch", "pods/status"): 1}


def test_what_one_of_the_two_lacks_is_a_difference() -> None:
    log = crosscheck.logged([call()] * 100)
    before = crosscheck.counted("")
    after = crosscheck.counted(METRICS)

    found = crosscheck.differences(log, before, after)

    assert found == [Difference("create pods", 100, 103), Difference("patch pods/status", 0, 7)]


def test_a_few_requests_may_have_been_under_way() -> None:
    few = {"rome": [Difference("create pods", 990, 1000), Difference("get pods", 0, 15)]}

    assert crosscheck.judged(few) == (0.01, [])


def test_a_log_that_lacks_more_is_named() -> None:
    part, wrong = crosscheck.judged({"rome": [Difference("create pods", 900, 1000)]})

    assert part == 0.1
    assert wrong == ["rome: create pods: 900 in the audit log, 1000 by the API server"]
