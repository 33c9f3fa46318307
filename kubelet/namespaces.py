"""Which namespaces are offloaded, and the watches on the provider that follow them.

Per accepted entry of the NamespaceMap two informers run on the provider; no pod of a namespace is
judged before both have their first list. Those of an entry that is withdrawn run on until no pod of
the namespace is here: what becomes of each on the provider they tell, and nobody has to ask.

Source: docs/parity.md § 1.2, 5.5; C-14, C-30; F-21, F-22.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace, NamespaceMap
from apis.providerpolicy import AllowedReflection
from kube import peer
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.cluster import Cluster, MemoryQuota, Selection
from kube.controller import Runner
from kube.dynamicinformer import DynamicInformers, InformerFeed
from kube.informer import Change, Informer
from kube.ratelimit import SingleFlightRead
from kube.slim import Packed, PackedState
from kubelet.pods import mapping
from kubelet.pods.mapping import HomeAndProvider, MappingState, NamespaceMapping
from kubelet.pods.state import DeletionEvidence, PodsByNamespace

logger = logging.getLogger(__name__)

FOLLOWED: Final = {keys.SHADOW_POD: Packed, keys.POD: PackedState}
MOST_BYTES: Final = 24 * 2**20
"""Of the Pods and ShadowPods of one provider that are kept: 1.5 KiB for an ordinary pod.
Source: docs/parity.md H14."""
GOOD_S: Final = 10.0
"""So old may what the server said of the NamespaceMap be: as long as a new pod is not judged."""


def informer(tenant_namespace: str, clusters: HomeAndProvider) -> Informer[Object]:
    return Informer(peer.map_to_provider(tenant_namespace, clusters.destination))


class NamespaceMappings:
    """The offloaded namespaces of one virtual node; fulfils OffloadedNamespaces."""

    def __init__(  # noqa: PLR0913  # two clusters, two sides, and who is told
        self,
        local: Cluster,
        remote: CachedCluster,
        *,
        maps: Informer[Object],
        here: PodsByNamespace,
        clusters: HomeAndProvider,
        node: str,
        departures: DeletionEvidence,
        breaker: Breaker,
    ) -> None:
        self._departures, self._breaker = departures, breaker
        self._local, self._remote, self._here = local, remote, here
        self._maps, self._clusters, self._node = maps, clusters, node
        self._key = Key(maps.selection.namespace, clusters.destination)
        self._followed: dict[str, _NamespaceInformers] = {}
        self._accepted: Mapping[str, MappedNamespace] = {}
        self._known: Mapping[str, MappedNamespace] = {}
        """``_accepted``, and mappings that were accepted before and may have left objects there."""
        self._seen: NamespaceMap | None = None
        self._offers: AllowedReflection | None = None
        self._judged: dict[str, NamespaceMapping] = {}
        self._kept = MemoryQuota(MOST_BYTES)
        self._newest = SingleFlightRead(self._ask, good_s=GOOD_S)
        self._changed = asyncio.Event()
        here.on_namespace(self._changed.set)
        maps.subscribe(self._on_map)

    async def mapping(self, namespace: str) -> NamespaceMapping:
        """Return where the pods of ``namespace`` go; but for Offloaded the server was asked.

        It is asked once for all pods that want to know: again after each change, and after a while.
        """
        if pair := self._accepted.get(namespace):
            return NamespaceMapping(MappingState.OFFLOADED, pair)
        return mapping.of(await self._newest.get(), namespace, self._clusters)

    def is_synced(self, namespace: str) -> bool:
        """Whether both informers of the namespace have their first list, for the pair of now."""
        followed = self._followed.get(namespace)
        is_of_now = followed is not None and followed.pair == self._known.get(namespace)
        return followed is not None and is_of_now and followed.is_synced

    def withheld(self, namespace: str) -> str:
        """Return which right there is missing, in the server's words; "" if none is."""
        followed = self._followed.get(namespace)
        return followed.withheld if followed else ""

    def excess(self) -> str:
        """Return why the provider says more than is kept of it; "" if it does not."""
        followed = (informer for one in self._followed.values() for informer in one.informers)
        return next((informer.too_much for informer in followed if informer.too_much), "")

    def opened(self) -> frozenset[str] | None:
        """Return the domains of annotations that the provider takes; None if it does not say."""
        return self._offers.pod_annotation_domains if self._offers else None

    def granted(self) -> tuple[Object, ...] | None:
        """Return the tolerations that the provider takes besides; None if it does not say."""
        return self._offers.pod_tolerations if self._offers else None

    async def run(self, runner: Runner) -> None:
        """Follow the NamespaceMap for ever."""
        await self._maps.synced.wait()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                self._adjust(tasks, runner)
                self._judge(runner)
                await self._changed.wait()

    async def _ask(self) -> NamespaceMap | None:
        found = await self._local.get_live(keys.NAMESPACE_MAP, self._key)
        return NamespaceMap.parse(found) if found else None

    def _on_map(self, change: Change[Object]) -> None:
        """Take note of what is accepted; of an entry that makes no sense, what it was before."""
        if change.key != self._key:
            return
        seen = NamespaceMap.parse(change.new) if change.new else None
        kept = (
            {name: pair for name, pair in self._accepted.items() if mapping.is_unclear(seen, name)}
            if seen
            else {}
        )
        self._accepted = {**kept, **mapping.accepted(seen, self._clusters)} if seen else {}
        self._known = {**mapping.known(seen, self._clusters), **self._accepted} if seen else {}
        self._seen, self._offers = seen, AllowedReflection.parse(seen.offered) if seen else None
        self._newest.forget()
        self._changed.set()

    def _adjust(self, tasks: asyncio.TaskGroup, runner: Runner) -> None:
        """Follow what is accepted, and what no longer is until its pods here are gone."""
        wanted = {
            namespace: pair
            for namespace, pair in self._known.items()
            if namespace in self._accepted or namespace in self._here
        }
        for namespace, followed in list(self._followed.items()):
            if wanted.get(namespace) != followed.pair:
                followed.task.cancel()
                del self._followed[namespace]
                logger.info("Namespace is no longer followed", extra={"namespace": namespace})
        for namespace, pair in wanted.items():
            if namespace not in self._followed:
                informers = self._informers(pair)
                followed = _NamespaceInformers(pair, informers, self._departures, self._breaker)
                work = followed.run(self._remote, runner, self._here)
                followed.task = tasks.create_task(work)
                self._followed[namespace] = followed
                logger.info("Namespace is followed", extra={"namespace": namespace})

    def _informers(self, pair: MappedNamespace) -> list[Informer[Packed]]:
        where, kept = pair.remote_namespace, self._kept
        labels = f"{pair.selector()},{keys.NODE_NAME}={self._node}"

        def keeps(twin: Key) -> bool:
            return self._here.may_have(pair.original_of(twin))

        return [
            Informer(Selection(kind, shape, where, labels=labels, kept=kept, keeps=keeps))
            for kind, shape in FOLLOWED.items()
        ]

    def _judge(self, runner: Runner) -> None:
        """Have pods looked at of whose namespace the NamespaceMap says something else than before.

        Of one that was not followed until now that is done once its informers are synced.
        """
        found = {name: self._said(name) for name in self._here.namespaces()}
        for namespace, said in found.items():
            is_begun = namespace in self._judged and self.is_synced(namespace)
            is_asked = is_begun or said.state is not MappingState.OFFLOADED
            if is_asked and self._judged.get(namespace) != said:
                for key in self._here.of(namespace):
                    runner.enqueue(key)
        self._judged = found

    def _said(self, namespace: str) -> NamespaceMapping:
        if pair := self._accepted.get(namespace):
            return NamespaceMapping(MappingState.OFFLOADED, pair)
        return mapping.of(self._seen, namespace, self._clusters)


