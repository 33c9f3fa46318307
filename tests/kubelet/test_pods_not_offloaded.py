"""Pods on a virtual node whose namespace is not offloaded, or no more."""

import datetime as dt
from typing import Final

import pytest

from apis import keys, objects, resources
from apis.objects import Key, named
from kube import errors
from kubelet.pods import decide
from kubelet.pods.mapping import MappingState, NamespaceMapping
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World, running


async def test_nothing_is_judged_before_its_namespace_is_seen(fake_world: World) -> None:
    world = fake_world
    await world.bound()
    world.namespaces.synced = False

    await world.reconcile()

    assert not await world.has_shadow()
    assert world.writes() == (0, 0)


@factories.cases("owner, reason")
async def test_an_offloaded_pod_that_never_started_makes_way_for_its_successor(
    world: World, owner: str, reason: str
) -> None:
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1"}
    owners = [{**reference, "controller": True}] if owner else []
    labels = {keys.SHADOW_POD_LABEL: "true"}
    await world.bound(metadata={"labels": labels, "ownerReferences": owners})

    await world.reconcile(2)

    assert (await world.status())["reason"] == reason


SCHEDULED: Final = {"conditions": [worlds.pod_condition("PodScheduled")]}
"""What a pod says that a scheduler bound."""
JUDGED: Final = "strategy=Remote generation=1 added=toleration,nodeAffinity"


async def unoffloaded(world: World, offloading: str, note: str, owner: str) -> None:
    """Let a pod be bound a minute before its namespace is withdrawn that never reached milan."""
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    if offloading:
        key = Key(world.pair.local_namespace, keys.OFFLOADING_NAME)
        made = named(keys.NAMESPACE_OFFLOADING, key, spec={"podOffloadingStrategy": "Remote"})
        made["metadata"]["finalizers"] = [keys.NAMESPACE_OFFLOADING_FINALIZER]
        made = await world.local.create(keys.NAMESPACE_OFFLOADING, made)
        if offloading == "ending":
            await world.local.delete(keys.NAMESPACE_OFFLOADING, key, uid=objects.uid(made))
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1"}
    owners = [{**reference, "controller": True}] if owner else []
    notes = {keys.PLACEMENT: note} if note else {}
    await world.bound(SCHEDULED, metadata={"annotations": notes, "ownerReferences": owners})


@pytest.mark.parametrize("offloading", ["", "ending"])
async def test_a_pod_that_was_on_its_way_makes_way_for_one_that_is_judged_anew(
    world: World, offloading: str
) -> None:
    await unoffloaded(world, offloading, JUDGED, "ReplicaSet")

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OffloadingAborted")


@factories.cases("offloading, note, owner")
async def test_a_pod_that_never_started_waits_where_no_other_would_be_placed_elsewhere(
    world: World, offloading: str, note: str, owner: str
) -> None:
    await unoffloaded(world, offloading, note, owner)

    again = await world.reconcile(2)

    said = await world.status()
    assert said["reason"] == "OffloadingBackOff"
    is_daemon = owner == "DaemonSet"
    assert ("by the patch that liqoctl info prints" in said["message"]) == is_daemon
    local = await world.pod()
    held_back = decide.held_back([decide.claim(local)])
    assert resources.to_json(held_back).get("pods") == ("1" if is_daemon else None)
    assert (again is not None) == (offloading == "there")


@pytest.mark.parametrize("state", [MappingState.WAITING, MappingState.WITHDRAWN])
async def test_a_pod_that_never_started_backs_off(world: World, state: MappingState) -> None:
    world.namespaces.now = NamespaceMapping(state)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    await world.bound(SCHEDULED)

    await world.reconcile(3)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Pending", "OffloadingBackOff")
    assert world.recorder.told == [("Warning", "ReflectionDisabled")]

    world.namespaces.now = NamespaceMapping(MappingState.OFFLOADED, world.pair)
    await world.reconcile()
    assert await world.has_shadow()
    assert "reason" not in await world.status()


async def test_a_new_pod_is_not_judged_while_its_namespace_may_be_on_its_way(
    fake_world: World,
) -> None:
    world = fake_world
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)
    world.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake
    await world.bound()

    again = await world.reconcile()

    assert again is not None
    assert 0 < again <= 11
    assert world.writes() == (0, 0)


async def test_a_pod_that_ran_fails_when_its_namespace_is_withdrawn(world: World) -> None:
    await world.offloaded()
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, world.pair)

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OffloadingAborted")
    assert worlds.named_condition(status, "Ready")["status"] == "False"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert world.recorder.told.count(("Warning", "ReflectionDisabled")) == 1

    world.namespaces.now = NamespaceMapping(MappingState.OFFLOADED, world.pair)
    await world.reconcile(2)
    assert not await world.has_shadow()
    assert (await world.status())["phase"] == "Failed"


