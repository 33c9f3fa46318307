"""Pods out of place are counted, and leave only if somebody asks. Source: docs/parity.md § 9 #1."""

import asyncio
import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named, owner_reference
from apis.offloading import VirtualNode
from controllers.offloading.placement import forge, reconciler
from controllers.offloading.placement.reconciler import LOOK_S, PlacementReconciler, Waiting
from kube import client
from kube.cluster import Cluster, Selection
from kube.errors import BusyError, NotReachableError
from kube.informer import Change, Informer
from sandbox.controlplane import Plane
from tests import factories
from tests.controllers.rome import OfTenants
from tests.controllers.support import (
    Ledger,
    Told,
    defaulted,
    ensure_namespace,
    manager_of,
    settle,
    there,
    virtual_node,
)
from tests.fakes import FakeCluster
from tests.kube.running import running, turns, until

EVICT = "pyliqo.io/evict-misplaced-pods"


class AllPolicies(reconciler.Policies):
    """As the caches say, when they have seen all there are."""

    async def found(self, namespace: str, nodes: Iterable[VirtualNode]) -> forge.PolicySummary:
        nobody: Informer[Object] = Informer(Selection(keys.NAMESPACE_OFFLOADING, Object))
        self._there.clear()
        for selection in reconciler.POLICIES:
            keys_of = self.keys_of(selection.kind, nobody)
            for key, one in (await self._cluster.list(selection)).items.items():
                keys_of(Change(key, None, one))
        return await super().found(namespace, nodes)


@dataclass
class Rome:
    """A namespace, the node ``milan-…`` that is virtual, and ``worker``, which is not."""

    cluster: Ledger
    namespace: str
    told: Told
    now: datetime

    def __post_init__(self) -> None:
        manager = manager_of(
            self.cluster,
            of=partial(OfTenants, tenant=self.namespace),
            events=self.told.recorder,
            clock=lambda: self.now,
        )
        self.reconciler = PlacementReconciler(manager)
        self.reconciler.policies = AllPolicies(self.cluster, "liqo")
        self.waiting = self.reconciler.waiting

    @property
    def key(self) -> Key:
        return Key(self.namespace, "offloading")

    @property
    def milan(self) -> str:
        return f"milan-{self.namespace}"

    async def offload(self, strategy: str, **spec: Any) -> None:
        wanted = defaulted(self.namespace, podOffloadingStrategy=strategy, **spec)
        await self.cluster.create(keys.NAMESPACE_OFFLOADING, wanted)
        enabled = {"metadata": {"labels": {keys.SCHEDULING_ENABLED: "true"}}}
        await self.cluster.patch(keys.NAMESPACE, Key("", self.namespace), enabled)

    async def change(self, strategy: str, *, is_asked: bool = False) -> None:
        note = {EVICT: strategy if is_asked else None}
        changes: Object = {"spec": {"podOffloadingStrategy": strategy}}
        changes["metadata"] = {"annotations": note}
        await self.cluster.patch(keys.NAMESPACE_OFFLOADING, self.key, changes)

    async def run(self, name: str, node: str, **metadata: Any) -> None:
        spec = factories.pod_spec(**({"nodeName": node} if node else {}))
        made = factories.pod(self.namespace, name, spec=spec, metadata=metadata)
        await self.cluster.create(keys.POD, made)

    async def said(self, type_: str = "PodsPlaced") -> Object:
        found = await there(self.cluster, keys.NAMESPACE_OFFLOADING, self.key)
        return objects.find_condition(found.get("status", {}).get("conditions"), type_) or {}

    async def left(self) -> set[str]:
        found = await self.cluster.list(Selection(keys.POD, Object, self.namespace))
        ending = {
            key.name for key, pod in found.items.items() if "deletionTimestamp" in pod["metadata"]
        }
        return {key.name for key in found.items} - ending

    async def settle(self) -> None:
        await settle(self.reconciler, self.key, self.cluster)


@pytest.fixture
async def rome(cluster: Cluster, namespace: str) -> Rome:
    metadata = {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}
    node = factories.node(f"milan-{namespace}", metadata=metadata)
    await cluster.create(keys.NODE, node)
    found = await there(cluster, keys.NAMESPACE, Key("", namespace))
    born = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    return Rome(Ledger(cluster), namespace, Told(cluster), born + timedelta(minutes=1))


