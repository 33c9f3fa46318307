"""Caches that are behind: what a watch says arrives ``PYLIQO_TEST_LAG_S`` seconds later.

A Python process whose PYTHONPATH names this folder imports it at its start (Python, ``site``).
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Final, TypeVar

from kube.client import ClusterClient
from kube.cluster import Event, Selection

T = TypeVar("T")

_LAG_S: Final = float(os.environ["PYLIQO_TEST_LAG_S"])
_watch = ClusterClient.watch


async def lagging(
    cluster: ClusterClient, of: Selection[T], since: str
) -> AsyncGenerator[Event[T], None]:
    clock = asyncio.get_running_loop().time
    said: asyncio.Queue[tuple[float, Event[T] | None]] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for event in _watch(cluster, of, since):
                said.put_nowait((clock() + _LAG_S, event))
        finally:
            said.put_nowait((clock(), None))

    pumping = asyncio.create_task(pump())
    try:
        while True:
            due, event = await said.get()
            await asyncio.sleep(due - clock())
            if event is None:
                await pumping  # raises what ended the watch
                return
            yield event
    finally:
        pumping.cancel()


ClusterClient.watch = lagging  # type: ignore[assignment,method-assign]
