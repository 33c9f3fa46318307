"""Pods that wait for a node: while there are any, a watch tells when one no longer waits."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from apis import keys
from apis.objects import Key, Kind
from kube.cluster import Selection, Watched
from kube.informer import Change, Informer
from kube.scope import Scopes
from kube.slim import Partial

UNBOUND: Final = Selection(keys.POD, Partial, fields="spec.nodeName=")


class Waiting:
    """Which pods were seen to wait, by whose question; a ``Loop``.

    Nothing is watched while none waits: pods of namespaces that nobody offloads cost nothing here.
    """

    name = "waiting-pods"

    def __init__(self, cluster: Watched) -> None:
        self._cluster = cluster
        self._pods: dict[Key, frozenset[Key]] = {}
        self._changed = asyncio.Event()
        self._watch: Scopes[Kind] = Scopes(self._follow)
        self._shown: Informer[Partial] = Informer(UNBOUND)
        self._wake: Callable[[Key], None] = lambda _asker: None

    def subscribe(self, wake: Callable[[Key], None]) -> None:
        """Call ``wake`` with who asked for a pod that is bound now, or gone."""
        self._wake = wake

    def are_shown(self, asker: Key, pods: Iterable[Key]) -> bool:
        """Remember that ``pods``, and no others, wait; whether the watch shows all of them.

        One that it does not show may have been bound already, and then nobody is told.
        """
        found = frozenset(pods)
        if found:
            self._pods[asker] = found
        else:
            self._pods.pop(asker, None)
        self._changed.set()
        return all(self._shown.get(key) is not None for key in found)

    async def run(self) -> None:
        """Watch as long as pods wait; it never ends by itself."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                await self._watch.keep(tasks, [UNBOUND.kind] if self._pods else [])
                await self._changed.wait()

    def is_alive(self) -> bool:
        return True

    async def drain(self) -> None:
        return

    async def _follow(self, _: Kind) -> None:
        self._shown = Informer(UNBOUND)
        self._shown.subscribe(self._on_change)
        try:
            await self._shown.run(self._cluster)
        finally:
            self._shown = Informer(UNBOUND)

    def _on_change(self, change: Change[Partial]) -> None:
        if change.new is not None:
            return
        for asker, pods in self._pods.items():
            if change.key in pods:
                self._wake(asker)
