"""The guard of regressions: what grew is named, and today nothing has grown."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import check
from sandbox.audit import Call

PHASE = "20 pods up to Running"


def call(verb: str = "patch", resource: str = "pods/status", namespace: str = "demo") -> Call:
    agent = "pyliqo-kubelet/0.1.0"
    return Call(agent, "somebody", verb, resource, namespace, "web", 200, dry_run=False)


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
