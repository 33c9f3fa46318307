"""The ledger in a Quota's status: booked before a Pod is created, by the one who keeps it."""

import itertools
from collections.abc import AsyncIterator
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, named
from controllers.offloading.quota.ledger import Accounts
from controllers.offloading.quota.reconciler import (
    HELD_S,
    ORPHAN_S,
    SETTLE_S,
    SHARE,
    QuotaReconciler,
)
from controllers.offloading.shadowpod.reconciler import RETRY_S
from kube.cluster import Cluster
from kube.controller import TerminalError
from kube.errors import InvalidError
from kube.informer import Informer
from tests import factories
from tests.controllers.quotaworld import World, following, sized
from tests.controllers.support import end, there
from tests.fakes import FakeCluster

REAL: Final = pytest.param("real", marks=pytest.mark.cluster)
"""For what a real API server's admission does."""


@pytest.fixture
async def world(cluster: Cluster, namespace: str) -> AsyncIterator[World]:
    await cluster.create(
        keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, Key(namespace, "default"))
    )
    async with following(World(cluster, namespace)) as made:
        yield made


async def test_what_fits_runs_and_the_others_are_told_why(world: World) -> None:
    await world.grant("2")
    for name in ("a", "b", "c"):
        await world.ask(name)

    await world.settle()

    assert await world.running() == ["a", "b"]
    condition = await world.why("c")
    assert (condition["type"], condition["status"]) == ("Admitted", "False")
    assert condition["reason"] == "QuotaExceeded"
    assert "asks for 1 of cpu" in condition["message"]
    assert "has 0 free of 2: it starts as soon as it fits" in condition["message"]
    assert world.events.reasons == ["QuotaExceeded"]
    assert (await world.status())["booked"] == {"cpu": "2", "pods": "2"}


async def test_one_write_books_all_and_a_second_one_tells_that_they_run(world: World) -> None:
    await world.grant("5")
    for name in "abcde":
        await world.ask(name)
    await world.settle()
    booked = await world.status()
    world.now += SETTLE_S
    await world.settle()

    writes = [one for one in world.ledger.writes if one[1] == "quota"]
    assert len(writes) == 3  # whose it is, five bookings, five Pods
    assert len(booked["bookings"]) == 5
    settled = await world.status()
    assert settled["used"] == settled["booked"] == {"cpu": "5", "pods": "5"}
    assert settled["bookings"] == []


async def test_one_write_a_second_tells_of_those_that_go(world: World) -> None:
    await world.grant("5")
    for name in "abcde":
        await world.ask(name)
    await world.settle()
    world.now += SETTLE_S
    await world.settle()
    before = len(world.ledger.writes)
    for name in "abc":
        world.now += SETTLE_S / 4
        await world.remove(name)
        await world.caught_up()
        assert await world.quota.reconcile(world.key)
    assert len(world.ledger.writes) == before

    await world.ask("f", "3")
    await world.settle()

    assert await world.running() == ["d", "e", "f"], "anybody who waits does not wait for that"
    world.now += SETTLE_S
    await world.settle()
    for name in "def":
        await world.remove(name)
    await world.settle()
    before = len(world.ledger.writes)
    world.now += SETTLE_S
    await world.settle()
    assert [one[1] for one in world.ledger.writes[before:]] == ["quota"]
    assert (await world.status())["booked"] == {"cpu": "0"}


async def test_no_pod_is_created_before_it_is_booked(world: World) -> None:
    await world.grant("1")
    key = await world.ask("a")
    await world.caught_up()

    await world.loop.reconcile(key)

    assert await world.running() == []
    assert world.ledger.writes == []


async def reserving(world: World) -> None:
    """Let the Quota have a reserve: one of 8 runs, and half of what is free is booked ahead."""
    await world.grant("8")
    await world.ask("first")
    await world.settle()
    world.now += SETTLE_S
    await world.settle()
    assert (await world.status())["reserve"]["requests"] == {"cpu": "3500m"}


