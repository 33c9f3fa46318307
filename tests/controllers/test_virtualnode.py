"""A VirtualNode gets its virtual kubelet, and loses it only after its pods have left."""

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from apis.offloading import DRAIN_TIMEOUT, VirtualNode, drain_timeout
from controllers import watches
from controllers.offloading.virtualnode.forge import lifecycle, rights
from controllers.offloading.virtualnode.reconciler import VirtualNodeReconciler
from kube.cluster import Cluster, Selection
from kube.controller import TerminalError
from kube.errors import BusyError, ForbiddenError, InvalidError
from tests import factories
from tests.controllers.support import (
    NOW,
    Ledger,
    Told,
    end,
    ensure_namespace,
    manager_of,
    settle,
    there,
    virtual_node,
)
from tests.fakes import FakeCluster

BINDINGS = Selection(keys.ROLE_BINDING, Object, labels=f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET}")


@dataclass
class Rome:
    """A consumer with the virtual node ``name`` in a tenant namespace of this test."""

    cluster: Ledger
    tenant: str
    name: str

    def __post_init__(self) -> None:
        self.told = Told(self.cluster)
        self.gone: set[str] = set()
        self.now = NOW
        manager = manager_of(
            self.cluster,
            cluster_id="rome",
            namespace=self.tenant,
            events=self.told.recorder,
            clock=lambda: self.now,
            known={watches.FOREIGN_CLUSTERS: self.given_up},
        )
        self.reconciler = VirtualNodeReconciler(manager)

    def given_up(self) -> dict[Key, Object]:
        note = {"metadata": {"annotations": {keys.PERMANENTLY_UNREACHABLE: "true"}}}
        return {Key("", name): note for name in self.gone}

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.name)

    @property
    def deployment(self) -> Key:
        return Key(self.tenant, f"vk-{self.name}")

    async def create(self, **spec: object) -> None:
        node = virtual_node(self.tenant, self.name, "milan", **spec)
        await self.cluster.create(keys.VIRTUAL_NODE, node)

    async def settle(self) -> None:
        await settle(self.reconciler, self.key, self.cluster)

    async def conditions(self) -> dict[str, str]:
        found = await there(self.cluster, keys.VIRTUAL_NODE, self.key)
        return {each["type"]: each["status"] for each in found["status"]["conditions"]}

    async def node(self, *, ready: str = "True") -> None:
        labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"}
        key = Key("", self.name)
        await self.cluster.create(keys.NODE, factories.node(self.name, metadata={"labels": labels}))
        condition = {"type": "Ready", "status": ready, "reason": "x", "message": "y"}
        await self.cluster.patch_status(keys.NODE, key, {"conditions": [condition]})

    async def up(self) -> None:
        found = await there(self.cluster, keys.DEPLOYMENT, self.deployment)
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), 1)
        status = {**counts, "observedGeneration": found["metadata"]["generation"]}
        await self.cluster.patch_status(keys.DEPLOYMENT, self.deployment, status)

    async def is_there(self, kind: objects.Kind, key: Key) -> bool:
        return await self.cluster.get_live(kind, key) is not None


