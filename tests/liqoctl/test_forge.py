"""Manifests and words out of flags."""

import copy
import dataclasses
from pathlib import Path
from typing import Final

import pytest
import yaml

from apis import keys
from apis import offloading as parsed
from apis.objects import Key, Object
from apis.slices import of_virtual_node as of_slice
from liqoctl import options
from liqoctl.forge import manifests, offloading, resourceslice, virtualnode
from liqoctl.forge.offloading import OffloadOutcome
from tests import factories
from tests.factories import condition


@factories.cases("selectors, terms")
def test_each_selector_becomes_a_term(selectors: list[str], terms: list[list[Object]]) -> None:
    wanted = offloading.OffloadOptions(selectors=selectors)

    spec = offloading.manifest("foo", wanted)["spec"]

    assert spec["clusterSelector"] == {
        "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
    }


def test_without_selectors_every_cluster_is_meant() -> None:
    assert "clusterSelector" not in offloading.manifest("foo", offloading.OffloadOptions())["spec"]


def offloaded_status(phase: str, *, observed: int = 2, **clusters: list[Object]) -> Object:
    status = {
        "offloadingPhase": phase,
        "observedGeneration": observed,
        "remoteNamespaceName": "foo-rome",
        "remoteNamespacesConditions": clusters,
    }
    metadata = {"name": "offloading", "namespace": "foo", "generation": 2}
    return {"metadata": metadata, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("phase", "observed", "outcome"),
    [
        ("Ready", 2, OffloadOutcome.READY),
        ("Ready", 1, OffloadOutcome.WAITING),
        ("NoClusterSelected", 2, OffloadOutcome.NOTHING_SELECTED),
        ("SomeFailed", 2, OffloadOutcome.FAILED),
        ("AllFailed", 2, OffloadOutcome.FAILED),
        ("AllFailed", 1, OffloadOutcome.WAITING),
        ("InProgress", 2, OffloadOutcome.WAITING),
        ("Terminating", 2, OffloadOutcome.WAITING),
    ],
)
def test_outcomes(phase: str, observed: int, outcome: OffloadOutcome) -> None:
    assert offloading.outcome(offloaded_status(phase, observed=observed)) is outcome


def test_an_offloading_without_status_is_waited_for() -> None:
    fresh = {"metadata": {"generation": 1}, "spec": {}}

    assert offloading.outcome(fresh) is OffloadOutcome.WAITING
    assert offloading.phase(fresh) == "none yet"
    assert offloading.conditions(fresh) == []
    assert offloading.twins(fresh) == []


def test_conditions_name_what_is_not_ready() -> None:
    found = offloaded_status(
        "SomeFailed",
        milan=[condition("OffloadingRequired", "True"), condition("Ready", "True", "Created")],
        turin=[condition("Ready", "False", "CreationLoopBackOff", "namespace is taken")],
        naples=[condition("OffloadingRequired", "False", "ClusterNotSelected")],
    )

    lines = offloading.conditions(found)

    assert lines == ["turin: Ready=False, CreationLoopBackOff (namespace is taken)"]
    assert offloading.twins(found) == [("milan", "foo-rome"), ("turin", "foo-rome")]


def test_what_is_asked_before_it_is_taken_back_names_what_goes_and_what_stays() -> None:
    there = offloaded_status("Ready", milan=[condition("Ready", "True", "Created")])
    nowhere = offloaded_status("NoClusterSelected", milan=[])
    fresh: Object = {"metadata": {}}
    for one, name in ((there, "foo"), (nowhere, "bar"), (fresh, "new")):
        one["metadata"] |= {"namespace": name, "name": "offloading"}

    question = offloading.question([there, nowhere])
    ending = "with all pods and volumes there?"
    assert question == f"Delete foo-rome on milan, {ending} Your namespace foo stays."
    assert offloading.question([nowhere]) == ""
    unknown = f"Delete what other clusters have of new, foo-rome on milan, {ending}"
    assert offloading.question([fresh, there]) == f"{unknown} Your namespaces foo, new stay."


@factories.cases("before, after, is_tightened")
def test_stricter_strategies_are_noticed(*, before: str, after: str, is_tightened: bool) -> None:
    existing = {"spec": {"podOffloadingStrategy": before}}
    wanted = {"spec": {"podOffloadingStrategy": after}}

    assert offloading.is_tightened(existing, wanted) is is_tightened


