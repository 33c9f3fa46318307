"""The Node of a VirtualNode, its lease and its health (docs/parity.md § 5.3, 5.4)."""

import asyncio
import dataclasses
import datetime as dt
import re
import secrets
from typing import Any, cast

import pytest

from apis import keys, objects, resources
from apis.objects import Key, Kind, Object
from apis.resources import Resources
from kube import errors
from kube.breaker import Breaker
from kube.cluster import Cluster
from kube.controller import Runner
from kubelet import node as node_
from kubelet import options
from kubelet.node import LeaseReconciler, NodeReconciler, PingReconciler, ProviderHealth
from kubelet.nodeobject import Health, NodeIdentity
from tests import factories
from tests.fakes import FakeCluster, Through
from tests.kube.running import running, until
from tests.kube.test_ratelimit import Cache
from tests.kubelet.test_addresses import MUST
from tests.kubelet.worlds import NOW, Counted, ReasonRecorder, named_condition
from tests.world import existing

NODE = Key("", "milan")
VIRTUAL = Key("liqo-tenant-milan", "milan")
IDENTITY = NodeIdentity("milan", "milan-id", "10.0.0.9", 10250, "v1.35.4", {"extra": "1"})
SILENT = Health(failures=3, reason="the provider is silent", is_reachable=False)


class Keeper:
    """A node reconciler with what it looks at in its hands."""

    def __init__(self, cluster: Cluster, name: str = "milan", **spec: Any) -> None:
        self.cluster, self.now, self.health = cluster, NOW, Health()
        self.version = IDENTITY.version
        self.key = Key("", name)
        self.counted = Counted(cluster)
        self.recorder = ReasonRecorder()
        self.held_back: Resources = {}
        self.offer(**spec)
        self.reconciler = NodeReconciler(
            cast("Cluster", self.counted),
            dataclasses.replace(IDENTITY, name=name),
            virtual_nodes=lambda: {VIRTUAL: self.virtual} if self.virtual else {},
            health=lambda: self.health,
            version=self.asked,
            recorder=self.recorder,
            clock=lambda: self.now,
            held_back=lambda: self.held_back,
        )

    def offer(self, cpu: str = "4", memory: str = "8Gi", **spec: Any) -> None:
        hard = {"cpu": cpu, "memory": memory, **spec.pop("hard", {})}
        spec = {"clusterID": "milan-id", "resourceQuota": {"hard": hard}, **spec}
        self.virtual: Object | None = objects.named(keys.VIRTUAL_NODE, VIRTUAL, spec=spec)

    async def asked(self) -> str:
        return self.version

    async def reconcile(self) -> Object:
        """Reconcile twice, the second time without a write, and return the Node."""
        await self.reconciler.reconcile(self.key)
        before = self.counted.writes
        await self.reconciler.reconcile(self.key)
        assert self.counted.writes == before
        return await existing(self.cluster, keys.NODE, self.key)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper(FakeCluster())


