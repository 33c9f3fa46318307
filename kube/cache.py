"""A cluster whose reads come from informers: reconcilers may read and apply without counting.

How certain an answer is: ``seen`` is the caches' word for presence and absence, and may be behind;
``get`` may be behind in what an object says, but that there is none is the server's own word;
``get_live`` is the server's word now. Whether an object still is what was applied is kept here
and nowhere else, by what was sent and the version that came of it.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from apis.objects import Key, Kind, Object, key_of
from kube.cluster import Cluster, Listing, Selection
from kube.cluster import Event as _Event
from kube.informer import Change, Informer
from kube.slim import Packed

T = TypeVar("T")


class CachedCluster:
    """Fulfils Cluster: hits come from informers, a miss asks the server, no apply is sent twice.

    What ``get`` returns may be shared: read only. The informers have whole objects: dicts, or
    ``Packed``.
    """

    def __init__(self, live: Cluster, informers: Iterable[Informer[Any]] = ()) -> None:
        self._live = live
        self._informers: dict[Kind, list[Informer[Any]]] = {}
        self._applied: dict[tuple[Kind, Key], dict[str, tuple[bytes, str]]] = {}
        self._subscriptions: dict[int, Callable[[], None]] = {}
        for informer in informers:
            self.add(informer)

    def add(self, informer: Informer[Any]) -> None:
        """Let hits come from ``informer`` too."""
        kind = informer.selection.kind
        self._informers.setdefault(kind, []).append(informer)

        def forget(change: Change[Any]) -> None:
            if change.new is None:
                self._applied.pop((kind, change.key), None)

        self._subscriptions[id(informer)] = informer.subscribe(forget)

    def remove(self, informer: Informer[Any]) -> None:
        """Do without ``informer`` from now on."""
        informers = self._informers.get(informer.selection.kind, [])
        if informer in informers:
            informers.remove(informer)
            self._subscriptions.pop(id(informer))()

    async def get(self, kind: Kind, key: Key) -> Object | None:
        cached = self._cached(kind, key)
        return cached if cached is not None else await self._live.get(kind, key)

    async def seen(self, kind: Kind, key: Key) -> Object | None:
        """Return what the informers show: they may be behind, so nobody acts on None alone.

        What no informer follows is asked of the server.
        """
        cached = self._cached(kind, key)
        return cached if self._follows(kind, key) else await self._live.get(kind, key)

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self._live.get_live(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        return await self._live.list(of)

    def watch(self, of: Selection[T], since: str) -> AsyncGenerator[_Event[T], None]:
        return self._live.watch(of, since)

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._live.create(kind, obj)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        key = key_of(obj)
        sent = hashlib.sha256(msgspec.json.encode(obj, order="sorted")).digest()
        cached = self._cached(kind, key)
        before = self._applied.get((kind, key), {}).get(manager)
        if cached is not None and before == (sent, cached["metadata"]["resourceVersion"]):
            return cached  # the same was sent before, and nobody touched the object since
        made = await self._live.apply(kind, obj, manager=manager)
        if self._follows(kind, key):
            applied = self._applied.setdefault((kind, key), {})
            applied[manager] = (sent, made["metadata"]["resourceVersion"])
        return made

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        return await self._live.patch(kind, key, changes, subresource=subresource)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        return await self._live.patch_status(kind, key, status, metadata=metadata)

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        self._applied.pop((kind, key), None)
        await self._live.delete(kind, key, uid=uid, grace_s=grace_s)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        return await self._live.post(kind, key, subresource, body)

    def _cached(self, kind: Kind, key: Key) -> Object | None:
        for informer in self._following(kind, key):
            found = informer.get(key)
            if found is not None:
                return found.whole() if isinstance(found, Packed) else found
        return None

    def _follows(self, kind: Kind, key: Key) -> bool:
        return any(True for _ in self._following(kind, key))

    def _following(self, kind: Kind, key: Key) -> Iterable[Informer[Any]]:
        return (
            informer
            for informer in self._informers.get(kind, ())
            if informer.selection.namespace in {"", key.namespace}
        )
