"""One pod's life, by the decision table of docs/parity.md § 5.5.1."""

import datetime as dt
from typing import cast

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster
from kubelet.pods.state import MOST_DELETED, DeletionEvidence, PodStates
from tests import factories
from tests.fakes import FakeCluster, Through
from tests.kubelet import worlds
from tests.kubelet.worlds import World, ended, running, waiting
from tests.world import existing


async def test_a_bound_pod_gets_a_shadow_pod_and_a_label(world: World) -> None:
    local = await world.bound(metadata={"labels": {"app": "web"}})

    await world.reconcile()

    shadow = await world.shadow()
    pod = await world.pod()
    assert objects.labels(shadow) == {
        "app": "web",
        "offloading.liqo.io/origin": "rome",
        "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": "milan",
    }
    assert objects.annotations(shadow)[keys.LOCAL_POD_UID] == objects.uid(local)
    assert pod["status"]["phase"] == "Pending"
    assert world.recorder.told == []

    await world.run_remotely(running())
    await world.reconcile()
    pod = await world.pod()
    assert objects.labels(pod) == {"app": "web", "liqo.io/shadowPod": "true"}


async def test_a_pod_that_takes_its_time_is_told_what_it_waits_for(world: World) -> None:
    await world.bound()
    await world.reconcile()
    await world.run_remotely(waiting("ContainerCreating"))
    await world.reconcile()
    assert world.writes() == (0, 1)

    world.now += dt.timedelta(seconds=10)
    await world.reconcile(2)

    assert world.writes() == (1, 1)
    state = (await world.status())["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ContainerCreating"}}


async def test_up_to_running_it_costs_two_writes(world: World) -> None:
    await world.bound()
    await world.reconcile(2)
    await world.run_remotely()
    for status in (waiting("ContainerCreating"), waiting("PodInitializing"), running()):
        await world.runs(status)
        await world.reconcile(2)

    assert world.writes() == (1, 1)
    status = await world.status()
    assert status["phase"] == "Running"
    assert status["podIP"] == "10.1.0.7"
    assert status["hostIP"] == worlds.HOST
    assert world.recorder.told == []


async def test_a_second_reconcile_writes_nothing(world: World) -> None:
    await world.offloaded()
    before = world.writes()

    assert await world.reconcile(3) is None

    assert world.writes() == before


async def test_why_a_pod_stays_pending_is_told(world: World) -> None:
    await world.bound()
    await world.reconcile()
    await world.run_remotely(waiting("ImagePullBackOff", "no such image"))

    await world.reconcile(2)

    state = (await world.status())["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


async def test_that_no_remote_node_fits_is_told(world: World) -> None:
    await world.bound()
    await world.reconcile()
    unschedulable = worlds.pod_condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes"
    )
    await world.run_remotely({"phase": "Pending", "conditions": [unschedulable]})

    await world.reconcile()

    shown = worlds.named_condition(await world.status(), "PodScheduled")
    assert (shown["status"], shown["message"]) == ("False", "0/1 nodes")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_what_ended_while_we_were_away_ends_here(
    world: World, phase: str, policy: str
) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    await world.runs(ended(phase, int(phase == "Failed")))
    world.restart()

    await world.reconcile(2)

    assert (await world.status())["phase"] == phase
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"phase": phase})
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_what_goes_on_goes_on_here(world: World, phase: str, policy: str) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    await world.runs(running(phase))
    world.restart()

    await world.reconcile(2)

    expected = "Running" if phase == "Pending" else phase
    assert (await world.status())["phase"] == expected
    assert await world.has_shadow()


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_a_remote_pod_that_is_gone_for_now_changes_nothing(world: World, policy: str) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    before = await world.status()
    await world.end_remotely()
    world.restart()

    await world.reconcile(2)

    assert await world.status() == before


@pytest.mark.parametrize(("phase", "exit_code"), [("Succeeded", 0), ("Failed", 1)])
async def test_a_shadow_that_ended_without_its_pod_ends_the_pod(
    world: World, phase: str, exit_code: int
) -> None:
    await world.offloaded()
    await world.end_remotely()
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"phase": phase})

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == (phase, "RemotePodTerminated")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == exit_code


async def test_a_recreated_pod_is_one_more_restart(world: World) -> None:
    await world.offloaded(running(restarts=2))
    await world.end_remotely()
    await world.reconcile()
    await world.run_remotely(running(restarts=0))

    await world.reconcile()

    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1
    world.restart()
    await world.reconcile()
    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1


async def test_what_was_made_anew_while_nobody_looked_counts_too(world: World) -> None:
    await world.offloaded(running(restarts=2))
    counts = []
    for restarts in (0, 3, 0):
        await world.end_remotely()
        world.restart()
        await world.run_remotely(running(restarts=restarts))
        await world.reconcile()
        world.restart()
        await world.reconcile()
        counts.append((await world.status())["containerStatuses"][0]["restartCount"])

    assert counts == [1, 2 + 3, 3]


async def test_a_pod_made_anew_counts_from_before_it_runs(world: World) -> None:
    await world.offloaded()
    await world.end_remotely()
    await world.run_remotely({"phase": "Pending"})
    await world.reconcile()
    world.restart()
    await world.runs(running())
    await world.reconcile()

    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1