def test_changes_touch_only_what_differs_and_twice_is_once() -> None:
    existing = {
        "metadata": {"labels": {"theirs": "1"}},
        "spec": {"a": "1", "b": {"c": "1", "d": "1"}, "theirs": "1"},
    }
    wanted = {"metadata": {"labels": {"ours": "1"}}, "spec": {"a": "1", "b": {"c": "2"}}}
    snapshot = copy.deepcopy(existing)

    changes = manifests.changes(existing, wanted)

    assert changes == {"metadata": {"labels": {"ours": "1"}}, "spec": {"b": {"c": "2"}}}
    assert manifests.changes(existing, wanted, ["b"])["spec"] == {"b": {"c": "2", "d": None}}
    assert manifests.changes(wanted, wanted) == {}
    assert existing == snapshot


def test_of_a_virtual_node_that_is_there_only_what_flags_name_is_changed() -> None:
    """A label that went would take twins of namespaces with it; a taint, keep pods away."""
    spec = {
        **virtualnode.from_flags(OF_FLAGS)["spec"],
        "createNode": False,
        "resourceQuota": {"hard": {"cpu": "64", "nvidia.com/gpu": "2"}, "scopes": ["x"]},
        "labels": {"tier": "gold"},
        "taints": [{"key": "a", "effect": "NoSchedule"}],
        "offloadingPatch": {"nodeSelector": {"pool": "a"}},
        "storageClasses": [{"storageClassName": "fast"}],
    }
    existing = {"metadata": {"labels": {"liqo.io/remote-cluster-id": "milan"}}, "spec": spec}
    asked = dataclasses.replace(
        OF_FLAGS, hard={**OF_FLAGS.hard, "nvidia.com/gpu": "1"}, labels={"region": "eu"}
    )

    def changes(wanted: virtualnode.VirtualNodeOptions) -> Object:
        made = virtualnode.named(virtualnode.from_flags(wanted), wanted)
        return manifests.changes(existing, made, wanted.whole)

    assert changes(OF_FLAGS) == {}
    assert changes(asked) == {
        "spec": {"resourceQuota": {"hard": {"nvidia.com/gpu": "1"}}, "labels": {"region": "eu"}}
    }
    node = dataclasses.replace(asked, left_out=OF_FLAGS.left_out - {"createNode", "memory"})
    assert changes(node)["spec"]["createNode"] is True
    assert changes(node)["spec"]["resourceQuota"] == {
        "hard": {"nvidia.com/gpu": "1", "memory": "4Gi"}
    }


def test_of_a_slice_that_is_there_only_what_flags_name_is_changed() -> None:
    key = Key("liqo-tenant-milan", "pool")
    wanted = resourceslice.SliceOptions(
        name=key.name,
        namespace=key.namespace,
        remote_cluster_id="milan",
        left_out=frozenset({"class_", "makes_node"}),
    )
    existing = resourceslice.manifest(dataclasses.replace(wanted, class_="gold", makes_node=False))
    existing["spec"] |= {"csr": "Q1NS", "consumerClusterID": "rome", "resources": {"memory": "1Gi"}}

    def changes(wanted: resourceslice.SliceOptions) -> Object:
        return manifests.changes(existing, resourceslice.named(wanted))

    assert changes(wanted) == {}
    assert changes(dataclasses.replace(wanted, resources={"cpu": "8"})) == {
        "spec": {"resources": {"cpu": "8"}}
    }
    named = dataclasses.replace(wanted, left_out=frozenset())
    assert changes(named)["spec"] == {"class": "default"}
    assert changes(named)["metadata"]["annotations"] == {"liqo.io/create-virtual-node": "true"}


def answered(asked: Object, given: Object | None = None, message: str = "") -> Object:
    said = [
        {"type": type_, "status": "Accepted", "message": message}
        for type_ in ("Authentication", "Resources")
    ]
    status = {"conditions": said, "resources": given} if given else {}
    return {"metadata": {}, "spec": {"class": "default", **asked}, "status": status}


