"""Look-ups: a hit from the informers, a miss from the server, nothing guessed."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, key_of
from kube.cluster import Cluster, Event, Listing, Selection
from kube.errors import NotReachableError
from tests.fakes import FakeCluster
from tests.webhook.reviews import namespace, offloading, wait_until
from webhook.reader import CachedReader, Connect

T = TypeVar("T")
KINDS = [keys.NAMESPACE_OFFLOADING]
SHOP = Key("shop", "offloading")


def connecting(cluster: Cluster, *objects: tuple[Kind, Object]) -> Connect:
    """Return how to connect to ``cluster``, in which ``objects`` are by then."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Cluster]:
        for kind, obj in objects:
            await cluster.create(kind, obj)
        yield cluster

    return connect


class Lagging(FakeCluster):
    """A server whose lists and watches show nothing yet."""

    async def list(self, of: Selection[T]) -> Listing[T]:
        return Listing({}, "0")

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        await asyncio.Event().wait()
        yield Event("BOOKMARK", SHOP, since, of.shape())


class Silent(FakeCluster):
    """A server that takes requests and answers none."""

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        await asyncio.Event().wait()
        return None

    async def list(self, of: Selection[T]) -> Listing[T]:
        await asyncio.Event().wait()
        return Listing({}, "0")


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
        CachedReader(connecting(FakeCluster(), (keys.NAMESPACE, namespace("shop"))), KINDS)
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
