"""A cluster that is lost and made again from ``docs/backup.md``, as consumer and as provider."""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from sandbox import images, pair
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl
from tests import pages
from tests.journeys import world
from tests.journeys.three import PEERINGS, THIRD, Three, connected

pytestmark = pytest.mark.journey

PAGE: Final = Path(__file__).parents[2] / "docs/backup.md"
KEEP, RESTORE, OF_CONSUMER, OF_PROVIDER = pages.blocks(PAGE)


async def test_a_cluster_that_was_lost_is_made_again_from_the_page(
    three: Three, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> None:
    consumed, provided = (f"journey-{secrets.token_hex(3)}" for _ in range(2))
    await starts(three, THIRD, consumed, "milan")
    await starts(three, "rome", provided, THIRD)
    before = await running_at(three["milan"], naming.default_remote_namespace(consumed, THIRD))
    pages.shell(KEEP, tmp_path, KUBECONFIG=three.kubeconfigs[THIRD])

    await asyncio.to_thread(Sandbox().down, [THIRD])
    lost = await asyncio.to_thread(Sandbox().up, [THIRD])
    found = {**kubeconfigs, **lost}
    image = images.product_name()
    pages.shell(RESTORE, tmp_path, KUBECONFIG=found[THIRD], NAME=THIRD, PYLIQO_IMAGE=image)
    Kubectl(found[THIRD]).apply([pair.storage_class()])
    for consumer, provider in PEERINGS:
        block = OF_PROVIDER if provider == THIRD else OF_CONSUMER
        pages.shell(block, tmp_path, CONSUMER=found[consumer], PROVIDER=found[provider])

    async with connected(found) as again:
        await again[THIRD].create(keys.DEPLOYMENT, workload(consumed))
        twin = naming.default_remote_namespace(consumed, THIRD)
        await running_at(again["milan"], twin, not_uid=objects.uid(before))
        await running_at(again[THIRD], naming.default_remote_namespace(provided, "rome"))
        for consumer, space in ((THIRD, consumed), ("rome", provided)):
            await world.remove(again[consumer], keys.NAMESPACE_OFFLOADING, offloading(space))
            await world.until_gone(again[consumer], keys.NAMESPACE_OFFLOADING, offloading(space))
            await world.remove(again[consumer], keys.NAMESPACE, Key("", space))
    for consumer, provider in PEERINGS:  # with the amounts that other tests need
        await asyncio.to_thread(pair.peer, consumer, provider, found)


async def starts(three: Three, consumer: str, namespace: str, provider: str) -> None:
    """Offload a namespace of ``consumer`` to ``provider``, and have a pod run there."""
    await three[consumer].create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", namespace)))
    await three.offload(consumer, namespace, provider)
    await three[consumer].create(keys.DEPLOYMENT, workload(namespace))
    await running_at(three[provider], naming.default_remote_namespace(namespace, consumer))


async def running_at(provider: ClusterClient, twin: str, *, not_uid: str = "") -> Object:
    """Return the only pod of ``twin``, once it runs; one with ``not_uid`` has to go first."""

    def is_there(found: world.World) -> bool:
        pods = list(found.values())
        return [world.phase(pod) for pod in pods] == ["Running"] and not any(
            objects.is_terminating(pod) or objects.uid(pod) == not_uid for pod in pods
        )

    [pod] = (await world.until(provider, keys.POD, twin, is_there)).values()
    return pod


def workload(namespace: str) -> Object:
    return world.deployment(namespace, "web", images.workload_name(), 1)


def offloading(namespace: str) -> Key:
    return Key(namespace, keys.OFFLOADING_NAME)
