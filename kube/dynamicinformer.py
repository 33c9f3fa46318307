"""Informers that come and go: together, by namespace, or once what they follow is needed."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from apis.objects import Key, Object
from kube.cache import CachedCluster
from kube.cluster import Selection, Watched
from kube.controller import Runner, WatchSource
from kube.informer import NEEDED, Change, Informer

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Keys = Callable[[Change[Any]], Iterable[Key]]


@dataclass(frozen=True)
class InformerFeed:
    """An informer, the cluster that it follows, and whose queues its changes feed."""

    informer: Informer[Any]
    cluster: CachedCluster
    feeds: Sequence[tuple[Runner, Keys]] = ()
    is_shared: bool = False
    """Whether it is run elsewhere and outlives the scope, as that of a whole cluster."""
    is_whole: bool = True
    """Whether it has whole objects, so that reads of the cluster may come from it."""


@dataclass(frozen=True)
class DynamicInformers:
    """What is followed while something lasts: run it in a task, and cancel that at the end."""

    followed: Sequence[InformerFeed]

    def is_synced(self) -> bool:
        return all(each.informer.synced.is_set() for each in self.followed)

    async def run(self, *, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Follow until cancelled. All is known when ``begin`` is called and queues are fed."""
        async with asyncio.TaskGroup() as tasks:
            for each in self.followed:
                if not each.is_shared:
                    tasks.create_task(each.informer.run(each.cluster))
            for each in self.followed:
                await each.informer.synced.wait()
            with contextlib.ExitStack() as undo:
                self._cache(undo)
                undo.callback(end)
                begin()
                self._feed(undo)
                await asyncio.Event().wait()

    def _cache(self, undo: contextlib.ExitStack) -> None:
        for each in self.followed:
            if each.is_whole and not each.is_shared:
                each.cluster.add(each.informer)
                undo.callback(each.cluster.remove, each.informer)

    def _feed(self, undo: contextlib.ExitStack) -> None:
        for each in self.followed:
            for runner, keys in each.feeds:
                source = WatchSource(each.informer, keys)
                runner.attach(source)
                undo.callback(runner.detach, source)


class DynamicTasks(Generic[K]):
    """One task for each key that is wanted, and none for others."""

    def __init__(self, work: Callable[[K], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._running: dict[K, asyncio.Task[None]] = {}

    @property
    def running(self) -> Mapping[K, asyncio.Task[None]]:
        return self._running

    async def keep(self, tasks: asyncio.TaskGroup, wanted: Iterable[K]) -> tuple[set[K], set[K]]:
        """Work for ``wanted`` and no other; return whom it began and whom it ended to work for."""
        wanted = set(wanted)
        ended = self._running.keys() - wanted
        for key in ended:
            task = self._running.pop(key)
            task.cancel()
            await asyncio.wait([task])
        begun = wanted - self._running.keys()
        for key in begun:
            self._running[key] = tasks.create_task(self._work(key))
        return begun, set(ended)


# Informers of some namespaces only ----------------------------------------------------------------


class NamespacedInformer(Informer[T]):
    """One watch a namespace, for kinds that nobody may watch in the whole cluster.

    Which these are the objects of ``scopes`` say, for each of which its namespace is followed as
    long as ``is_scope`` holds.
    It counts as synced as soon as the namespaces are known: one that cannot be read must not hold
    up the others, and anybody who finds nothing here asks the server. With ``waits`` it does when
    all that are there at first have been listed: for kinds that may be read in each of them.
    """

    def __init__(
        self,
        selection: Selection[T],
        scopes: Informer[Object],
        is_scope: Callable[[Object], bool],
        *,
        waits: bool = False,
    ) -> None:
        super().__init__(selection)
        self._scopes, self._is_scope, self._waits = scopes, is_scope, waits
        self._running: dict[str, asyncio.Task[None]] = {}
        self._unlisted: list[asyncio.Event] = []

    async def run(self, cluster: Watched) -> None:
        """Follow for ever; cancel to stop. What is cached stays."""
        changed = asyncio.Event()
        unsubscribe = self._scopes.subscribe(lambda _: changed.set())
        try:
            await self._scopes.synced.wait()
            async with asyncio.TaskGroup() as tasks:
                while True:
                    changed.clear()
                    self._adjust(cluster, tasks)
                    await self._listed()
                    self.synced.set()
                    await changed.wait()
        finally:
            self._running.clear()
            unsubscribe()

    def _adjust(self, cluster: Watched, tasks: asyncio.TaskGroup) -> None:
        found = self._scopes.items()
        wanted = {key.namespace for key, obj in found.items() if self._is_scope(obj)}
        for name in self._running.keys() - wanted:
            self._running.pop(name).cancel()
            self._forget(name)
        for name in wanted - self._running.keys():
            inner: Informer[T] = Informer(replace(self.selection, namespace=name))
            inner.subscribe(self._pass_on)
            self._unlisted.append(inner.synced)
            self._running[name] = tasks.create_task(inner.run(cluster))

    async def _listed(self) -> None:
        """Wait, where that is asked for, until those that are there at first are listed."""
        events, self._unlisted = self._unlisted, []
        if self._waits and not self.synced.is_set():
            await asyncio.gather(*(event.wait() for event in events))

    def _forget(self, namespace: str) -> None:
        for key in [key for key in self._items if key.namespace == namespace]:
            self._tell(Change(key, self._items.pop(key), None))

    def _pass_on(self, change: Change[T]) -> None:
        if change.new is None:
            self._items.pop(change.key, None)
        else:
            self._items[change.key] = change.new
        self._heard()
        self._tell(change)


# Informers of what is mostly not there: no watch before somebody needs one ------------------------

AWAKE_S: Final = 10.0
"""For the list of a resting informer; who waits for it goes on without, and will fail itself."""
SETTLED_S: Final = 65.0
"""What a leader before us sent has come to its end by then: an API server gives a request a minute.

Source: Kubernetes, kube-apiserver, ``--request-timeout``.
"""


class LazyInformer(Informer[T]):
    """An informer without a watch for as long as nothing is there and nobody announces anything.

    For objects that one process makes itself: most of a thousand namespaces have none of a kind.
    What another one made before may come until ``settled``: then it lists once more.
    """

    def __init__(self, selection: Selection[T], *, settled: asyncio.Event, **chance: Any) -> None:
        super().__init__(selection, **chance)
        self._needed, self._follows = asyncio.Event(), asyncio.Event()
        self._settled, self._is_sure = settled, settled.is_set()

    async def awake(self) -> bool:
        """Let it follow from now on; return once it has listed again, or does not come to that.

        Who makes such an object calls this before, and looks again if the answer is False: until
        then no handler is notified of what becomes of it.
        """
        self._needed.set()
        if not self._follows.is_set() and not self.is_lacking:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AWAKE_S):
                    await self._follows.wait()
        return self._follows.is_set() and not self.is_lacking

    async def _rested(self) -> str:
        if self._items or self._needed.is_set():
            self._follows.set()
            return ""
        await self._wake()
        return NEEDED

    async def _wake(self) -> None:
        """Return once it is needed, or what is there is settled after it was listed."""
        if self._is_sure:
            await self._needed.wait()
            return
        waiting = [asyncio.create_task(each.wait()) for each in (self._needed, self._settled)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        self._is_sure = self._settled.is_set()
