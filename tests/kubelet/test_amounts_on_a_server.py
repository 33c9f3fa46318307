"""What a provider says that a container uses is counted by nobody here (docs/parity.md H24)."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.pairs import Pair
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests import factories
from tests.fakes import FakeCluster
from tests.journeys import world as journey
from tests.kubelet.worlds import World, container, running

pytestmark = pytest.mark.cluster

QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas")
TIGHT: Final = Key("counted", "tight")
HARD: Final = {"requests.cpu": "1", "pods": "9"}
ASKED: Final = {"requests": {"cpu": "100m"}}
BOASTED: Final = {"requests": {"cpu": "9e17", "memory": "900Ti", "nvidia.com/gpu": "64"}}


@pytest.fixture
async def counted(own_plane: Plane) -> AsyncIterator[ClusterClient]:
    """Yield a client of a server whose namespace ``counted`` may ask for one CPU."""
    own_plane.start_quotas()
    async with client.connect(own_plane.kubeconfig) as real:
        await real.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", TIGHT.namespace)))
        await real.create(QUOTA, named(QUOTA, TIGHT, spec={"hard": HARD}))
        yield real


async def test_a_quota_counts_what_was_asked_for(counted: ClusterClient) -> None:
    world = World(counted, FakeCluster(), Pair("rome", "milan", TIGHT.namespace, "there"))
    await until_counted(counted, "0")
    await world.bound(spec=asking("100m"))
    await world.reconcile()
    await world.run_remotely()
    boasts = {"resources": BOASTED, "allocatedResources": BOASTED["requests"]}
    await world.runs(running(containerStatuses=[container({"running": {}}) | boasts]))
    await world.reconcile()

    # Once the next pod is counted, so is all that was written before it.
    await counted.create(keys.POD, factories.pod(*TIGHT, spec=asking("900m")))
    found = await until_counted(counted, "2")
    assert found["used"]["requests.cpu"] == "1"


def asking(cpu: str) -> Object:
    """Return a PodSpec that asks for ``cpu``."""
    (main,) = factories.pod_spec()["containers"]
    resources = {"requests": {**ASKED["requests"], "cpu": cpu}}
    return {**factories.pod_spec(), "containers": [{**main, "resources": resources}]}


async def until_counted(cluster: ClusterClient, pods: str) -> Object:
    """Return the status of the quota once so many pods, as counted again, are in it."""
    again = await cluster.patch(QUOTA, TIGHT, {"spec": {"hard": {**HARD, f"count/{pods}.x": "1"}}})
    hard: Object = again["spec"]["hard"]
    found = await journey.until_one(
        cluster,
        QUOTA,
        TIGHT,
        lambda one: is_status(one.get("status", {}), hard, pods),
    )
    status: Object = found["status"]
    return status


def is_status(status: Object, hard: Object, pods: str) -> bool:
    return status.get("hard") == hard and status["used"]["pods"] == pods
