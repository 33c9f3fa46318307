"""What is next for a pod: whom a cache may be believed, who is rejected, who may not be here.

Source: docs/parity.md C-30, H9, § 3.1.
"""

import datetime as dt
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading
from apis.validation import DeniedError
from controllers.offloading.placement import forge as controllers
from kube.client import ClusterClient
from kubelet.pods import decide
from kubelet.pods.decide import FallBack, PodSnapshot, PodStep, fall_back, forbids, rests_on_absence
from kubelet.pods.mapping import MappingState
from tests import factories
from tests.factories import node, pod, pod_spec
from tests.journeys import world as journey
from tests.kubelet import worlds
from tests.kubelet.worlds import NODE, NOW, PAIR, TWIN, WEB, running
from tests.scheduling import keep
from tests.webhook.reviews import offloading
from tests.world import existing
from webhook.rules import pods


def shadow_in_phase(phase: str) -> Object:
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
    observed = PodSnapshot(pod(*WEB), shadow_in_phase(phase), remote, PAIR, NODE)

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


# Pods that nobody scheduled are rejected as by a kubelet. Source: docs/parity.md H9 ---------------

ALLOCATABLE: Final[Object] = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}}}


def born(second: int, cpu: str = "1", **rest: Any) -> Object:
    created = f"2026-01-31T12:00:{second:02}Z"
    (main,) = factories.pod_spec()["containers"]
    spec = {"containers": [{**main, "resources": {"requests": {"cpu": cpu}}}]}
    metadata = {"uid": f"u{second}", "creationTimestamp": created}
    return factories.pod("shop", f"web-{second}", spec=spec, metadata=metadata, **rest)


def lacks(local: Object, *others: Object, node: Object | None = ALLOCATABLE) -> str:
    claims = filter(None, map(decide.claim, others))
    return decide.lacking(local, node, claims)


@pytest.mark.parametrize(
    ("cpu", "others", "lacking"),
    [
        ("4", [], ""),
        ("4001m", [], "cpu"),
        ("1000000", [], "cpu"),
        ("3", [born(1)], ""),
        ("3", [born(1), born(2)], "cpu"),
        ("4", [born(30)], ""),
        ("4", [born(1, status={"phase": "Failed"})], ""),
        ("0", [born(1), born(2)], ""),
        ("0", [born(1), born(2), born(3)], "pods"),
    ],
)
def test_who_was_first_has_the_room(cpu: str, others: list[Object], lacking: str) -> None:
    assert lacks(born(20, cpu), *others) == lacking


def test_what_the_node_does_not_have_is_lacking() -> None:
    pod = born(20)
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    requests["nvidia.com/gpu"] = "1"
    assert lacks(pod) == "nvidia.com/gpu"


def test_where_nobody_says_what_the_node_has_nobody_is_rejected() -> None:
    assert lacks(born(20, "1000"), node=None) == lacks(born(20, "1000"), node={}) == ""


@pytest.mark.parametrize("seconds", [9, 11])
def test_a_namespace_has_ten_seconds_to_be_offloaded(seconds: int) -> None:
    now = worlds.NOW + dt.timedelta(seconds=seconds)
    found = decide.rejection(born(0), "it is not offloaded", "", now)
    assert (found is not None) is (seconds > 10)


@pytest.mark.cluster
async def test_a_binding_says_that_the_pod_was_scheduled_and_a_node_name_does_not(
    scheduled_cluster: ClusterClient,
) -> None:
    node = objects.named(keys.NODE, Key("", "plain"))
    await keep(scheduled_cluster, node)
    spec = factories.pod_spec()
    made = [
        await scheduled_cluster.create(keys.POD, factories.pod("default", name, spec=one))
        for name, one in (("bound", spec), ("named", {**spec, "nodeName": "plain"}))
    ]
    bound = await journey.until_one(
        scheduled_cluster,
        keys.POD,
        objects.key_of(made[0]),
        lambda pod: bool(pod["spec"].get("nodeName")),
    )
    named = await existing(scheduled_cluster, keys.POD, objects.key_of(made[1]))
    assert objects.is_condition_true(bound["status"]["conditions"], "PodScheduled")
    assert not named["status"].get("conditions")
    assert [decide.came_by_name(one) for one in (bound, named)] == [False, True]


# What the namespace does not allow is not run, however it was bound -------------------------------

LABELS = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, "region": "eu"}
MILAN = node("milan", metadata={"labels": LABELS})
DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
MIRROR = {keys.MIRROR_POD: "x"}


def selecting(region: str) -> Object:
    asked = {"key": "region", "operator": "In", "values": [region]}
    return {"clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"podOffloadingStrategy": "Remote"}, ""),
        ({}, ""),
        ({"podOffloadingStrategy": "Local"}, "strategy Local keeps pods off virtual nodes"),
        ({"podOffloadingStrategy": "Remote", **selecting("eu")}, ""),
        (selecting("us"), "region In [us]"),
        ({"podOffloadingStrategy": "Nowhere"}, "cannot be read"),
    ],
)
@pytest.mark.parametrize("metadata", [{}, {"ownerReferences": [DAEMON]}, {"annotations": MIRROR}])
def test_what_the_namespace_allows_runs_and_nothing_else(
    spec: Object, why: str, metadata: Object
) -> None:
    local = pod("shop", metadata=metadata, spec=pod_spec(nodeName="milan"))

    said = forbids(local, offloading("shop", **spec), MILAN)

    assert (why in said) if why else said == ""
    assert not said or said.startswith("namespaceoffloading shop/offloading")


def test_the_runtime_class_leads_there_under_every_strategy_where_the_selector_does() -> None:
    local = pod("shop", spec=pod_spec(runtimeClassName=keys.RUNTIME_CLASS))

    assert forbids(local, offloading("shop", podOffloadingStrategy="Local"), MILAN) == ""
    assert forbids(local, offloading("shop", **selecting("us")), MILAN)


@pytest.mark.parametrize("name", [keys.RUNTIME_CLASS, "other"])
def test_the_webhook_the_controllers_and_the_kubelet_know_the_same_runtime_class(name: str) -> None:
    local = pod("shop", spec=pod_spec(runtimeClassName=name, nodeName="milan"))
    asked = offloading("shop", podOffloadingStrategy="Local")
    parsed = NamespaceOffloading.parse(asked)
    virtual = {Key("", "milan"): MILAN}

    try:
        pods.check_node(local, parsed, MILAN)
        is_refused = False
    except DeniedError:
        is_refused = True

    assert is_refused is (name != keys.RUNTIME_CLASS)
    assert bool(forbids(local, asked, MILAN)) is is_refused
    assert bool(controllers.misplaced(parsed, [local], virtual)) is is_refused


def test_a_node_that_is_not_known_is_judged_by_the_strategy() -> None:
    local = pod("shop")

    assert forbids(local, offloading("shop", **selecting("us")), None) == ""
    assert forbids(local, offloading("shop", podOffloadingStrategy="Local"), None)


def test_where_nobody_offloads_any_more_another_rule_decides() -> None:
    ending = named(
        keys.NAMESPACE_OFFLOADING,
        Key("shop", keys.OFFLOADING_NAME),
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"},
        spec={"podOffloadingStrategy": "Local"},
    )

    assert forbids(pod("shop"), None, MILAN) == ""
    assert forbids(pod("shop"), ending, MILAN) == ""