@pytest.mark.parametrize(
    ("obj", "is_stale"),
    [
        (answered({"resources": {"cpu": "8"}}, {"cpu": "4"}), True),
        (answered({"resources": {"cpu": "4000m"}}, {"cpu": "4"}), False),  # nothing else was asked
        (answered({"resources": {"cpu": "8"}}, {"cpu": "6"}), False),
        (answered({"resources": {"cpu": "8"}}, {"cpu": "4"}, "no more is left"), False),
        (answered({"resources": {"cpu": "4"}, "class": "shared"}, {"cpu": "4"}), True),
        (answered({"resources": {"cpu": "4"}}, {"cpu": "4"}), False),
        (None, False),
    ],
)
def test_an_answer_to_something_else_is_none(*, obj: Object | None, is_stale: bool) -> None:
    before = answered({"resources": {"cpu": "4"}}, {"cpu": "4"})

    assert resourceslice.is_stale(obj, before) is is_stale
    assert not resourceslice.is_stale(obj, None)


def test_a_policy_of_reflection_is_an_annotation_beside_others() -> None:
    given = {"annotations": {"team": "shop"}, "labels": {"a": "b"}}
    wanted = offloading.OffloadOptions(reflection="Referenced", metadata=given)
    before = offloading.manifest("foo", offloading.OffloadOptions())

    made = offloading.manifest("foo", wanted)
    changes = offloading.changes(before, made, wanted.fields())

    annotations = {"team": "shop", "pyliqo.io/reflection": "Referenced"}
    assert made["metadata"]["annotations"] == annotations
    assert changes == {"metadata": {"annotations": annotations, "labels": {"a": "b"}}}
    assert offloading.changes(made, before, frozenset()) == {}


WANTED = virtualnode.VirtualNodeOptions(
    name="milan",
    namespace="liqo-tenant-milan",
    remote_cluster_id="milan",
    resource_slice_name="pool",
)


HOSTILE = {
    "node-role.kubernetes.io/control-plane": "",
    "topology.ebs.csi.aws.com/zone": "eu-west-1a",
    "pool.example.com/pci-dss": "true",
}
OF_FLAGS = virtualnode.VirtualNodeOptions(
    name="milan",
    namespace="liqo-tenant-milan",
    remote_cluster_id="milan",
    kubeconfig_secret_name="s",  # noqa: S106  # a name
    hard={"cpu": "2", "memory": "4Gi", "pods": "110"},
    left_out=frozenset({"createNode", "disableNetworkCheck", "cpu", "memory", "pods"}),
)


def test_a_virtual_node_from_a_slice_takes_what_was_granted() -> None:
    granted = {
        "metadata": {"name": "pool", "namespace": "liqo-tenant-milan"},
        "spec": {"resources": {"cpu": "4"}},
        "status": {
            "resources": {"cpu": "9e18", "memory": "8Gi"},
            "storageClasses": [{"storageClassName": "fast", "default": True}],
            "nodeLabels": {"region": "europe", **HOSTILE},
            "nodeSelector": {"pool": "a"},
        },
    }
    wanted = virtualnode.VirtualNodeOptions(
        name="pool",
        namespace="liqo-tenant-milan",
        remote_cluster_id="milan",
        resource_slice_name="pool",
        hard={"cpu": "1"},
        labels={"ours": "1"},
    )

    made = virtualnode.from_slice(wanted, granted)

    # What a provider suggests stands apart, within what it may say of a node of ours.
    assert made["spec"].pop("labels") == {"ours": "1", "liqo.io/remote-cluster-id": "milan"}
    assert parsed.suggested_labels(made) == {"region": "europe"}

    assert made["metadata"]["labels"] == {"liqo.io/remote-cluster-id": "milan"}
    assert made["spec"] == {
        "clusterID": "milan",
        "createNode": True,
        "disableNetworkCheck": False,
        "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-pool"},
        "resourceQuota": {"hard": {"cpu": "4", "memory": "8Gi"}},
        "storageClasses": [{"storageClassName": "fast", "default": True}],
        "ingressClasses": [],
        "loadBalancerClasses": [],
        "offloadingPatch": {"nodeSelector": {"pool": "a"}},
    }


TENANT: Final = "liqo-tenant-cool-firefly"
BLOCKS: Final = Path(__file__).parents[1] / "documents" / "objects"
OF_A_SLICE: Final = virtualnode.VirtualNodeOptions(
    name="mynode", namespace=TENANT, remote_cluster_id="cool-firefly", resource_slice_name="mypool"
)