async def test_out_of_the_reserve_pods_are_created_with_no_write_before(world: World) -> None:
    await reserving(world)
    before = len(world.ledger.writes)
    names = ("a", "b", "c")
    for name in names:
        await world.ask(name)
    await world.caught_up()

    assert await world.quota.reconcile(world.key) == SETTLE_S
    for name in names:
        await world.loop.reconcile(Key(world.namespace, name))

    assert [kind for _, kind, *_ in world.ledger.writes[before:]] == ["pod"] * 3
    assert [key.name for key in world.told[-3:]] == list(names)
    world.now += SETTLE_S
    await world.settle()
    status = await world.status()
    assert (status["used"]["cpu"], status["bookings"]) == ("4", [])
    assert status["reserve"]["requests"] == {"cpu": "2"}


async def test_what_the_reserve_has_no_room_for_is_booked_by_name(world: World) -> None:
    await reserving(world)
    for number in range(9):
        await world.ask(f"pod-{number}")

    await world.settle()

    assert len(await world.running()) == 8
    status = await world.status()
    assert (status["booked"]["cpu"], status["reserve"]["requests"]) == ("8", {})


async def test_a_pod_that_grew_comes_before_the_reserve(world: World) -> None:
    await reserving(world)
    await world.resize("first", "8")
    await world.ask("a")

    await world.settle()

    assert await world.running() == ["first"]
    assert "has 0 free of 8" in (await world.why("a"))["message"]


async def test_what_was_drawn_and_goes_is_given_back(world: World) -> None:
    await reserving(world)
    await world.ask("a", "3")
    await world.caught_up()
    await world.quota.reconcile(world.key)
    await world.remove("a")
    await world.caught_up()
    await world.quota.reconcile(world.key)
    world.now += ORPHAN_S
    for number in range(7):
        await world.ask(f"pod-{number}")

    await world.settle()

    assert len(await world.running()) == 8


async def test_a_successor_uses_the_reserve_when_its_predecessor_can_no_more(world: World) -> None:
    await reserving(world)
    for number in range(7):
        await world.ask(f"pod-{number}")

    async with following(World(world.cluster, world.namespace, term="second")) as successor:
        await successor.settle()
        at_once = await successor.running()
        held = await successor.status()
        successor.now += HELD_S
        await successor.settle()

        assert len(at_once) == 4
        assert held["reserve"] == {"keeper": "first", "requests": {"cpu": "3500m"}}
        assert len(await successor.running()) == 8


async def test_a_reserve_that_nobody_needs_makes_nobody_take_over(world: World) -> None:
    await reserving(world)
    async with following(World(world.cluster, world.namespace, term="second")) as successor:
        await successor.settle()
        assert successor.ledger.writes == []

        await successor.ask("huge", "9")
        await successor.settle()
        assert (await successor.why("huge"))["reason"] == "QuotaExceeded"


async def test_who_waits_for_the_reserve_of_a_predecessor_alone_is_looked_at_again(
    world: World,
) -> None:
    await reserving(world)
    async with following(World(world.cluster, world.namespace, term="second")) as successor:
        await successor.ask("big", "5")
        await successor.settle()
        at_first = await successor.running()
        assert await successor.quota.reconcile(successor.key) is not None

        successor.now += HELD_S
        await successor.settle()
        assert (at_first, await successor.running()) == (["first"], ["big", "first"])


async def test_who_waits_starts_when_another_goes(world: World) -> None:
    await world.grant("1")
    await world.ask("a")
    await world.settle()
    await world.ask("b")
    await world.settle()
    waiting = await world.why("b")

    await world.remove("a")
    await world.settle()

    assert waiting["status"] == "False"
    assert await world.running() == ["b"]
    assert (await world.why("b"))["status"] == "True"


async def test_who_waits_starts_when_another_ends_or_the_quota_grows(world: World) -> None:
    await world.grant("1")
    for name in ("a", "b", "c"):
        await world.ask(name)
    await world.settle()
    await world.cluster.patch_status(keys.POD, Key(world.namespace, "a"), {"phase": "Succeeded"})
    await world.settle()
    after_the_end = await world.running()

    await world.grant("2")
    await world.settle()

    assert after_the_end == ["a", "b"]
    assert await world.running() == ["a", "b", "c"]


async def test_a_pod_that_was_resized_counts_with_what_it_asks_for_now(world: World) -> None:
    await world.grant("3")
    await world.ask("a")
    await world.settle()

    await world.resize("a", "3")
    await world.ask("b")
    await world.settle()
    while_it_is_large = await world.running()
    await world.resize("a", "2")
    await world.settle()

    assert while_it_is_large == ["a"]
    assert await world.running() == ["a", "b"]
    assert (await world.status())["booked"]["cpu"] == "3"