async def test_a_pod_that_runs_is_left_alone_while_nothing_is_known(world: World) -> None:
    await world.offloaded()
    before = await world.status()
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    await world.reconcile(3)

    assert await world.status() == before


async def test_a_terminating_pod_goes_with_its_namespace(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, world.pair)

    await world.reconcile(2)
    assert not await world.has_shadow()
    assert await world.has_pod()

    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    await world.reconcile()
    assert not await world.has_pod()


async def test_a_terminating_pod_that_ran_waits_while_nothing_is_known(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    assert await world.reconcile(2) is not None

    assert await world.has_pod()


async def test_a_terminating_pod_says_so_if_rights_that_go_with_its_namespace_stay_away(
    fake_world: World,
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    await world.delete_locally()
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, world.pair)
    world.remote.fail("get", errors.ForbiddenError("vk cannot get (403)"), times=100)
    pod = await world.pod()
    world.now = dt.datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    await world.reconcile()
    assert not worlds.named_condition(await world.status(), keys.OFFLOADED_CONDITION)

    world.now += dt.timedelta(seconds=61)
    await world.reconcile(2)

    told = worlds.named_condition(await world.status(), keys.OFFLOADED_CONDITION)
    assert "cannot get" in told["message"]
    assert world.recorder.told[-1:] == [("Warning", "FailedReflection")]


async def test_a_terminating_pod_that_is_counted_has_failed_before_it_goes(world: World) -> None:
    await world.bound(metadata={"finalizers": ["batch.kubernetes.io/job-tracking"]})
    await world.delete_locally()
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    await world.reconcile()

    assert (await world.status())["phase"] == "Failed"


async def test_a_terminating_pod_that_never_ran_goes_at_once(world: World) -> None:
    await world.bound()
    await world.delete_locally()
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    await world.reconcile()

    assert not await world.has_pod()


async def test_what_we_wrote_and_the_cache_lacks_is_not_written_again(fake_world: World) -> None:
    world = fake_world
    stale = await world.bound()
    assert isinstance(world.local, FakeCluster)
    local = worlds.Late(world.local, stale)
    world.local = local  # type: ignore[assignment]  # a Cluster all the same
    world.restart()
    await world.reconcile()
    await world.run_remotely(running())
    await world.reconcile()
    written = local.patches

    await world.reconcile(3)

    assert local.patches == written == 1


# Pods that nobody scheduled -----------------------------------------------------------------------


@pytest.mark.parametrize("state", [MappingState.WITHDRAWN, MappingState.WAITING])
async def test_a_pod_that_came_by_name_is_rejected_where_its_namespace_does_not_come(
    world: World, state: MappingState
) -> None:
    world.namespaces.now = NamespaceMapping(state)
    pod = await world.bound()
    world.now = dt.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    assert await world.reconcile(), "its namespace has ten seconds"
    assert not (await world.status()).get("reason")

    world.now += dt.timedelta(seconds=11)
    await world.reconcile(2)

    told = await world.status()
    said = (told["phase"], told["reason"])
    is_withdrawn = state is MappingState.WITHDRAWN
    assert said == (
        ("Failed", "OffloadingDisabled") if is_withdrawn else ("Pending", "OffloadingBackOff")
    )


async def test_a_pod_that_came_by_name_is_rejected_where_the_strategy_keeps_it_off(
    fake_world: World,
) -> None:
    fake_world.forbids = lambda _local: "the strategy is Local"
    fake_world.restart()
    pod = await fake_world.bound()
    fake_world.now = dt.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    fake_world.now += dt.timedelta(seconds=11)

    await fake_world.reconcile(2)

    told = await fake_world.status()
    assert (told["phase"], told["reason"]) == ("Failed", "OffloadingDisabled")
    assert "the strategy is Local" in told["message"]
    assert not await fake_world.has_shadow()


async def test_a_pod_that_came_by_name_and_has_no_room_is_rejected_at_once(
    fake_world: World,
) -> None:
    fake_world.lacks = lambda _local: "cpu"
    fake_world.restart()
    await fake_world.bound()
    await fake_world.reconcile(2)

    told = await fake_world.status()
    assert (told["phase"], told["reason"]) == ("Failed", "OutOfcpu")
    assert not await fake_world.has_shadow()


@pytest.mark.parametrize("how", ["scheduled", "offloaded before"])
async def test_who_was_scheduled_or_runs_there_is_never_rejected(
    fake_world: World, how: str
) -> None:
    if how == "scheduled":
        await fake_world.bound(SCHEDULED)
    else:
        await fake_world.offloaded()
    fake_world.lacks, fake_world.forbids = (lambda _local: "cpu"), (lambda _local: "no")
    fake_world.restart()
    fake_world.now += dt.timedelta(days=400)

    await fake_world.reconcile(2)

    assert (await fake_world.status())["phase"] != "Failed"
