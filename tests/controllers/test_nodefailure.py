"""Pods that end on a node that failed. Source: docs/parity.md § 4.13; F-24."""

import copy
from datetime import datetime, timedelta
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from controllers.granting.grants.capacity import NODES
from controllers.manager import Limits
from controllers.offloading.nodefailure import forge
from controllers.offloading.nodefailure.reconciler import NodeFailureReconciler
from kube import clock
from kube.informer import Change
from tests import factories
from tests.controllers import whole
from tests.controllers.support import Ledger, Told, manager_of
from tests.fakes import FakeCluster
from tests.kube.running import until

WEB = Key("shop-rome", "web")
OURS = {keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}


class Milan:
    """A provider with a node and a Pod on it; its clock is an hour ahead once grace is over."""

    def __init__(self) -> None:
        self.fake = FakeCluster()
        self.cluster, self.told = Ledger(self.fake), Told(self.fake)
        self.ahead = timedelta(hours=1)
        manager = manager_of(self.cluster, events=self.told.recorder, clock=self.clock)
        self.loop = NodeFailureReconciler(manager)

    def clock(self) -> datetime:
        return clock.now() + self.ahead

    async def prepare(self, ready: str, *, is_ending: bool = True, **metadata: Any) -> Object:
        await self.node(ready)
        metadata = {"labels": OURS, **metadata}
        spec = factories.pod_spec(nodeName="worker")
        pod = await self.fake.create(keys.POD, factories.pod(*WEB, spec=spec, metadata=metadata))
        if is_ending:
            await self.fake.delete(keys.POD, WEB, uid=objects.uid(pod), grace_s=30)
        return pod

    async def node(self, ready: str, **labels: str) -> None:
        made = factories.node("worker", metadata={"labels": labels})
        await self.fake.create(keys.NODE, made)
        await self.ready(ready)

    async def ready(self, status: str) -> None:
        said = {"conditions": [{"type": "Ready", "status": status}]}
        await self.fake.patch_status(keys.NODE, Key("", "worker"), said)

    async def is_gone(self) -> bool:
        await self.loop.reconcile(WEB)
        return await self.fake.get(keys.POD, WEB) is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
async def test_what_ends_on_a_node_that_failed_is_removed_once_its_grace_is_over(
    ready: str,
) -> None:
    milan = Milan()
    await milan.prepare(ready)
    milan.ahead = timedelta()

    left_s = await milan.loop.reconcile(WEB)
    assert left_s is not None
    assert 0 < left_s <= 30
    assert milan.cluster.writes == []

    milan.ahead = timedelta(hours=1)
    assert await milan.is_gone()
    assert milan.told.reasons == ["ForcedDeletion"]


@pytest.mark.parametrize(
    ("ready", "rest"), [("True", {}), ("False", {"is_ending": False}), ("False", {"labels": {}})]
)
async def test_everything_else_is_left_alone(ready: str, rest: Any) -> None:
    milan = Milan()
    await milan.prepare(ready, **rest)

    assert not await milan.is_gone()
    assert milan.cluster.writes == []


async def test_of_pods_that_run_none_is_looked_at_for_a_node() -> None:
    """However many there are; of a node that is Ready not even those that end on it."""
    milan = Milan()
    await milan.prepare("False")
    for number in range(50):
        spec = factories.pod_spec(nodeName=f"worker-{number % 5}")
        pod = factories.pod("shop-rome", f"p-{number}", spec=spec, metadata={"labels": OURS})
        await milan.fake.create(keys.POD, pod)

    limits = Limits(is_node_failure_handled=True)
    async with whole.watching(milan.fake, NodeFailureReconciler, limits=limits) as controller:
        node = controller.informer(NODES).items()[Key("", "worker")]
        ready = copy.copy(node)
        ready.is_ready = True
        with whole.calls(forge.is_ending.__code__) as asked:
            failed = whole.woken(controller, keys.NODE, Change(Key("", "worker"), ready, node))
            well = whole.woken(controller, keys.NODE, Change(Key("", "worker"), node, ready))

    assert (failed, well, len(asked)) == ([WEB], [], 0)


async def test_a_node_that_fails_later_brings_its_pods_back() -> None:
    milan = Milan()
    await milan.prepare("True")
    setup, limits = NodeFailureReconciler.setup, Limits(is_node_failure_handled=True)
    async with whole.controlling(milan.cluster, setup, limits, clock=milan.clock):
        assert milan.cluster.writes == []
        await milan.ready("Unknown")
        await until(lambda: ("delete", str(keys.POD), WEB) in milan.cluster.writes)
