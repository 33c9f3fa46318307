"""Pods as they will be stored, and where they are bound.

Source: docs/parity.md A-23, SEC-D5, F-31.
"""

from typing import Any

import pytest

from apis import keys
from apis.objects import Object
from tests import factories
from tests.factories import node, pod, pod_spec
from tests.webhook.reviews import Known, offloading, response

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAINT = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}
SELECTOR = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
    ]
}


def virtual(name: str = "milan", *, region: str = "eu", **rest: Any) -> Any:
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, "region": region}
    made = {"metadata": {"labels": labels}, "spec": {"taints": [TAINT]}, "status": READY, **rest}
    return keys.NODE, node(name, **made)


def known(*more: Any, **spec: Any) -> Known:
    return Known((keys.NAMESPACE_OFFLOADING, offloading(**spec)), *more)


def mutated(known: Known, obj: Object) -> Object:
    made: Object = response(known, "/mutate/pod", obj)["object"]
    return made


def wanted(**spec: Any) -> Object:
    return pod("shop", "web", spec=pod_spec(**spec))


@pytest.mark.parametrize("strategy", ["Local", "Remote", "LocalAndRemote"])
@pytest.mark.parametrize("selector", [{}, {"clusterSelector": SELECTOR}])
@pytest.mark.parametrize("spec", [{}, {"runtimeClassName": "liqo"}])
def test_what_the_mutation_made_is_admitted(strategy: str, selector: Object, spec: Object) -> None:
    here = known(virtual(), podOffloadingStrategy=strategy, **selector)

    assert response(here, "/validate/pod", mutated(here, wanted(**spec)))["allowed"]


@pytest.mark.parametrize("lost", ["tolerations", "affinity"])
def test_a_mutation_that_was_undone_is_refused(lost: str) -> None:
    here = known(virtual(), podOffloadingStrategy="Remote")
    final = mutated(here, wanted())
    del final["spec"][lost]

    found = response(here, "/validate/pod", final)

    assert found["allowed"] is False
    assert f"spec.{lost}" in found["status"]["message"]
    assert "another webhook undid" in found["status"]["message"]


@pytest.mark.parametrize(("before", "after"), [("Local", "Remote"), ("Remote", "Local")])
def test_a_pod_is_made_again_when_the_strategy_changed_on_its_way(before: str, after: str) -> None:
    lets_in = [{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}] if after == "Local" else []
    made = mutated(known(virtual(), podOffloadingStrategy=before), wanted(tolerations=lets_in))
    here = known(virtual(), podOffloadingStrategy=after)

    found = response(here, "/validate/pod", made)

    assert found["allowed"] is False
    assert "create the pod again in a moment" in found["status"]["message"]


def test_where_nothing_is_offloaded_nothing_is_refused() -> None:
    assert response(Known(), "/validate/pod", wanted(nodeName="milan"))["allowed"]


NAMED = [
    ("Remote", {}, "milan", "", True),
    ("Remote", {"clusterSelector": SELECTOR}, "milan", "", True),
    ("Remote", {"clusterSelector": SELECTOR}, "boston", "", False),
    ("LocalAndRemote", {"clusterSelector": SELECTOR}, "boston", "", False),
    ("Local", {}, "milan", "", False),
    ("Local", {}, "milan", "liqo", True),
    ("Local", {"clusterSelector": SELECTOR}, "boston", "liqo", False),
    ("Remote", {}, "worker", "", True),
]


@pytest.mark.parametrize(("strategy", "selector", "name", "runtime", "is_allowed"), NAMED)
def test_a_virtual_node_that_is_named_has_to_be_one_of_the_namespace(
    strategy: str, selector: Object, name: str, runtime: str, *, is_allowed: bool
) -> None:
    spec = {"runtimeClassName": runtime} if runtime else {}
    bound = wanted(**spec)
    here = known(
        virtual(),
        virtual("boston", region="us"),
        (keys.POD, bound),
        podOffloadingStrategy=strategy,
        **selector,
    )
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": name}}

    by_name = response(here, "/validate/pod", wanted(nodeName=name, **spec))
    by_hand = response(here, "/validate/pod/binding", binding, subResource="binding")

    assert by_name["allowed"] is is_allowed
    assert by_hand["allowed"] is is_allowed


def test_a_binding_to_a_node_of_this_cluster_is_not_looked_into() -> None:
    here = known(virtual())
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "worker"}}

    assert response(here, "/validate/pod/binding", binding, subResource="binding")["allowed"]
    assert here.asked == []


DOWN = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(
    ("nodes", "spec", "warning"),
    [
        ([], {}, "there is no virtual node"),
        ([virtual()], {}, ""),
        ([virtual(status=DOWN)], {}, "milan: is not Ready"),
        ([virtual(status=DOWN), virtual("rome")], {}, ""),
        ([virtual()], {"nodeSelector": {"gpu": "true"}}, "milan: nodeSelector gpu=true"),
        ([virtual(), virtual(region="us")], {"nodeSelector": {"region": "eu"}}, "it has region=us"),
        ([virtual(str(n), status=DOWN) for n in range(9)], {}, "; and 6 more"),
    ],
)
def test_a_pod_with_nowhere_to_go_is_admitted_and_told_so(
    nodes: list[Any], spec: Object, warning: str
) -> None:
    here = known(*nodes, podOffloadingStrategy="Remote")

    found = response(here, "/mutate/pod", wanted(**spec))

    assert found["allowed"] is True
    warnings = found.get("warnings") or [""]
    assert len(warnings) == 1
    assert warning in warnings[0]
    assert (warnings == [""]) is (warning == "")


def test_where_nodes_of_this_cluster_count_too_nothing_is_said() -> None:
    here = known(podOffloadingStrategy="LocalAndRemote")

    assert "warnings" not in response(here, "/mutate/pod", wanted())


@factories.cases("strategy, spec, is_told")
def test_what_virtual_nodes_refuse_is_told_where_it_may_go_to_one(
    strategy: str, spec: Object, *, is_told: bool
) -> None:
    here = known(virtual(), podOffloadingStrategy=strategy)

    found = response(here, "/mutate/pod", wanted(hostUsers=False, **spec))

    assert found["allowed"] is True
    told = "".join(found.get("warnings") or [])
    assert ("spec.hostUsers does not work on virtual nodes" in told) is is_told
