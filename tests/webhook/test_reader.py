"""Look-ups: a hit from the informers, a miss from the server, nothing guessed."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from apis import keys
from apis.objects import Key, key_of
from kube.cluster import Cluster, Listing, Selection
from kube.errors import NotReachableError
from kube.slim import Partial
from tests.fakes import FakeCluster
from tests.webhook.reviews import labelled_namespace, offloading, wait_until
from tests.webhook.slowservers import SHOP, Lagging, Silent, connecting
from webhook.reader import CachedReader, FreshList

KINDS = [keys.NAMESPACE_OFFLOADING]


def following(reader: CachedReader) -> CachedReader:
    """Return ``reader``, which another thread answers for."""
    threading.Thread(target=lambda: asyncio.run(reader.follow()), daemon=True).start()
    return reader


def test_a_hit_costs_no_request() -> None:
    cluster = FakeCluster()
    reader = following(CachedReader(connecting(cluster, (KINDS[0], offloading())), KINDS))
    wait_until(reader.is_ready)

    found = [reader.get(KINDS[0], SHOP) for _ in range(10)]

    assert all(obj and key_of(obj) == SHOP for obj in found)
    assert cluster.requests["get", "namespaceoffloadings"] == 0
    assert list(reader.all(KINDS[0])) == [SHOP]


def test_what_is_iterated_does_not_change_meanwhile() -> None:
    reader = following(CachedReader(connecting(FakeCluster(), (KINDS[0], offloading())), KINDS))
    wait_until(reader.is_ready)

    found = iter(reader.all(KINDS[0]))
    reader.call(lambda cluster: cluster.create(KINDS[0], offloading("other")))
    wait_until(lambda: len(reader.all(KINDS[0])) == 2)

    assert list(found) == [SHOP]


def test_a_miss_is_asked_of_the_server() -> None:
    reader = following(CachedReader(connecting(Lagging(), (KINDS[0], offloading())), KINDS))
    wait_until(reader.is_ready)

    assert dict(reader.all(KINDS[0])) == {}
    assert reader.get(KINDS[0], SHOP) is not None
    assert reader.get(KINDS[0], Key("other", "offloading")) is None


def test_kinds_without_a_cache_are_always_asked_for() -> None:
    reader = following(
        CachedReader(connecting(FakeCluster(), (keys.NAMESPACE, labelled_namespace("shop"))), KINDS)
    )

    assert reader.get(keys.NAMESPACE, Key("", "shop")) is not None


def test_a_silent_server_is_an_error_in_time() -> None:
    reader = following(CachedReader(connecting(Silent()), KINDS))

    with pytest.raises(NotReachableError, match="no answer in time"):
        reader.within(0.05).get(KINDS[0], SHOP)
    with pytest.raises(NotReachableError, match="not filled"):
        reader.within(5).all(KINDS[0])
    assert not reader.is_ready()


def test_a_narrower_deadline_counts() -> None:
    reader = following(CachedReader(connecting(Silent()), KINDS, within_s=600))

    with pytest.raises(NotReachableError):
        reader.within(600).within(0.05).within(600).get(KINDS[0], SHOP)


def test_a_thread_that_ends_is_reported_and_is_no_answer() -> None:
    told: list[Exception] = []

    @contextlib.asynccontextmanager
    async def refused() -> AsyncIterator[Cluster]:
        raise OSError("no such file")
        yield FakeCluster()

    reader = following(CachedReader(refused, KINDS, on_failure=told.append))

    with pytest.raises(NotReachableError, match="no such file"):
        reader.get(KINDS[0], SHOP)
    wait_until(lambda: len(told) == 1)


async def test_those_who_come_while_a_list_is_read_share_the_next_one() -> None:
    """D22: 64 new NamespaceOffloadings at once. Each list begins after its askers came."""
    server, began, read = FakeCluster(), asyncio.Event(), asyncio.Semaphore(0)
    await server.create(KINDS[0], offloading())
    lists: FreshList[Partial] = FreshList()

    async def ask() -> Listing[Partial]:
        listed = await server.list(Selection(KINDS[0], Partial))
        began.set()
        await read.acquire()
        return listed

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(lists.next(ask))
        await began.wait()
        await server.create(KINDS[0], offloading("new"))
        others = [tasks.create_task(lists.next(ask)) for _ in range(63)]
        gone = asyncio.create_task(lists.next(ask))
        await asyncio.sleep(0)
        gone.cancel()
        read.release()
        read.release()

    assert set(first.result()) == {SHOP}
    assert all(set(each.result()) == {SHOP, Key("new", "offloading")} for each in others)
    assert server.requests["list", "namespaceoffloadings"] == 2


def test_who_asks_after_a_list_was_read_has_another() -> None:
    cluster = FakeCluster()
    reader = following(CachedReader(connecting(cluster), KINDS))

    assert reader.list_live(keys.NAMESPACE) == {}
    reader.call(lambda cluster: cluster.create(keys.NAMESPACE, labelled_namespace("shop")))

    assert list(reader.list_live(keys.NAMESPACE)) == [Key("", "shop")]
    assert cluster.requests["list", "namespaces"] == 2