async def test_a_node_as_documented(keeper: Keeper) -> None:
    keeper.offer(labels={"zone": "x"}, storageClasses=[{"storageClassName": "fast"}])

    node = await keeper.reconcile()

    assert objects.labels(node) == {
        "kubernetes.io/hostname": "milan",
        "kubernetes.io/role": "agent",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "liqo.io/type": "virtual-node",
        "type": "virtual-kubelet",
        "liqo.io/remote-cluster-id": "milan-id",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        "storage.liqo.io/available": "true",
        "extra": "1",
        "zone": "x",
    }
    assert node["spec"]["taints"] == [
        {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
    ]
    status = node["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "4", "memory": "8Gi"}
    assert {"type": "InternalIP", "address": "10.0.0.9"} in status["addresses"]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["nodeInfo"]["kubeletVersion"] == "v1.35.4"
    shown = {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}
    assert shown == {
        "Ready": ("True", "KubeletReady"),
        "MemoryPressure": ("False", "RemoteClusterHasSufficientMemory"),
        "DiskPressure": ("False", "RemoteClusterHasNoDiskPressure"),
        "PIDPressure": ("False", "RemoteClusterHasNoPIDPressure"),
    }


async def test_the_class_of_its_claims_is_on_the_node_while_storage_is_offered(
    keeper: Keeper,
) -> None:
    classes = [{"storageClassName": "fast"}, {"storageClassName": "disk", "default": True}]
    for offered, class_ in ((classes, "disk"), (classes[:1], "fast"), ([], None)):
        keeper.offer(storageClasses=offered)
        node = await keeper.reconcile()
        assert objects.annotations(node).get(keys.OFFERED_STORAGE_CLASS) == class_
        assert (objects.labels(node)[keys.STORAGE_AVAILABLE] == "true") is bool(offered)


async def test_the_largest_pod_is_on_the_node_while_the_provider_tells_it(keeper: Keeper) -> None:
    assert keeper.virtual
    keeper.virtual["status"] = {"largestPod": {"memory": "2Gi", "cpu": "1500m"}}
    node = await keeper.reconcile()
    assert objects.annotations(node)[keys.LARGEST_POD] == "cpu=1500m,memory=2Gi"

    keeper.offer()
    assert keys.LARGEST_POD not in objects.annotations(await keeper.reconcile())


async def test_twice_is_once_on_a_server_too(cluster: Cluster) -> None:
    keeper = Keeper(cluster, f"node-{secrets.token_hex(4)}")
    images = [{"names": ["nginx"], "sizeBytes": 5}]
    hard = {"example.org/gpu": "1"}
    keeper.offer(cpu="4000m", memory="8192Mi", hard=hard, images=images, labels={"a": "1"})
    assert (await keeper.reconcile())["status"]["capacity"]["example.org/gpu"] == "1"

    keeper.offer(cpu="2")
    node = await keeper.reconcile()

    assert node["status"]["capacity"] == node["status"]["allocatable"]
    assert node["status"]["capacity"].keys() == {"cpu", "memory"}
    assert node["status"]["capacity"]["cpu"] == "2"
    assert "a" not in objects.labels(node)
    keeper.health = SILENT
    node = await keeper.reconcile()
    assert named_condition(node["status"], "Ready")["status"] == "False"
    await cluster.delete(keys.NODE, keeper.key, uid=objects.uid(node))


async def test_what_the_virtual_node_drops_goes_and_what_others_added_stays(keeper: Keeper) -> None:
    keeper.offer(
        labels={"a": "1"}, taints=[{"key": "t", "effect": "NoSchedule"}], hard={"x/y": "1"}
    )
    await keeper.reconcile()
    theirs = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node = await existing(keeper.cluster, keys.NODE, NODE)
    taints = [theirs, *node["spec"]["taints"]]
    changes = {"metadata": {"labels": {"admin": "1"}}, "spec": {"taints": taints}}
    await keeper.cluster.patch(keys.NODE, NODE, changes)

    keeper.offer(labels={"b": "2"})
    node = await keeper.reconcile()

    labels = objects.labels(node)
    assert ("a" in labels, labels["b"], labels["admin"]) == (False, "2", "1")
    assert [taint["key"] for taint in node["spec"]["taints"]] == [
        "node.kubernetes.io/unschedulable", "virtual-node.liqo.io/not-allowed",
    ]  # fmt: skip
    assert node["status"]["capacity"] == {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize("amount", ["-1", "NaN", "1e308", "1e999999999", "9" * 10_240])
async def test_what_is_no_amount_is_not_offered(keeper: Keeper, amount: str) -> None:
    """An API server that is sent some of these computes them for minutes. Source: A13."""
    keeper.offer(hard={"x/y": amount})
    assert (await keeper.reconcile())["status"]["capacity"] == {"cpu": "4", "memory": "8Gi"}

    keeper.offer(cpu=amount)
    status = (await keeper.reconcile())["status"]
    assert status["capacity"] == status["allocatable"] == {"memory": "8Gi"}
    assert named_condition(status, "Ready")["status"] == "False"


async def test_what_pods_ask_for_that_never_run_is_offered_beside_the_rest(keeper: Keeper) -> None:
    """A DaemonSet's pod that is held back takes nothing from those that run. Source: P3."""
    keeper.offer(hard={"pods": "10"})
    keeper.held_back = resources.parse_resources({"cpu": "100m", "pods": 2, "nvidia.com/gpu": 1})

    status = (await keeper.reconcile())["status"]

    shown = {"cpu": "4100m", "memory": "8Gi", "pods": "12"}
    assert status["capacity"] == status["allocatable"] == shown

    keeper.held_back = {}
    assert (await keeper.reconcile())["status"]["allocatable"]["pods"] == "10"


@pytest.mark.parametrize("label", ["liqo.io/type", "liqo.io/remote-cluster-id"])
async def test_labels_that_decide_placement_cannot_be_overridden(
    keeper: Keeper, label: str
) -> None:
    keeper.offer(labels={label: "spoofed"})
    assert objects.labels(await keeper.reconcile())[label] != "spoofed"


async def test_a_deleted_node_comes_back(keeper: Keeper) -> None:
    node = await keeper.reconcile()
    await keeper.cluster.delete(keys.NODE, NODE, uid=objects.uid(node))

    assert objects.uid(await keeper.reconcile()) != objects.uid(node)


@pytest.mark.parametrize("gone", [True, False])
async def test_no_node_without_a_virtual_node_that_wants_one(*, gone: bool) -> None:
    keeper = Keeper(FakeCluster(), createNode=False)
    keeper.virtual = None if gone else keeper.virtual

    await keeper.reconciler.reconcile(NODE)

    assert await keeper.cluster.get(keys.NODE, NODE) is None


async def test_a_silent_provider_makes_it_not_ready_with_the_reason(keeper: Keeper) -> None:
    await keeper.reconcile()
    keeper.health, keeper.now = SILENT, NOW + dt.timedelta(seconds=35)

    ready = named_condition((await keeper.reconcile())["status"], "Ready")

    assert (ready["status"], ready["message"]) == ("False", "the provider is silent")
    assert ready["lastTransitionTime"] == "2026-01-31T12:00:35Z"
    keeper.health = Health()
    assert named_condition((await keeper.reconcile())["status"], "Ready")["status"] == "True"


class Pinged:
    """A virtual kubelet that has just started, and what becomes of its pings."""

    def __init__(self, keeper: Keeper, **rest: Any) -> None:
        self.keeper = keeper
        self.provider = ProviderHealth(lambda _: None, threshold=3, successes=2, **rest)

    async def ready(self, *pings: str) -> tuple[str, str, str]:
        """Return what the Node says after ``pings``, each empty or why it was lost."""
        for failure in pings:
            self.provider.record(failure)
        self.keeper.health = self.provider.health
        found = named_condition((await self.keeper.reconcile())["status"], "Ready")
        return found["status"], found["reason"], found["lastTransitionTime"]


async def test_a_new_node_is_ready_once_its_provider_is_proven_to_be_there(keeper: Keeper) -> None:
    fresh = Pinged(keeper)

    assert (await fresh.ready())[:2] == ("False", "ProviderNotProven")
    assert (await fresh.ready(""))[:2] == ("False", "ProviderNotProven")
    assert (await fresh.ready("lost", ""))[:2] == ("False", "ProviderNotProven")
    assert (await fresh.ready(""))[:2] == ("True", "KubeletReady")


async def test_who_starts_anew_says_nothing_else_of_the_node_until_that_is_proven(
    keeper: Keeper,
) -> None:
    """A restart is neither an outage nor the end of one."""
    well = await Pinged(keeper).ready("", "")
    keeper.now += dt.timedelta(seconds=1)
    assert [await Pinged(keeper).ready(*pings) for pings in ([], ["lost"], ["", ""])] == [well] * 3

    out = await Pinged(keeper).ready(*["lost"] * 3)
    assert out == ("False", "ProviderNotReachable", "2026-01-31T12:00:01Z")
    keeper.now += dt.timedelta(seconds=1)
    again = Pinged(keeper)
    assert [await again.ready(), await again.ready(""), await again.ready("lost")] == [out] * 3
    assert await again.ready("", "") == ("True", "KubeletReady", "2026-01-31T12:00:02Z")


async def test_a_provider_that_is_never_pinged_is_taken_to_be_there(keeper: Keeper) -> None:
    assert (await Pinged(keeper, is_pinged=False).ready())[0] == "True"


async def test_the_reason_is_the_one_of_now_and_the_time_that_of_the_status(keeper: Keeper) -> None:
    keeper.offer(cpu="0")
    await keeper.reconcile()
    keeper.health, keeper.now = SILENT, NOW + dt.timedelta(seconds=35)

    ready = named_condition((await keeper.reconcile())["status"], "Ready")

    assert (ready["reason"], ready["message"]) == ("ProviderNotReachable", SILENT.reason)
    assert ready["lastTransitionTime"] == "2026-01-31T12:00:00Z"


@pytest.mark.parametrize("resource", ["cpu", "memory"])
async def test_without_cpu_or_memory_it_is_not_ready(keeper: Keeper, resource: str) -> None:
    keeper.offer(**{resource: "0"})
    status = (await keeper.reconcile())["status"]
    assert named_condition(status, "Ready")["reason"] == "KubeletNotReady"
    assert named_condition(status, "MemoryPressure")["status"] == "True"


async def test_an_idle_node_is_written_once_in_five_minutes(keeper: Keeper) -> None:
    await keeper.reconcile()
    before = keeper.counted.writes
    for minutes in range(1, 61):
        keeper.now = NOW + dt.timedelta(minutes=minutes)
        await keeper.reconciler.reconcile(NODE)

    assert 10 <= keeper.counted.writes - before <= 12


async def test_the_version_is_that_of_the_cluster_also_after_an_upgrade(keeper: Keeper) -> None:
    await keeper.reconcile()
    keeper.version, keeper.now = "v1.36.0", NOW + dt.timedelta(minutes=6)

    assert (await keeper.reconcile())["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.0"


async def test_what_runs_the_pods_is_told_as_it_is_known(keeper: Keeper) -> None:
    keeper.offer(labels={"kubernetes.io/arch": "arm64"})
    told = (await keeper.reconcile())["status"]["nodeInfo"]
    assert (told["operatingSystem"], told["architecture"]) == ("linux", "arm64")
    assert re.fullmatch(r"pyliqo://\d+\S*", told["containerRuntimeVersion"])


async def test_conditions_of_others_stay(keeper: Keeper) -> None:
    await keeper.reconcile()
    node = await existing(keeper.cluster, keys.NODE, NODE)
    other = {"type": "Custom", "status": "True"}
    changes = {"conditions": [*node["status"]["conditions"], other]}
    await keeper.cluster.patch_status(keys.NODE, NODE, changes)
    keeper.health = SILENT

    assert named_condition((await keeper.reconcile())["status"], "Custom") == other


class Late(Through):
    """A cluster in which somebody else writes a condition just before we do."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.other: Object = {}

    async def patch_status(self, kind: Kind, key: Key, status: Object) -> Object:
        if self.other:
            await self._cluster.patch_status(kind, key, {"conditions": [self.other]})
        return await self._cluster.patch_status(kind, key, status)


async def test_what_another_wrote_meanwhile_stays(cluster: Cluster) -> None:
    """A node problem detector writes its condition while ours is made of what was known before."""
    late = Late(cluster)
    keeper = Keeper(cast("Cluster", late), f"node-{secrets.token_hex(4)}")
    await keeper.reconcile()
    late.other = {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock"}
    keeper.health = SILENT
    await keeper.reconciler.reconcile(keeper.key)

    node = await existing(cluster, keys.NODE, keeper.key)
    assert named_condition(node["status"], "Ready")["status"] == "False"
    assert named_condition(node["status"], "KernelDeadlock")["reason"] == "KernelHasNoDeadlock"
    await cluster.delete(keys.NODE, keeper.key, uid=objects.uid(node))


async def test_amounts_in_the_servers_words_are_no_change(keeper: Keeper) -> None:
    keeper.offer(cpu="4000m", memory="8192Mi")
    await keeper.reconcile()
    said = {"cpu": "4", "memory": "8Gi"}
    await keeper.cluster.patch_status(keys.NODE, NODE, {"capacity": said, "allocatable": said})
    before = keeper.counted.writes

    await keeper.reconcile()

    assert keeper.counted.writes == before


async def test_much_that_is_missing_at_once_shows_until_it_is_back_and_is_told_once(
    keeper: Keeper,
) -> None:
    breaker, cache = Breaker(lambda: None, clock=lambda: 0.0), Cache()
    breaker.watch(cache)
    found = []
    for count in (20, 15, 0, 1, 20):
        cache.lists(count)
        keeper.health = dataclasses.replace(Health(), missing=breaker.missing())
        keeper.now += dt.timedelta(minutes=6)  # a heartbeat is due each time
        conditions = (await keeper.reconcile())["status"]["conditions"]
        found.append([one for one in conditions if one["type"] == "MassAbsence"])

    shown = {
        "type": "MassAbsence",
        "status": "True",
        "reason": "TooMuchAtOnce",
        "message": "when this began, 20 pods were missing from one list and had not been seen to"
        " go: nothing is deleted or made again for that until it is certain",
        "lastTransitionTime": "2026-01-31T12:18:00Z",
        "lastHeartbeatTime": "2026-01-31T12:18:00Z",
    }
    later = {**shown, "lastHeartbeatTime": "2026-01-31T12:24:00Z"}
    assert found == [[], [], [shown], [later], []]
    assert keeper.recorder.told == [("Warning", "MassAbsence")]
    assert keeper.recorder.messages == [shown["message"]]


# Health ------------------------------------------------------------------------------------------


async def test_three_lost_pings_in_a_row_are_an_outage_and_two_answers_end_it() -> None:
    answers = [True, True, False, False, True, False, False, False, True, False, True, True]
    verdicts: list[bool] = []
    changes: list[bool] = []
    provider_health = ProviderHealth(
        lambda health: changes.append(health.is_reachable), successes=2
    )

    async def ping() -> dt.timedelta:
        if not answers.pop(0):
            raise errors.NotReachableError("no route")
        return dt.timedelta()

    pings = PingReconciler(ping, provider_health, interval_s=10)
    assert await pings.reconcile(NODE) == 0.2, "one answer proves nothing yet"
    for _ in range(11):
        again_s = await pings.reconcile(NODE)
        verdicts.append(provider_health.health.is_reachable)
        assert again_s == (10 if verdicts[-1] else 2), "its return is seen soon"

    assert verdicts == [True] * 6 + [False] * 4 + [True]
    assert changes == [True, False, True]


async def test_a_ping_that_takes_too_long_is_lost() -> None:
    provider_health = ProviderHealth(lambda _: None, threshold=1)

    async def ping() -> dt.timedelta:
        raise TimeoutError

    await PingReconciler(ping, provider_health, interval_s=10).reconcile(NODE)

    assert not provider_health.health.is_reachable


async def test_who_cannot_ask_has_learnt_nothing_of_the_provider() -> None:
    provider_health = ProviderHealth(lambda _: None, threshold=1)

    async def ping() -> dt.timedelta:
        raise errors.ExhaustedError("no file descriptor left")

    with pytest.raises(errors.ExhaustedError):
        await PingReconciler(ping, provider_health, interval_s=10).reconcile(NODE)

    assert provider_health.health.is_reachable


async def test_a_provider_that_vanishes_without_a_word_is_noticed_within_45_s() -> None:
    """By default, and by pings that each wait as long as they may. Source: docs/parity.md F-9."""
    chosen = options.parse(MUST)
    provider_health = ProviderHealth(
        lambda _: None, threshold=chosen.ping_failures, successes=chosen.ping_successes
    )

    async def ping() -> dt.timedelta:
        raise TimeoutError

    pings = PingReconciler(ping, provider_health, interval_s=chosen.ping_interval_s)
    passed_s = chosen.ping_interval_s  # it vanishes right after it answered
    while provider_health.health.is_reachable:
        passed_s += chosen.ping_timeout_s
        passed_s += await pings.reconcile(NODE) or 0

    assert passed_s <= 45


async def test_clocks_that_are_too_far_apart_show_until_they_are_set(keeper: Keeper) -> None:
    told: list[bool] = []
    provider_health = ProviderHealth(lambda health: told.append(health.is_in_step), is_pinged=False)
    found = []
    for ahead_s in (0, 300, 612, -301, 0):
        provider_health.record("", dt.timedelta(seconds=ahead_s))
        keeper.health = provider_health.health
        conditions = (await keeper.reconcile())["status"]["conditions"]
        found.append([one["message"] for one in conditions if one["type"] == "ClockSkew"])

    late = "when this began, the provider's clock was 612 s ahead of this cluster's"
    shown = [f"{late}: let both follow a time server"]
    assert found == [[], [], shown, shown, []]
    assert told == [False, True]


@factories.cases("date, ahead_s")
def test_the_providers_clock_is_read_from_its_answers(date: str, ahead_s: int) -> None:
    assert objects.clock_skew(date, NOW).total_seconds() == ahead_s


# Lease -------------------------------------------------------------------------------------------


async def test_the_lease_is_owned_by_the_node_and_renewed() -> None:
    cluster = FakeCluster()
    now = [NOW]
    lease = LeaseReconciler(cluster, duration_s=40, clock=lambda: now[0])
    assert await lease.reconcile(NODE) == 1.0, "its node comes first"
    node = await cluster.create(keys.NODE, objects.named(keys.NODE, NODE))

    third_s = pytest.approx(40 / 3)
    assert await lease.reconcile(NODE) == third_s
    now[0] += dt.timedelta(seconds=10)
    assert await lease.reconcile(NODE) == third_s

    made = await existing(cluster, keys.LEASE, Key("kube-node-lease", "milan"))
    assert made["spec"] == {
        "holderIdentity": "milan",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-01-31T12:00:10.000000Z",
    }
    assert made["metadata"]["ownerReferences"][0]["uid"] == objects.uid(node)


async def test_a_renewal_that_hangs_is_given_up_in_time_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_, "RENEWAL_S", 0.01)
    renewals: list[str] = []

    class Silent(FakeCluster):
        async def patch(
            self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
        ) -> Object:
            renewals.append(changes["spec"]["renewTime"])
            if len(renewals) == 1:
                await asyncio.Event().wait()
            return await super().patch(kind, key, changes, subresource=subresource)

    cluster = Silent()
    await cluster.create(keys.NODE, objects.named(keys.NODE, NODE))
    lease = LeaseReconciler(cluster, duration_s=40, clock=lambda: NOW)
    runner = Runner("lease", lease, [])
    async with running(runner.run()):
        runner.enqueue(NODE)
        await until(lambda: len(renewals) == 2)
