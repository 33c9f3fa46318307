"""Which clusters are selected, and what the status says: docs/parity.md § 4.1, 11.3."""

import copy
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Object
from apis.offloading import MappingPhase, VirtualNode
from controllers.offloading.namespaceoffloading import forge
from controllers.offloading.namespaceoffloading.forge import MappingStatus
from tests import factories
from tests.controllers.support import LATER, NOW, defaulted, local_map, virtual_node

ACCEPTED, FAILED, TERMINATING = (
    MappingStatus(required=True, phase=MappingPhase.ACCEPTED),
    MappingStatus(required=True, phase=MappingPhase.CREATION_LOOP_BACK_OFF),
    MappingStatus(required=True, phase=MappingPhase.TERMINATING),
)
CREATING = MappingStatus(required=True)
LEFT = MappingStatus(required=False, phase=MappingPhase.ACCEPTED)
NEVER = MappingStatus(required=False)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([ACCEPTED, FAILED], "SomeFailed"),
        ([ACCEPTED, CREATING], "InProgress"),
        ([], "NoClusterSelected"),
        ([NEVER], "NoClusterSelected"),
        ([ACCEPTED, ACCEPTED], "Ready"),
        ([ACCEPTED, NEVER], "Ready"),
        ([FAILED, TERMINATING], "AllFailed"),
        pytest.param([CREATING, LEFT], "InProgress", id="one that is left does not count as ready"),
    ],
)
def test_phase(statuses: list[MappingStatus], expected: str) -> None:
    assert forge.phase(statuses, terminating=False) == expected
    assert forge.phase(statuses, terminating=True) == "Terminating"


def parsed(name: str, cluster_id: str, **spec: Any) -> VirtualNode:
    return VirtualNode.parse(virtual_node("liqo-tenant-x", name, cluster_id, **spec))


def term_in(key: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param((), {"milan", "turin"}, id="no terms select all"),
        pytest.param((term_in("zone", "a"),), {"milan"}, id="any virtual node of a cluster counts"),
        pytest.param(
            (term_in("zone", "a"), term_in("zone", "c")), {"milan", "turin"}, id="terms are ORed"
        ),
        pytest.param(({},), set(), id="an empty term matches nothing"),
        pytest.param((term_in(keys.REMOTE_CLUSTER_ID, "turin"),), {"turin"}, id="labels to come"),
        pytest.param((term_in(keys.STORAGE_AVAILABLE, "true"),), {"turin"}, id="storage"),
    ],
)
def test_selected(terms: tuple[Object, ...], expected: set[str]) -> None:
    nodes = [
        parsed("milan-1", "milan", labels={"zone": "a"}),
        parsed("milan-2", "milan", labels={"zone": "b"}),
        parsed("turin", "turin", labels={"zone": "c"}, storageClasses=[{"storageClassName": "s"}]),
    ]

    assert forge.selected(terms, nodes, {}) == expected
    assert forge.selected(terms, reversed(nodes), {}) == expected


def test_a_node_does_not_say_itself_which_cluster_it_is() -> None:
    """Its virtual kubelet writes it, and would be given another cluster's namespaces."""
    claim = {keys.REMOTE_CLUSTER_ID: "turin", keys.NODE_TYPE: "none"}
    nodes = {Key("", "milan"): factories.node("milan", metadata={"labels": claim})}
    milan = [parsed("milan", "milan")]

    assert not forge.selected((term_in(keys.REMOTE_CLUSTER_ID, "turin"),), milan, nodes)
    assert forge.selected((term_in(keys.REMOTE_CLUSTER_ID, "milan"),), milan, nodes) == {"milan"}


def test_the_labels_of_a_node_that_exists_win() -> None:
    node = factories.node("milan", metadata={"labels": {"zone": "z"}})
    nodes = {Key("", "milan"): node}

    assert not forge.selected((term_in("zone", "a"),), [parsed("milan", "milan")], nodes)
    assert forge.selected((term_in("zone", "z"),), [parsed("milan", "milan")], nodes) == {"milan"}


def test_status_twice_is_once_and_keeps_its_times() -> None:
    obj = {**defaulted("foo"), "status": {}}
    obj["metadata"]["generation"] = 3
    statuses = {"milan": ACCEPTED, "turin": MappingStatus(required=True)}

    first = forge.status(obj, "foo-rome", statuses, NOW)
    second = forge.status({**obj, "status": copy.deepcopy(first)}, "foo-rome", statuses, LATER)

    assert first == second
    assert first["observedGeneration"] == 3
    conditions = first["remoteNamespacesConditions"]
    assert [(each["type"], each["reason"]) for each in conditions["milan"]] == [
        ("OffloadingRequired", "ClusterSelected"),
        ("Ready", "NamespaceCreated"),
    ]
    assert conditions["turin"][1]["reason"] == "Creating"


