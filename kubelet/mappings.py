"""Which namespaces are offloaded, and the watches on the provider that follow them.

Per accepted entry of the NamespaceMap two informers run on the provider; no pod of a namespace is
judged before both have their first list.

Source: behaviour.md 1.2, 5.5; controllers.md 14, 30; faults.md F21, F22.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceMap
from apis.pairs import Pair
from kube import namespacemaps
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.informer import Change, Informer
from kube.runner import Runner
from kube.scope import Followed, Scope
from kube.slim import Packed, PackedState
from kubelet.departures import Departures
from kubelet.forge import mapping
from kubelet.forge.mapping import ClusterPair, MappingState, NamespaceMapping

logger = logging.getLogger(__name__)

FOLLOWED: Final = {keys.SHADOW_POD: Packed, keys.POD: PackedState}


def informer(tenant_namespace: str, clusters: ClusterPair) -> Informer[Object]:
    """Return the informer on the NamespaceMap of the pair."""
    return Informer(namespacemaps.ours(tenant_namespace, clusters.destination))


class Mappings:
    """The offloaded namespaces of one virtual node; fulfils ``kubelet.contract.Namespaces``."""

    def __init__(  # noqa: PLR0913  # two clusters, two sides, and who is told
        self,
        local: Cluster,
        remote: CachedCluster,
        *,
        maps: Informer[Object],
        clusters: ClusterPair,
        node: str,
        departures: Departures,
        breaker: Breaker,
    ) -> None:
        self._departures, self._breaker = departures, breaker
        self._local, self._remote = local, remote
        self._maps, self._clusters, self._node = maps, clusters, node
        self._followed: dict[str, _Followed] = {}
        self._accepted: dict[Key, tuple[str, Mapping[str, Pair]]] = {}
        self._changed = asyncio.Event()

    async def mapping(self, namespace: str) -> NamespaceMapping:
        """Return where the pods of ``namespace`` go; but for Offloaded the server was asked."""
        if pair := self._cached().get(namespace):
            return NamespaceMapping(MappingState.OFFLOADED, pair)
        key = Key(self._maps.selection.namespace, self._clusters.destination)
        found = await self._local.get_live(keys.NAMESPACE_MAP, key)
        parsed = NamespaceMap.parse(found) if found else None
        return mapping.of(parsed, namespace, self._clusters)

    def is_synced(self, namespace: str) -> bool:
        """Whether both informers of the namespace have their first list, for the pair of now."""
        followed = self._followed.get(namespace)
        pair = self._cached().get(namespace)
        return followed is not None and followed.pair == pair and followed.is_synced

    def withheld(self, namespace: str) -> str:
        """Return which right there is missing, in the server's words; "" if none is."""
        followed = self._followed.get(namespace)
        return followed.withheld if followed else ""

    async def run(self, runner: Runner, locals_: Callable[[str], Iterable[Key]]) -> None:
        """Follow the NamespaceMap for ever; ``locals_`` are the pods here of a namespace."""
        unsubscribe = self._maps.subscribe(self._on_change)
        try:
            await self._maps.synced.wait()
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._changed.clear()
                    self._adjust(tasks, runner, locals_)
                    await self._changed.wait()
        finally:
            unsubscribe()

    def _on_change(self, _: Change[Object]) -> None:
        self._changed.set()

    def _cached(self) -> dict[str, Pair]:
        """Return the accepted pairs; of an entry that makes no sense, the last one."""
        for key, found in self._maps.items().items():
            version = found["metadata"].get("resourceVersion", "")
            if self._accepted.get(key, ("", {}))[0] != version:
                self._accepted[key] = (version, self._read(key, found))
        gone = self._accepted.keys() - self._maps.items().keys()
        for key in gone:
            del self._accepted[key]
        return {name: pair for _, pairs in self._accepted.values() for name, pair in pairs.items()}

    def _read(self, key: Key, found: Object) -> Mapping[str, Pair]:
        parsed = NamespaceMap.parse(found)
        last = self._accepted.get(key, ("", {}))[1]
        kept = {name: pair for name, pair in last.items() if mapping.is_unclear(parsed, name)}
        return {**kept, **mapping.accepted(parsed, self._clusters)}

    def _adjust(
        self, tasks: asyncio.TaskGroup, runner: Runner, locals_: Callable[[str], Iterable[Key]]
    ) -> None:
        """Follow what is accepted, and no more what is not; its pods are judged again."""
        accepted = self._cached()
        for namespace, followed in list(self._followed.items()):
            if accepted.get(namespace) != followed.pair:
                followed.task.cancel()
                del self._followed[namespace]
                logger.info("Namespace is no more followed", extra={"namespace": namespace})
        for namespace, pair in accepted.items():
            if namespace not in self._followed:
                followed = _Followed(pair, self._node, self._departures, self._breaker)
                work = followed.run(self._remote, runner, locals_)
                followed.task = tasks.create_task(work)
                self._followed[namespace] = followed
                logger.info("Namespace is followed", extra={"namespace": namespace})
        self._judge_others(runner, locals_)

    def _judge_others(self, runner: Runner, locals_: Callable[[str], Iterable[Key]]) -> None:
        for key in locals_(""):
            if key.namespace not in self._followed:
                runner.enqueue(key)


class _Followed:
    """One namespace and its informers on the provider."""

    task: asyncio.Task[None]

    def __init__(self, pair: Pair, node: str, departures: Departures, breaker: Breaker) -> None:
        self.pair, self._breaker = pair, breaker
        self._withheld: dict[Kind, str] = {}
        self._notes = {keys.SHADOW_POD: departures.on_shadow, keys.POD: departures.on_remote}
        labels = f"{pair.selector()},{keys.NODE_NAME}={node}"
        self.informers: list[Informer[Packed]] = [
            Informer(Selection(kind, shape, pair.remote_namespace, labels=labels))
            for kind, shape in FOLLOWED.items()
        ]

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def withheld(self) -> str:
        return next(iter(self._withheld.values()), "")

    async def run(
        self, remote: CachedCluster, runner: Runner, locals_: Callable[[str], Iterable[Key]]
    ) -> None:
        """Follow; when all is seen, let all pods of the namespace be looked at, and those left."""
        undo = contextlib.ExitStack()

        def look() -> None:
            for key in locals_(self.pair.local_namespace):
                runner.enqueue(key)

        def begin() -> None:
            for informer in self.informers:
                undo.callback(informer.subscribe(self._notes[informer.selection.kind]))
                undo.callback(self._breaker.watch(informer))
            look()

        for informer in self.informers:
            informer.on_withheld = functools.partial(self._withhold, look, informer.selection.kind)

        feeds = [(runner, self._keys)]
        scope = Scope([Followed(informer, remote, feeds) for informer in self.informers])
        await scope.run(begin=begin, end=undo.close)

    def _withhold(self, look: Callable[[], None], kind: Kind, said: str) -> None:
        """Take note of a right that is missing, or of its return where nothing is ``said``."""
        self._withheld.pop(kind, None)
        if said:
            self._withheld[kind] = said
        look()

    def _keys(self, change: Change[Packed]) -> Iterable[Key]:
        return (self.pair.original_of(change.key),)
