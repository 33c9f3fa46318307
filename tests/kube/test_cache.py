"""Hits come from informers, and a miss asks the server."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from apis import keys, objects
from apis.objects import Key, Object, uid
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.informer import Informer
from kube.slim import Packed
from tests.factories import config_map
from tests.fakes import FakeCluster
from tests.kube.running import running, until

A = Key("ns", "a")


def config(**data: str) -> Object:
    return config_map("ns", "a", **data)


@contextlib.asynccontextmanager
async def caching(live: FakeCluster) -> AsyncIterator[tuple[CachedCluster, Informer[Object]]]:
    informer = Informer(Selection(keys.CONFIG_MAP, Object, "ns"))
    async with running(informer.run(live)):
        await until(lambda: informer.synced.is_set() and live.requests["watch", "configmaps"])
        yield CachedCluster(live, [informer]), informer


async def test_a_hit_costs_no_request_and_a_miss_asks_the_server() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, config())
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
    await live.create(keys.CONFIG_MAP, config())
    async with caching(live) as (cluster, informer):
        before = live.requests.total()
        known = [await cluster.seen(keys.CONFIG_MAP, Key("ns", name)) for name in "ab"]
        assert (known, live.requests.total()) == ([informer.get(A), None], before)

        for kind, key in ((keys.CONFIG_MAP, Key("other", "a")), (keys.SECRET, A)):
            assert await cluster.seen(kind, key) is None
        assert live.requests.total() == before + 2


async def test_a_packed_hit_is_the_whole_object() -> None:
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, config(x="1"))
    informer = Informer(Selection(keys.CONFIG_MAP, Packed, "ns"))
    cluster = CachedCluster(live, [informer])
    async with running(informer.run(live)):
        await until(lambda: informer.synced.is_set() and live.requests["watch", "configmaps"])
        before = live.requests.copy()

        assert await cluster.get(keys.CONFIG_MAP, A) == made
        assert live.requests == before


async def test_what_is_too_large_for_a_cache_is_asked_of_the_server() -> None:
    live = FakeCluster()
    made = await live.create(keys.CONFIG_MAP, config(x="1" * 2**16))
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
    made = await live.create(keys.CONFIG_MAP, config(x="1" * 2**12))
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
    made = await live.create(keys.CONFIG_MAP, config())
    async with caching(live) as (cluster, informer):
        await live.delete(keys.CONFIG_MAP, A, uid=uid(made))
        assert informer.get(A)
        assert await cluster.get_live(keys.CONFIG_MAP, A) is None


async def test_informers_come_and_go() -> None:
    live = FakeCluster()
    await live.create(keys.CONFIG_MAP, config())
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
