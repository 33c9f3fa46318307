"""What handlers look things up in: informers in the loop that answers, the live server on a miss.

Who needs the server hands that loop a coroutine, and waits for it in another thread.
"""

import asyncio
import contextlib
import copy
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Listing, Selection
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
    """Fulfils ``admission.Lookup``, once ``follow`` runs.

    ``on_failure`` gets why that ended.
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
        self._until = 0.0  # of the monotonic clock; 0 for no end but that of each call
        self._on_failure = on_failure
        self._connect = connect
        self._lists: WeakValueDictionary[Selection[Any], FreshList[Any]] = WeakValueDictionary()

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
        informer = self._informers.get(kind)
        return informer.get(key) if informer and informer.age_s() < STALE_S else None

    def get(self, kind: Kind, key: Key) -> Object | None:
        cached = self.cached(kind, key)
        if cached is not None:
            metrics.lookups(kind.resource, "cache").inc()
            return cached
        return self.get_live(kind, key)

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        with _counted(kind):
            return self.call(lambda cluster: cluster.get_live(kind, key))

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        return self.select_live(kind, Object)

    def select_live(
        self, kind: Kind, shape: type[T], namespace: str = "", fields: str = ""
    ) -> Mapping[Key, T]:
        of = Selection(kind, shape, namespace, fields=fields)

        async def ask(cluster: Cluster) -> Mapping[Key, T]:
            shared = self._lists.setdefault(of, FreshList())
            return await shared.next(lambda: cluster.list(of))

        with _counted(kind):
            return self.call(ask)

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        informer = self._informers[kind]
        if not informer.synced.is_set():
            raise NotReachableError(f"the cache of {kind.resource} is not filled yet: try again")
        return dict(informer.items())  # which changes while a thread iterates

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        review, of = _access_review(request, kind, namespace), keys.SUBJECT_ACCESS_REVIEW
        try:
            answer = self.call(lambda cluster: cluster.create(of, review))
        except KubeError:
            return False
        return objects.status(answer).get("allowed") is True

    def within(self, seconds: float) -> Self:
        bounded = copy.copy(self)
        bounded._until = min(self._until or math.inf, time.monotonic() + seconds)  # noqa: SLF001  # of this class
        return bounded

    def call(self, ask: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Return what ``ask`` returns, run in the loop; NotReachableError if late."""
        until = self._until or time.monotonic() + self._within_s
        live = _result(self._live, until)
        if live.is_here():  # a loop cannot wait for itself
            raise MustWaitError
        future = asyncio.run_coroutine_threadsafe(ask(live.cluster), live.loop)
        try:
            return _result(future, until)
        finally:
            future.cancel()

    def is_ready(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers.values())

    async def _follow(self) -> None:
        async with self._connect() as cluster, asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run(cluster))
            if self._live.done():  # of a connection that is closed by now
                self._live = Future()
            self._live.set_result(_Live(asyncio.get_running_loop(), cluster))


class _Live(NamedTuple):
    """The loop, and what asks the API server in it."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster

    def is_here(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False


class FreshList(Generic[T]):
    """One list after another: each is shared by all who came before it began.

    So it is as new as each of them needs it, and a hundred who come at once have two.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[Mapping[Key, T]] | None = None

    async def next(self, ask: Callable[[], Awaitable[Listing[T]]]) -> Mapping[Key, T]:
        if self._next is None:
            self._next = asyncio.create_task(self._begin(ask))
        return await asyncio.shield(self._next)

    async def _begin(self, ask: Callable[[], Awaitable[Listing[T]]]) -> Mapping[Key, T]:
        async with self._turn, asyncio.timeout(DEADLINE_S):  # nobody awaits it any longer
            self._next = None
            return (await ask()).items


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


def _access_review(request: Request, kind: Kind, namespace: str) -> Object:
    """Return the SubjectAccessReview that asks whether who sent ``request`` may get ``kind``."""
    review = keys.SUBJECT_ACCESS_REVIEW
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    attributes = {"verb": "get", "namespace": namespace, **resource}
    spec = {"user": request.user, "groups": list(request.groups), "resourceAttributes": attributes}
    return {"apiVersion": review.api_version, "kind": review.kind, "metadata": {}, "spec": spec}