async def test_a_condition_tells_who_is_out_of_place_and_that_nobody_is_any_more(
    rome: Rome,
) -> None:
    await rome.offload("LocalAndRemote")
    await rome.run("here", "worker")
    await rome.run("there", rome.milan)
    await rome.settle()
    before = await rome.said()

    await rome.change("Remote")
    await rome.settle()
    strict = await rome.said()
    await rome.change("LocalAndRemote")
    await rome.settle()
    after = await rome.said()

    assert (before["status"], after["status"]) == ("True", "True")
    assert (strict["status"], strict["reason"]) == ("False", "PodsMisplaced")
    assert "1 pods" in strict["message"]
    assert "here" in strict["message"]
    assert "annotate pyliqo.io/evict-misplaced-pods=Remote" in strict["message"]
    assert await rome.left() == {"here", "there"}
    assert rome.told.reasons == []


@pytest.mark.parametrize(("strategy", "left"), [("Remote", {"there"}), ("Local", {"here"})])
async def test_pods_are_evicted_when_somebody_asks(
    rome: Rome, strategy: str, left: set[str]
) -> None:
    await rome.offload("LocalAndRemote")
    await rome.run("here", "worker")
    await rome.run("there", rome.milan)
    await rome.settle()

    await rome.change(strategy, is_asked=True)
    await rome.settle()

    assert await rome.left() == left
    assert rome.told.reasons == ["EvictedPods"]


async def test_a_request_for_another_strategy_evicts_nobody(rome: Rome) -> None:
    await rome.offload("LocalAndRemote")
    await rome.run("here", "worker")
    await rome.change("Local", is_asked=True)
    await rome.settle()
    changes = {"spec": {"podOffloadingStrategy": "Remote"}}
    await rome.cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, changes)

    await rome.settle()

    assert await rome.left() == {"here"}
    assert (await rome.said())["reason"] == "PodsMisplaced"


async def test_who_belongs_to_a_node_stays(rome: Rome) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "1"}
    await rome.offload("LocalAndRemote")
    await rome.run("daemon", "worker", ownerReferences=[{**owner, "controller": True}])

    await rome.change("Remote", is_asked=True)
    await rome.settle()

    assert await rome.left() == {"daemon"}
    assert (await rome.said())["status"] == "True"


async def test_a_pod_that_cannot_be_evicted_keeps_no_other() -> None:
    """One in the middle fails for ever."""
    fake = FakeCluster()
    await fake.create(keys.NAMESPACE, factories.namespace("foo"))
    rome = Rome(Ledger(fake), "foo", Told(fake), datetime.fromisoformat("2026-01-01T00:00:00Z"))
    await rome.offload("LocalAndRemote")
    for name in ("a", "b", "c"):
        await rome.run(name, "worker")
    await rome.change("Remote", is_asked=True)
    middle = ("eviction", str(keys.POD), Key("foo", "b"))
    rome.cluster.refuses[middle] = NotReachableError("no answer")

    with pytest.raises(NotReachableError):
        await rome.reconciler.reconcile(rome.key)

    assert await rome.left() == {"b"}


async def test_a_disruption_budget_is_respected_and_asked_again() -> None:
    fake = FakeCluster()
    await fake.create(keys.NAMESPACE, factories.namespace("foo"))
    rome = Rome(Ledger(fake), "foo", Told(fake), datetime.fromisoformat("2026-01-01T00:00:00Z"))
    await rome.offload("LocalAndRemote")
    await rome.run("here", "worker")
    await rome.change("Remote", is_asked=True)
    fake.fail("post", BusyError("the budget is used up (429)"), kind=keys.POD)

    again = await rome.reconciler.reconcile(rome.key)

    assert again == LOOK_S
    assert await rome.left() == {"here"}
    assert (await rome.said())["reason"] == "Evicting"
    assert rome.told.reasons == ["EvictionBlocked"]
    await rome.settle()
    assert await rome.left() == set()


@pytest.mark.cluster
async def test_a_budget_of_a_real_server_holds_an_eviction_up_until_it_allows_it(
    plane: Plane, crds: None
) -> None:
    async with client.connect(plane.kubeconfig) as cluster:
        space = await cluster.create(
            keys.NAMESPACE, named(keys.NAMESPACE, Key("", ""), metadata={"generateName": "pdb-"})
        )
        born = datetime.fromisoformat(space["metadata"]["creationTimestamp"])
        name = space["metadata"]["name"]
        rome = Rome(Ledger(cluster), name, Told(cluster), born)
        budget, here = Key(name, "all"), Key(name, "here")
        rule = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await cluster.create(
            keys.POD_DISRUPTION_BUDGET, named(keys.POD_DISRUPTION_BUDGET, budget, spec=rule)
        )
        await rome.offload("LocalAndRemote")
        await rome.run("here", "worker", labels={"app": "web"})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await cluster.patch_status(keys.POD, here, ready)
        await rome.change("Remote", is_asked=True)

        await rome.reconciler.reconcile(rome.key)
        held = await rome.left()
        allowed = {"disruptionsAllowed": 1, "observedGeneration": 1, "currentHealthy": 2}
        rest = {"desiredHealthy": 1, "expectedPods": 2}
        await cluster.patch_status(keys.POD_DISRUPTION_BUDGET, budget, {**allowed, **rest})
        await rome.reconciler.reconcile(rome.key)

        assert held == {"here"}
        assert await rome.left() == set()
        assert rome.told.reasons == ["EvictionBlocked", "EvictedPods"]


