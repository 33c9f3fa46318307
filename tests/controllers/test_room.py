"""The largest pod that fits one node, told to the consumer of a slice."""

from collections.abc import Mapping
from typing import Any

import pytest

from apis import keys, resources
from apis.objects import Key, Object, named
from apis.resources import Resources
from controllers import watches
from controllers.granting.grants.capacity import EVERY, NOT_YET_S, LargestPodReconciler
from controllers.manager import Manager
from kube.cluster import Cluster
from tests.controllers.support import Ledger, make, manager_of, there
from tests.fakes import FakeCluster
from tests.kube.running import running, until

KEY = Key("liqo-tenant-rome", "mypool")
GRANTED = {"cpu": "4", "memory": "8Gi"}


class Nodes:
    """What nodes have free, and which were asked for."""

    def __init__(self) -> None:
        self.free: Resources | None = resources.parse_resources(
            {"cpu": "1500m", "memory": "16Gi", "gpu": 1}
        )
        self.asked: list[Mapping[str, str]] = []

    def largest(self, selector: Mapping[str, str]) -> Resources | None:
        self.asked.append(selector)
        return self.free


async def granted_slice(
    cluster: Cluster, key: Key, answer: str = "Accepted", **status: Any
) -> None:
    labels = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}
    since = {"lastTransitionTime": "2025-01-01T00:00:00Z"}
    said = [{"type": "Resources", "status": answer, **since}]
    obj = named(keys.RESOURCE_SLICE, key, metadata={"labels": labels}, spec={})
    status = {"conditions": said, "resources": GRANTED, **status}
    await make(cluster, keys.RESOURCE_SLICE, obj, status=status)


async def told(nodes: Nodes, answer: str = "Accepted", **status: Any) -> tuple[Object, Ledger]:
    """Reconcile the replica of a slice twice; return its status, and the cluster."""
    cluster = Ledger(FakeCluster())
    await granted_slice(cluster, KEY, answer, **status)
    cluster.writes.clear()
    loop = LargestPodReconciler(manager_of(cluster), nodes.largest)
    for _ in range(2):
        assert await loop.reconcile(KEY) == (None if nodes.free is not None else NOT_YET_S)
    return (await there(cluster, keys.RESOURCE_SLICE, KEY))["status"], cluster


async def test_it_is_one_figure_a_resource_and_no_more_than_was_granted() -> None:
    status, cluster = await told(Nodes())

    assert status["largestPod"] == {"cpu": "1500m", "memory": "8Gi"}
    assert status["resources"] == GRANTED
    assert len(cluster.writes) == 1


async def test_nodes_are_asked_once_for_all_slices_of_the_same_labels() -> None:
    """And once more when something else may be free, not for each slice that is looked at."""
    cluster, nodes = FakeCluster(), Nodes()
    for number in range(10):
        selector = {"pool": "a"} if number < 5 else {}
        await granted_slice(cluster, Key(f"tenant-{number}", "mypool"), nodeSelector=selector)
    manager = manager_of(cluster, of=Manager)
    informer = manager.informer(watches.RESOURCE_SLICES)
    runner = LargestPodReconciler(manager, nodes.largest).runner()

    def are_told(cpu: str) -> bool:
        said = [one["status"].get("largestPod", {}) for one in informer.items().values()]
        return [one.get("cpu") for one in said] == [cpu] * 10

    async with running(informer.run(cluster), runner.run()):
        await until(lambda: are_told("1500m"))
        first = len(nodes.asked)
        nodes.free = resources.parse_resources({"cpu": "2"})
        runner.enqueue(EVERY)
        await until(lambda: are_told("2"))

    assert (first, len(nodes.asked)) == (2, 4)


async def test_the_nodes_are_those_that_its_pods_may_go_to() -> None:
    nodes = Nodes()
    nodes.free = resources.parse_resources({"cpu": "2"})

    status, _ = await told(nodes, nodeSelector={"pool": "a"})

    assert status["largestPod"] == {"cpu": "2", "memory": "0"}
    assert nodes.asked[0] == {"pool": "a"}


async def test_nothing_is_told_before_it_is_known() -> None:
    nodes = Nodes()
    nodes.free = None
    assert "largestPod" not in (await told(nodes))[0]


@pytest.mark.parametrize("answer", ["Denied"])
async def test_nothing_is_told_to_whom_nothing_is_granted(answer: str) -> None:
    nodes = Nodes()
    assert "largestPod" not in (await told(nodes, answer))[0]
    assert nodes.asked == []