@pytest.mark.parametrize("cluster", [REAL], indirect=True)
async def test_what_admission_will_add_counts_before_the_pod_exists(world: World) -> None:
    await world.grant("3")
    await world.default("1500m")
    for name in ("a", "b", "c"):
        await world.ask(name, "")

    await world.settle()
    booked, waiting = (await world.status())["booked"]["cpu"], await world.why("c")
    await world.default("0")
    await world.remove("a")
    await world.settle()

    assert booked == "3"
    assert "asks for 1500m of cpu" in waiting["message"]
    assert await world.running() == ["b", "c"]


@pytest.mark.parametrize("cluster", [REAL], indirect=True)
async def test_the_overhead_of_a_runtime_class_counts_before_the_pod_exists(world: World) -> None:
    await world.grant("3")
    heavy = await world.runtime_class("1")
    for name in ("a", "b"):
        await world.ask(name, "1", runtimeClassName=heavy)

    await world.settle()

    assert await world.running() == ["a"]
    assert (await world.status())["booked"] == {"cpu": "2", "pods": "1"}
    assert "asks for 2 of cpu" in (await world.why("b"))["message"]


async def test_waiting_costs_one_write_however_often_others_come_and_go(world: World) -> None:
    await world.grant("1")
    await world.ask("a")
    await world.ask("huge", "1")
    await world.settle()
    told = len(world.told)
    for number in range(3):
        await world.grant("1", limitsEnforcement="None", cordoned=number % 2 == 0 or None)
        await world.grant("1")
        await world.settle()

    shadows = [one for one in world.ledger.writes if one[1] == "shadowpod"]
    assert len(shadows) == 1
    assert len(world.told) == told


async def test_a_booking_survives_the_re_creation_of_the_pod(world: World) -> None:
    await world.grant("1")
    await world.ask("b")
    await world.settle()
    await world.ask("a")
    await world.settle()
    pod = await there(world.cluster, keys.POD, Key(world.namespace, "b"))

    uid = objects.uid(pod)
    await world.cluster.delete(keys.POD, objects.key_of(pod), uid=uid, grace_s=0)
    await world.settle()

    assert await world.running() == ["b"]
    again = await there(world.cluster, keys.POD, Key(world.namespace, "b"))
    assert objects.uid(again) != uid


async def test_the_next_keeper_creates_what_was_booked_and_books_nothing_twice(
    world: World,
) -> None:
    await world.grant("1")
    await world.ask("a")
    await world.ask("b")
    await world.book()

    async with following(World(world.cluster, world.namespace, term="second")) as successor:
        await successor.settle()

        assert await successor.running() == ["a"]
        assert (await successor.status())["booked"]["cpu"] == "1"
        assert (await successor.why("b"))["reason"] == "QuotaExceeded"


async def test_a_keeper_that_was_replaced_starts_over(world: World) -> None:
    await world.grant("2")
    await world.ask("a")
    await world.settle()
    await world.cluster.patch_status(keys.QUOTA, world.key, {"keeper": "another"})
    await world.ask("b")

    await world.settle()

    assert await world.running() == ["a", "b"]
    assert (await world.status())["keeper"] == "first"


async def test_nothing_is_booked_while_the_cache_lacks_a_pod(
    cluster: Cluster, namespace: str
) -> None:
    world = World(cluster, namespace)
    world.accounts = Accounts(
        world.quotas, world.shadows, Informer(world.pods.selection), world.additions
    )
    world.quota = QuotaReconciler(
        cluster, world.accounts, term="late", tell=world.told.append, tick=lambda: 0.0
    )
    labels = {keys.CREATOR_USER: world.user, keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}
    await cluster.create(
        keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, Key(namespace, "default"))
    )
    pod = factories.pod(namespace, "unseen", metadata={"labels": labels})
    made = await cluster.create(keys.POD, pod)
    await world.grant("1")
    await world.ask("a")

    async with following(world):
        for _ in range(3):
            await world.caught_up()
            assert await world.quota.reconcile(world.key)
        assert not (await world.status()).get("bookings")

        # Under churn there is always one that the cache lacks: later ones are this keeper's own.
        await cluster.create(keys.POD, {**pod, "metadata": {**pod["metadata"], "name": "later"}})
        where = objects.key_of(made)
        await cluster.delete(keys.POD, where, uid=objects.uid(made), grace_s=0)
        await world.book()


