"""Two clusters offload to each other at once; then one of them stops, and the other goes on."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, named
from kube.client import ClusterClient
from sandbox import install, pair
from tests.journeys import world
from tests.world import is_ready

pytestmark = pytest.mark.journey

_ROME = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": ["rome"]}
TO_ROME = {"nodeSelectorTerms": [{"matchExpressions": [_ROME]}]}


@pytest.fixture
async def backwards(kubeconfigs: Mapping[str, Path]) -> AsyncIterator[None]:
    """Let milan use rome, too."""
    await asyncio.to_thread(pair.peer, "milan", "rome", kubeconfigs)
    yield
    with contextlib.suppress(Exception):  # the test ends it
        await asyncio.to_thread(_unpeer, kubeconfigs)


def _unpeer(kubeconfigs: Mapping[str, Path]) -> str:
    remote = f"--remote-kubeconfig={kubeconfigs['rome']}"
    return install.run(kubeconfigs["milan"], "unpeer", remote, "--skip-confirm", "--timeout=4m")


async def _run(cluster: ClusterClient, namespace: str, name: str, image: str) -> None:
    await cluster.create(keys.POD, world.pod(namespace, name, image))
    await world.until_one(cluster, keys.POD, Key(namespace, name), is_ready)


async def test_each_direction_stands_for_itself(
    both: world.Pair, namespace: str, backwards: None, kubeconfigs: Mapping[str, Path]
) -> None:
    theirs = f"journey-{secrets.token_hex(3)}"
    await both.milan.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", theirs)))
    await both.offload(namespace)
    await both.milan.create(
        keys.NAMESPACE_OFFLOADING, world.offloading(theirs, clusterSelector=TO_ROME)
    )
    key = Key(theirs, keys.OFFLOADING_NAME)
    await world.until_one(
        both.milan,
        keys.NAMESPACE_OFFLOADING,
        key,
        lambda found: found.get("status", {}).get("offloadingPhase") == "Ready",
    )

    await _run(both.rome, namespace, "there", both.image)
    await _run(both.milan, theirs, "here", both.image)

    assert await both.milan.get_live(keys.POD, Key(both.twin(namespace), "there"))
    assert await both.rome.get_live(keys.POD, Key(f"{theirs}-milan", "here"))

    await world.remove(both.milan, keys.NAMESPACE_OFFLOADING, key)
    await world.remove(both.milan, keys.POD, Key(theirs, "here"))
    await world.until_gone(both.milan, keys.NAMESPACE_OFFLOADING, key)
    await asyncio.to_thread(_unpeer, kubeconfigs)

    gone = {
        keys.IDENTITY: Key("liqo-tenant-rome", "controlplane-rome"),
        keys.VIRTUAL_NODE: Key("liqo-tenant-rome", "rome"),
        keys.RESOURCE_SLICE: Key("liqo-tenant-rome", "rome"),
    }
    for kind, where in gone.items():
        assert await both.milan.get_live(kind, where) is None, kind
    assert await both.milan.get_live(keys.NODE, Key("", "rome")) is None
    assert await both.rome.get_live(keys.TENANT, Key("liqo-tenant-milan", "milan")) is None
    await _run(both.rome, namespace, "again", both.image)
    await world.remove(both.milan, keys.NAMESPACE, Key("", theirs))
