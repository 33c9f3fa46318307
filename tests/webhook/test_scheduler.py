"""The merged node affinity as the scheduler of Kubernetes reads it. Source: docs/parity.md A-18.

Random nodes and pods: where a pod is bound, both its own wishes and the rules of its namespace
hold; where it is not, no node meets both. ``PYLIQO_SCHEDULER_PAIRS`` sets how many pods.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jsonpatch
import pytest

from apis import keys, nodeselector, objects, placement
from apis.nodeselector import Term
from apis.objects import Key, Object, named
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from kube.client import ClusterClient
from kube.cluster import Selection
from tests import factories
from tests.conftest import size_of
from tests.factories import pod_spec
from tests.journeys import world
from tests.kube.running import some_at_once
from tests.manifests import documents
from tests.scheduling import keep
from webhook.rules import pods

pytestmark = pytest.mark.cluster

PAIRS: Final = size_of("PYLIQO_SCHEDULER_PAIRS", 160, 2000)
BATCH: Final = 40
NODES: Final = 6
"""For each batch: few, so that a rule that is too wide or too narrow shows."""
SEED: Final = 20250131
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TAINT: Final = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}
LABELS: Final = {
    "region": ["eu", "us", "as"],
    "disk": ["ssd", "hdd"],
    "cores": ["2", "8", "many"],
    "gpu": ["true"],
}
LISTED: Final = ("In", "NotIn")


class Case(NamedTuple):
    """A pod as its user sent it, and the rules of its namespace."""

    sent: Object
    offloading: NamespaceOffloading

    def stored(self) -> Object:
        """Return the pod after the webhook."""
        changes = pods.place(self.sent, self.offloading).patch
        made: Object = jsonpatch.apply_patch(self.sent, list(changes))
        return made

    def takes(self, node: Object) -> bool:
        """Whether the user and the namespace both allow ``node``, each read by itself."""
        return self._is_wanted(node) and self._is_allowed(node)

    def _is_wanted(self, node: Object) -> bool:
        spec, labels = self.sent["spec"], objects.labels(node)
        chosen = all(labels.get(key) == value for key, value in spec["nodeSelector"].items())
        affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
        own = affinity["nodeSelectorTerms"] if affinity else []
        return chosen and (not own or _matches(own, node))

    def _is_allowed(self, node: Object) -> bool:
        terms = self.offloading.cluster_selector
        is_selected = not terms or _matches(terms, node)
        is_virtual = placement.is_virtual(node)
        if self.sent["spec"].get("runtimeClassName"):
            return is_virtual and is_selected
        match self.offloading.strategy:
            case Strategy.LOCAL:
                return not is_virtual
            case Strategy.REMOTE:
                return is_virtual and is_selected
            case Strategy.LOCAL_AND_REMOTE:
                return not is_virtual or is_selected


def _matches(terms: Sequence[Term], node: Object) -> bool:
    return nodeselector.matches(terms, objects.labels(node), objects.key_of(node).name)


# Random nodes and pods ----------------------------------------------------------------------------


class Dice:
    """All that is random, from one seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # no secret

    def node(self, name: str, batch: str) -> Object:
        chosen = [key for key in LABELS if self._dice.random() < 0.7]
        labels = {key: self._dice.choice(LABELS[key]) for key in chosen}
        is_virtual = self._dice.random() < 0.5
        if is_virtual:
            labels[keys.NODE_TYPE] = keys.VIRTUAL_NODE_TYPE
        metadata = {"labels": {**labels, "batch": batch}}
        spec = {"taints": [TAINT] if is_virtual else []}
        return named(keys.NODE, Key("", name), metadata=metadata, spec=spec)

    def case(self, key: Key, batch: str, nodes: Sequence[str]) -> Case:
        spec = pod_spec(nodeSelector={"batch": batch})
        if self._dice.random() < 0.6:
            own = [self._term(nodes) for _ in range(self._dice.randint(1, 3))]
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": own}}}
        if self._dice.random() < 0.2:
            spec["tolerations"] = [{"operator": "Exists"}]
        if self._dice.random() < 0.15:
            spec["runtimeClassName"] = keys.RUNTIME_CLASS
        strategy = self._dice.choice(list(Strategy))
        selector = tuple(self._term(nodes) for _ in range(self._dice.choice([0, 0, 1, 2])))
        return Case(factories.pod(*key, spec=spec), NamespaceOffloading(strategy, selector))

    def _term(self, nodes: Sequence[str]) -> Term:
        expressions = [self._expression() for _ in range(self._dice.choice([0, 1, 1, 1, 2]))]
        term: Term = {"matchExpressions": expressions} if expressions else {}
        if self._dice.random() < 0.2:
            operator, name = self._dice.choice(LISTED), self._dice.choice(nodes)
            field = {"key": "metadata.name", "operator": operator, "values": [name]}
            term["matchFields"] = [field]
        return term

    def _expression(self) -> Object:
        key = self._dice.choice([*LABELS, "nobody-has-this"])
        operator = self._dice.choice([*LISTED, *LISTED, "Exists", "DoesNotExist", "Gt", "Lt"])
        requirement: Object = {"key": key, "operator": operator}
        if operator in LISTED:
            possible = LABELS.get(key, ["x"])
            requirement["values"] = self._dice.sample(
                possible, self._dice.randint(1, len(possible))
            )
        elif operator in ("Gt", "Lt"):
            requirement = {"key": "cores", "operator": operator, "values": ["4"]}
        return requirement