async def test_the_booking_of_a_shadow_pod_that_went_is_released(world: World) -> None:
    await world.grant("1")
    await world.ask("a")
    await world.book()
    await world.remove("a")
    await world.ask("b")
    await world.caught_up()

    again_s = await world.quota.reconcile(world.key)
    kept = await world.status()
    world.now += ORPHAN_S
    await world.settle()

    assert again_s
    assert [one["name"] for one in kept["bookings"]] == ["a"]
    assert await world.running() == ["b"]


async def test_what_is_being_created_keeps_its_booking(world: World) -> None:
    await world.grant("1")
    key = await world.ask("a")
    await world.book()
    uid = objects.uid(await there(world.cluster, keys.SHADOW_POD, key))
    await world.remove("a")
    await world.caught_up()
    await world.quota.reconcile(world.key)
    world.now += ORPHAN_S

    with world.accounts.creating(uid):
        assert await world.quota.reconcile(world.key)
        assert (await world.status())["bookings"]
    await world.quota.reconcile(world.key)
    assert (await world.status())["bookings"] == []


async def test_without_a_quota_nothing_runs_until_there_is_one(world: World) -> None:
    key = await world.ask("a")
    await world.ask("nobodys", user="")
    await world.settle()
    missing = await world.why("a")

    await world.grant()
    await world.settle()

    assert missing["reason"] == "QuotaMissing"
    assert f"user '{world.user}' has no Quota here" in missing["message"]
    assert await world.running() == [key.name]
    assert (await world.why("nobodys"))["reason"] == "QuotaMissing"


async def test_of_two_quotas_of_a_user_the_older_counts(world: World) -> None:
    await world.grant("1")
    await world.caught_up()
    spec = {"user": world.user, "resources": {"cpu": "9"}}
    second = Key(world.namespace, "second")
    await world.cluster.create(keys.QUOTA, named(keys.QUOTA, second, spec=spec))
    for name in ("a", "b"):
        await world.ask(name)
    await world.settle()

    await world.quota.reconcile(second)

    assert await world.running() == ["a"]
    assert not (await there(world.cluster, keys.QUOTA, second)).get("status")


async def test_cordoned_means_nobody_new(world: World) -> None:
    await world.grant("5")
    await world.ask("a")
    await world.settle()
    await world.grant("5", cordoned=True)
    await world.ask("b")
    await world.settle()
    pod = await there(world.cluster, keys.POD, Key(world.namespace, "a"))
    uid = objects.uid(pod)
    await world.cluster.delete(keys.POD, objects.key_of(pod), uid=uid, grace_s=0)

    await world.settle()

    assert await world.running() == ["a"]
    assert (await world.why("b"))["reason"] == "QuotaCordoned"


async def test_a_second_look_writes_nothing(world: World) -> None:
    await world.grant("1")
    for name in ("a", "b"):
        await world.ask(name)
    await world.settle()
    world.now += SETTLE_S
    await world.settle()
    writes = len(world.ledger.writes)

    for _ in range(3):
        assert await world.quota.reconcile(world.key) is None
        for key in list(world.shadows.items()):
            await world.loop.reconcile(key)

    assert len(world.ledger.writes) == writes


async def test_a_quota_that_cannot_be_read_says_so() -> None:
    cluster = FakeCluster()
    world = World(cluster, "shop")
    await world.grant("lots")
    async with following(world):
        await world.caught_up()
        with pytest.raises(TerminalError, match="quota shop/quota cannot be read"):
            await world.quota.reconcile(world.key)


