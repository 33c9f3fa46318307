"""Many offloaded namespaces: what one more costs, and what it costs to delete some of them.

``PYLIQO_TEST_NAMESPACES=990`` is the full size, as a provider takes 1,000 of a consumer by default;
the seconds are printed, never judged.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from kube import client
from kube.cluster import Cluster, Selection
from kube.informer import Informer
from sandbox import controlplane
from tests import factories
from tests.conftest import install_crds, size_of
from tests.controllers.managing import AT_FIRST, Manager, install_rights, managing, set_up_peer
from tests.controllers.support import defaulted
from tests.kube.running import running

pytestmark = pytest.mark.cluster

COUNT: Final = size_of("PYLIQO_TEST_NAMESPACES", 8, 990)
GONE: Final = max(5, COUNT // 10)
WITHIN_S: Final = 1200.0


class Consumer:
    """Both clusters in one, and how long things take in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.offloadings = Informer(Selection(keys.NAMESPACE_OFFLOADING, Object))
        self.namespaces = Informer(Selection(keys.NAMESPACE, Object))

    async def offload(self, names: Iterable[str]) -> float:
        """Create and offload namespaces; return after how many seconds all are Ready."""
        began, names = time.monotonic(), list(names)
        for name in names:
            await self.cluster.create(keys.NAMESPACE, factories.namespace(name))
            await self.cluster.create(keys.NAMESPACE_OFFLOADING, defaulted(name))
        return await self._all(names, self._is_ready, began, "Ready")

    async def delete(self, names: Iterable[str]) -> float:
        """Delete namespaces and wait until they and their twins are gone; return the seconds."""
        began, names = time.monotonic(), list(names)
        for name in names:
            uid = objects.uid(self.namespaces.items()[Key("", name)])
            await self.cluster.delete(keys.NAMESPACE, Key("", name), uid=uid)
        return await self._all(names, self._is_gone, began, "gone")

    def _is_ready(self, name: str) -> bool:
        found = self.offloadings.get(Key(name, keys.OFFLOADING_NAME)) or {}
        return (found.get("status") or {}).get("offloadingPhase") == "Ready"

    def _is_gone(self, name: str) -> bool:
        return not any(key.name in {name, f"{name}-rome-many"} for key in self.namespaces.items())

    async def _all(
        self, names: list[str], holds: Callable[[str], bool], began: float, what: str
    ) -> float:
        try:
            async with asyncio.timeout(WITHIN_S):
                for name in names:
                    while not holds(name):  # noqa: ASYNC110  # an informer's cache says so
                        await asyncio.sleep(0.02)
        except TimeoutError:
            left = [name for name in names if not holds(name)]
            pytest.fail(f"not {what} within {WITHIN_S} s: {left[:5]} of {len(left)}")
        return time.monotonic() - began


def say(what: str, seconds: float) -> None:
    sys.stderr.write(f"{what}: {seconds:.1f} s\n")


async def requests(manager: Manager) -> float:
    return await manager.counts("pyliqo_requests_total")


async def test_one_more_of_many_costs_what_the_first_did(tmp_path: Path) -> None:
    with controlplane.start(tmp_path / "plane") as plane:
        plane.start_namespaces()
        await install_crds(plane.kubeconfig)
        async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
            await install_rights(cluster)
            consumer = Consumer(cluster)
            async with (
                running(consumer.offloadings.run(cluster)),
                running(consumer.namespaces.run(cluster)),
                managing(cluster, "many", plane, tmp_path) as manager,
            ):
                await set_up_peer(cluster, "many", plane.kubeconfig)
                first = await _cost(manager, consumer, "first")
                names = [f"shop-{number}" for number in range(COUNT)]
                say(f"{COUNT} namespaces Ready", await consumer.offload(names))
                last = await _cost(manager, consumer, "last")
                assert last <= first + 20
                assert await manager.refused() <= AT_FIRST
                plain = [f"plain-{number}" for number in range(2 * GONE)]
                for name in plain:
                    await cluster.create(keys.NAMESPACE, factories.namespace(name))
                    await cluster.create(keys.CONFIG_MAP, factories.config_map(name, "any"))
                say(f"{2 * GONE} plain namespaces deleted", await consumer.delete(plain))
                before = await requests(manager)
                say(f"{GONE} offloaded namespaces deleted", await consumer.delete(names[:GONE]))
                assert await requests(manager) - before < 60 * GONE
                assert not await _tracked(cluster)


async def _tracked(cluster: Cluster) -> list[Key]:
    """Return the maps of which the server keeps who wrote what: that would be most of them."""
    found = await cluster.list(Selection(keys.NAMESPACE_MAP, Object))
    assert len(found.items) == 2
    whole = [await cluster.get_live(keys.NAMESPACE_MAP, key) for key in found.items]
    return [
        objects.key_of(each) for each in whole if each and each["metadata"].get("managedFields")
    ]


async def _cost(manager: Manager, consumer: Consumer, name: str) -> float:
    """Return how many requests it takes until one more namespace is Ready."""
    await _calm(manager)
    before = await requests(manager)
    say(f"{name} namespace Ready", await consumer.offload([name]))
    return await requests(manager) - before


async def _calm(manager: Manager) -> None:
    writes = -1.0
    while writes != (writes := await manager.writes()):  # noqa: ASYNC110  # of another process
        await asyncio.sleep(1)
