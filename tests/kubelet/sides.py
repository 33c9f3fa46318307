"""The controllers of a provider beside a virtual kubelet."""

from apis import keys, objects
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock
from kube.events import EventRecorder
from tests.kubelet.worlds import World


def controller(world: World) -> ShadowPodReconciler:
    events = EventRecorder(world.remote, "tests", "milan")
    return ShadowPodReconciler(world.remote, events=events, clock=clock.now)


async def delete(world: World, grace_s: int | None) -> None:
    local = await world.pod()
    assert local
    await world.local.delete(keys.POD, world.web, uid=objects.uid(local), grace_s=grace_s)
