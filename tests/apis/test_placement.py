"""Which nodes take a pod, and what keeps it off the others."""

import copy
import itertools

import pytest

from apis import keys, placement
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import NODE_AFFINITY, TOLERATION, Obstacle, PlacementAnnotation, Rule
from tests import factories

OURS = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}
TOLERATES = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"}


def node(
    *taints: Object,
    labels: Object | None = None,
    ready: str = "True",
    largest: str = "",
    **spec: object,
) -> Object:
    condition = {"type": "Ready", "status": ready, "reason": "KubeletNotReady"}
    allocatable = {"cpu": "2", "memory": "4Gi"}
    return named(
        keys.NODE,
        Key("", "milan"),
        metadata={
            "labels": {"region": "eu", **(labels or {})},
            "annotations": {keys.LARGEST_POD: largest} if largest else {},
        },
        spec={"taints": list(taints), **spec},
        status={"conditions": [condition], "allocatable": allocatable},
    )


def virtual(**labels: str) -> Object:
    return node(OURS, labels={keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, **labels})


def pending_pod(**spec: object) -> Object:
    return factories.pod("foo", "web", spec=spec)


def requiring(*terms: Object) -> Object:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return pending_pod(affinity={"nodeAffinity": affinity})


def expression_of(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


def term_of(*expressions: Object) -> Object:
    return {"matchExpressions": list(expressions)}


def requesting_pod(**requests: str) -> Object:
    return pending_pod(containers=[{"name": "app", "resources": {"requests": requests}}])


IN_EU = term_of(expression_of("region", "In", "eu"))
IN_US = term_of(expression_of("region", "In", "us", "ca"))
HAS_GPU = term_of(expression_of("region", "In", "eu"), expression_of("gpu", "Exists"))
DEDICATED = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
GENTLE = {"key": "dedicated", "effect": "PreferNoSchedule"}
SEEN_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
ANYTHING = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("asks", "there", "rules"),
    [
        (pending_pod(), node(), []),
        (pending_pod(), virtual(), [Rule.TAINT]),
        (pending_pod(tolerations=[TOLERATES]), virtual(), []),
        (pending_pod(), node(GENTLE), []),
        (pending_pod(), node(ready="False"), [Rule.NOT_READY]),
        (pending_pod(), node(SEEN_NOT_READY, ready="False"), [Rule.NOT_READY]),
        (pending_pod(), node(ready="Unknown"), [Rule.NOT_READY]),
        (pending_pod(tolerations=[ANYTHING]), node(ready="Unknown", unschedulable=True), []),
        (pending_pod(), node(unschedulable=True), [Rule.UNSCHEDULABLE]),
        (pending_pod(nodeSelector={"region": "eu"}), node(), []),
        (pending_pod(nodeSelector={"region": "us"}), node(), [Rule.NODE_SELECTOR]),
        (requiring(IN_EU), node(), []),
        (requiring(IN_US, IN_EU), node(), []),
        (requiring(IN_US), node(), [Rule.AFFINITY]),
        (requiring({}), node(), [Rule.AFFINITY]),
        (requiring(), node(), [Rule.AFFINITY]),
        (requiring(term_of(expression_of("a", "Is"))), node(), [Rule.AFFINITY]),
        (requesting_pod(cpu="2"), node(), []),
        (requesting_pod(cpu="2100m"), node(), [Rule.RESOURCES]),
        (requesting_pod(gpu="0"), node(), []),
        (requesting_pod(gpu="1"), node(), [Rule.RESOURCES]),
        (pending_pod(nodeSelector={"a": "b"}), node(DEDICATED), [Rule.TAINT, Rule.NODE_SELECTOR]),
    ],
)
def test_obstacles(asks: Object, there: Object, rules: list[Rule]) -> None:
    before = copy.deepcopy((asks, there))

    assert [one.rule for one in placement.obstacles(asks, there)] == rules
    assert (asks, there) == before


@pytest.mark.parametrize(
    ("asks", "there", "text"),
    [
        (pending_pod(), node(DEDICATED), "taint dedicated=x:NoSchedule is not tolerated"),
        (pending_pod(), node(ready="False"), "is not Ready (KubeletNotReady)"),
        (pending_pod(), node(unschedulable=True), "is cordoned (spec.unschedulable)"),
        (
            pending_pod(nodeSelector={"region": "us"}),
            node(),
            "nodeSelector region=us is not met: it has region=eu",
        ),
        (
            requiring(IN_US, HAS_GPU),
            node(),
            (
                "affinity is not met: region In [us, ca] (it has region=eu); and gpu Exists "
                "(it has no gpu)"
            ),
        ),
        (
            requiring({"matchFields": [expression_of("metadata.name", "In", "rome")]}),
            node(),
            "affinity is not met: metadata.name In [rome] (it has metadata.name=milan)",
        ),
        (requiring({}), node(), "affinity is not met: an empty term matches nothing"),
        (requiring(), node(), "affinity is not met: it has no terms, and so matches nothing"),
        (requesting_pod(cpu="3"), node(), "has 2 of cpu in all, the pod requests 3"),
        (requesting_pod(gpu="1"), node(), "has none of gpu in all, the pod requests 1"),
        (
            requesting_pod(cpu="2"),
            node(largest="broken,cpu=1500m"),
            "no node behind it has more than 1500m of cpu free, the pod requests 2",
        ),
    ],
)
def test_the_text_names_what_fails_and_what_the_node_has(
    asks: Object, there: Object, text: str
) -> None:
    assert [one.text for one in placement.obstacles(asks, there)] == [text]


