"""The last gate: what the namespace does not allow is not run, however it was bound."""

import pytest

from apis import keys
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading
from apis.validation import DeniedError
from controllers.offloading.placement import forge as controllers
from kubelet.pods.decide import forbids
from tests.factories import node, pod, pod_spec
from tests.webhook.reviews import offloading
from webhook.rules import pods

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