async def test_what_is_noted_of_a_remote_pod_stays_at_home(world: World) -> None:
    await world.offloaded(metadata={"annotations": {keys.REMOTE_POD: "another 7"}})
    await world.reconcile()

    pod, remote, shadow = await world.pod(), await world.remote_pod(), await world.shadow()
    assert objects.annotations(pod)[keys.REMOTE_POD] == f"{objects.uid(remote)} 0"
    assert (await world.status())["containerStatuses"][0]["restartCount"] == 0
    assert keys.REMOTE_POD not in objects.annotations(shadow)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_how_a_remote_pod_ends_while_it_is_deleted_there_is_no_end(
    fake_world: World, phase: str
) -> None:
    world = fake_world
    await world.offloaded(running())
    remote = await world.remote_pod()
    keep = {"metadata": {"finalizers": ["tests/keep"]}}
    await world.remote.patch(keys.POD, world.twin, keep)
    await world.remote.delete(keys.POD, world.twin, uid=remote["metadata"]["uid"], grace_s=30)
    await world.runs({"phase": phase})

    await world.reconcile()

    assert (await world.status())["phase"] == "Running"


class Stamping(Through):
    """A provider whose own admission notes on each ShadowPod who wrote it, and how often."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.times = 0

    async def create(self, kind: Kind, body: Object) -> Object:
        made = await self._cluster.create(kind, body)
        return await self._stamp(objects.key_of(made)) if kind == keys.SHADOW_POD else made

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        made = await self._cluster.patch(kind, key, changes, subresource=subresource)
        return await self._stamp(key) if kind == keys.SHADOW_POD else made

    async def _stamp(self, key: Key) -> Object:
        self.times += 1
        stamp = {"annotations": {"seen.example.com/times": str(self.times)}}
        labels = {"team.example.com/owner": "shop", keys.CREATOR_USER: "rome"}
        return await self._cluster.patch(
            keys.SHADOW_POD, key, {"metadata": {**stamp, "labels": labels}}
        )


def stamped(world: World) -> Stamping:
    provider = Stamping(world.remote)
    world.remote = cast("Cluster", provider)
    world.restart()
    return provider


async def test_the_label_of_its_creator_goes_with_the_next_shadow_pod(fake_world: World) -> None:
    world = fake_world
    stamped(world)
    await world.offloaded()
    spec = {**factories.pod_spec(), "nodeName": worlds.NODE}
    await world.local.create(keys.POD, factories.pod(world.web.namespace, "next", spec=spec))

    await world.reconciler.reconcile(Key(world.web.namespace, "next"))

    shadow = await existing(world.remote, keys.SHADOW_POD, Key(world.twin.namespace, "next"))
    assert objects.labels(shadow)[keys.CREATOR_USER] == "rome"


async def test_labels_and_annotations_follow_and_the_spec_stays(world: World) -> None:
    await world.offloaded(metadata={"labels": {"app": "web", "old": "1"}})
    by_provider = {"labels": {keys.CREATOR_USER: "milan"}}
    await world.remote.patch(keys.SHADOW_POD, world.twin, {"metadata": by_provider})
    changes = {"labels": {"tier": "front", "old": None}, "annotations": {"note": "x"}}
    await world.local.patch(keys.POD, world.web, {"metadata": changes})

    await world.reconcile(2)

    shadow = await world.shadow()
    labels = objects.labels(shadow)
    assert (labels["tier"], labels[keys.CREATOR_USER]) == ("front", "milan")
    assert "old" not in labels
    assert objects.annotations(shadow)["note"] == "x"


async def test_what_the_provider_notes_on_a_shadow_pod_stays_and_is_answered_by_no_write(
    world: World,
) -> None:
    provider = stamped(world)
    await world.offloaded(metadata={"labels": {"app": "web", "old": "1"}})
    await world.reconcile(3)
    assert provider.times == 1

    await world.local.patch(keys.POD, world.web, {"metadata": {"labels": {"old": None}}})
    await world.reconcile(3)

    assert provider.times == 2
    shadow = await world.shadow()
    assert "old" not in objects.labels(shadow)
    assert objects.labels(shadow)["team.example.com/owner"] == "shop"
    assert objects.annotations(shadow)["seen.example.com/times"] == "2"


async def test_a_shadow_pod_of_which_nobody_recorded_what_was_written_follows_too(
    world: World,
) -> None:
    """One of an older virtual kubelet."""
    await world.offloaded(metadata={"labels": {"app": "web", "old": "1"}})
    unrecorded: Object = {"annotations": {keys.APPLIED_META: None}}
    await world.remote.patch(keys.SHADOW_POD, world.twin, {"metadata": unrecorded})
    before = world.writes()
    await world.reconcile()
    assert world.writes() == before, "nothing differs but the record"

    await world.local.patch(keys.POD, world.web, {"metadata": {"labels": {"old": None}}})
    await world.reconcile(2)

    shadow = await world.shadow()
    assert "old" not in objects.labels(shadow)
    assert keys.APPLIED_META in objects.annotations(shadow)


async def test_who_created_a_shadow_pod_is_for_the_provider_to_say(world: World) -> None:
    stamped(world)
    await world.offloaded(metadata={"labels": {keys.CREATOR_USER: "me", "app": "web"}})

    await world.local.patch(keys.POD, world.web, {"metadata": {"labels": {"tier": "front"}}})
    await world.reconcile(2)

    shadow = await world.shadow()
    labels = objects.labels(shadow)
    assert (labels["tier"], labels[keys.CREATOR_USER]) == ("front", "rome")


# What is remembered of a pod goes with it: a namesake inherits nothing.


async def replaced(world: World) -> None:
    """Let the pod be gone and another be there, before anybody looks."""
    pod = await world.pod()
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
