"""What handlers look things up in: informers in one background thread, the live server on a miss.

Whoever answers reads the dicts of the informers, and hands a coroutine to their loop when an object
is not there, unless it may not wait for that.
"""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeVar

from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.errors import KubeError, NotReachableError
from kube.informer import Informer
from webhook import metrics
from webhook.lag import Lagging

DEADLINE_S: Final = 8.0
STALE_S: Final = 180.0
"""Watches tell something each minute: after three silent ones a hit is asked of the server too."""

T = TypeVar("T")

waits: ContextVar[bool] = ContextVar("waits", default=True)
"""Whether whoever looks something up may wait for an API server."""
logger = logging.getLogger(__name__)

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Cluster]]


class WouldWait(BaseException):
    """No cache has it, and whoever asks may not wait: ask again from where one may.

    No failure of anything, so nobody handles it as one.
    """


class CachedReader:
    """Fulfils ``handlers.Lookup``. Made after the fork, because threads do not survive one.

    ``on_failure`` is told why the thread ended, which it never does by itself; with ``lag_s``
    the caches are so far behind on purpose.
    """

    def __init__(
        self,
        connect: Connect,
        selections: Iterable[Kind | Selection[Object]],
        *,
        on_failure: Callable[[Exception], None] | None = None,
        within_s: float = DEADLINE_S,
        lag_s: float = 0.0,
    ) -> None:
        chosen = [
            one if isinstance(one, Selection) else Selection(one, Object) for one in selections
        ]
        self._informers = {one.kind: Informer(one) for one in chosen}
        self._live: Future[tuple[asyncio.AbstractEventLoop, Cluster]] = Future()
        self._within_s = within_s
        self._lag_s = lag_s
        self._on_failure = on_failure
        work = functools.partial(self._run, connect)
        threading.Thread(target=work, name="informers", daemon=True).start()

    def get(self, kind: Kind, key: Key) -> Object | None:
        return self._get(kind, key, time.monotonic() + self._within_s)

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        return self._get_live(kind, key, time.monotonic() + self._within_s)

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        return self.select_live(Selection(kind, Object))

    def select_live(self, of: Selection[T]) -> Mapping[Key, T]:
        return self._select_live(of, time.monotonic() + self._within_s)

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        informer = self._informers[kind]
        if not informer.synced.is_set():
            raise NotReachableError(f"the cache of {kind.resource} is not filled yet: try again")
        return dict(informer.items())  # which changes in another thread while its reader iterates

    def within(self, seconds: float) -> "_Until":
        return _Until(self, time.monotonic() + seconds)

    def call(self, ask: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Return what ``ask`` returns, run in the background thread; NotReachableError if late."""
        return self._ask(ask, time.monotonic() + self._within_s)

    def is_ready(self) -> bool:
        """Whether every informer has its first list."""
        return all(informer.synced.is_set() for informer in self._informers.values())

    def _get(self, kind: Kind, key: Key, until: float) -> Object | None:
        informer = self._informers.get(kind)
        cached = informer.get(key) if informer and informer.age_s() < STALE_S else None
        if cached is not None:
            metrics.LOOKUPS.labels(kind.resource, "cache").inc()
            return cached
        return self._get_live(kind, key, until)

    def _get_live(self, kind: Kind, key: Key, until: float) -> Object | None:
        return self._counted(kind, lambda cluster: _asking(cluster, kind, key), until)

    def _select_live(self, of: Selection[T], until: float) -> Mapping[Key, T]:
        return self._counted(of.kind, lambda cluster: _listing(cluster, of), until)

    def _counted(
        self, kind: Kind, ask: Callable[[Cluster], Coroutine[Any, Any, T]], until: float
    ) -> T:
        try:
            found = self._ask(ask, until)
        except KubeError:
            metrics.LOOKUPS.labels(kind.resource, "failed").inc()
            raise
        metrics.LOOKUPS.labels(kind.resource, "live").inc()
        return found

    def _ask(self, ask: Callable[[Cluster], Coroutine[Any, Any, T]], until: float) -> T:
        if not waits.get():
            raise WouldWait
        asked: Future[T] | None = None
        try:
            loop, cluster = self._live.result(_left(until))
            asked = asyncio.run_coroutine_threadsafe(ask(cluster), loop)
            return asked.result(_left(until))
        except TimeoutError as error:
            raise NotReachableError("no answer in time") from error
        finally:
            if asked is not None:
                asked.cancel()

    def _run(self, connect: Connect) -> None:
        try:
            asyncio.run(self._follow(connect))
        except Exception as error:
            logger.exception("Informers ended")
            if not self._live.done():
                self._live.set_exception(NotReachableError(f"no API server: {error}"))
            if self._on_failure is not None:
                self._on_failure(error)

    async def _follow(self, connect: Connect) -> None:
        async with connect() as cluster, asyncio.TaskGroup() as tasks:
            seen = Lagging(cluster, self._lag_s) if self._lag_s else cluster
            for informer in self._informers.values():
                tasks.create_task(informer.run(seen))
            self._live.set_result((asyncio.get_running_loop(), cluster))


class _Until:
    """A CachedReader as seen by one review: it gives up when the review's time is over."""

    def __init__(self, reader: CachedReader, until: float) -> None:
        self._reader = reader
        self._until = until

    def get(self, kind: Kind, key: Key) -> Object | None:
        return self._reader._get(kind, key, self._until)  # noqa: SLF001  # a view of that class

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        return self._reader._get_live(kind, key, self._until)  # noqa: SLF001  # a view of that class

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        return self.select_live(Selection(kind, Object))

    def select_live(self, of: Selection[T]) -> Mapping[Key, T]:
        return self._reader._select_live(of, self._until)  # noqa: SLF001  # a view of that class

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        return self._reader.all(kind)

    def within(self, seconds: float) -> "_Until":
        return _Until(self._reader, min(self._until, time.monotonic() + seconds))


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _asking(cluster: Cluster, kind: Kind, key: Key) -> Coroutine[Any, Any, Object | None]:
    return cluster.get_live(kind, key)


async def _listing(cluster: Cluster, of: Selection[T]) -> Mapping[Key, T]:
    return (await cluster.list(of)).items
