"""What a virtual kubelet asks for, and what the provider's controller makes of it.

Once on fakes, once on a real API server that is both clusters. Source: docs/parity.md § 4.10, 5.5.
"""

import datetime as dt

import pytest

from apis import keys
from apis.objects import Object
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube.cluster import Selection
from kube.informer import Informer
from kube.slim import Packed
from kubelet.pods.deletion import HURRY_S
from tests.kube.running import running, until
from tests.kubelet import worlds
from tests.kubelet.sides import controller, delete
from tests.kubelet.worlds import World

GRACE_S = 7


async def runs_there(world: World, loop: ShadowPodReconciler) -> Object:
    """Let the pod run on a node of the provider, and be told of here."""
    await loop.reconcile(world.twin)
    body = {"target": {"kind": "Node", "name": "worker"}, "metadata": {"name": world.twin.name}}
    await world.remote.post(keys.POD, world.twin, "binding", body)
    made = await world.runs(worlds.running())
    await world.reconcile(2)
    assert (await world.status())["phase"] == "Running"
    return made


async def test_a_pod_ends_there_in_the_time_that_was_asked_for_here(world: World) -> None:
    loop = controller(world)
    await world.bound()
    await world.reconcile()
    await runs_there(world, loop)

    await delete(world, GRACE_S)
    assert await world.reconcile() == HURRY_S
    assert await world.shadow(), "its Pod ends first"
    await loop.reconcile(world.twin)
    ending = await world.remote_pod()
    assert ending
    assert ending["metadata"]["deletionGracePeriodSeconds"] == GRACE_S

    await world.reconcile()
    assert await world.shadow() is None
    await world.end_remotely()
    await loop.reconcile(world.twin)
    await world.reconcile(2)
    assert await world.remote_pod() is None
    assert await world.pod() is None


async def test_a_pod_that_is_to_end_is_not_made_anew(world: World) -> None:
    loop = controller(world)
    await world.bound()
    await world.reconcile()
    await runs_there(world, loop)
    await delete(world, GRACE_S)
    await world.reconcile()

    await world.end_remotely()
    await loop.reconcile(world.twin)

    assert await world.remote_pod() is None
    await world.reconcile(3)
    assert await world.shadow() is None
    assert await world.pod() is None


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["alone", "made again"])
async def test_a_pod_that_is_deleted_by_force_is_hurried_there(
    world: World,
    is_made_anew: bool,  # noqa: FBT001  # a row
) -> None:
    """Nothing of it is left here by then, and a namesake of it may be."""
    loop = controller(world)
    await world.bound(spec={"terminationGracePeriodSeconds": 600})
    await world.reconcile()
    await runs_there(world, loop)
    here = Informer(Selection(keys.POD, Packed, world.web.namespace))
    here.subscribe(world.departures.on_local)
    async with running(here.run(world.local)):
        await here.synced.wait()
        await delete(world, 0)
        await until(lambda: here.get(world.web) is None)
    if is_made_anew:
        await world.bound()

    assert await world.reconcile() == HURRY_S
    await loop.reconcile(world.twin)
    ending = await world.remote_pod()
    assert ending
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 1, "as kubelets do"

    await world.reconcile()
    assert await world.shadow() is None


async def test_a_pod_that_is_forced_and_held_here_is_hurried_there(world: World) -> None:
    """As one of a Job is, by its finalizer."""
    loop = controller(world)
    keep = {"finalizers": ["tests/keep"]}
    await world.bound(spec={"terminationGracePeriodSeconds": 600}, metadata=keep)
    await world.reconcile()
    await runs_there(world, loop)

    await delete(world, 0)
    assert await world.reconcile() == HURRY_S
    await loop.reconcile(world.twin)

    ending = await world.remote_pod()
    assert ending
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_a_provider_that_knows_nothing_of_it_ends_the_pod_in_the_time_of_its_spec(
    world: World,
) -> None:
    await world.offloaded()
    await delete(world, GRACE_S)

    assert await world.reconcile() == HURRY_S
    told = world.writes()
    world.now += dt.timedelta(seconds=1)
    assert await world.reconcile() == HURRY_S - 1
    assert world.writes() == told
    world.set_back(3600)
    assert await world.reconcile() == HURRY_S - 1, "by no time of day"
    world.now += dt.timedelta(seconds=HURRY_S)
    await world.reconcile()

    assert await world.shadow() is None


async def test_in_the_time_of_its_spec_a_pod_ends_with_its_shadow_pod_alone(world: World) -> None:
    await world.offloaded(spec={"terminationGracePeriodSeconds": GRACE_S})
    before = world.writes()
    await delete(world, None)

    await world.reconcile()

    assert await world.shadow() is None
    assert world.writes() == (before[0], before[1] + 1)


async def test_a_pod_whose_selectors_the_api_server_completed_runs_there(world: World) -> None:
    """It writes the values of ``matchLabelKeys`` into selectors, and takes no label in both."""
    selector = {"matchLabels": {"app": "web"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        "matchLabelKeys": ["pod-template-hash"],
    }
    apart = {
        "topologyKey": "zone",
        "labelSelector": selector,
        "matchLabelKeys": ["pod-template-hash"],
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    metadata = {
        "labels": {"app": "web", "pod-template-hash": "7"},
        "annotations": {keys.ANTI_AFFINITY_PRESET: "propagate"},
    }
    spec = {"topologySpreadConstraints": [spread], "affinity": {"podAntiAffinity": required}}
    local = await world.bound(spec=spec, metadata=metadata)
    await world.reconcile()

    await runs_there(world, controller(world))

    remote = await world.remote_pod()
    assert remote
    (constraint,) = remote["spec"]["topologySpreadConstraints"]
    (here,) = local["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"] == here["labelSelector"]
