"""Informers that come and go together, such as those of one offloaded namespace or of one peer."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from apis.objects import Key
from kube.cache import CachedCluster
from kube.controller import Runner, WatchSource
from kube.informer import Change, Informer

K = TypeVar("K", bound=Hashable)

Keys = Callable[[Change[Any]], Iterable[Key]]


@dataclass(frozen=True)
class Followed:
    """An informer, the cluster that it follows, and whose queues its changes feed."""

    informer: Informer[Any]
    cluster: CachedCluster
    feeds: Sequence[tuple[Runner, Keys]] = ()
    is_shared: bool = False
    """Whether it is run elsewhere and outlives the scope, as that of a whole cluster."""
    is_whole: bool = True
    """Whether it has whole objects, so that reads of the cluster may come from it."""


@dataclass(frozen=True)
class Scope:
    """What is followed while something lasts: run it in a task, and cancel that at the end."""

    followed: Sequence[Followed]

    def is_synced(self) -> bool:
        """Whether every informer has its first list."""
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


class Scopes(Generic[K]):
    """One task for each key that is wanted, and none for others."""

    def __init__(self, work: Callable[[K], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._running: dict[K, asyncio.Task[None]] = {}

    @property
    def running(self) -> Mapping[K, asyncio.Task[None]]:
        """The keys that are worked for now."""
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
