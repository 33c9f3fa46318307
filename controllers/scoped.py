"""What a cluster holds of one selection in some namespaces only, which come and go."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from apis.objects import Object
from kube.cluster import Selection, Watched
from kube.informer import Change, Informer

T = TypeVar("T")


class ScopedInformer(Informer[T]):
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
