"""A ForeignCluster tells each module as it is, soon after it has changed.

The API server of a peer is in tests/controllers/test_foreigncluster_checker.py.
Source: docs/parity.md § 1.13, 4.14.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import client, informer
from kube.client import ClusterClient
from tests import factories
from tests.conftest import size_of
from tests.controllers.support import virtual_node
from tests.peering import world
from tests.peering.world import World

pytestmark = pytest.mark.cluster

CHANGES: Final = size_of("PYLIQO_TEST_MODULES", 3, 20)
"""How often each module breaks and heals."""
HERE: Final = "liqo-tenant-milan"


@pytest.fixture(scope="module")
def peered(both: World) -> Any:
    both.peer("rome", "milan")
    yield both
    both.unpeer("rome", "milan")


@pytest.fixture
async def rome(peered: World) -> AsyncIterator[ClusterClient]:
    async with client.connect(peered["rome"].plane.kubeconfig, user_agent="tests") as found:
        yield found


@pytest.fixture
async def milan(peered: World) -> AsyncIterator[ClusterClient]:
    async with client.connect(peered["milan"].plane.kubeconfig, user_agent="tests") as found:
        yield found


async def test_authentication_is_told_by_the_provider(milan: ClusterClient) -> None:
    """Somebody gives rights to a user who is called like the consumer: it is not let in."""
    binding = named(
        keys.ROLE_BINDING,
        Key("default", "theirs"),
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "rome"}],
    )
    made: list[Object] = []

    async def break_it() -> None:
        made.append(await milan.create(keys.ROLE_BINDING, binding))

    async def heal_it() -> None:
        uid = made.pop()["metadata"]["uid"]
        await milan.delete(keys.ROLE_BINDING, Key("default", "theirs"), uid=uid)

    says = ModuleCondition(milan, "rome", "authentication", "AuthTenantStatus")
    await says.what_happens(break_it, heal_it)


async def test_offloading_is_told_by_the_consumer(rome: ClusterClient) -> None:
    """The virtual kubelet and its Node are played, since nothing here runs a pod."""
    await rome.create(keys.VIRTUAL_NODE, virtual_node(HERE, "milan", "milan"))
    await rome.create(keys.DEPLOYMENT, module_deployment())
    await rome.create(keys.NODE, factories.virtual_node())

    def node_is(status: str) -> Callable[[], Awaitable[None]]:
        return lambda: ready(rome, status)

    def replicas_are(number: int) -> Callable[[], Awaitable[None]]:
        return lambda: report_replicas(rome, number)

    await ready(rome, "True")
    await report_replicas(rome, 1)
    node = ModuleCondition(rome, "milan", "offloading", "OffloadingNodeStatus")
    await node.what_happens(node_is("False"), node_is("True"))
    kubelet = ModuleCondition(rome, "milan", "offloading", "OffloadingVirtualNodeStatus")
    await kubelet.what_happens(replicas_are(0), replicas_are(1))

    for kind, key in (
        (keys.VIRTUAL_NODE, Key(HERE, "milan")),
        (keys.DEPLOYMENT, DEPLOYMENT),
        (keys.NODE, NODE),
    ):
        if found := await rome.get_live(kind, key):
            await rome.delete(kind, key, uid=found["metadata"]["uid"])


class ModuleCondition:
    """One condition of a module of a ForeignCluster."""

    def __init__(self, cluster: ClusterClient, peer: str, module: str, type_: str) -> None:
        self._cluster, self._peer, self._module, self._type = cluster, Key("", peer), module, type_

    async def what_happens(
        self, break_it: Callable[[], Awaitable[None]], heal_it: Callable[[], Awaitable[None]]
    ) -> None:
        """Show that each change is told, and print after how long."""
        await self._until("Ready")
        broken_s, healed_s = [], []
        for _ in range(CHANGES):
            broken_s.append(await self._told_after(break_it, "NotReady"))
            healed_s.append(await self._told_after(heal_it, "Ready"))
        for what, took in (("broken", broken_s), ("healed", healed_s)):
            p50, most = sorted(took)[len(took) // 2], max(took)
            times = f"P50 {p50:.2f} s, longest {most:.2f} s of {CHANGES}"
            sys.stderr.write(f"{self._type} {what}: told after {times}\n")

    async def _told_after(self, change: Callable[[], Awaitable[None]], status: str) -> float:
        began = time.monotonic()
        await change()
        await self._until(status)
        return time.monotonic() - began

    async def _until(self, status: str) -> None:
        def is_so(found: Object | None) -> bool:
            modules = ((found or {}).get("status") or {}).get("modules") or {}
            told = (modules.get(self._module) or {}).get("conditions")
            return (objects.find_condition(told, self._type) or {}).get("status") == status

        async with asyncio.timeout(world.PATIENCE_S):
            await informer.until(self._cluster, keys.FOREIGN_CLUSTER, self._peer, is_so)


NODE: Final = Key("", "milan")
DEPLOYMENT: Final = Key(HERE, "vk-milan")


def module_deployment() -> Object:
    app = {"app": "milan"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": app},
        "template": {
            "metadata": {"labels": app},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        },
    }
    labels = {keys.COMPONENT: keys.VIRTUAL_KUBELET, keys.REMOTE_CLUSTER_ID: "milan"}
    return named(keys.DEPLOYMENT, DEPLOYMENT, metadata={"labels": labels}, spec=spec)


async def ready(rome: ClusterClient, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "r", "message": "m"}
    await rome.patch_status(keys.NODE, NODE, {"conditions": [condition]})


async def report_replicas(rome: ClusterClient, replicas: int) -> None:
    counts = {"replicas": 1, "readyReplicas": replicas}
    await rome.patch_status(keys.DEPLOYMENT, DEPLOYMENT, counts)