class _NamespaceInformers:
    """One namespace and its informers on the provider."""

    task: asyncio.Task[None]

    def __init__(
        self,
        pair: MappedNamespace,
        informers: Sequence[Informer[Packed]],
        departures: DeletionEvidence,
        breaker: Breaker,
    ) -> None:
        self.pair, self.informers, self._breaker = pair, informers, breaker
        self._withheld: dict[Kind, str] = {}
        self._notes = {keys.SHADOW_POD: departures.on_shadow, keys.POD: departures.on_remote}

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def withheld(self) -> str:
        return next(iter(self._withheld.values()), "")

    async def run(self, remote: CachedCluster, runner: Runner, here: PodsByNamespace) -> None:
        """Follow; when all is seen, let all pods of the namespace be looked at, and those left."""
        undo = contextlib.ExitStack()

        def look() -> None:
            for key in here.of(self.pair.local_namespace):
                runner.enqueue(key)

        def begin() -> None:
            for informer in self.informers:
                undo.callback(informer.subscribe(self._notes[informer.selection.kind]))
                undo.callback(self._breaker.watch(informer))
            look()

        for informer in self.informers:
            informer.on_withheld = functools.partial(self._withhold, look, informer.selection.kind)

        feeds = [(runner, self._keys)]
        scope = DynamicInformers(
            [InformerFeed(informer, remote, feeds) for informer in self.informers]
        )
        await scope.run(begin=begin, end=undo.close)

    def _withhold(self, look: Callable[[], None], kind: Kind, said: str) -> None:
        """Take note of a right that is missing, or of its return where nothing is ``said``."""
        self._withheld.pop(kind, None)
        if said:
            self._withheld[kind] = said
        look()

    def _keys(self, change: Change[Packed]) -> Iterable[Key]:
        return (self.pair.original_of(change.key),)