def test_an_offloading_asks_once_it_is_taken_up_and_when_it_changes() -> None:
    new = defaulted("shop")
    taken_up = copy.deepcopy(new)
    taken_up["metadata"]["finalizers"] = [keys.NAMESPACE_OFFLOADING_FINALIZER]
    told = {**taken_up, "status": {"offloadingPhase": "Ready"}}
    other = {**taken_up, "spec": {"podOffloadingStrategy": "Local"}}

    assert forge.is_same_question(None, new)
    assert not forge.is_same_question(new, taken_up)
    assert not forge.is_same_question(None, taken_up)
    assert forge.is_same_question(taken_up, told)
    assert not forge.is_same_question(taken_up, other)
    assert not forge.is_same_question(taken_up, None)


async def test_nobody_looks_again_where_every_pod_is_in_place(rome: Rome) -> None:
    await rome.offload("Remote")
    await rome.run("there", rome.milan)

    first = await rome.reconciler.reconcile(rome.key)
    second = await rome.reconciler.reconcile(rome.key)
    await rome.run("waiting", "")
    third = await rome.reconciler.reconcile(rome.key)

    assert (first, second, third) == (LOOK_S, None, LOOK_S)


async def test_where_every_node_will_do_nothing_is_listed() -> None:
    fake = FakeCluster()
    await fake.create(keys.NAMESPACE, factories.namespace("foo"))
    rome = Rome(Ledger(fake), "foo", Told(fake), datetime.fromisoformat("2026-01-01T00:00:00Z"))
    await rome.offload("LocalAndRemote")
    fake.fail("list", BusyError("never asked"), kind=keys.POD)

    assert await rome.reconciler.reconcile(rome.key) is None
    assert (await rome.said())["status"] == "True"


# Born together ------------------------------------------------------------------------------------

T0 = datetime.fromisoformat("2026-01-01T00:00:00Z")


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Birth:
    """When each came, in seconds after the namespace."""

    pod: float = 1
    offloading: float = 2
    now: float = 3
    generation: int = 1
    is_owned: bool = True
    is_judged: bool = False

    def leaves(self) -> bool:
        owner = named(keys.DEPLOYMENT, Key("foo", "web"), metadata={"uid": "1"})
        metadata: Object = {"creationTimestamp": at(self.pod)}
        if self.is_owned:
            metadata["ownerReferences"] = [owner_reference(keys.DEPLOYMENT, owner)]
        if self.is_judged:
            metadata["annotations"] = {keys.PLACEMENT: "x"}
        obj = defaulted("foo", podOffloadingStrategy="Remote")
        obj["metadata"] |= {"creationTimestamp": at(self.offloading), "generation": self.generation}
        space = {"metadata": {"name": "foo", "creationTimestamp": at(0)}}
        pod = factories.pod("foo", "web", metadata=metadata)
        now = T0 + timedelta(seconds=self.now)
        return bool(forge.premature(obj, space, [pod], now))


BORN = Birth()


@pytest.mark.parametrize(
    ("birth", "leaves"),
    [
        (BORN, True),
        (replace(BORN, pod=2), True),
        (replace(BORN, pod=3), True),  # while the other was in admission
        (replace(BORN, pod=8), False),
        (replace(BORN, offloading=60, pod=59, now=61), False),
        (replace(BORN, now=3600), False),
        (replace(BORN, generation=2), False),
        (replace(BORN, is_owned=False), False),
        (replace(BORN, is_judged=True), False),
    ],
)
def test_only_pods_born_with_their_namespace_are_made_anew(birth: Birth, *, leaves: bool) -> None:
    assert birth.leaves() is leaves


