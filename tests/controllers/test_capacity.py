"""What a cluster has free: followed once somebody asks, by each change of nodes and pods."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Container
from typing import Any

import msgspec
import pytest

from apis import keys, objects, resources, sharing
from apis.objects import Key, Object
from apis.resources import Resources
from controllers.granting.grants import capacity
from controllers.granting.grants.capacity import Capacity
from controllers.offloading.shadowendpointslice import reconciler as addresses
from controllers.offloading.shadowpod import reconciler as shadowpods
from kube.cluster import Cluster, Selection
from kube.untrusted.decode import Decoder, Reader
from kube.wire import UntrustedBytes
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import dice, turns

READY = [{"type": "Ready", "status": "True"}]


class Asked(set[str]):
    """Users, and how often somebody asked for one."""

    times = 0

    def __contains__(self, user: object) -> bool:
        self.times += 1
        return super().__contains__(user)


class Milan:
    """A provider in a dict, and how often something else was free."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.capacity = Capacity(self.cluster)
        self.changes = 0
        self.capacity.subscribe(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def free(self, *but_of: str, **wanted: str) -> None:
        """Wait until what is free is as wanted."""
        expected, found = resources.parse_resources(wanted), None
        async with asyncio.timeout(300):
            while found != expected:
                found = self.capacity.free(but_of)
                await asyncio.sleep(0.01)

    async def add_node(self, name: str, **allocatable: str) -> None:
        status = {"allocatable": allocatable, "conditions": READY}
        await self.cluster.create(keys.NODE, factories.node(name, status=status))

    async def add_pod(self, name: str, node: str, user: str = "", **requests: str) -> None:
        spec = factories.pod_spec(nodeName=node)
        spec["containers"][0]["resources"] = {"requests": requests}
        labels = {keys.CREATOR_USER: user} if user else {}
        pod = factories.pod(name=name, spec=spec, metadata={"labels": labels})
        await self.cluster.create(keys.POD, pod)

    async def computed(self, *but_of: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return what is free, and the most that a node has free, computed of all there is."""
        nodes = (await self.cluster.list(Selection(keys.NODE, dict))).items
        pods = (await self.cluster.list(Selection(keys.POD, dict))).items.values()
        usable = {
            key.name: resources.parse_resources(node["status"]["allocatable"])
            for key, node in nodes.items()
            if sharing.is_usable(node)
        }

        def taken(*names: str, but_of: Container[str] = ()) -> Resources:
            return resources.total(
                resources.usage(pod["spec"])
                for pod in pods
                if pod["spec"]["nodeName"] in names
                and objects.labels(pod)[keys.CREATOR_USER] not in but_of
            )

        free = sharing.free(usable.values(), taken(*usable, but_of=but_of))
        left = [resources.less(amounts, taken(name)) for name, amounts in usable.items()]
        return resources.to_json(free), resources.to_json(sharing.most(left))

    async def end(self, kind: Any, key: Key) -> None:
        found = await self.cluster.get(kind, key)
        assert found
        await self.cluster.delete(kind, key, uid=found["metadata"]["uid"], grace_s=0)


@pytest.fixture
async def milan() -> AsyncIterator[Milan]:
    made = Milan()
    running = asyncio.create_task(made.capacity.run())
    yield made
    running.cancel()


async def test_nothing_is_watched_before_somebody_asks(milan: Milan) -> None:
    await milan.add_node("a", cpu="100")
    await asyncio.sleep(0.05)

    assert milan.cluster.requests["list", "nodes"] == 0
    assert milan.capacity.free([]) is None
    await milan.free(cpu="100")


async def test_pods_take_and_give_back_and_nodes_come_and_go(milan: Milan) -> None:
    await milan.add_node("a", cpu="100", pods="110")
    await milan.free(cpu="100", pods="110")
    await milan.add_pod("one", "a", cpu="50")
    await milan.free(cpu="50", pods="109")
    await milan.add_node("b", cpu="100", pods="110", **{"nvidia.com/gpu": "2"})
    await milan.free(cpu="150", pods="219", **{"nvidia.com/gpu": "2"})
    await milan.add_pod("two", "b", cpu="1", **{"nvidia.com/gpu": "1"})
    await milan.free(cpu="149", pods="218", **{"nvidia.com/gpu": "1"})

    await milan.end(keys.POD, Key("default", "one"))
    await milan.free(cpu="199", pods="219", **{"nvidia.com/gpu": "1"})
    cordoned = {"spec": {"unschedulable": True}}
    await milan.cluster.patch(keys.NODE, Key("", "b"), cordoned)
    await milan.free(cpu="100", pods="110")


async def test_pods_that_have_ended_take_nothing(milan: Milan) -> None:
    await milan.add_node("a", cpu="10")
    await milan.add_pod("one", "a", cpu="4")
    await milan.free(cpu="6")

    await milan.cluster.patch_status(keys.POD, Key("default", "one"), {"phase": "Succeeded"})

    await milan.free(cpu="10")


async def test_a_consumers_own_pods_do_not_count(milan: Milan) -> None:
    await milan.add_node("a", cpu="10")
    await milan.add_pod("mine", "a", "pool-1", cpu="4")
    await milan.add_pod("local", "a", cpu="2")

    await milan.free("pool-1", cpu="8")
    await milan.free("other", cpu="4")


async def test_what_is_free_is_found_by_users_and_not_by_nodes(milan: Milan) -> None:
    for number in range(20):
        await milan.add_node(f"node-{number}", cpu="10")
        for user in ("pool-1", "pool-2"):
            await milan.add_pod(f"{user}-{number}", f"node-{number}", user, cpu="1")
    await milan.free("pool-1", cpu="180")
    asked = Asked({"pool-1"})

    assert milan.capacity.free(asked) == resources.parse_resources({"cpu": "180"})
    assert asked.times == 2


@pytest.mark.parametrize("seed", range(20))
async def test_sums_that_are_kept_are_those_of_what_there_is(milan: Milan, seed: int) -> None:
    """Nodes close, open, change and go beneath their pods; pods come before their nodes."""
    chance = dice(seed)
    milan.capacity.free([])
    for number in range(80):
        name, other = f"n-{chance.randrange(4)}", f"p-{chance.randrange(12)}"
        node, pod = Key("", name), Key("default", other)
        if chance.random() < 0.5:
            found = await milan.cluster.get(keys.POD, pod)
            if found is None:
                await milan.add_pod(other, name, chance.choice("ab"), cpu=str(number + 1), gpu="1")
            else:
                await milan.end(keys.POD, pod)
        elif await milan.cluster.get(keys.NODE, node) is None:
            more = {"gpu": str(number)} if chance.random() < 0.5 else {}
            await milan.add_node(name, cpu=str(100 * number), **more)
        elif chance.random() < 0.5:
            await milan.end(keys.NODE, node)
        else:
            closed = {"spec": {"unschedulable": chance.random() < 0.5 or None}}
            await milan.cluster.patch(keys.NODE, node, closed)

    free, most = await milan.computed("a")
    await turns(500)
    assert resources.to_json(milan.capacity.free(["a"]) or {}) == free
    assert resources.to_json(milan.capacity.largest({}) or {}) == most


async def test_the_most_that_one_node_has_free(milan: Milan) -> None:
    await milan.add_node("a", cpu="10", memory="2Gi")
    await milan.add_node("b", cpu="4", memory="8Gi")
    await milan.cluster.patch(keys.NODE, Key("", "b"), {"metadata": {"labels": {"pool": "b"}}})
    await milan.add_pod("one", "a", "pool-1", cpu="7")
    await milan.free(cpu="7", memory="10Gi")

    assert milan.capacity.largest({}) == resources.parse_resources({"cpu": "4", "memory": "8Gi"})
    assert milan.capacity.largest({"pool": "c"}) == {}
    await milan.end(keys.POD, Key("default", "one"))
    await milan.free(cpu="14", memory="10Gi")
    assert milan.capacity.largest({}) == resources.parse_resources({"cpu": "10", "memory": "8Gi"})
    assert milan.capacity.largest({"pool": "b"}) == resources.parse_resources(
        {"cpu": "4", "memory": "8Gi"}
    )


async def test_heartbeats_ask_for_nothing(milan: Milan) -> None:
    await milan.add_node("a", cpu="10")
    await milan.add_pod("one", "a", cpu="4")
    await milan.free(cpu="6")
    before = milan.changes
    beat: Object = {"conditions": [{**READY[0], "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}

    await milan.cluster.patch_status(keys.NODE, Key("", "a"), beat)
    await milan.cluster.patch(keys.NODE, Key("", "a"), {"metadata": {"labels": {"x": "y"}}})
    await milan.cluster.patch_status(keys.POD, Key("default", "one"), {"podIP": "10.1.0.7"})
    await milan.add_pod("two", "a", cpu="1")
    await milan.free(cpu="5")
    await milan.add_node("b", cpu="1")
    await milan.free(cpu="6")  # so what came before it was seen, too

    assert milan.changes == before + 2


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_it_is_the_same_on_a_real_server(cluster: Cluster) -> None:
    """The selectors of fields and labels are the server's."""
    capacity = Capacity(cluster)
    running = asyncio.create_task(capacity.run())
    async with asyncio.timeout(300):
        while capacity.free([]) is None:  # noqa: ASYNC110  # the informers are its own
            await asyncio.sleep(0.05)
    running.cancel()


@pytest.mark.parametrize(
    ("of", "most"),
    [
        (shadowpods.SHADOW_PODS, 1200),
        (shadowpods.PODS, 1200),
        (capacity.PODS, 700),
        (addresses.PODS, 600),
    ],
)
def test_pods_of_one_deployment_take_little_in_each_cache(of: Selection[Any], most: int) -> None:
    """A provider's controllers hold 50,000 in 512 MiB; ``most`` bytes for one."""

    def pod(number: int) -> Object:
        labels = {name: f"{name}-of-the-pod" for name in "abcdefgh"} | {keys.CREATOR_USER: "rome"}
        owner = {"kind": "ShadowPod", "name": f"web-{number}", "uid": f"uid-{number}"}
        metadata = {"labels": labels, "uid": f"{number:036}", "ownerReferences": [owner]}
        spec = factories.pod_spec(nodeName="worker")
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        status = {"phase": "Running", "podIPs": [{"ip": f"10.0.0.{number}"}]}
        made = factories.pod("shop-rome", f"web-{number}", spec=spec, metadata=metadata)
        return {**made, "spec": {**spec, "pod": spec}, "status": status}

    said = msgspec.json.encode({"metadata": {}, "items": [pod(number) for number in range(1000)]})
    tracemalloc.start()
    try:
        kept = Reader(of, Decoder()).page(UntrustedBytes(said)).items
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < most * len(kept) == most * 1000
