"""What is remembered of a pod goes with it: a namesake inherits nothing."""

import datetime as dt

from apis import keys, objects
from kube import errors
from kubelet.pods.state import MOST_DELETED, DeletionEvidence, PodStates
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet.worlds import World, ended


async def replaced(world: World) -> None:
    """Let the pod be gone and another be there, before anybody looks."""
    pod = await world.pod()
    assert pod
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)
    await world.bound()


async def test_a_namesake_waits_no_longer_for_what_was_refused_to_the_one_before(
    fake_world: World,
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    world.remote.fail("create", errors.InvalidError("spec.x: no (422)"), times=100)
    await world.bound()
    assert [await world.reconcile() for _ in range(4)] == [1, 2, 4, 8]

    await replaced(world)

    assert await world.reconcile() == 1


async def test_a_namesake_has_its_own_time_for_the_provider_to_see_its_end(
    fake_world: World,
) -> None:
    world = fake_world
    for _ in range(2):
        world.now += dt.timedelta(seconds=10)
        await world.bound()
        await world.reconcile()
        await world.run_remotely(ended("Succeeded", 0))
        await world.told(ended("Succeeded", 0))
        assert await world.reconcile() == 2
        pod, shadow = await world.pod(), await world.shadow()
        assert pod
        assert shadow
        await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)
        await world.remote.delete(keys.SHADOW_POD, world.twin, uid=objects.uid(shadow))
        await world.end_remotely()


async def test_a_pod_that_is_gone_is_forgotten(fake_world: World) -> None:
    world = fake_world
    await world.offloaded()
    memories = world.reconciler._memories  # noqa: SLF001  # counted, as a leak is
    assert len(memories) == 1

    await replaced(world)
    await world.reconcile()
    assert len(memories) == 1

    pod = await world.pod()
    assert pod
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)
    await world.reconcile()
    assert len(memories) == 0


def test_a_record_is_that_of_one_uid() -> None:
    memories = PodStates()
    first, second = (factories.pod("shop", metadata={"uid": uid}) for uid in ("1", "2"))
    memories.of(first).is_unanswered = True

    assert memories.of(first).is_unanswered
    assert not memories.of(second).is_unanswered
    assert (len(memories), memories.unanswered()) == (1, 0)


def test_since_when_one_is_hurried_is_remembered_of_so_many() -> None:
    departures, now, later = DeletionEvidence(), 7.0, 10.0

    assert departures.hurried_since("1", now) == departures.hurried_since("1", later) == now
    for number in range(MOST_DELETED):
        departures.hurried_since(f"other-{number}", now)
    assert departures.hurried_since("1", later) == later, "forgotten, so it waits once more"
