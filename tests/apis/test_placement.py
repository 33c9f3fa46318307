"""Which nodes take a pod, and what keeps it off the others."""

import copy

import pytest

from apis import keys, placement
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading
from apis.placement import Obstacle, Rule
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


def pod(**spec: object) -> Object:
    return factories.pod("foo", "web", spec=spec)


def requiring(*terms: Object) -> Object:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return pod(affinity={"nodeAffinity": affinity})


def expression(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: Object) -> Object:
    return {"matchExpressions": list(expressions)}


def asking(**requests: str) -> Object:
    return pod(containers=[{"name": "app", "resources": {"requests": requests}}])


IN_EU = term(expression("region", "In", "eu"))
IN_US = term(expression("region", "In", "us", "ca"))
HAS_GPU = term(expression("region", "In", "eu"), expression("gpu", "Exists"))
DEDICATED = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
GENTLE = {"key": "dedicated", "effect": "PreferNoSchedule"}
SEEN_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
ANYTHING = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("asks", "there", "rules"),
    [
        (pod(), node(), []),
        (pod(), virtual(), [Rule.TAINT]),
        (pod(tolerations=[TOLERATES]), virtual(), []),
        (pod(), node(GENTLE), []),
        (pod(), node(ready="False"), [Rule.NOT_READY]),
        (pod(), node(SEEN_NOT_READY, ready="False"), [Rule.NOT_READY]),
        (pod(), node(ready="Unknown"), [Rule.NOT_READY]),
        (pod(tolerations=[ANYTHING]), node(ready="Unknown", unschedulable=True), []),
        (pod(), node(unschedulable=True), [Rule.UNSCHEDULABLE]),
        (pod(nodeSelector={"region": "eu"}), node(), []),
        (pod(nodeSelector={"region": "us"}), node(), [Rule.NODE_SELECTOR]),
        (requiring(IN_EU), node(), []),
        (requiring(IN_US, IN_EU), node(), []),
        (requiring(IN_US), node(), [Rule.AFFINITY]),
        (requiring({}), node(), [Rule.AFFINITY]),
        (requiring(), node(), [Rule.AFFINITY]),
        (requiring(term(expression("a", "Is"))), node(), [Rule.AFFINITY]),
        (asking(cpu="2"), node(), []),
        (asking(cpu="2100m"), node(), [Rule.RESOURCES]),
        (asking(gpu="0"), node(), []),
        (asking(gpu="1"), node(), [Rule.RESOURCES]),
        (pod(nodeSelector={"a": "b"}), node(DEDICATED), [Rule.TAINT, Rule.NODE_SELECTOR]),
    ],
)
def test_obstacles(asks: Object, there: Object, rules: list[Rule]) -> None:
    before = copy.deepcopy((asks, there))

    assert [one.rule for one in placement.obstacles(asks, there)] == rules
    assert (asks, there) == before


@pytest.mark.parametrize(
    ("asks", "there", "text"),
    [
        (pod(), node(DEDICATED), "taint dedicated=x:NoSchedule is not tolerated"),
        (pod(), node(ready="False"), "is not Ready (KubeletNotReady)"),
        (pod(), node(unschedulable=True), "is cordoned (spec.unschedulable)"),
        (
            pod(nodeSelector={"region": "us"}),
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
            requiring({"matchFields": [expression("metadata.name", "In", "rome")]}),
            node(),
            "affinity is not met: metadata.name In [rome] (it has metadata.name=milan)",
        ),
        (requiring({}), node(), "affinity is not met: an empty term matches nothing"),
        (requiring(), node(), "affinity is not met: it has no terms, and so matches nothing"),
        (asking(cpu="3"), node(), "has 2 of cpu in all, the pod requests 3"),
        (asking(gpu="1"), node(), "has none of gpu in all, the pod requests 1"),
        (
            asking(cpu="2"),
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


def offloading(strategy: str, *terms: Object) -> NamespaceOffloading:
    selector = {"nodeSelectorTerms": list(terms)}
    spec = {"podOffloadingStrategy": strategy, "clusterSelector": selector}
    return NamespaceOffloading.parse({"spec": spec})


@pytest.mark.parametrize(
    ("how", "there", "rules"),
    [
        (None, node(), []),
        (None, virtual(), [Rule.TAINT]),
        (offloading("LocalAndRemote"), node(), []),
        (offloading("LocalAndRemote"), virtual(), []),
        (offloading("LocalAndRemote", IN_US), node(), []),
        (offloading("LocalAndRemote", IN_US), virtual(), [Rule.SELECTOR]),
        (offloading("LocalAndRemote", IN_US), virtual(region="us"), []),
        (offloading("Remote"), node(), [Rule.STRATEGY]),
        (offloading("Remote"), virtual(), []),
        (offloading("Remote", IN_US, {}), virtual(), [Rule.SELECTOR]),
        (offloading("Local"), node(), []),
        (offloading("Local"), virtual(), [Rule.STRATEGY]),
        (offloading("Remote"), node(DEDICATED), [Rule.TAINT, Rule.STRATEGY]),
    ],
)
def test_the_rules_of_a_namespace(
    how: NamespaceOffloading | None, there: Object, rules: list[Rule]
) -> None:
    assert [one.rule for one in placement.barred(how, there)] == rules


def test_forbidden_speaks_of_the_namespace_only() -> None:
    there = node(DEDICATED, ready="False", labels={keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE})

    text = "clusterSelector is not met: region In [us, ca] (it has region=eu)"
    assert placement.forbidden(offloading("Remote", IN_US), there) == [
        Obstacle(Rule.SELECTOR, text)
    ]
    assert placement.forbidden(offloading("Remote", IN_EU), there) == []


def test_terms_in_words() -> None:
    assert placement.said([HAS_GPU, {}]) == (
        "region In [eu], gpu Exists; or an empty term, which matches nothing"
    )
