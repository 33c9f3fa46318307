"""The truth table of pod mutation. Source: docs/parity.md § 3.1 and 11.3; A-14 to A-22."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys, nodeselector
from apis.nodeselector import Term
from apis.objects import Object
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.validation import DeniedError
from tests import factories
from tests.webhook.podtable import (
    BOTH,
    EMPTY,
    EXPRESSIONS,
    LOCAL,
    NOT_VN,
    NOT_VN_EXPRESSION,
    OURS,
    PINNED,
    PODS,
    REMOTE,
    S1,
    S1_EXPRESSION,
    S2,
    TABLE,
    TERMS,
    TOLERATIONS,
    VN,
    A,
    join,
    pod,
    term,
)
from webhook.admission import MalformedError
from webhook.rules import pods


def admitted(sent: Object, offloading: NamespaceOffloading) -> Object:
    """Return ``sent`` as it is stored, having shown that it was left alone and twice is once."""
    snapshot = copy.deepcopy(sent)
    changes = pods.offload(sent, offloading)
    made: Object = jsonpatch.apply_patch(sent, changes)
    assert sent == snapshot
    assert pods.offload(made, offloading) == []
    return made


@pytest.mark.parametrize(("strategy", "selector", "own", "expected"), TABLE)
def test_terms(
    strategy: Strategy,
    selector: tuple[Term, ...],
    own: tuple[Term, ...],
    expected: tuple[Term, ...],
) -> None:
    made = admitted(pod(*own), NamespaceOffloading(strategy, selector))

    assert made == pod(*expected, tolerations=[pods.TOLERATION])


@pytest.mark.parametrize("selector", [(), (S1, S2)])
def test_a_local_namespace_keeps_its_pods(selector: tuple[Term, ...]) -> None:
    assert pods.offload(pod(A), NamespaceOffloading(LOCAL, selector)) == []


@factories.cases("toleration, is_kept_away")
def test_a_local_pod_that_tolerates_virtual_nodes_is_kept_away(
    toleration: Object, *, is_kept_away: bool
) -> None:
    made = admitted(pod(tolerations=[toleration]), NamespaceOffloading(LOCAL))

    assert required(made) == (
        pods.allowed_nodes(NamespaceOffloading(LOCAL)) if is_kept_away else []
    )


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_runtime_class_places_but_the_selector_chooses(strategy: Strategy) -> None:
    sent = pod(A, runtimeClassName="liqo")

    assert admitted(sent, NamespaceOffloading(strategy)) == sent
    assert admitted(sent, NamespaceOffloading(strategy, (S1, S2))) == pod(
        join(A, S1), join(A, S2), runtimeClassName="liqo"
    )


def test_another_runtime_class_is_a_pod_like_any_other() -> None:
    made = admitted(pod(runtimeClassName="gvisor"), NamespaceOffloading(REMOTE))

    assert made == pod(VN, tolerations=[pods.TOLERATION], runtimeClassName="gvisor")


@factories.cases("wide")
def test_a_toleration_as_wide_counts(wide: Object) -> None:
    sent = pod(VN, tolerations=[wide])

    assert admitted(sent, NamespaceOffloading(REMOTE)) == sent


@factories.cases("narrow")
def test_a_narrower_toleration_does_not_count(narrow: Object) -> None:
    made = admitted(pod(tolerations=[narrow]), NamespaceOffloading(BOTH))

    assert made["spec"]["tolerations"] == [narrow, OURS]


DAEMON = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "logs",
    "uid": "1",
    "controller": True,
}


@pytest.mark.parametrize(
    ("metadata", "spec", "reason"),
    [
        pytest.param({"ownerReferences": [DAEMON]}, {}, "DaemonSet", id="DaemonSet"),
        pytest.param({}, {"nodeName": "node-1"}, "names a node", id="nodeName"),
    ],
)
@pytest.mark.parametrize("strategy", list(Strategy))
def test_pods_placed_otherwise_are_left_alone(
    strategy: Strategy, metadata: Object, spec: Object, reason: str
) -> None:
    sent = pod(PINNED, **spec)
    sent["metadata"] |= metadata

    verdict = pods.place(sent, NamespaceOffloading(strategy, (S1,)))

    assert jsonpatch.apply_patch(sent, verdict.patch)["spec"] == sent["spec"]
    assert reason in verdict.verdict


def on_its_node(*expressions: tuple[str, str, list[str]]) -> Term:
    return {**PINNED, **term(*expressions)}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (LOCAL, [on_its_node(NOT_VN_EXPRESSION)]),
        (REMOTE, [on_its_node(S1_EXPRESSION), on_its_node(NOT_VN_EXPRESSION)]),
        (BOTH, [on_its_node(S1_EXPRESSION), on_its_node(NOT_VN_EXPRESSION)]),
    ],
)
def test_no_owner_and_no_toleration_leads_onto_a_node_that_is_not_allowed(
    strategy: Strategy, expected: list[Term]
) -> None:
    """Whose node is one of this cluster keeps it."""
    sent = pod(PINNED, tolerations=[{"operator": "Exists"}])
    sent["metadata"]["ownerReferences"] = [DAEMON]

    made = admitted(sent, NamespaceOffloading(strategy, (S1,)))

    assert required(made) == expected


@factories.cases("owner")
def test_what_only_resembles_a_daemon_set_is_offloaded(owner: Object) -> None:
    sent = pod(PINNED)
    sent["metadata"]["ownerReferences"] = [owner]

    assert admitted(sent, NamespaceOffloading(REMOTE))["spec"]["tolerations"] == [OURS]


@pytest.mark.parametrize(
    "metadata", [{"ownerReferences": [DAEMON]}, {"annotations": {keys.MIRROR_POD: "x"}}]
)
def test_what_anybody_may_write_is_no_way_past(metadata: Object) -> None:
    sent = pod()
    sent["metadata"] |= metadata

    assert admitted(sent, NamespaceOffloading(REMOTE))["spec"]["tolerations"] == [OURS]


# What the pod tells of it -------------------------------------------------------------------------

NOTE = "pyliqo.io/placement"


def placed_twice(sent: Object, strategy: Strategy, *terms: Term, generation: int = 3) -> Object:
    """Return ``sent`` after the webhook, having shown that twice is once."""
    offloading = NamespaceOffloading(strategy, terms, generation=generation)
    made: Object = jsonpatch.apply_patch(sent, pods.place(sent, offloading).patch)
    assert not pods.place(made, offloading).patch
    return made


def note(made: Object) -> str | None:
    annotations: dict[str, str] = made["metadata"].get("annotations") or {}
    return annotations.get(NOTE)


ON_VN = 'nodes="liqo.io/type In virtual-node"'
EU_OR_HERE = (
    'nodes="disk In ssd and region In eu or disk In ssd and liqo.io/type NotIn virtual-node"'
)


@pytest.mark.parametrize(
    ("strategy", "selector", "sent", "told"),
    [
        (REMOTE, (), pod(), f"strategy=Remote generation=3 added=toleration,nodeAffinity {ON_VN}"),
        (BOTH, (), pod(), 'strategy=LocalAndRemote generation=3 added=toleration nodes=""'),
        (
            BOTH,
            (S1,),
            pod(A),
            f"strategy=LocalAndRemote generation=3 added=toleration,nodeAffinity {EU_OR_HERE}",
        ),
        (
            REMOTE,
            (),
            pod(tolerations=[OURS]),
            f"strategy=Remote generation=3 added=nodeAffinity {ON_VN}",
        ),
        (REMOTE, (), pod(EMPTY), "strategy=Remote generation=3 added=toleration"),
        (
            REMOTE,
            (),
            pod(VN, tolerations=[OURS]),
            f"strategy=Remote generation=3 added=nothing {ON_VN}",
        ),
        (LOCAL, (), pod(), "strategy=Local generation=3 added=nothing"),
        (
            LOCAL,
            (S1,),
            pod(runtimeClassName="liqo"),
            "strategy=Local generation=3 added=nodeAffinity",
        ),
        (REMOTE, (), pod(nodeName="n"), "strategy=Remote generation=3 added=nothing"),
    ],
)
def test_what_was_added_is_told_on_the_pod(
    strategy: Strategy, selector: tuple[Term, ...], sent: Object, told: str
) -> None:
    assert note(placed_twice(sent, strategy, *selector)) == told


def test_other_annotations_stay_and_only_one_is_added() -> None:
    sent = pod()
    sent["metadata"]["annotations"] = {"a/b": "c"}

    verdict = pods.place(sent, NamespaceOffloading(REMOTE))

    assert verdict.patch[-1]["path"] == "/metadata/annotations/pyliqo.io~1placement"
    assert placed_twice(sent, REMOTE)["metadata"]["annotations"].keys() == {"a/b", NOTE}


def test_what_another_webhook_undid_is_added_again_and_told_once() -> None:
    made = placed_twice(pod(), REMOTE)
    told = note(made)
    del made["spec"]["tolerations"]

    assert note(placed_twice(made, REMOTE)) == told


@pytest.mark.parametrize("claimed", ["strategy=Remote generation=2 added=nodeAffinity", "", "x"])
def test_a_note_that_came_with_the_pod_does_not_stay_untrue(claimed: str) -> None:
    sent = pod(VN, tolerations=[OURS])
    sent["metadata"]["annotations"] = {NOTE: claimed}

    assert note(placed_twice(sent, REMOTE)) == f"strategy=Remote generation=3 added=nothing {ON_VN}"


def numbered(count: int, key: str) -> tuple[Term, ...]:
    return tuple(term((key, "In", [str(number)])) for number in range(count))


@factories.cases("own, selected, fits")
def test_growth_is_bounded(own: int, selected: int, *, fits: bool) -> None:
    offloading = NamespaceOffloading(REMOTE, numbered(selected, "region"))
    sent = pod(*numbered(own, "disk"))

    if fits:
        admitted(sent, offloading)
        return
    with pytest.raises(DeniedError, match="more than 100") as denied:
        pods.offload(sent, offloading)
    assert len(str(denied.value)) <= 256


def test_preferred_terms_and_other_affinities_stay() -> None:
    preferred = [{"weight": 1, "preference": A}]
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"x": 1}]},
    }
    sent = pod(affinity=affinity, nodeSelector={"disk": "ssd"})

    made = admitted(sent, NamespaceOffloading(REMOTE))

    required = made["spec"]["affinity"]["nodeAffinity"].pop(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    made["spec"].pop("tolerations")
    assert required == {"nodeSelectorTerms": [VN]}
    assert made == sent


def test_only_what_is_needed_is_touched() -> None:
    sent = pod(A, tolerations=[{"key": "x", "operator": "Exists"}])

    changes = pods.offload(sent, NamespaceOffloading(REMOTE))

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    assert [(change["op"], change["path"]) for change in changes] == [
        ("add", "/spec/tolerations/-"),
        ("add", f"/spec/affinity/nodeAffinity/{required}/nodeSelectorTerms"),
    ]


def test_allowed_nodes_of_a_local_namespace_are_its_own() -> None:
    assert pods.allowed_nodes(NamespaceOffloading(LOCAL, (S1,))) == [NOT_VN]


@factories.cases("part, value")
def test_what_is_no_pod_is_malformed(part: str, value: Any) -> None:
    sent = pod()
    above, _, name = part.rpartition(".")
    (sent[above] if above else sent)[name] = value

    with pytest.raises(MalformedError, match="not a Pod"):
        pods.place(sent, NamespaceOffloading(REMOTE))


# Generated pods -----------------------------------------------------------------------------------

SELECTORS = st.lists(
    st.lists(EXPRESSIONS, max_size=2).map(lambda items: term(*items)), max_size=3
).map(tuple)
SCHEDULED_PODS = st.builds(
    lambda terms, tolerations: pod(*terms, tolerations=tolerations),
    st.lists(TERMS, max_size=3),
    TOLERATIONS,
)
"""Pods that the scheduler places by their terms, by no RuntimeClass and no name of a node."""
OFFLOADINGS = st.builds(NamespaceOffloading, st.sampled_from(Strategy), SELECTORS)
NODES = [
    {"region": region, "disk": disk, "zone": zone, **kind}
    for region in ("eu", "us", "as")
    for disk in ("ssd", "hdd")
    for zone in ("a", "c")
    for kind in ({}, {"liqo.io/type": "virtual-node"})
]


@settings(max_examples=300, deadline=None)
@given(PODS, OFFLOADINGS)
def test_twice_is_once_for_any_pod(sent: Object, offloading: NamespaceOffloading) -> None:
    admitted(sent, offloading)


def required(found: Object) -> list[Term]:
    affinity = found["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return list(terms.get("nodeSelectorTerms", []))


def may_run(terms: list[Term], node: dict[str, str]) -> bool:
    return not terms or nodeselector.matches(terms, node, "node-1")


@settings(max_examples=200, deadline=None)
@given(SCHEDULED_PODS, OFFLOADINGS)
def test_a_node_is_allowed_when_user_and_namespace_allow_it(
    sent: Object, offloading: NamespaceOffloading
) -> None:
    made = admitted(sent, offloading)
    is_kept_away = offloading.strategy is LOCAL and not pods.is_let_in(sent)
    allowed = [] if is_kept_away else pods.allowed_nodes(offloading)

    for node in NODES:
        wanted = may_run(required(sent), node) and may_run(allowed, node)
        assert may_run(required(made), node) == wanted
