"""What handlers look things up in: informers in the loop that answers, the live server on a miss.

Who needs the server hands that loop a coroutine, and waits for it in another thread.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.errors import KubeError, NotReachableError
from kube.informer import Informer
from kube.process import persist
from webhook import metrics
from webhook.admission import Request

DEADLINE_S: Final = 8.0
LATE: Final = "no answer in time"
STALE_S: Final = 180.0
"""Watches tell something each minute: after three silent ones a hit is asked of the server too."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Cluster]]


class MustWaitError(BaseException):
    """Called in the loop, and only the server can tell: call again in a thread.

    No failure of a review, so nothing that answers those may catch it.
    """


class CachedReader:
    """Fulfils ``handlers.Lookup``, once ``follow`` runs.

    ``on_failure`` is told why that ended.
    """

    def __init__(
        self,
        connect: Connect,
        selections: Iterable[Kind | Selection[Object]],
        *,
        on_failure: Callable[[Exception], None] | None = None,
        within_s: float = DEADLINE_S,
    ) -> None:
        chosen = [
            one if isinstance(one, Selection) else Selection(one, Object) for one in selections
        ]
        self._informers = {one.kind: Informer(one) for one in chosen}
        self._live: Future[_Live] = Future()
        self._within_s = within_s
        self._on_failure = on_failure
        self._connect = connect

    async def follow(self) -> None:
        """Keep the caches, and look for the one who asks; a refusal does not end it."""
        try:
            await persist(self._follow, "informers")
        except Exception as error:
            logger.exception("Informers ended")
            if not self._live.done():
                self._live.set_exception(NotReachableError(f"no API server: {error}"))
            if self._on_failure is not None:
                self._on_failure(error)

    def cached(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, None where only the server can tell."""
        informer = self._informers.get(kind)
        return informer.get(key) if informer and informer.age_s() < STALE_S else None

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
        return dict(informer.items())  # which changes while a thread iterates

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        return self._may_get(request, kind, namespace, time.monotonic() + self._within_s)

    def within(self, seconds: float) -> "_Until":
        return _Until(self, time.monotonic() + seconds)

    def call(self, ask: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Return what ``ask`` returns, run in the loop; NotReachableError if late."""
        return self._ask(lambda live: ask(live.cluster), time.monotonic() + self._within_s)

    def is_ready(self) -> bool:
        """Whether every informer has its first list."""
        return all(informer.synced.is_set() for informer in self._informers.values())

    def _get(self, kind: Kind, key: Key, until: float) -> Object | None:
        cached = self.cached(kind, key)
        if cached is not None:
            metrics.lookups(kind.resource, "cache").inc()
            return cached
        return self._get_live(kind, key, until)

    def _get_live(self, kind: Kind, key: Key, until: float) -> Object | None:
        with _counted(kind):
            return self._ask(lambda live: live.cluster.get_live(kind, key), until)

    def _select_live(self, of: Selection[T], until: float) -> Mapping[Key, T]:
        with _counted(of.kind):
            return self._ask(lambda live: _listing(live.cluster, of), until)

    def _may_get(self, request: Request, kind: Kind, namespace: str, until: float) -> bool:
        review, asked = keys.SUBJECT_ACCESS_REVIEW, _question(request, kind, namespace)
        try:
            answer = self._ask(lambda live: live.cluster.create(review, asked), until)
        except KubeError:
            return False
        return objects.status(answer).get("allowed") is True

    def _ask(self, ask: Callable[["_Live"], Coroutine[Any, Any, T]], until: float) -> T:
        live = _result(self._live, until)
        if live.is_here():  # a loop cannot wait for itself
            raise MustWaitError
        asked = asyncio.run_coroutine_threadsafe(ask(live), live.loop)
        try:
            return _result(asked, until)
        finally:
            asked.cancel()

    async def _follow(self) -> None:
        async with self._connect() as cluster, asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run(cluster))
            if self._live.done():  # of a connection that is closed by now
                self._live = Future()
            self._live.set_result(_Live(asyncio.get_running_loop(), cluster))


class _Until:
    """A CachedReader as seen by one review: it gives up when the review's time is over."""

    def __init__(self, reader: CachedReader, until: float) -> None:
        self._reader = reader
        self._until = until

    def cached(self, kind: Kind, key: Key) -> Object | None:
        return self._reader.cached(kind, key)

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

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        return self._reader._may_get(request, kind, namespace, self._until)  # noqa: SLF001  # a view of that class

    def within(self, seconds: float) -> "_Until":
        return _Until(self._reader, min(self._until, time.monotonic() + seconds))


class _Live(NamedTuple):
    """The loop, and what asks the API server in it."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster

    def is_here(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False


@contextlib.contextmanager
def _counted(kind: Kind) -> Iterator[None]:
    try:
        yield
    except KubeError:
        metrics.lookups(kind.resource, "failed").inc()
        raise
    metrics.lookups(kind.resource, "live").inc()


def _result(future: Future[T], until: float) -> T:
    """Return what ``future`` brings in time; NotReachableError if it does not."""
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except TimeoutError as error:
        raise NotReachableError(LATE) from error


def _question(request: Request, kind: Kind, namespace: str) -> Object:
    """Return the SubjectAccessReview that asks whether who sent ``request`` may get ``kind``."""
    review = keys.SUBJECT_ACCESS_REVIEW
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    asked = {"verb": "get", "namespace": namespace, **resource}
    spec = {"user": request.user, "groups": list(request.groups), "resourceAttributes": asked}
    return {"apiVersion": review.api_version, "kind": review.kind, "metadata": {}, "spec": spec}


async def _listing(cluster: Cluster, of: Selection[T]) -> Mapping[Key, T]:
    return (await cluster.list(of)).items