def test_the_providers_reason_is_shown() -> None:
    refused = MappingStatus(
        required=True,
        phase=MappingPhase.CREATION_LOOP_BACK_OFF,
        reason="Conflict",
        message="namespace foo exists already",
    )

    status = forge.status(defaulted("foo"), "foo", {"milan": refused}, NOW)

    ready = status["remoteNamespacesConditions"]["milan"][1]
    assert ready["reason"] == "CreationLoopBackOff"
    assert "Conflict: namespace foo exists already" in ready["message"]
    assert status["offloadingPhase"] == "AllFailed"


def test_a_cluster_never_selected_has_no_ready_condition() -> None:
    status = forge.status(defaulted("foo"), "foo", {"milan": NEVER}, NOW)

    assert [each["type"] for each in status["remoteNamespacesConditions"]["milan"]] == [
        "OffloadingRequired"
    ]


def test_while_ending_what_is_over_is_dropped() -> None:
    obj = defaulted("foo")
    obj["metadata"]["deletionTimestamp"] = "2025-01-31T12:00:00Z"

    status = forge.status(obj, "foo", {"milan": NEVER, "turin": LEFT}, NOW)

    assert list(status["remoteNamespacesConditions"]) == ["turin"]
    assert status["offloadingPhase"] == "Terminating"


def test_a_change_of_a_map_concerns_the_namespaces_in_it() -> None:
    old = local_map("t", "milan", foo="foo-rome", bar="bar-rome")
    new = copy.deepcopy(old)
    new["status"] = {
        "currentMapping": {"foo": {"remoteNamespace": "foo-rome", "phase": "Accepted"}}
    }
    del new["spec"]["desiredMapping"]["bar"]

    assert forge.touched(old, new) == frozenset({"foo", "bar"})
    assert forge.touched(old, copy.deepcopy(old)) == frozenset()
    assert forge.touched(None, new) is None


def test_the_storage_label_says_what_is_there() -> None:
    classes = [{"storageClassName": "s"}]

    assert forge.node_labels(parsed("n", "c"))[keys.STORAGE_AVAILABLE] == "false"
    assert (
        forge.node_labels(parsed("n", "c", storageClasses=classes))[keys.STORAGE_AVAILABLE]
        == "true"
    )


@pytest.mark.parametrize(
    ("path", "value", "labels"),
    [
        (("spec", "labels"), {"region": "north"}, {"region"}),
        (("metadata", "labels"), {"tier": "a", keys.REMOTE_CLUSTER_ID: "milan"}, {"tier"}),
        (("spec", "storageClasses"), [{"storageClassName": "s"}], {keys.STORAGE_AVAILABLE}),
        (("spec", "resourceQuota"), {"hard": {"cpu": "2"}}, set()),
        (("spec", "taints"), [{"key": "node.kubernetes.io/not-ready"}], set()),
        (("metadata", "annotations"), {keys.SUGGESTED_LABELS: '{"region": "north"}'}, {"region"}),
        (("metadata", "labels"), {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}, None),
        (("metadata", "deletionTimestamp"), "2026-01-31T12:00:00Z", None),
        (("spec", "clusterID"), "turin", None),
        (("metadata", "annotations"), {"a": "b"}, set()),
        (("status", "x"), 1, set()),
    ],
)
def test_what_a_selector_reads_of_a_virtual_node_asks_for_another_choice(
    path: tuple[str, str], value: object, labels: set[str] | None
) -> None:
    part, field = path
    about = {"name": "milan", "labels": {keys.REMOTE_CLUSTER_ID: "milan"}}
    old: Object = {"metadata": about, "spec": {"clusterID": "milan"}, "status": {}}
    new = {**old, part: {**old[part], field: value}}
    assert forge.changed_labels(old, new) == labels
    assert forge.changed_labels(None, new) is None
    assert forge.changed_labels(old, None) is None


@pytest.mark.parametrize(
    ("labels", "is_read"),
    [({"region"}, True), ({"zone"}, True), ({"tier"}, False), (set(), False), (None, True)],
)
def test_a_changed_label_concerns_those_whose_selector_reads_it(
    labels: set[str] | None, *, is_read: bool
) -> None:
    terms = [
        {"matchExpressions": [{"key": name, "operator": "Exists"}]} for name in ("region", "zone")
    ]
    obj = defaulted("foo", clusterSelector={"nodeSelectorTerms": terms})
    changed = None if labels is None else frozenset(labels)
    assert forge.reads(obj, changed) is is_read
    assert forge.reads(defaulted("foo"), changed) is (labels is None)
