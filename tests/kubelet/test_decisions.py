"""Which steps a cache that is behind may not be believed for. Source: docs/parity.md C-30."""

import pytest

from apis import keys, objects
from apis.objects import Object
from kubelet.pods.decide import FallBack, PodSnapshot, PodStep, fall_back, rests_on_absence
from kubelet.pods.mapping import MappingState
from tests.factories import pod
from tests.kubelet.worlds import NODE, NOW, PAIR, TWIN, WEB, running


def shadow(phase: str) -> Object:
    return objects.named(keys.SHADOW_POD, TWIN, status={"phase": phase})


@pytest.mark.parametrize(
    ("step", "phase", "has_remote", "rests"),
    [
        (PodStep.DELETE_SHADOW, "Running", True, False),  # read live by itself, and so is the next
        (PodStep.DELETE_LOCAL, "", False, False),
        (PodStep.OFFLOAD, "", False, False),  # the server tells of a taken name
        (PodStep.FOLLOW, "Running", True, False),
        (PodStep.FOLLOW, "", False, False),  # its Pod is not created yet
        (PodStep.FOLLOW, "Running", False, False),  # its Pod is created again
        (PodStep.FOLLOW, "Succeeded", True, False),
        (PodStep.FOLLOW, "Succeeded", False, True),
        (PodStep.FOLLOW, "Failed", False, True),
        (PodStep.WATCH_END, "", False, False),
        (PodStep.REFUSE, "", True, False),
        (PodStep.WAIT, "", True, False),
        (PodStep.REST, "", False, False),
    ],
)
def test_what_cannot_be_taken_back_rests_on_what_is_not_there(
    step: PodStep, phase: str, *, has_remote: bool, rests: bool
) -> None:
    remote = pod(*TWIN, status=running()) if has_remote else None
    observed = PodSnapshot(pod(*WEB), shadow(phase), remote, PAIR, NODE)

    assert rests_on_absence(step, observed) is rests


CREATED = "2026-01-31T11:59:00Z"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
OFFLOADED = {"labels": {keys.SHADOW_POD_LABEL: "true"}}


@pytest.mark.parametrize(
    ("metadata", "status", "withdrawn", "waiting"),
    [
        ({"deletionTimestamp": CREATED}, {}, FallBack.LET_GO, FallBack.LET_GO),
        ({}, {"phase": "Succeeded"}, FallBack.REST, FallBack.REST),
        ({}, running(), FallBack.ABORT, FallBack.REST),
        ({**OFFLOADED, "ownerReferences": [JOB]}, {}, FallBack.ABORT, FallBack.REST),
        (OFFLOADED, {}, FallBack.BACK_OFF, FallBack.BACK_OFF),
        (
            {"creationTimestamp": "2026-01-31T11:59:55Z"},
            {},
            FallBack.BE_PATIENT,
            FallBack.BE_PATIENT,
        ),
        ({}, {}, FallBack.BACK_OFF, FallBack.BACK_OFF),
    ],
)
def test_only_a_namespace_that_is_withdrawn_ends_a_pod(
    metadata: Object, status: Object, withdrawn: FallBack, waiting: FallBack
) -> None:
    local = pod(*WEB, metadata={"creationTimestamp": CREATED, **metadata}, status=status)

    assert fall_back(local, MappingState.WITHDRAWN, NOW) is withdrawn
    assert fall_back(local, MappingState.WAITING, NOW) is waiting
