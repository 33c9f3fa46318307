"""Hits come from informers, and a miss asks the server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from apis import keys, objects
from apis.objects import Key, Object, uid
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.dynamicinformer import DynamicInformers, InformerFeed, LazyInformer
from kube.informer import Change, Informer
from kube.slim import Packed
from tests.factories import config_map
from tests.fakes import FakeCluster
from tests.kube.running import Time, running, until

A = Key("ns", "a")


def cached_map(**data: str) -> Object:
    return config_map("ns", "a", **data)


@contextlib.asynccontextmanager
async def caching(live: FakeCluster) -> AsyncIterator[tuple[CachedCluster, Informer[Object]]]:
    informer = Informer(Selection(keys.CONFIG_MAP, Object, "ns"))
    async with running(informer.run(live)):
        await until(lambda: informer.synced.is_set() and live.requests["watch", "configmaps"])
        yield CachedCluster(live, [informer]), informer


async def test_a_hit_costs_no_request_and_a_miss_asks_the_server() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, cached_map())
    async with caching(live) as (cluster, informer):
        before = live.requests.copy()
        assert await cluster.get(keys.CONFIG_MAP, A) is informer.get(A)
        assert live.requests == before

        assert await cluster.get(keys.CONFIG_MAP, Key("ns", "b")) is None
        assert await cluster.get(keys.CONFIG_MAP, Key("other", "a")) is None
        assert await cluster.get(keys.SECRET, A) is None
        assert sum((live.requests - before).values()) == 3


async def test_what_an_informer_follows_is_seen_without_a_request() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, cached_map())
    async with caching(live) as (cluster, informer):
        before = live.requests.total()
        known = [await cluster.seen(keys.CONFIG_MAP, Key("ns", name)) for name in "ab"]
        assert (known, live.requests.total()) == ([informer.get(A), None], before)

        for kind, key in ((keys.CONFIG_MAP, Key("other", "a")), (keys.SECRET, A)):
            assert await cluster.seen(kind, key) is None
        assert live.requests.total() == before + 2


async def test_what_is_followed_for_a_while_is_read_from_the_cache_for_that_while() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, cached_map())
    cluster, begun = CachedCluster(live), asyncio.Event()
    feed = InformerFeed(Informer(Selection(keys.CONFIG_MAP, Object, "ns")), cluster)
    async with running(DynamicInformers([feed]).run(begin=begun.set, end=lambda: None)):
        await begun.wait()
        assert await cluster.get(keys.CONFIG_MAP, A)
        assert live.requests["get", "configmaps"] == 0

    assert await cluster.get(keys.CONFIG_MAP, A)
    assert live.requests["get", "configmaps"] == 1


async def test_a_packed_hit_is_the_whole_object() -> None:
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, cached_map(x="1"))
    informer = Informer(Selection(keys.CONFIG_MAP, Packed, "ns"))
    cluster = CachedCluster(live, [informer])
    async with running(informer.run(live)):
        await until(lambda: informer.synced.is_set() and live.requests["watch", "configmaps"])
        before = live.requests.copy()

        assert await cluster.get(keys.CONFIG_MAP, A) == made
        assert live.requests == before


async def test_what_is_too_large_for_a_cache_is_asked_of_the_server() -> None:
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, cached_map(x="1" * 2**16))
    informer = Informer(Selection(keys.CONFIG_MAP, Packed, "ns"))
    cluster = CachedCluster(live, [informer])
    async with running(informer.run(live)):
        await until(lambda: informer.synced.is_set() and live.requests["watch", "configmaps"])
        before = live.requests.total()

        assert await cluster.get(keys.CONFIG_MAP, A) == made
        assert await cluster.seen(keys.CONFIG_MAP, A) == made
        assert live.requests.total() == before + 2


async def test_of_a_large_object_an_outline_is_kept_unless_it_is_needed_whole() -> None:
    """Consumers write such objects; of our own all is needed."""
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, cached_map(x="1" * 2**12))
    for is_needed in (False, True):
        of = Selection(keys.CONFIG_MAP, Object, "ns", whole_up_to=2**11)
        if is_needed:
            of = replace(of, is_needed_whole=lambda obj: obj["data"]["x"] != "")
        informer = Informer(of)
        async with running(informer.run(live)):
            await until(informer.synced.is_set)
            assert objects.is_outlined(informer.get(A)) is not is_needed
            assert await CachedCluster(live, [informer]).get(keys.CONFIG_MAP, A) == made


async def test_a_live_read_is_never_answered_by_a_cache() -> None:
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, cached_map())
    async with caching(live) as (cluster, informer):
        await live.delete(keys.CONFIG_MAP, A, uid=uid(made))
        assert informer.get(A)
        assert await cluster.get_live(keys.CONFIG_MAP, A) is None


async def test_informers_come_and_go() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, cached_map())
    async with caching(live) as (cluster, informer):
        cluster.remove(informer)
        before = live.requests["get", "configmaps"]
        await cluster.get(keys.CONFIG_MAP, A)
        assert live.requests["get", "configmaps"] == before + 1
        cluster.add(informer)
        await cluster.get(keys.CONFIG_MAP, A)
        assert live.requests["get", "configmaps"] == before + 1
        cached = await cluster.get(keys.CONFIG_MAP, A)
        assert cached
        with pytest.raises(TypeError):
            cached["data"] = {}


# Informers that open no watch before somebody needs one.


FIRST = Key("default", "a")


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

    assert informer.get(FIRST)
