"""What a provider says that a container uses is counted by nobody here (docs/parity.md H24)."""

import random
from collections.abc import AsyncIterator
from typing import Final

import pytest

from apis import keys, resources
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.journeys import world as journey
from tests.kubelet.worlds import World, container, running

pytestmark = pytest.mark.cluster

QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas")
TIGHT: Final = Key("counted", "tight")
HARD: Final = {"requests.cpu": "1", "pods": "9"}
ASKED: Final = {"requests": {"cpu": "100m"}}
BOASTED: Final = {"requests": {"cpu": "9e17", "memory": "900Ti", "nvidia.com/gpu": "64"}}


@pytest.fixture(scope="module")
def counting(own_plane: Plane) -> Plane:
    """Return a server that counts for ResourceQuotas."""
    own_plane.start_quotas()
    return own_plane


@pytest.fixture
async def counted(counting: Plane) -> AsyncIterator[ClusterClient]:
    async with client.connect(counting.kubeconfig) as real:
        yield real


async def test_a_quota_counts_what_was_asked_for(counted: ClusterClient) -> None:
    await counted.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", TIGHT.namespace)))
    await counted.create(QUOTA, named(QUOTA, TIGHT, spec={"hard": HARD}))
    world = World(
        counted, FakeCluster(), MappedNamespace("rome", "milan", TIGHT.namespace, "there")
    )
    await until_counted(counted, "0")
    await world.bound(spec=spec_asking_for("100m"))
    await world.reconcile()
    await world.run_remotely()
    boasts = {"resources": BOASTED, "allocatedResources": BOASTED["requests"]}
    await world.runs(running(containerStatuses=[container({"running": {}}) | boasts]))
    await world.reconcile()

    # Once the next pod is counted, so is all that was written before it.
    await counted.create(keys.POD, factories.pod(*TIGHT, spec=spec_asking_for("900m")))
    found = await until_counted(counted, "2")
    assert found["used"]["requests.cpu"] == "1"


def spec_asking_for(cpu: str) -> Object:
    (main,) = factories.pod_spec()["containers"]
    resources = {"requests": {**ASKED["requests"], "cpu": cpu}}
    return {**factories.pod_spec(), "containers": [{**main, "resources": resources}]}


async def until_counted(cluster: ClusterClient, pods: str) -> Object:
    """Return the status of the quota once so many pods, as counted again, are in it."""
    again = await cluster.patch(QUOTA, TIGHT, {"spec": {"hard": {**HARD, f"count/{pods}.x": "1"}}})
    hard: Object = again["spec"]["hard"]
    found = await journey.until_one(
        cluster, QUOTA, TIGHT, lambda one: is_status(one.get("status", {}), hard, pods)
    )
    status: Object = found["status"]
    return status


def is_status(status: Object, hard: Object, pods: str) -> bool:
    return status.get("hard") == hard and status["used"]["pods"] == pods


PODS: Final = size_of("PYLIQO_COUNTED_PODS", 60, 1000)
AMOUNTS: Final = {
    "cpu": ("1m", "0.5", "1500m", "2"),
    "memory": ("1", "1000k", "64Mi", "1.5Gi"),
    "ephemeral-storage": ("5e8", "1Gi"),
    "example.com/gpu": ("1", "2"),
}
WIDE: Final = {f"requests.{name}": "1Ei" for name in AMOUNTS}


def any_amounts(chance: random.Random) -> Object:
    """Return requests, limits or both of a container; of CPU and memory a ResourceQuota wants some.

    An extended resource has both alike.
    """
    limits, requests = Object(), Object()
    for name, amounts in AMOUNTS.items():
        low, high = sorted(chance.choices(range(len(amounts)), k=2))
        said = chance.choice(("limits", "requests", "both", "none"))
        if "/" in name:
            low, said = high, chance.choice(("both", "none"))
        elif said == "none" and name in {"cpu", "memory"}:
            said = "both"
        limits |= {name: amounts[high]} if said in {"limits", "both"} else {}
        requests |= {name: amounts[low]} if said in {"requests", "both"} else {}
    return {"limits": limits, "requests": requests}


def any_spec(chance: random.Random) -> Object:
    def made(name: str, **rest: str) -> Object:
        return {"name": name, "image": "i", "resources": any_amounts(chance), **rest}

    spec: Object = {"containers": [made(f"main-{one}") for one in range(chance.randint(1, 3))]}
    first = [made(f"first-{one}") for one in range(chance.randint(0, 2))]
    beside = [made(f"beside-{one}", restartPolicy="Always") for one in range(chance.randint(0, 2))]
    spec["initContainers"] = chance.sample([*first, *beside], len(first) + len(beside))
    return spec


async def test_what_a_pod_takes_is_what_a_resource_quota_counts(counted: ClusterClient) -> None:
    where = Key("random", "wide")
    await counted.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", where.namespace)))
    await counted.create(QUOTA, named(QUOTA, where, spec={"hard": WIDE}))
    await journey.until_one(counted, QUOTA, where, lambda one: "used" in one.get("status", {}))
    chance = random.Random(20261128)  # noqa: S311  # no secret
    taken = []
    for number in range(PODS):
        made = factories.pod(where.namespace, f"any-{number}", spec=any_spec(chance))
        stored = await counted.create(keys.POD, made)
        taken.append(resources.usage(stored["spec"]))
    total = {name: resources.total(taken)[name] for name in AMOUNTS}

    def is_counted(found: Object) -> bool:
        used = found["status"]["used"]
        return all(
            resources.parse_quantity(used[f"requests.{name}"]) == total[name] for name in total
        )

    await journey.until_one(counted, QUOTA, where, is_counted)