async def prepared_consumer(cluster: Cluster, unique: str) -> Rome:
    tenant = f"liqo-tenant-{unique}"
    for name in (tenant, keys.NODE_LEASE_NAMESPACE, "kube-system"):
        await ensure_namespace(cluster, name)
    spec = {
        "containerImage": "pyliqo:1",
        "createNode": True,
        "disableNetworkCheck": False,
        "metricsEnabled": False,
    }
    key = Key(tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    await cluster.create(keys.VK_OPTIONS_TEMPLATE, named(keys.VK_OPTIONS_TEMPLATE, key, spec=spec))
    return Rome(Ledger(cluster), tenant, f"milan-{unique}")


@pytest.fixture
async def rome(cluster: Cluster, namespace: str) -> Rome:
    return await prepared_consumer(cluster, namespace)


async def test_it_gets_account_rights_deployment_and_map(rome: Rome) -> None:
    await rome.create()
    await rome.settle()

    found = await there(rome.cluster, keys.VIRTUAL_NODE, rome.key)
    assert objects.finalizers(found) == [keys.VIRTUAL_NODE_FINALIZER]
    assert await rome.is_there(keys.SERVICE_ACCOUNT, rome.key)
    for kind, wanted in rights.at_home(VirtualNode.parse(found)):
        assert await rome.is_there(kind, objects.key_of(wanted))
    namespace_map = await there(rome.cluster, keys.NAMESPACE_MAP, Key(rome.tenant, "milan"))
    assert objects.labels(namespace_map)[keys.REPLICATION] == "true"
    assert objects.labels(namespace_map)[keys.REMOTE_ID] == "milan"
    assert rome.told.reasons == ["VkCreated"]
    assert await rome.conditions() == {"VirtualKubelet": "Creating", "Node": "Creating"}


async def test_of_two_with_one_name_the_elder_has_it_until_it_is_gone(
    cluster: Cluster, namespace: str
) -> None:
    """Admission may let both pass that are created in one moment."""
    ours = await prepared_consumer(cluster, namespace)
    other = replace(await prepared_consumer(cluster, f"{namespace}-other"), name=ours.name)
    await ours.create()
    await other.create()
    made = {one.tenant: await there(cluster, keys.VIRTUAL_NODE, one.key) for one in (ours, other)}
    order = [(obj["metadata"]["creationTimestamp"], objects.uid(obj)) for obj in made.values()]
    elder, younger = (ours, other) if order[0] < order[1] else (other, ours)

    for one in (younger, elder, younger):
        await one.settle()

    assert await elder.is_there(keys.DEPLOYMENT, elder.deployment)
    assert not await younger.is_there(keys.DEPLOYMENT, younger.deployment)
    assert await younger.conditions() == {"VirtualKubelet": "None", "Node": "None"}
    found = await there(cluster, keys.VIRTUAL_NODE, younger.key)
    assert f"VirtualNode {elder.key} already" in found["status"]["conditions"][0]["message"]

    await elder.node()
    await end(cluster, keys.VIRTUAL_NODE, younger.key)
    await younger.settle()
    assert not await younger.is_there(keys.VIRTUAL_NODE, younger.key)
    assert await elder.is_there(keys.NODE, Key("", elder.name))


async def test_who_waited_for_its_name_gets_it(rome: Rome) -> None:
    other = replace(await prepared_consumer(rome.cluster, f"{rome.tenant}-other"), name=rome.name)
    await rome.create()
    await rome.settle()
    await other.create()
    await end(rome.cluster, keys.VIRTUAL_NODE, rome.key)
    await rome.settle()

    await other.settle()

    assert await other.is_there(keys.DEPLOYMENT, other.deployment)


async def test_running_is_what_really_runs(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    await rome.up()
    await rome.settle()
    up = await rome.conditions()
    await rome.node()
    await rome.settle()

    assert up == {"VirtualKubelet": "Running", "Node": "Creating"}
    assert await rome.conditions() == {"VirtualKubelet": "Running", "Node": "Running"}


async def test_a_change_of_the_template_reaches_the_deployment(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    key = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    changes = {"spec": {"containerImage": "pyliqo:2", "replicas": 2}}
    await rome.cluster.patch(keys.VK_OPTIONS_TEMPLATE, key, changes)

    await rome.settle()

    spec = (await there(rome.cluster, keys.DEPLOYMENT, rome.deployment))["spec"]
    assert spec["replicas"] == 2
    assert {each["image"] for each in spec["template"]["spec"]["containers"]} == {"pyliqo:2"}


async def test_what_the_template_no_more_says_leaves_the_deployment(rome: Rome) -> None:
    await rome.create()
    key = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    more: Object = {
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "extraLabels": {"team": "a"},
    }
    await rome.cluster.patch(keys.VK_OPTIONS_TEMPLATE, key, {"spec": more})
    await rome.settle()
    before = (await there(rome.cluster, keys.DEPLOYMENT, rome.deployment))["spec"]["template"]
    assert more["tolerations"] == before["spec"]["tolerations"]

    gone = dict.fromkeys(more)
    await rome.cluster.patch(keys.VK_OPTIONS_TEMPLATE, key, {"spec": gone})
    await rome.settle()

    found = await there(rome.cluster, keys.DEPLOYMENT, rome.deployment)
    template = found["spec"]["template"]
    assert {"tolerations", "imagePullSecrets"}.isdisjoint(template["spec"])
    assert "team" not in template["metadata"]["labels"]
    await rome.settle()
    again = await there(rome.cluster, keys.DEPLOYMENT, rome.deployment)
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_what_somebody_broke_is_mended(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    binding = Key("", rights.name(rome.name))
    await rome.cluster.patch(keys.DEPLOYMENT, rome.deployment, {"spec": {"replicas": 0}})
    await end(rome.cluster, keys.CLUSTER_ROLE_BINDING, binding)

    await rome.settle()

    assert (await there(rome.cluster, keys.DEPLOYMENT, rome.deployment))["spec"]["replicas"] == 1
    assert await rome.is_there(keys.CLUSTER_ROLE_BINDING, binding)


async def test_a_deployment_of_somebody_else_is_left_alone(rome: Rome) -> None:
    foreign = factories.deployment(rome.tenant, f"vk-{rome.name}")
    made = await rome.cluster.create(keys.DEPLOYMENT, foreign)
    await rome.create()

    with pytest.raises(TerminalError, match="is not ours"):
        await rome.settle()

    assert await there(rome.cluster, keys.DEPLOYMENT, rome.deployment) == made


async def test_a_template_that_is_not_there_is_asked_for(rome: Rome) -> None:
    key = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    await end(rome.cluster, keys.VK_OPTIONS_TEMPLATE, key)
    await rome.create()

    with pytest.raises(TerminalError, match=f"vkoptionstemplate {key} does not exist: create it"):
        await rome.settle()
    assert rome.told.reasons == ["MissingTemplate"]


async def test_a_template_outside_our_namespace_is_refused(rome: Rome) -> None:
    await rome.create(vkOptionsTemplateRef={"name": "mine", "namespace": "default"})

    with pytest.raises(TerminalError, match="only templates in namespace"):
        await rome.settle()

    assert not await rome.is_there(keys.DEPLOYMENT, rome.deployment)


async def test_a_template_that_says_what_cannot_be_changes_nothing_and_is_told(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    before = await there(rome.cluster, keys.DEPLOYMENT, rome.deployment)
    key = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    said = {"metricsEnabled": True, "metricsAddress": f":{keys.KUBELET_PORT}"}
    await rome.cluster.patch(keys.VK_OPTIONS_TEMPLATE, key, {"spec": said})

    with pytest.raises(TerminalError, match="metrics need this port and the next"):
        await rome.settle()

    assert rome.told.reasons[-1] == "InvalidTemplate"
    assert await there(rome.cluster, keys.DEPLOYMENT, rome.deployment) == before


async def test_a_template_that_is_missing_does_not_hinder_the_end(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    await end(rome.cluster, keys.VK_OPTIONS_TEMPLATE, Key(rome.tenant, "virtual-kubelet-default"))
    await end(rome.cluster, keys.VIRTUAL_NODE, rome.key)

    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)


async def test_it_leaves_nothing(rome: Rome, namespace: str) -> None:
    await rome.create()
    await rome.settle()
    await rome.node()
    virtual = VirtualNode.parse(await there(rome.cluster, keys.VIRTUAL_NODE, rome.key))
    await rome.cluster.create(keys.ROLE_BINDING, rights.offloaded_namespace(virtual, namespace))
    await end(rome.cluster, keys.VIRTUAL_NODE, rome.key)

    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
    assert not await rome.is_there(keys.DEPLOYMENT, rome.deployment)
    assert not await rome.is_there(keys.SERVICE_ACCOUNT, rome.key)
    assert not await rome.is_there(keys.NODE, Key("", rome.name))
    assert not await rome.is_there(keys.NAMESPACE_MAP, Key(rome.tenant, "milan"))
    assert not await rome.is_there(keys.ROLE_BINDING, Key(namespace, rights.name(rome.name)))
    for kind, wanted in rights.at_home(virtual):
        assert not await rome.is_there(kind, objects.key_of(wanted))


async def test_the_map_stays_for_the_other_virtual_node_of_the_cluster(rome: Rome) -> None:
    other = virtual_node(rome.tenant, f"other-{rome.name}", "milan")
    await rome.cluster.create(keys.VIRTUAL_NODE, other)
    await rome.create()
    await rome.settle()
    await end(rome.cluster, keys.VIRTUAL_NODE, rome.key)

    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
    assert await rome.is_there(keys.NAMESPACE_MAP, Key(rome.tenant, "milan"))


async def offloaded_pod(rome: Rome, name: str, **metadata: object) -> Key:
    spec = factories.pod_spec(nodeName=rome.name, terminationGracePeriodSeconds=30)
    metadata = {"labels": {keys.SHADOW_POD_LABEL: "true"}, **metadata}
    pod = factories.pod("default", name, spec=spec, metadata=metadata)
    await rome.cluster.create(keys.POD, pod)
    await rome.cluster.patch_status(keys.POD, Key("default", name), {"phase": "Running"})
    return Key("default", name)


@pytest.fixture
async def drained() -> tuple[Rome, FakeCluster, Key]:
    """A virtual node with one offloaded pod, as its deletion begins."""
    fake = FakeCluster(strict=True)
    rome = await prepared_consumer(fake, "x")
    await rome.create()
    await rome.settle()
    await rome.node()
    pod = await offloaded_pod(rome, "web")
    await end(fake, keys.VIRTUAL_NODE, rome.key)
    return rome, fake, pod


async def test_pods_are_evicted_before_anything_is_taken_down(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    rome, fake, pod = drained

    again = await rome.reconciler.reconcile(rome.key)
    await rome.settle()

    assert again == 5
    assert (await there(fake, keys.NODE, Key("", rome.name)))["spec"]["unschedulable"] is True
    assert objects.is_terminating(await there(fake, keys.POD, pod))
    assert await rome.is_there(keys.DEPLOYMENT, rome.deployment)
    assert (await rome.conditions())["Node"] == "Draining"
    evictions = [verb for verb, *_ in rome.cluster.writes if verb == "eviction"]
    assert len(evictions) == 1
    found = await there(fake, keys.VIRTUAL_NODE, rome.key)
    (node,) = [one for one in found["status"]["conditions"] if one["type"] == "Node"]
    assert node["message"].startswith("1 pods are leaving the node")
    assert "liqoctl force unpeer milan" in node["message"]


async def test_what_cannot_leave_or_go_holds_up_no_other(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    """Of three pods the first is refused for ever; then of its rights one."""
    rome, fake, pod = drained
    others = [await offloaded_pod(rome, name) for name in ("x", "y")]
    refused = InvalidError("a webhook of somebody's")
    rome.cluster.refuses["eviction", str(keys.POD), pod] = refused
    right = Key(rome.tenant, rome.name)

    with pytest.raises(InvalidError):
        await rome.reconciler.reconcile(rome.key)

    found = [await there(fake, keys.POD, key) for key in (pod, *others)]
    assert [objects.is_terminating(one) for one in found] == [False, True, True]
    await end_offloaded(fake, pod, *others)
    bound = [key for kind, key in fake.everything() if kind == keys.ROLE_BINDING]
    rome.cluster.refuses["delete", str(keys.ROLE_BINDING), bound[0]] = refused
    for _ in range(5):
        with contextlib.suppress(InvalidError):
            await rome.reconciler.reconcile(rome.key)
    left = [key for kind, key in fake.everything() if kind == keys.ROLE_BINDING]
    assert left == bound[:1]
    assert not await rome.is_there(keys.SERVICE_ACCOUNT, right)
    assert await rome.is_there(keys.VIRTUAL_NODE, rome.key)


DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1"}


async def left_by_a_drain(drained: tuple[Rome, FakeCluster, Key]) -> list[Key]:
    """Return the pods that stay on the node when all others have left."""
    rome, fake, pod = drained
    owner = {**DAEMON_SET, "controller": True}
    left = [
        await offloaded_pod(rome, "agent", ownerReferences=[owner]),
        await offloaded_pod(rome, "static", annotations={keys.MIRROR_POD: "x"}),
    ]
    await rome.reconciler.reconcile(rome.key)
    assert objects.is_terminating(await there(fake, keys.POD, pod))
    await end_offloaded(fake, pod)
    return left


async def end_offloaded(fake: FakeCluster, *pods: Key) -> None:
    """Let pods be gone, as the virtual kubelet does."""
    for key in pods:
        found = await there(fake, keys.POD, key)
        await fake.delete(keys.POD, key, uid=objects.uid(found), grace_s=0)


async def test_pods_that_belong_to_their_node_hold_up_no_drain_and_end_with_it(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    """Those of a DaemonSet and static ones: a drained node would get them back at once."""
    rome, fake, pod = drained
    done = await offloaded_pod(rome, "done")
    await fake.patch_status(keys.POD, done, {"phase": "Succeeded"})
    left = await left_by_a_drain(drained)

    await rome.settle()

    assert [key for verb, _, key in rome.cluster.writes if verb == "eviction"] == [pod]
    assert not await rome.is_there(keys.NODE, Key("", rome.name))
    assert all([objects.is_terminating(await there(fake, keys.POD, key)) for key in left])
    assert not await rome.is_there(keys.POD, done)
    assert await rome.is_there(keys.DEPLOYMENT, rome.deployment), "who else would end them there?"
    await end_offloaded(fake, *left)
    await rome.settle()
    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)


async def test_what_belongs_to_a_node_is_not_waited_for_for_ever(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    rome, fake, _ = drained
    left = await left_by_a_drain(drained)
    await rome.settle()
    asked = [await there(fake, keys.POD, key) for key in left]
    assert await rome.is_there(keys.DEPLOYMENT, rome.deployment)

    last = max(one["metadata"]["deletionTimestamp"] for one in asked)
    rome.now = datetime.fromisoformat(last) + timedelta(seconds=31)
    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
    assert not await rome.is_there(keys.DEPLOYMENT, rome.deployment)


async def test_what_may_not_be_deleted_is_not_waited_for(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    rome, fake, _ = drained
    left = await left_by_a_drain(drained)
    fake.fail("delete", ForbiddenError("not on a virtual node"), kind=keys.POD, times=100)

    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
    assert not any([objects.is_terminating(await there(fake, keys.POD, key)) for key in left])


async def test_pods_of_a_node_that_was_deleted_by_hand_leave_too(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    rome, fake, pod = drained
    node = await there(fake, keys.NODE, Key("", rome.name))
    await fake.delete(keys.NODE, Key("", rome.name), uid=objects.uid(node))

    await rome.settle()

    assert objects.is_terminating(await there(fake, keys.POD, pod))
    assert await rome.is_there(keys.DEPLOYMENT, rome.deployment)
    await end_offloaded(fake, pod)
    await rome.settle()
    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)


async def test_when_they_are_gone_so_is_the_rest(drained: tuple[Rome, FakeCluster, Key]) -> None:
    rome, fake, pod = drained
    await rome.reconciler.reconcile(rome.key)
    await fake.delete(keys.POD, pod, uid=objects.uid(await there(fake, keys.POD, pod)), grace_s=0)

    await rome.settle()

    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
    assert not await rome.is_there(keys.NODE, Key("", rome.name))


async def test_where_the_peer_is_gone_for_good_nobody_waits_for_its_pods(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    """Neither a budget nor a kubelet that cannot reach its cluster holds up what is given up."""
    rome, fake, pod = drained
    fake.fail("post", BusyError("disruption budget"), kind=keys.POD, times=100)
    await rome.reconciler.reconcile(rome.key)
    assert await rome.is_there(keys.POD, pod)

    rome.gone.add("milan")
    await rome.settle()

    assert not await rome.is_there(keys.POD, pod)
    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)


@factories.cases("ready, minutes, is_up, is_given_up")
async def test_where_no_virtual_kubelet_runs_any_more_its_pods_are_given_up_after_a_while(
    drained: tuple[Rome, FakeCluster, Key],
    ready: str,
    minutes: int,
    *,
    is_up: bool,
    is_given_up: bool,
) -> None:
    """The cluster answers, and nobody is left to tell it: bounded, told, and listed."""
    rome, fake, pod = drained
    fake.fail("post", BusyError("disruption budget"), kind=keys.POD, times=100)
    since = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    status = {"conditions": [condition]}
    await fake.patch_status(keys.NODE, Key("", rome.name), status)
    if is_up:
        await rome.up()

    await rome.reconciler.reconcile(rome.key)
    shown = await fake.get_live(keys.VIRTUAL_NODE, rome.key)
    if is_given_up:
        await rome.settle()

    assert await rome.is_there(keys.POD, pod) is not is_given_up
    assert await rome.is_there(keys.VIRTUAL_NODE, rome.key) is not is_given_up
    assert ("PodsAbandoned" in rome.told.reasons) is is_given_up
    if minutes < 10:
        assert "given up at 2025-01-31T12:01:00Z" in str(shown)


def test_of_pods_that_were_given_up_as_many_are_named_as_can_be_read() -> None:
    node = VirtualNode.parse(virtual_node("liqo-tenant-milan", "milan", "milan"))
    said = lifecycle.abandoned(node, [Key("shop", f"web-{number}") for number in range(13)])

    assert "cluster milan may still run shop/web-0, " in said
    assert said.endswith(" and 3 more, in their twins")


async def test_pods_that_end_at_a_peer_that_is_gone_end_at_once() -> None:
    fake = FakeCluster(strict=True)
    rome = await prepared_consumer(fake, "x")
    await rome.create()
    await rome.settle()
    await rome.node()
    ends, stays = (
        [await offloaded_pod(rome, f"e{n}") for n in range(3)],
        await offloaded_pod(rome, "stays"),
    )
    for key in ends:
        uid = objects.uid(await there(fake, keys.POD, key))
        await fake.delete(keys.POD, key, uid=uid, grace_s=30)
    rome.gone.add("milan")
    rome.cluster.refuses["delete", str(keys.POD), ends[1]] = InvalidError("somebody's webhook")

    with pytest.raises(InvalidError):
        await rome.reconciler.reconcile(rome.key)
    assert [await rome.is_there(keys.POD, key) for key in ends] == [False, True, False]
    rome.cluster.refuses.clear()
    again = await rome.reconciler.reconcile(rome.key)

    assert again == 5
    assert not await rome.is_there(keys.POD, ends[1])
    assert await rome.is_there(keys.POD, stays)


async def test_a_disruption_budget_is_waited_for_and_holds_up_nobody_else(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    rome, fake, first = drained
    second = await offloaded_pod(rome, "zoo")
    fake.fail("post", BusyError("disruption budget"), kind=keys.POD)

    again = await rome.reconciler.reconcile(rome.key)
    refused = await there(fake, keys.POD, first)
    other = await there(fake, keys.POD, second)
    await rome.reconciler.reconcile(rome.key)

    assert again == 5
    assert not objects.is_terminating(refused)
    assert objects.is_terminating(other)
    assert objects.is_terminating(await there(fake, keys.POD, first))


@pytest.mark.parametrize(("said", "waits"), [(None, 30), ("1h5m", 65), ("0s", 0)])
async def test_a_disruption_budget_has_the_time_that_the_template_gives(
    drained: tuple[Rome, FakeCluster, Key], said: str | None, waits: int
) -> None:
    rome, fake, pod = drained
    fake.fail("post", BusyError("disruption budget"), kind=keys.POD, times=100)
    template = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    await fake.patch(keys.VK_OPTIONS_TEMPLATE, template, {"spec": {"drainTimeout": said}})
    since = (await there(fake, keys.VIRTUAL_NODE, rome.key))["metadata"]["deletionTimestamp"]

    for early in (timedelta(seconds=1), timedelta(0)):
        rome.now = datetime.fromisoformat(since) + timedelta(minutes=waits) - early
        await rome.reconciler.reconcile(rome.key)
        is_ending = objects.is_terminating(await there(fake, keys.POD, pod))
        assert is_ending == (not early)
    assert "DrainTimeout" in rome.told.reasons


async def test_no_template_keeps_a_virtual_node_from_its_end(
    drained: tuple[Rome, FakeCluster, Key],
) -> None:
    """Neither one of a foreign namespace, which nobody reads, nor one that makes no sense."""
    rome, fake, pod = drained
    fake.fail("post", BusyError("disruption budget"), kind=keys.POD, times=100)
    fake.fail("get", ForbiddenError("templates elsewhere"), kind=keys.VK_OPTIONS_TEMPLATE)
    elsewhere = {"name": "x", "namespace": "elsewhere"}
    await fake.patch(keys.VIRTUAL_NODE, rome.key, {"spec": {"vkOptionsTemplateRef": elsewhere}})
    since = (await there(fake, keys.VIRTUAL_NODE, rome.key))["metadata"]["deletionTimestamp"]

    rome.now = datetime.fromisoformat(since) + timedelta(minutes=30)
    await rome.reconciler.reconcile(rome.key)

    assert objects.is_terminating(await there(fake, keys.POD, pod))


@pytest.mark.parametrize("said", ["", "x", "30", "-5m", "1d", "1m" * 9, 30, None, ["1m"]])
def test_a_duration_that_makes_no_sense_is_the_default(said: object) -> None:
    assert drain_timeout({"spec": {"drainTimeout": said}}) == DRAIN_TIMEOUT
    assert drain_timeout(None) == DRAIN_TIMEOUT


async def test_without_a_node_the_virtual_kubelet_stays(rome: Rome) -> None:
    await rome.create()
    await rome.settle()
    await rome.node()
    await rome.cluster.patch(keys.VIRTUAL_NODE, rome.key, {"spec": {"createNode": False}})

    await rome.settle()

    assert not await rome.is_there(keys.NODE, Key("", rome.name))
    assert await rome.is_there(keys.DEPLOYMENT, rome.deployment)
    assert (await rome.conditions())["Node"] == "None"


async def test_a_node_that_is_not_virtual_is_never_deleted(rome: Rome) -> None:
    await rome.create(createNode=False)
    await rome.cluster.create(keys.NODE, factories.node(rome.name))
    await rome.settle()
    pod = await offloaded_pod(rome, f"on-{rome.name}")
    await end(rome.cluster, keys.VIRTUAL_NODE, rome.key)

    await rome.settle()

    assert not objects.is_terminating(await there(rome.cluster, keys.POD, pod))
    node = await there(rome.cluster, keys.NODE, Key("", rome.name))
    assert not node["spec"].get("unschedulable") if "spec" in node else True
    assert not await rome.is_there(keys.VIRTUAL_NODE, rome.key)
