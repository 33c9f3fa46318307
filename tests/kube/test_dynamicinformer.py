"""Informers that open no watch before somebody needs one."""

import asyncio

import pytest

from apis import keys
from apis.objects import Key, Object
from kube import errors
from kube.cluster import Selection
from kube.dynamicinformer import LazyInformer
from kube.informer import Change
from tests.factories import config_map
from tests.fakes import FakeCluster
from tests.kube.running import Time, running, until

A = Key("default", "a")


async def test_a_resting_informer_opens_no_watch_until_it_is_announced_even_after_a_failure() -> (
    None
):
    told: list[Change[Object]] = []
    cluster = FakeCluster()
    informer = LazyInformer(
        Selection(keys.CONFIG_MAP, Object), settled=asyncio.Event(), dice=lambda: 0.0
    )
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        await cluster.create(keys.CONFIG_MAP, config_map("default", "before"))
        assert cluster.requests["watch", "configmaps"] == 0
        cluster.fail("list", errors.refusal(503, {"message": "so it is"}))
        await informer.awake()
        await cluster.create(keys.CONFIG_MAP, config_map("default", "after"))
        await until(lambda: len(told) == 2)

    assert cluster.requests["list", "configmaps"] == 3
    assert cluster.requests["watch", "configmaps"] == 1


async def test_a_resting_informer_follows_at_once_what_is_there() -> None:
    cluster = FakeCluster()
    await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
    informer = LazyInformer(Selection(keys.CONFIG_MAP, Object), settled=asyncio.Event())
    async with running(informer.run(cluster)):
        await until(lambda: cluster.requests["watch", "configmaps"])
        await informer.awake()

    assert cluster.requests["list", "configmaps"] == 1


async def test_what_came_of_a_leader_before_us_is_seen_by_one_more_list() -> None:
    told: list[Change[Object]] = []
    cluster, settled = FakeCluster(), asyncio.Event()
    informer = LazyInformer(Selection(keys.CONFIG_MAP, Object), settled=settled)
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
        assert not told
        settled.set()
        await until(lambda: len(told) == 1 and cluster.requests["watch", "configmaps"] == 1)

    assert cluster.requests["list", "configmaps"] == 2


async def test_a_resting_informer_of_which_nothing_came_rests_after_one_more_list() -> None:
    cluster, settled, later = FakeCluster(), asyncio.Event(), FakeCluster()
    informer = LazyInformer(Selection(keys.CONFIG_MAP, Object), settled=settled)
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        settled.set()
        await until(lambda: cluster.requests["list", "configmaps"] == 2)
        new = LazyInformer(Selection(keys.CONFIG_MAP, Object), settled=settled)
        async with running(new.run(later)):
            await new.synced.wait()
            await until_idle()

    assert cluster.requests["list", "configmaps"] == 2
    assert later.requests["list", "configmaps"] == 1, "a namespace that begins later needs no more"
    assert cluster.requests["watch", "configmaps"] == later.requests["watch", "configmaps"] == 0


async def until_idle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("code", [403, 404])
async def test_what_may_be_lacking_holds_up_nobody_and_is_followed_once_it_is_there(
    code: int,
) -> None:
    cluster, time = FakeCluster(), Time()
    lacking = (errors.NotFoundError, errors.ForbiddenError)
    cluster.fail("list", errors.refusal(code, {"message": "so it is"}), times=10**6)
    informer = LazyInformer(
        Selection(keys.CONFIG_MAP, Object),
        settled=asyncio.Event(),
        clock=time,
        sleep=time.sleep,
        may_lack=lacking,
    )
    told: list[Change[Object]] = []
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        assert not await informer.awake()
        assert cluster.requests["watch", "configmaps"] == 0
        cluster.heal()
        await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
        await until(lambda: len(told) == 1)

        assert await informer.awake()

    assert informer.get(A)