async def test_what_no_schema_has_vouched_for_neither_runs_nor_stops_the_others() -> None:
    cluster = FakeCluster()
    world = World(cluster, "shop")
    await world.grant("1")
    for name, spec in {
        "a": {"containers": "none"},
        "b": {"containers": [{"resources": {"requests": {"cpu": "-1"}}}]},
        "c": {"containers": ["x"]},
        "d": "text",
    }.items():
        labels = {keys.CREATOR_USER: world.user}
        key = Key("shop", name)
        shadow = named(keys.SHADOW_POD, key, metadata={"labels": labels}, spec={"pod": spec})
        await cluster.create(keys.SHADOW_POD, shadow)
    await world.ask("e")

    async with following(world):
        await world.settle()
        assert await world.running() == ["e"]
        for name in "abcd":
            assert (await world.why(name))["reason"] == "RequestsUnreadable"


async def test_a_pod_that_is_refused_gives_its_booking_back_until_the_next_try() -> None:
    cluster = FakeCluster()
    await cluster.create(keys.NAMESPACE, factories.namespace("shop"))
    world = World(cluster, "shop")
    await world.grant("1")
    key = await world.ask("a")
    cluster.fail("create", InvalidError("spec.x: no"), kind=keys.POD, times=2)
    woken: list[Key] = []
    world.accounts.wake = woken.append
    async with following(world):
        for pause_s in (1.0, 2.0):
            await world.loop.reconcile(key)  # what it asks for is booked
            await world.book()
            await world.caught_up()
            woken.clear()
            assert [await world.loop.reconcile(key) for _ in range(2)] == [pause_s] * 2
            assert (await world.why(key.name))["reason"] == "FailedCreatePod"
            await world.caught_up()
            assert woken == [world.key]
            await world.quota.reconcile(world.key)
            assert (await world.status())["bookings"] == []
            world.now += pause_s
        await world.settle()
        assert await world.running() == ["a"]


async def test_nothing_is_kept_of_a_user_who_has_nothing_any_more() -> None:
    world = World(FakeCluster(strict=True), "shop")
    await world.cluster.create(keys.NAMESPACE, factories.namespace("shop"))
    account = named(keys.SERVICE_ACCOUNT, Key("shop", "default"))
    await world.cluster.create(keys.SERVICE_ACCOUNT, account)
    async with following(world):
        empty = kept(world)
        await world.grant("1")
        await world.default("100m")
        await world.ask("a")
        await world.settle()
        assert kept(world) != empty

        await world.remove("a")
        await end(world.cluster, keys.QUOTA, world.key)
        await end(world.cluster, keys.LIMIT_RANGE, Key("shop", "defaults"))
        await world.caught_up()
        await world.quota.reconcile(world.key)
        assert kept(world) == empty


def kept(world: World) -> list[int]:
    """Return how much each memory holds."""
    return [
        len(held)
        for part in (
            world.accounts,
            world.accounts.bookings,
            world.additions,
            world.quota,
            world.quota.idle,
        )
        for held in vars(part).values()
        if isinstance(held, dict | set)
    ]


async def test_after_a_look_that_took_long_the_next_one_waits() -> None:
    world = World(FakeCluster(), "pool")
    ticks = itertools.count()
    world.quota = QuotaReconciler(
        world.ledger, world.accounts, term="slow", tell=world.told.append, tick=lambda: next(ticks)
    )
    async with following(world):
        await world.grant("2")
        await world.ask("a")
        await world.caught_up()
        await world.quota.reconcile(world.key)
        before = len(world.ledger.writes)

        left_s = await world.quota.reconcile(world.key)

    assert left_s
    assert SHARE / 2 < left_s < SHARE * 2
    assert len(world.ledger.writes) == before


async def test_what_cannot_be_created_gives_its_booking_back_until_the_next_try(
    world: World,
) -> None:
    await world.grant("1")
    foreign = factories.pod(world.namespace, "a", spec=sized(""))
    await world.cluster.create(keys.POD, foreign)
    await world.ask("a")
    await world.settle()
    await world.ask("b")

    await world.settle()

    assert "exists and is not the ShadowPod's" in (await world.why("a"))["message"]
    assert await world.running() == ["a", "b"]
    assert (await world.status())["booked"]["cpu"] == "1"

    pod = await there(world.cluster, keys.POD, Key(world.namespace, "a"))
    await world.cluster.delete(keys.POD, objects.key_of(pod), uid=objects.uid(pod), grace_s=0)
    await world.remove("b")
    world.set_back_s = 3600.0
    world.now += RETRY_S
    await world.settle()
    assert await world.running() == ["a"]