def block(name: str) -> Object:
    """Return a block of the documents, without what older releases print of an empty object."""
    found: Object = yaml.safe_load((BLOCKS / name).read_text())
    assert found["metadata"].pop("creationTimestamp") is None
    assert found.pop("status") == {}
    return found


def test_what_is_printed_of_a_slice_is_the_block_of_the_documents() -> None:
    wanted = resourceslice.SliceOptions(
        name="mypool", namespace=TENANT, remote_cluster_id="cool-firefly"
    )

    assert resourceslice.manifest(wanted) == block("mypool.yaml")


def test_what_is_printed_of_a_virtual_node_is_the_block_of_the_documents() -> None:
    amounts = {"cpu": "4", "ephemeral-storage": "20Gi", "memory": "8Gi", "pods": "110"}
    granted = {
        "metadata": {"name": "mypool", "namespace": TENANT},
        "spec": {"class": "default", "providerClusterID": "cool-firefly"},
        "status": {
            "resources": amounts,
            "storageClasses": [{"storageClassName": "liqo"}],
            "nodeLabels": {"liqo.io/provider": "kubeadm"},
        },
    }
    of_a_secret = dataclasses.replace(
        OF_A_SLICE,
        resource_slice_name="",
        kubeconfig_secret_name="kubeconfig-resourceslice-mypool",  # noqa: S106  # its name
        hard={"cpu": "2", "memory": "4Gi", "pods": "110"},
        labels={"liqo.io/provider": "kubeadm"},
    )

    of_a_slice = virtualnode.printed(virtualnode.from_slice(OF_A_SLICE, granted))
    assert of_a_slice == block("mynode.yaml")
    by_secret = virtualnode.printed(virtualnode.from_flags(of_a_secret))
    assert by_secret == block("mynode-of-a-secret.yaml")
    assert of_slice(of_a_slice) == of_slice(by_secret) == "mypool"
    assert of_slice(virtualnode.from_flags(OF_FLAGS)) == ""


def test_a_slice_without_a_grant_is_refused() -> None:
    denied = {"metadata": {"name": "pool", "namespace": "liqo-tenant-milan"}, "status": {}}

    with pytest.raises(ValueError, match="no resources granted yet"):
        virtualnode.from_slice(WANTED, denied)


def test_where_the_objects_of_a_peering_are() -> None:
    elsewhere = virtualnode.VirtualNodeOptions(
        name="milan", namespace="", remote_cluster_id="milan"
    )

    assert elsewhere.where.namespace == "liqo-tenant-milan"


@pytest.mark.parametrize(
    ("node", "ready"),
    [
        (None, False),
        ({}, False),
        ({"status": {"conditions": None}}, False),
        ({"status": {"conditions": [condition("Ready", "False")]}}, False),
        ({"status": {"conditions": [condition("DiskPressure", "True")]}}, False),
        ({"status": {"conditions": [condition("Ready", "True")]}}, True),
    ],
)
def test_a_node_is_ready_when_it_says_so(*, node: Object | None, ready: bool) -> None:
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"}
    virtual = None if node is None else {**node, "metadata": {"labels": labels}}

    assert virtualnode.is_ready(virtual, "milan") is ready
    assert not virtualnode.is_ready(virtual, "turin")
    assert not virtualnode.is_ready({**(node or {}), "metadata": {"name": "milan"}}, "milan")


def test_the_template_names_its_namespace() -> None:
    given = virtualnode.VirtualNodeOptions(
        name="m", namespace="n", remote_cluster_id="c", vk_options_template=Key("liqo", "other")
    )

    spec = virtualnode.from_flags(given)["spec"]

    assert spec["vkOptionsTemplateRef"] == {"name": "other", "namespace": "liqo"}


def test_switches_are_spelled_as_in_go_too() -> None:
    switches = {"--wait": "--no-wait"}

    given = ["a", "--wait=false", "--wait", "--wait=T", "--other=false", "--", "--wait=0"]
    assert options.switched(given, switches) == [
        "a", "--no-wait", "--wait", "--wait", "--other=false", "--", "--wait=0",
    ]  # fmt: skip
    for neither in ("--wait=", "--wait=yes", "--wait=fALSE"):
        with pytest.raises(ValueError, match="neither true nor false"):
            options.switched([neither], switches)
