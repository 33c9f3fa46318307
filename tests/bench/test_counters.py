"""Processes, requests and bytes are counted as what they are."""

import os
from typing import Any

import pytest

from bench import counters
from bench.counters import Component
from bench.result import Request
from sandbox.audit import Call


def call(**changes: Any) -> Call:
    fields: dict[str, Any] = {
        "agent": "pyliqo-kubelet/0.1.0",
        "user": "somebody",
        "verb": "patch",
        "resource": "pods/status",
        "namespace": "bench-ours",
        "name": "web",
        "code": 200,
        "dry_run": False,
        **changes,
    }
    return Call(**fields)


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000000Z"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/somewhere/kube-apiserver", "--etcd-servers=x"], "kube-apiserver"),
        (["/somewhere/kubelet", "--config=x"], "node"),
        (["python3", "-m", "kubelet", "--node-name=x"], "kubelet"),
        (["python3", "-m", "controllers.metricagent", "--port=8443"], "metric-agent"),
        (["python3", "-m", "http.server"], "node"),
        (["/venv/bin/python", "-m", "sandbox.simulated", "--nodes=1"], "simulated-kubelet"),
        (["sh", "-c", "sleep"], "node"),
        ([], "node"),
    ],
)
def test_a_process_is_known_by_its_command(argv: list[str], name: str) -> None:
    assert counters.name_of(argv) == name


def test_a_process_of_ours_that_is_not_listed_is_an_error() -> None:
    """The metric agents were in no figure for months."""
    with pytest.raises(counters.UnknownProcessError, match="-m controllers"):
        counters.name_of(["python3", "-m", "controllers.new"])
    with pytest.raises(counters.UnknownProcessError, match="pyliqo-new"):
        counters.is_ours("pyliqo-new")


def test_a_process_has_cpu_time_and_memory() -> None:
    me = Component("load", "", os.getpid())

    assert counters.cpu_s([me])[me] > 0
    assert counters.pss_mib([me])[me] > 1


def test_a_process_that_ended_counts_nothing() -> None:
    ended = Component("webhook", "rome", 2**22 + 1)

    assert counters.cpu_s([ended])[ended] == 0
    assert counters.pss_mib([ended])[ended] == 0
    assert counters.argv(ended.pid) == []


def test_components_are_summed_over_processes() -> None:
    both = {Component("webhook", "rome", 1): 1.5, Component("webhook", "milan", 2): 2.0}

    assert counters.by_name(both) == {"webhook": 3.5}


def test_interfaces_count_both_ways() -> None:
    text = """Inter-|   Receive                         |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:     100       1    0    0    0     0          0         0      100       1    0 0 0 0 0 0
uplink:    1000      10    0    0    0     0          0         0     2000      10    0 0 0 0 0 0
"""

    assert dict(counters.interfaces(text)) == {"lo": 200, "uplink": 3000}


def test_requests_are_counted_by_agent_verb_and_resource() -> None:
    calls = [call(), call(), call(code=409), call(namespace="journey-1")]

    assert counters.requests("rome", calls) == [
        Request("rome", "pyliqo-kubelet", "patch", "pods/status", 2),
        Request("rome", "pyliqo-kubelet", "patch (409)", "pods/status", 1),
    ]


def test_simulated_nodes_are_not_ours() -> None:
    assert counters.is_ours("pyliqo-kubelet")
    assert not counters.is_ours("pyliqo-simulated")
    assert not counters.is_ours("kube-scheduler")


def test_a_refused_write_and_a_review_are_no_writes() -> None:
    assert counters.is_write(Request("rome", "pyliqo-kubelet", "patch", "pods/status", 1))
    assert not counters.is_write(Request("rome", "pyliqo-kubelet", "patch (409)", "pods", 1))
    assert not counters.is_write(
        Request("rome", "pyliqo-kubelet", "create", "subjectaccessreviews", 1)
    )


def test_a_write_answered_with_an_old_version_changed_nothing() -> None:
    calls = [
        call(received=at(1), completed=at(2), version=10),
        call(received=at(3), completed=at(4), version=10),
        call(received=at(5), completed=at(6), version=11),
        call(received=at(7), completed=at(8), version=11, agent="kubectl/1"),
    ]

    (line,) = counters.no_ops(calls)

    assert "pyliqo-kubelet patch pods/status bench-ours/web" in line


def test_writes_at_the_same_time_are_not_taken_for_idle() -> None:
    calls = [
        call(name="a", received=at(1), completed=at(5), version=12),
        call(name="b", received=at(1), completed=at(4), version=11),
    ]

    assert counters.no_ops(calls) == []