def toleration(operator: str = "", **rest: str) -> Object:
    return {"operator": operator, **rest} if operator else dict(rest)


@pytest.mark.parametrize(
    ("tolerates", "is_tolerated"),
    [
        (toleration("Exists"), True),
        (toleration("Exists", effect="NoSchedule"), True),
        (toleration("Exists", effect="NoExecute"), False),
        (toleration("Exists", key="dedicated"), True),
        (toleration("Exists", key="other"), False),
        (toleration(key="dedicated", value="x"), True),
        (toleration("Equal", key="dedicated", value="x", effect="NoSchedule"), True),
        (toleration("Equal", key="dedicated", value="y"), False),
        (toleration(key="dedicated"), False),
        (toleration(value="x"), False),
    ],
)
def test_tolerations(tolerates: Object, *, is_tolerated: bool) -> None:
    assert placement.is_tolerated(DEDICATED, [tolerates]) is is_tolerated


def offloading_by(strategy: str, *terms: Object) -> NamespaceOffloading:
    selector = {"nodeSelectorTerms": list(terms)}
    spec = {"podOffloadingStrategy": strategy, "clusterSelector": selector}
    return NamespaceOffloading.parse({"spec": spec})


@pytest.mark.parametrize(
    ("how", "there", "rules"),
    [
        (None, node(), []),
        (None, virtual(), [Rule.TAINT]),
        (offloading_by("LocalAndRemote"), node(), []),
        (offloading_by("LocalAndRemote"), virtual(), []),
        (offloading_by("LocalAndRemote", IN_US), node(), []),
        (offloading_by("LocalAndRemote", IN_US), virtual(), [Rule.SELECTOR]),
        (offloading_by("LocalAndRemote", IN_US), virtual(region="us"), []),
        (offloading_by("Remote"), node(), [Rule.STRATEGY]),
        (offloading_by("Remote"), virtual(), []),
        (offloading_by("Remote", IN_US, {}), virtual(), [Rule.SELECTOR]),
        (offloading_by("Local"), node(), []),
        (offloading_by("Local"), virtual(), [Rule.STRATEGY]),
        (offloading_by("Remote"), node(DEDICATED), [Rule.TAINT, Rule.STRATEGY]),
    ],
)
def test_the_rules_of_a_namespace(
    how: NamespaceOffloading | None, there: Object, rules: list[Rule]
) -> None:
    assert [one.rule for one in placement.barred(how, there)] == rules


def test_forbidden_speaks_of_the_namespace_only() -> None:
    there = node(DEDICATED, ready="False", labels={keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE})

    text = "clusterSelector is not met: region In [us, ca] (it has region=eu)"
    assert placement.forbidden(offloading_by("Remote", IN_US), there) == [
        Obstacle(Rule.SELECTOR, text)
    ]
    assert placement.forbidden(offloading_by("Remote", IN_EU), there) == []


def test_terms_in_words() -> None:
    assert placement.said([HAS_GPU, {}]) == (
        "region In [eu], gpu Exists; or an empty term, which matches nothing"
    )


# What the webhook notes on a pod, written and read.


ADDED = [frozenset(), frozenset({TOLERATION}), frozenset({TOLERATION, NODE_AFFINITY})]


NODES = [None, "", "liqo.io/type In virtual-node", "a In 1,2 and b Exists or c Gt 4"]


@pytest.mark.parametrize(
    ("strategy", "added", "nodes"), [*itertools.product(Strategy, ADDED, NODES)]
)
def test_what_is_written_is_read(
    strategy: Strategy, added: frozenset[str], nodes: str | None
) -> None:
    said = PlacementAnnotation(strategy, 12, added, nodes)

    assert PlacementAnnotation.parse(str(said)) == said
    assert len(str(said)) < 120


def test_many_nodes_are_not_noted() -> None:
    offloading = NamespaceOffloading(Strategy.REMOTE, generation=2)

    assert PlacementAnnotation.by(offloading, frozenset(), "x" * 400).nodes
    assert PlacementAnnotation.by(offloading, frozenset(), "x" * 401).nodes is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strategy=Remote",
        "strategy=Nowhere generation=1 added=nothing",
        "strategy=Remote generation=x added=nothing",
        "strategy=Remote generation=1 added=everything",
        "strategy=Remote generation=1 added=nothing more",
        "strategy=Remote generation=1 added=nothing\n",
        'strategy=Remote generation=1 added=nothing nodes="a"b"',
        'strategy=Remote generation=1 added=nothing nodes="a" nodes="b"',
        f"strategy=Remote generation={'9' * 5000} added=nothing",
    ],
)
def test_what_others_write_is_none(text: str) -> None:
    assert PlacementAnnotation.parse(text) is None


def test_it_is_of_one_generation_of_one_strategy() -> None:
    offloading = NamespaceOffloading(Strategy.REMOTE, generation=2)
    said = PlacementAnnotation.by(offloading, frozenset())

    assert said.is_of(offloading)
    assert not said.is_of(NamespaceOffloading(Strategy.REMOTE, generation=3))
    assert not said.is_of(NamespaceOffloading(Strategy.LOCAL, generation=2))
