"""API servers that lag behind, or say nothing."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Event, Listing, Selection
from tests.fakes import FakeCluster
from webhook.reader import Connect

T = TypeVar("T")
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
