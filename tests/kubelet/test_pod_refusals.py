"""Whose pods are touched, and which are refused."""

from typing import Final

import pytest

from apis import keys, objects
from kube import errors
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World

OFFLOADED: Final = keys.OFFLOADED_CONDITION


@pytest.mark.parametrize("kind", [keys.SHADOW_POD, keys.POD], ids=str)
async def test_what_is_not_ours_is_never_touched(world: World, kind: objects.Kind) -> None:
    theirs = await world.remote.create(
        kind, objects.named(kind, world.twin, spec=factories.pod_spec())
    )
    await world.bound()

    assert await world.reconcile(2)

    assert await world.remote.get(kind, world.twin) == theirs
    assert world.recorder.told == [("Warning", "FailedReflection")]
    assert "already exists" in (await world.status())["message"]
    await world.delete_locally()
    await world.reconcile(2)
    assert not await world.has_pod()
    assert await world.remote.get(kind, world.twin) == theirs


async def test_what_another_virtual_node_made_is_never_touched(world: World) -> None:
    labels = {**world.pair.labels(), keys.NODE_NAME: "turin"}
    theirs = objects.named(
        keys.SHADOW_POD, world.twin, metadata={"labels": labels}, spec={"pod": {}}
    )
    made = await world.remote.create(keys.SHADOW_POD, theirs)

    await world.reconcile()
    assert await world.shadow() == made

    await world.bound()
    assert await world.reconcile() is not None
    assert await world.shadow() == made


async def test_a_pod_of_another_node_is_none_of_ours(world: World) -> None:
    await world.bound(spec={"nodeName": "physical"})

    await world.reconcile(2)

    assert not await world.has_shadow()
    assert "hostIP" not in await world.status()


# Refused -----------------------------------------------------------------------------------------


async def test_a_pod_that_may_not_grow_yet_says_so_and_runs_on(world: World) -> None:
    await world.offloaded()
    before = world.writes()[0]
    full = {"type": keys.UPDATED_CONDITION, "status": "False", "reason": "QuotaExceeded"}
    message = "the pod asks for 1 more of cpu, quota rome/x has 0 free of 2"
    said = [{**full, "message": message}]
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": said})

    await world.reconcile(times=2)
    waits = await world.status()
    done = [{"type": keys.UPDATED_CONDITION, "status": "True", "reason": "Updated"}]
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": done})
    await world.reconcile()

    pending = worlds.named_condition(waits, "PodResizePending")
    assert (pending["status"], pending["reason"]) == ("True", "Deferred")
    assert pending["message"] == message
    assert worlds.named_condition(waits, "Ready")["status"] == "True"
    assert world.writes()[0] - before == 2
    assert worlds.named_condition(await world.status(), "PodResizePending") == {}


async def test_a_refused_pod_stays_pending_and_says_why(fake_world: World) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.bound()
    world.remote.fail("create", errors.ForbiddenError("quota exceeded"), times=3)

    pauses = [await world.reconcile() for _ in range(3)]

    assert pauses == [1.0, 2.0, 4.0]
    status = await world.status()
    assert (status["phase"], status["message"]) == ("Pending", "quota exceeded")
    assert worlds.named_condition(status, "pyliqo.io/Offloaded")["status"] == "False"
    assert world.recorder.told == [("Warning", "FailedReflection")]

    await world.reconcile()
    status = await world.status()
    assert await world.has_shadow()
    assert world.recorder.told[1:] == [("Normal", "SuccessfulReflection")]
    assert "message" not in status
    assert not worlds.named_condition(status, "pyliqo.io/Offloaded")


