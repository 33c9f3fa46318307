"""What a virtual kubelet asks for, and what the provider's controller makes of it.

Once on fakes, once on a real API server that is both clusters. Source: docs/parity.md § 4.10, 5.5.
"""

import datetime as dt
from datetime import timedelta

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from controllers.offloading.nodefailure.reconciler import NodeFailureReconciler
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock
from kube.cluster import Selection
from kube.events import EventRecorder
from kube.informer import Informer
from kube.slim import Packed
from kubelet.pods.deletion import HURRY_S
from tests import factories
from tests.controllers.support import manager_of
from tests.kube.running import running, until
from tests.kubelet import worlds
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
    loop = world.controller()
    await world.bound()
    await world.reconcile()
    await runs_there(world, loop)

    await world.delete_locally(GRACE_S)
    assert await world.reconcile() == HURRY_S
    assert await world.has_shadow(), "its Pod ends first"
    await loop.reconcile(world.twin)
    ending = await world.remote_pod()
    assert ending["metadata"]["deletionGracePeriodSeconds"] == GRACE_S

    await world.reconcile()
    assert not await world.has_shadow()
    await world.end_remotely()
    await loop.reconcile(world.twin)
    await world.reconcile(2)
    assert not await world.has_remote_pod()
    assert not await world.has_pod()


async def test_a_pod_that_is_to_end_is_not_made_anew(world: World) -> None:
    loop = world.controller()
    await world.bound()
    await world.reconcile()
    await runs_there(world, loop)
    await world.delete_locally(GRACE_S)
    await world.reconcile()

    await world.end_remotely()
    await loop.reconcile(world.twin)

    assert not await world.has_remote_pod()
    await world.reconcile(3)
    assert not await world.has_shadow()
    assert not await world.has_pod()


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["alone", "made again"])
async def test_a_pod_that_is_deleted_by_force_is_hurried_there(
    world: World,
    is_made_anew: bool,  # noqa: FBT001  # a row
) -> None:
    """Nothing of it is left here by then, and a namesake of it may be."""
    loop = world.controller()
    await world.bound(spec={"terminationGracePeriodSeconds": 600})
    await world.reconcile()
    await runs_there(world, loop)
    here = Informer(Selection(keys.POD, Packed, world.web.namespace))
    here.subscribe(world.departures.on_local)
    async with running(here.run(world.local)):
        await here.synced.wait()
        await world.delete_locally(0)
        await until(lambda: here.get(world.web) is None)
    if is_made_anew:
        await world.bound()

    assert await world.reconcile() == HURRY_S
    await loop.reconcile(world.twin)
    ending = await world.remote_pod()
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 1, "as kubelets do"

    await world.reconcile()
    assert not await world.has_shadow()


async def test_a_pod_that_is_forced_and_held_here_is_hurried_there(world: World) -> None:
    """As one of a Job is, by its finalizer."""
    loop = world.controller()
    keep = {"finalizers": ["tests/keep"]}
    await world.bound(spec={"terminationGracePeriodSeconds": 600}, metadata=keep)
    await world.reconcile()
    await runs_there(world, loop)

    await world.delete_locally(0)
    assert await world.reconcile() == HURRY_S
    await loop.reconcile(world.twin)

    ending = await world.remote_pod()
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_a_provider_that_knows_nothing_of_it_ends_the_pod_in_the_time_of_its_spec(
    world: World,
) -> None:
    await world.offloaded()
    await world.delete_locally(GRACE_S)

    assert await world.reconcile() == HURRY_S
    told = world.writes()
    world.now += dt.timedelta(seconds=1)
    assert await world.reconcile() == HURRY_S - 1
    assert world.writes() == told
    world.set_back(3600)
    assert await world.reconcile() == HURRY_S - 1, "by no time of day"
    world.now += dt.timedelta(seconds=HURRY_S)
    await world.reconcile()

    assert not await world.has_shadow()


async def test_in_the_time_of_its_spec_a_pod_ends_with_its_shadow_pod_alone(world: World) -> None:
    await world.offloaded(spec={"terminationGracePeriodSeconds": GRACE_S})
    before = world.writes()
    await world.delete_locally()

    await world.reconcile()

    assert not await world.has_shadow()
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

    await runs_there(world, world.controller())

    remote = await world.remote_pod()
    (constraint,) = remote["spec"]["topologySpreadConstraints"]
    (here,) = local["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"] == here["labelSelector"]


# A node of the provider is lost with a pod on it: it runs elsewhere, and stays one pod at home.
# Once on fakes, once on a real API server that is both clusters. Source: docs/parity.md F-24.


async def test_a_pod_of_a_node_that_is_lost_is_made_anew_and_stays_itself_at_home(
    world: World,
) -> None:
    worker = Key("", f"worker-of-{world.twin.namespace}")
    events = EventRecorder(world.remote, "tests", "milan")
    shadows = ShadowPodReconciler(world.remote, events=events, clock=clock.now)
    grace = timedelta(minutes=1)
    failures = NodeFailureReconciler(
        manager_of(world.remote, events=events, clock=lambda: clock.now() + grace)
    )

    async def runs_there() -> str:
        await shadows.reconcile(world.twin)
        body = {"target": {"kind": "Node", "name": worker.name}, "metadata": {"name": "web"}}
        await world.remote.post(keys.POD, world.twin, "binding", body)
        made = await world.runs(worlds.running())
        await world.reconcile(2)
        assert (await world.status())["phase"] == "Running"
        return objects.uid(made)

    await world.remote.create(keys.NODE, factories.node(worker.name))
    await report_ready(world, worker, "True")
    local = await world.bound()
    await world.reconcile()
    first = await runs_there()

    await report_ready(world, worker, "Unknown")
    await world.remote.delete(keys.POD, world.twin, uid=first)  # as Kubernetes evicts it
    await shadows.reconcile(world.twin)
    left = await world.remote_pod()
    assert (objects.uid(left), objects.is_terminating(left)) == (first, True)
    await world.reconcile(2)
    here = await world.pod()
    assert not objects.is_terminating(here), "what a provider does ends no pod here"

    await failures.reconcile(world.twin)
    assert not await world.has_remote_pod()
    await report_ready(world, worker, "True")
    second = await runs_there()

    here = await world.pod()
    assert (objects.uid(here), second != first) == (objects.uid(local), True)
    assert here["status"]["containerStatuses"][0]["restartCount"] == 1


async def report_ready(world: World, worker: Key, status: str) -> None:
    said = {"conditions": [{"type": "Ready", "status": status}]}
    await world.remote.patch_status(keys.NODE, worker, said)
