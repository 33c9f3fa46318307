"""A node of the provider is lost with a pod on it: it runs elsewhere, and stays one pod at home.

Once on fakes, once on a real API server that is both clusters. Source: docs/parity.md F-24.
"""

from datetime import timedelta

from apis import keys, objects
from apis.objects import Key
from controllers.offloading.nodefailure.reconciler import NodeFailureReconciler
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock
from kube.events import EventRecorder
from tests import factories
from tests.kubelet import worlds
from tests.kubelet.worlds import World


async def test_a_pod_of_a_node_that_is_lost_is_made_anew_and_stays_itself_at_home(
    world: World,
) -> None:
    worker = Key("", f"worker-of-{world.twin.namespace}")
    events = EventRecorder(world.remote, "tests", "milan")
    shadows = ShadowPodReconciler(world.remote, events=events, clock=clock.now)
    grace = timedelta(minutes=1)
    failures = NodeFailureReconciler(world.remote, events, lambda: clock.now() + grace)

    async def runs_there() -> str:
        await shadows.reconcile(world.twin)
        body = {"target": {"kind": "Node", "name": worker.name}, "metadata": {"name": "web"}}
        await world.remote.post(keys.POD, world.twin, "binding", body)
        made = await world.runs(worlds.running())
        await world.reconcile(2)
        assert (await world.status())["phase"] == "Running"
        return objects.uid(made)

    await world.remote.create(keys.NODE, factories.node(worker.name))
    await ready(world, worker, "True")
    local = await world.bound()
    await world.reconcile()
    first = await runs_there()

    await ready(world, worker, "Unknown")
    await world.remote.delete(keys.POD, world.twin, uid=first)  # as Kubernetes evicts it
    await shadows.reconcile(world.twin)
    left = await world.remote_pod()
    assert left
    assert (objects.uid(left), objects.is_terminating(left)) == (first, True)
    await world.reconcile(2)
    here = await world.pod()
    assert here
    assert not objects.is_terminating(here), "what a provider does ends no pod here"

    await failures.reconcile(world.twin)
    assert await world.remote_pod() is None
    await ready(world, worker, "True")
    second = await runs_there()

    here = await world.pod()
    assert here
    assert (objects.uid(here), second != first) == (objects.uid(local), True)
    assert here["status"]["containerStatuses"][0]["restartCount"] == 1


async def ready(world: World, worker: Key, status: str) -> None:
    said = {"conditions": [{"type": "Ready", "status": status}]}
    await world.remote.patch_status(keys.NODE, worker, said)
