"""A thread with an event loop of its own: what it carries never delays the loop that starts it.

Copying bytes for many streams fills a loop; leases, watches and pods live on another one.

Source: docs/parity.md § 5.7; SEC-B8, SEC-B10.
"""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from kube.client import ClusterClient
from kube.credentials import Access

T = TypeVar("T")


class WorkerThread:
    """The other loop; it runs from the first use until ``close``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` gives there; cancelling here cancels it there."""
        return await _elsewhere(self._started(), work)

    async def close(self) -> None:
        """Cancel what still runs there, and end the thread."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        await _elsewhere(loop, _cancel_all())
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name=self._name, daemon=True
            )
            self._thread.start()
        return self._loop


class Caller:
    """How another loop awaits work of the loop in which this was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` gives in that loop."""
        return await _elsewhere(self._loop, work)


class Likeness:
    """A client for another loop, always in the name that ``original`` has now.

    All but making it belongs to the loop that uses it.
    """

    def __init__(self, original: ClusterClient) -> None:
        self._original = original
        self._client: ClusterClient | None = None

    def __call__(self) -> ClusterClient:
        """Return the client; what renews the identity stays with the original."""
        now = replace(self._original.access, renew=None, current_stamp=None)
        if self._client is None:
            self._client = type(self._original)(now, user_agent=self._original.user_agent)
        elif _who(now) != _who(self._client.access):
            self._client.replace(now)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def _who(someone: Access) -> tuple[str, str]:
    return someone.digest, someone.authorization


async def _elsewhere(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