async def test_a_pod_that_came_before_its_offloading_in_one_file_is_made_anew(rome: Rome) -> None:
    rome.now -= timedelta(seconds=59)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    await rome.run("early", "worker", ownerReferences=[{**owner, "controller": True}])
    await rome.run("naked", "worker")
    await rome.offload("Remote")

    await rome.settle()

    assert await rome.left() == {"naked"}
    assert rome.told.reasons == ["EvictedPods"]


# Unoffloaded --------------------------------------------------------------------------------------


async def test_who_waits_for_a_virtual_node_is_made_anew_when_the_namespace_is_unoffloaded(
    rome: Rome,
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    owned = {"ownerReferences": [{**owner, "controller": True}]}
    remote, both = (
        {keys.PLACEMENT: f"strategy={strategy} generation=1 added=toleration,nodeAffinity"}
        for strategy in ("Remote", "LocalAndRemote")
    )
    await rome.offload("Remote")
    changes: Object = {"metadata": {"finalizers": [keys.NAMESPACE_OFFLOADING_FINALIZER]}}
    made = await rome.cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, changes)
    await rome.run("waits", "", annotations=remote, **owned)
    await rome.run("naked", "", annotations=remote)
    await rome.run("anywhere", "", annotations=both, **owned)
    await rome.run("runs", rome.milan, annotations=remote, **owned)
    await rome.run("plain", "", **owned)

    await rome.cluster.delete(keys.NAMESPACE_OFFLOADING, rome.key, uid=made["metadata"]["uid"])
    await rome.settle()
    told = list(rome.told.reasons)
    await rome.settle()

    assert await rome.left() == {"naked", "anywhere", "runs", "plain"}
    assert rome.told.reasons == told == ["EvictedPods"]


def test_who_would_be_sent_away_again_by_the_runtime_class_stays() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    note = {keys.PLACEMENT: "strategy=Remote generation=1 added=nodeAffinity"}
    metadata: Object = {"annotations": note, "ownerReferences": [{**owner, "controller": True}]}
    spec = factories.pod_spec(runtimeClassName=keys.RUNTIME_CLASS)
    forced = factories.pod("foo", "forced", spec=spec, metadata=metadata)
    free = factories.pod("foo", "free", metadata=metadata)

    assert forge.stranded([forced, free]) == [free]


async def test_who_asks_is_told_when_a_pod_that_waited_is_bound(rome: Rome) -> None:
    """And until then nobody asks again, however long it waits."""
    await rome.offload("Remote")
    await rome.run("stuck", "")
    await rome.run("other", "")
    woken = asyncio.Queue[Key]()
    rome.waiting.subscribe(woken.put_nowait)
    async with running(rome.waiting.run()):
        assert await rome.reconciler.reconcile(rome.key) == LOOK_S
        pods = [Key(rome.namespace, name) for name in ("stuck", "other")]
        await until(lambda: rome.waiting.are_shown(rome.key, pods))
        assert await rome.reconciler.reconcile(rome.key) is None
        assert woken.empty()

        node = {"apiVersion": "v1", "kind": "Node", "name": rome.milan}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "stuck"}}
        stuck = Key(rome.namespace, "stuck")
        await rome.cluster.post(keys.POD, stuck, "binding", {**binding, "target": node})

        assert await asyncio.wait_for(woken.get(), 300) == rome.key
        assert await rome.reconciler.reconcile(rome.key) is None


async def test_nothing_is_watched_while_no_pod_waits() -> None:
    fake = FakeCluster(strict=True)
    await fake.create(keys.NAMESPACE, factories.namespace("shop"))
    await fake.create(keys.POD, factories.pod("shop", "stuck"))
    waiting = Waiting(fake)
    asker, pod = Key("shop", "offloading"), Key("shop", "stuck")
    async with running(waiting.run()):
        await turns()
        assert fake.requests["list", "pods"] == 0
        assert not waiting.are_shown(asker, [pod])
        await until(lambda: waiting.are_shown(asker, [pod]))
        assert fake.requests["list", "pods"] == 1
        waiting.are_shown(asker, [])
        await turns()
        assert not waiting.are_shown(Key("other", "offloading"), [pod])


DENY: Object = {"podSelector": {}, "policyTypes": ["Ingress"]}
ALLOW_NAMESPACES: Object = {
    "podSelector": {},
    "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]}],
}


async def create_policy(rome: Rome, kind: Kind, name: str, **spec: Any) -> None:
    await rome.cluster.create(kind, named(kind, Key(rome.namespace, name), spec=spec))


