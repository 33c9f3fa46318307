"""Caches that are behind on purpose, for tests: what a watch tells arrives so much later."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from kube.cluster import Event, Listing, Selection, Watched

T = TypeVar("T")


class Lagging:
    """A cluster as a cache far behind sees it; its lists are as they are."""

    def __init__(self, cluster: Watched, lag_s: float) -> None:
        self._cluster, self._lag_s = cluster, lag_s

    async def list(self, of: Selection[T]) -> Listing[T]:
        return await self._cluster.list(of)

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        clock = asyncio.get_running_loop().time
        told: asyncio.Queue[tuple[float, Event[T] | None]] = asyncio.Queue()

        async def pump() -> None:
            try:
                async for event in self._cluster.watch(of, since):
                    told.put_nowait((clock() + self._lag_s, event))
            finally:
                told.put_nowait((clock(), None))

        pumping = asyncio.create_task(pump())
        try:
            while True:
                due, event = await told.get()
                await asyncio.sleep(due - clock())
                if event is None:
                    await pumping  # raises what ended the watch
                    return
                yield event
        finally:
            pumping.cancel()
