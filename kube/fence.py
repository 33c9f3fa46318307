"""A cluster that only a leader may write to: what is left of a lost term writes nothing."""

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Event, Listing, Selection
from kube.errors import ConflictError

T = TypeVar("T")


class FencedCluster:
    """Fulfils Cluster: reads always, writes while ``may_write``, such as ``election.is_leader``.

    The election cancels its work at the renew deadline; this is for a process that was stopped
    across that moment, whose next step would be a write.
    """

    def __init__(self, live: Cluster, may_write: Callable[[], bool]) -> None:
        self._live = live
        self.may_write = may_write

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return await self._live.get(kind, key)

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self._live.get_live(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        return await self._live.list(of)

    def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        return self._live.watch(of, since)

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._writable().create(kind, obj)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        return await self._writable().apply(kind, obj, manager=manager)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        return await self._writable().patch(kind, key, changes, subresource=subresource)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        return await self._writable().patch_status(kind, key, status, metadata=metadata)

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        await self._writable().delete(kind, key, uid=uid, grace_s=grace_s)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        return await self._writable().post(kind, key, subresource, body)

    def _writable(self) -> Cluster:
        if not self.may_write():
            raise ConflictError("no longer leads: somebody else may be writing")
        return self._live