async def opt_in(rome: Rome, *kinds: Kind) -> None:
    """Give the namespace a virtual node of which the template names ``kinds``."""
    template = Key("liqo", f"template-{rome.namespace}")
    named_there = [
        {"group": kind.group, "version": kind.version, "kind": kind.kind, "resource": kind.plural}
        for kind in kinds
    ]
    must = dict.fromkeys(("createNode", "disableNetworkCheck", "metricsEnabled"), False)
    spec = {"containerImage": "x", **must, "customResources": named_there}
    await ensure_namespace(rome.cluster, "liqo")
    made = named(keys.VK_OPTIONS_TEMPLATE, template, spec=spec)
    await rome.cluster.create(keys.VK_OPTIONS_TEMPLATE, made)
    ref = {"name": template.name, "namespace": template.namespace}
    node = virtual_node(rome.namespace, rome.milan, rome.milan, vkOptionsTemplateRef=ref)
    await rome.cluster.create(keys.VIRTUAL_NODE, node)


async def test_a_condition_names_the_policies_that_hold_here_only(rome: Rome) -> None:
    await opt_in(rome)
    await rome.offload("LocalAndRemote")
    await rome.settle()
    assert await rome.said("PoliciesReflected") == {}, "no noise where there is none"

    for name in ("deny", "dns", "web"):
        await create_policy(rome, keys.NETWORK_POLICY, name, **DENY)
    await create_policy(rome, keys.POD_DISRUPTION_BUDGET, "web", minAvailable=1)
    await rome.cluster.create(
        keys.LIMIT_RANGE, named(keys.LIMIT_RANGE, Key(rome.namespace, "all"), spec={"limits": []})
    )
    await create_policy(rome, keys.RESOURCE_QUOTA, "all")
    await rome.settle()
    told = await rome.said("PoliciesReflected")
    await rome.change("Local")
    await rome.settle()

    assert (told["status"], told["reason"]) == ("False", "HoldHereOnly")
    assert told["message"] == (
        "not reflected, so that they hold in this cluster only: "
        "LimitRange all, NetworkPolicy deny, NetworkPolicy dns and 3 more"
    )
    assert await rome.said("PoliciesReflected") == {}, "no pod goes elsewhere"
    assert (await rome.said())["status"] == "True"


async def test_what_is_opted_in_and_means_the_same_there_is_reflected(rome: Rome) -> None:
    await opt_in(rome, keys.NETWORK_POLICY, keys.POD_DISRUPTION_BUDGET)
    await create_policy(rome, keys.NETWORK_POLICY, "deny", **DENY)
    await create_policy(rome, keys.POD_DISRUPTION_BUDGET, "web", minAvailable=1)
    await rome.offload("LocalAndRemote")
    await rome.settle()
    before = await rome.said("PoliciesReflected")

    await create_policy(rome, keys.NETWORK_POLICY, "from-shop", **ALLOW_NAMESPACES)
    await create_policy(rome, keys.POD_DISRUPTION_BUDGET, "db", maxUnavailable=1)
    await rome.settle()
    after = await rome.said("PoliciesReflected")

    assert (before["status"], before["reason"]) == ("True", "AllReflected")
    assert after["status"] == "False"
    assert after["message"].endswith("only: NetworkPolicy from-shop, PodDisruptionBudget db")


async def test_only_a_change_that_may_matter_asks_for_an_offloaded_namespace() -> None:
    fake = FakeCluster()
    offloaded = Key("foo", "offloading")
    await fake.create(keys.NAMESPACE_OFFLOADING, defaulted("foo"))
    offloadings: Informer[Object] = Informer(Selection(keys.NAMESPACE_OFFLOADING, Object))
    budgets = Informer(Selection(keys.POD_DISRUPTION_BUDGET, reconciler.PolicyOutline))
    keys_of = reconciler.Policies(fake, "liqo").keys_of(keys.POD_DISRUPTION_BUDGET, offloadings)
    asked: list[Key] = []
    budgets.subscribe(lambda change: asked.extend(keys_of(change)))
    kind, key = keys.POD_DISRUPTION_BUDGET, Key("foo", "web")
    async with running(offloadings.run(fake)), running(budgets.run(fake)):
        await offloadings.synced.wait()
        await fake.create(kind, named(kind, Key("bar", "web"), spec={"minAvailable": 1}))
        await fake.create(kind, named(kind, key, spec={"minAvailable": 1}))
        await until(lambda: asked == [offloaded])
        await fake.patch_status(kind, key, {"currentHealthy": 1})
        skip = {"metadata": {"annotations": {keys.SKIP_REFLECTION: "true"}}}
        await fake.patch(kind, key, skip)
        await until(lambda: asked == [offloaded] * 2)