@pytest.mark.parametrize("code", [404, 500])
async def test_a_provider_that_cannot_judge_is_told_of_and_asked_again(
    fake_world: World, code: int
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.bound()
    message = "failed calling webhook: no endpoints"
    world.remote.fail("create", errors.refusal(code, {"message": message}))

    with pytest.raises(errors.KubeError):
        await world.reconcile()

    assert message in (await world.status())["message"]
    assert world.recorder.told == [("Warning", "FailedReflection")]
    await world.reconcile()
    assert await world.has_shadow()
    assert "message" not in await world.status()


async def test_how_a_pod_is_arrives_also_while_the_provider_takes_no_change_of_it(
    fake_world: World,
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    await world.local.patch(keys.POD, world.web, {"metadata": {"labels": {"tier": "front"}}})
    await world.runs(worlds.running(restarts=1))
    world.remote.fail("patch", errors.refusal(500, {"message": "failed calling webhook"}))

    with pytest.raises(errors.BusyError):
        await world.reconcile()

    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1
    await world.reconcile()
    shadow = await world.shadow()
    assert objects.labels(shadow)["tier"] == "front"


async def test_a_shadow_that_is_not_admitted_says_why(world: World) -> None:
    await world.bound()
    await world.reconcile()
    refusal = {"type": "Admitted", "status": "False", "reason": "QuotaExceeded", "message": "full"}
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": [refusal]})

    await world.reconcile(2)
    assert (await world.status())["message"] == "full"

    admitted = {**refusal, "status": "True", "message": ""}
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": [admitted]})
    await world.reconcile(2)
    assert "message" not in await world.status()


async def test_a_lost_answer_doubles_nothing(fake_world: World) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.bound()
    world.remote.fail("create", errors.NotReachableError("reset"), after=True)

    with pytest.raises(errors.NotReachableError):
        await world.reconcile()
    await world.reconcile(2)

    assert world.remote.requests["create", "shadowpods"] == 1
    assert await world.has_shadow()


@pytest.mark.parametrize("is_terminating", [False, True])
async def test_nothing_is_deleted_for_lack_of_contact(
    fake_world: World, *, is_terminating: bool
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    if is_terminating:
        await world.delete_locally()
    world.remote.fail("*", errors.NotReachableError("silence"), times=100)

    for _ in range(3):
        with pytest.raises(errors.NotReachableError):
            await world.reconcile()

    assert await world.has_pod()
    assert (keys.SHADOW_POD, world.twin) in world.remote.everything()


# Rights that were taken away ---------------------------------------------------------------------

MISSING: Final = "pods is forbidden: User vk cannot list resource pods (403)"


@pytest.mark.parametrize("is_synced", [True, False])
async def test_a_right_that_was_taken_away_is_told_on_the_pod_until_it_is_back(
    world: World, *, is_synced: bool
) -> None:
    """Nobody knows how a pod is that nobody may look at: also where nothing was seen before."""
    await world.offloaded()
    world.namespaces.missing, world.namespaces.synced = MISSING, is_synced
    before = world.writes()
    await world.reconcile(2)

    status = await world.status()
    ready = worlds.named_condition(status, "Ready")
    assert (status["phase"], ready["status"]) == ("Running", "False")
    assert MISSING in ready["message"]
    assert "ask its administrator" in worlds.named_condition(status, OFFLOADED)["message"]
    assert world.recorder.told[-1:] == [("Warning", "FailedReflection")]
    assert world.writes() == (before[0] + 1, before[1])

    world.namespaces.missing, world.namespaces.synced = "", True
    await world.reconcile()
    status = await world.status()
    assert worlds.named_condition(status, "Ready")["status"] == "True"
    assert worlds.named_condition(status, OFFLOADED) == {}


async def test_a_pod_that_ends_where_nobody_may_end_it_says_so(fake_world: World) -> None:
    """As when the provider drains the tenant: told once, tried again, and ended in the end."""
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    await world.delete_locally()
    refusal = errors.ForbiddenError("shadowpods is forbidden: vk cannot delete (403)")
    world.remote.fail("delete", refusal, kind=keys.SHADOW_POD, times=3)
    told = len(world.recorder.told)

    assert [await world.reconcile() for _ in range(3)] == [20.0] * 3

    shown = worlds.named_condition(await world.status(), OFFLOADED)
    assert "cannot delete" in shown["message"]
    assert world.recorder.told[told:] == [("Warning", "FailedReflection")]
    assert await world.has_shadow()
    await world.reconcile()
    assert not await world.has_shadow()


async def test_how_a_pod_ended_stays_as_it_was_told(world: World) -> None:
    await world.offloaded()
    await world.runs(worlds.ended("Succeeded", 0))
    await world.reconcile()
    before = await world.pod()
    world.namespaces.missing = MISSING

    await world.reconcile()

    assert await world.pod() == before


async def test_a_name_that_is_taken_by_nothing_is_tried_ever_less_often(fake_world: World) -> None:
    assert isinstance(fake_world.remote, FakeCluster)
    await fake_world.bound()
    fake_world.remote.fail("create", errors.AlreadyExistsError("it is there"), times=99)

    pauses = [await fake_world.reconcile() for _ in range(14)]
    fake_world.remote.heal()
    await fake_world.reconcile()

    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == 60
    assert await fake_world.has_shadow()