# The scheduler ------------------------------------------------------------------------------------


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def is_refused(pod: Object) -> bool:
    found = objects.find_condition(pod.get("status", {}).get("conditions"), "PodScheduled") or {}
    return found.get("reason") == "Unschedulable"


async def case_verdict(cluster: ClusterClient, dice: Dice, batch: str, count: int) -> int:
    """Return how many of ``count`` pods were bound, having shown that each is where it may be."""
    space = f"batch-{batch}"
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    nodes = [dice.node(f"n{batch}-{number}", batch) for number in range(NODES)]
    await asyncio.gather(*(keep(cluster, node) for node in nodes))
    there = (await cluster.list(Selection(keys.NODE, Object, labels=f"batch={batch}"))).items
    names = [objects.key_of(node).name for node in nodes]
    cases = {
        key: dice.case(key, batch, names)
        for key in (Key(space, f"web-{number}") for number in range(count))
    }
    made = await some_at_once(cluster.create(keys.POD, case.stored()) for case in cases.values())
    wanted = {
        key: {node.name for node, found in there.items() if case.takes(found)}
        for key, case in cases.items()
    }
    for one in made:
        ours = {key.name for key, node in there.items() if not placement.obstacles(one, node)}
        assert ours == wanted[objects.key_of(one)], cases[objects.key_of(one)]

    def is_decided(key: Key, pod: Object) -> bool:
        return bool(node_of(pod)) or (is_refused(pod) and not wanted[key])

    def are_decided(pods: Any) -> bool:
        return len(pods) == count and all(is_decided(key, pod) for key, pod in pods.items())

    final = await world.until(cluster, keys.POD, space, are_decided)
    for key, found in final.items():
        name = node_of(found)
        assert name in wanted[key] if name else not wanted[key], cases[key]
    return sum(bool(node_of(found)) for found in final.values())


async def test_pods_are_bound_where_user_and_namespace_both_allow_it(
    scheduled_cluster: ClusterClient,
) -> None:
    (runtime_class,) = documents.of_kind("RuntimeClass")
    await scheduled_cluster.create(keys.RUNTIME_CLASSES, runtime_class)
    dice = Dice(SEED)
    sizes = [min(BATCH, PAIRS - done) for done in range(0, PAIRS, BATCH)]

    bound = [
        await case_verdict(scheduled_cluster, dice, str(number), size)
        for number, size in enumerate(sizes)
    ]

    assert PAIRS * 0.2 < sum(bound) < PAIRS * 0.95  # neither outcome is a rarity


@pytest.mark.parametrize(("full", "chosen"), [("home", "away"), ("away", "home")])
async def test_of_nodes_that_may_have_a_pod_the_one_with_more_room_gets_it(
    scheduled_cluster: ClusterClient, full: str, chosen: str
) -> None:
    """The pod has no wishes of its own, and its strategy allows both nodes."""
    space = f"score-{full}"
    await scheduled_cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    for name in ("home", "away"):
        is_virtual = name == "away"
        labels = {"batch": space} | ({keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE} if is_virtual else {})
        spec = {"taints": [TAINT] if is_virtual else []}
        key = Key("", f"{space}-{name}")
        node = named(keys.NODE, key, metadata={"labels": labels}, spec=spec)
        await keep(scheduled_cluster, node)
    takes = {"requests": {"cpu": "80", "memory": "80Gi"}}
    filler = pod_spec(nodeName=f"{space}-{full}")
    filler["containers"][0]["resources"] = takes
    await scheduled_cluster.create(keys.POD, factories.pod(space, "filler", spec=filler))

    both = NamespaceOffloading(Strategy.LOCAL_AND_REMOTE, ())
    sent = factories.pod(space, "web", spec=pod_spec(nodeSelector={"batch": space}))
    await scheduled_cluster.create(keys.POD, Case(sent, both).stored())

    bound = await world.until_one(
        scheduled_cluster, keys.POD, Key(space, "web"), lambda pod: bool(node_of(pod))
    )
    assert node_of(bound) == f"{space}-{chosen}"
