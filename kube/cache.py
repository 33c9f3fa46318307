"""A cluster whose reads come from informers: reconcilers may read without counting.

How certain an answer is: ``seen`` is the caches' word for presence and absence, and may be behind;
``get`` may be behind in what an object says, but that it is absent is what the server said;
``get_live`` is the server's word now. Whether an object still is what was applied it says itself
(``apis.apply``), and nobody remembers it.
"""

from collections.abc import Iterable
from typing import Any

from apis import objects
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, ForwardingCluster
from kube.informer import Informer
from kube.slim import Packed


class CachedCluster(ForwardingCluster):
    """Hits come from informers, a miss asks the server.

    What ``get`` returns may be shared: read only. The informers have whole objects: dicts, or
    ``Packed``. Of what is too large for a cache (``kube.slim``) the server is asked.
    """

    def __init__(self, live: Cluster, informers: Iterable[Informer[Any]] = ()) -> None:
        super().__init__(live)
        self._informers: dict[Kind, list[Informer[Any]]] = {}
        for informer in informers:
            self.add(informer)

    def add(self, informer: Informer[Any]) -> None:
        self._informers.setdefault(informer.selection.kind, []).append(informer)

    def remove(self, informer: Informer[Any]) -> None:
        informers = self._informers.get(informer.selection.kind, [])
        if informer in informers:
            informers.remove(informer)

    async def get(self, kind: Kind, key: Key) -> Object | None:
        found = self._found(kind, key)
        is_known = found is not None and not _is_outline(found)
        return _whole(found) if is_known else await self._live.get(kind, key)

    def may_have(self, kind: Kind, key: Key) -> bool:
        """Whether an informer has that object, be it in outline, or none follows such ones."""
        return not self._follows(kind, key) or self._found(kind, key) is not None

    async def seen(self, kind: Kind, key: Key) -> Object | None:
        """Return what the informers show: they may be behind, so nobody acts on None alone.

        What no informer follows is asked of the server.
        """
        found = self._found(kind, key)
        is_known = self._follows(kind, key) and not _is_outline(found)
        return _whole(found) if is_known else await self._live.get(kind, key)

    def _found(self, kind: Kind, key: Key) -> Any:
        found = (informer.get(key) for informer in self._following(kind, key))
        return next((each for each in found if each is not None), None)

    def _follows(self, kind: Kind, key: Key) -> bool:
        return any(True for _ in self._following(kind, key))

    def _following(self, kind: Kind, key: Key) -> Iterable[Informer[Any]]:
        return (
            informer
            for informer in self._informers.get(kind, ())
            if informer.selection.namespace in {"", key.namespace}
        )


def _is_outline(found: Any) -> bool:
    return found.is_outline if isinstance(found, Packed) else objects.is_outlined(found)


def _whole(found: Any) -> Object | None:
    return found.whole() if isinstance(found, Packed) else found
