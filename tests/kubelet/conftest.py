"""What the tests of the kubelet share."""

from collections.abc import AsyncIterator

import pytest

from apis import keys
from apis.objects import Key, named
from apis.offloading import MappedNamespace
from kube.cluster import Cluster
from tests.fakes import FakeCluster
from tests.kubelet import rigs
from tests.kubelet.rigs import Rig
from tests.kubelet.worlds import World


@pytest.fixture
async def world(cluster: Cluster, namespace: str) -> World:
    """Yield two clusters; the real API server is both of them, with a namespace for each."""
    remote = FakeCluster(strict=True) if isinstance(cluster, FakeCluster) else cluster
    pair = MappedNamespace("rome", "milan", namespace, f"{namespace}-rome")
    await remote.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", pair.remote_namespace)))
    return World(cluster, remote, pair)


@pytest.fixture
def fake_world() -> World:
    """Return two fakes, whose requests can be counted and fail."""
    return World(FakeCluster(), FakeCluster())


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Yield a kubelet API that serves the pod ``web``."""
    async with rigs.kubelet_api() as rig:
        yield rig
