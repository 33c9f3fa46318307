"""Keeps the status of one ForeignCluster true, and makes the object when a peer shows up."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis import keys, objects, ownership
from apis.objects import Key, Object
from controllers import watches
from controllers.manager import Manager, Setup
from controllers.peers.foreigncluster import checker, forge
from controllers.peers.foreigncluster.checker import Checker
from controllers.peers.foreigncluster.forge import APIServerHealth, PeerFacts
from controllers.watches import Lister
from kube import errors
from kube.cluster import Cluster
from kube.controller import Runner, WatchSource
from kube.errors import AlreadyExistsError, KubeError
from kube.informer import Change
from kube.process import Runnable, own_version

KIND: Final = keys.FOREIGN_CLUSTER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForeignClusterListers:
    """All that tells about peers."""

    namespaces: Lister
    tenants: Lister
    identities: Lister
    slices: Lister
    virtual_nodes: Lister
    deployments: Lister
    nodes: Lister

    async def of(self, cluster_id: str, reach: APIServerHealth | None = None) -> PeerFacts:
        tenants = _about(cluster_id, await self.tenants())
        identities = _about(cluster_id, await self.identities())
        namespaces = [
            each["metadata"]["name"]
            for _, each in sorted((await self.namespaces()).items())
            if ownership.peer_of(each) == cluster_id
        ]
        found = await self.slices()
        return PeerFacts(
            cluster_id,
            namespace=next(iter(namespaces), ""),
            tenant=next(iter(tenants), None),
            identity=next(filter(forge.is_of_control_plane, identities), None),
            replicas=[
                found[key]
                for key in sorted(found)
                if key.namespace in namespaces and ownership.is_foreign(found[key], cluster_id)
            ],
            virtual_nodes=_about(cluster_id, await self.virtual_nodes()),
            deployments=await self.deployments(),
            nodes={key.name: node for key, node in (await self.nodes()).items()},
            reach=reach,
        )


def _about(cluster_id: str, found: Mapping[Key, Object]) -> list[Object]:
    return [found[key] for key in sorted(found) if forge.cluster_of(found[key]) == cluster_id]


class ForeignClusterReconciler:
    """One other cluster; the status is computed again each time and written where it differs."""

    def __init__(
        self,
        cluster: Cluster,
        listers: ForeignClusterListers,
        *,
        reach: Callable[[str], APIServerHealth | None],
        version: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._listers = listers
        self._reach = reach
        self._version = version
        self._clock = clock

    async def reconcile(self, key: Key) -> float | None:
        facts = await self._listers.of(key.name, self._reach(key.name))
        found = await self._cluster.get(KIND, key)
        if found is None:
            await self._create(facts)
        elif not objects.is_terminating(found):
            await self._tell(key, found, facts)
        return None

    async def _create(self, facts: PeerFacts) -> None:
        if facts.is_there():
            logger.info("Creating ForeignCluster", extra={"cluster": facts.cluster_id})
            with contextlib.suppress(AlreadyExistsError):
                await self._cluster.create(KIND, forge.foreign_cluster(facts.cluster_id))

    async def _tell(self, key: Key, found: Object, facts: PeerFacts) -> None:
        before, generation = objects.status(found), found["metadata"].get("generation", 1)
        now, version = self._clock(), self._version
        after = forge.status(before, facts, generation, now, version=version)
        if changes := objects.merge_patch(before, after):
            await self._cluster.patch_status(KIND, key, changes)


# Writes on each slice which version of pyliqo looks after it, for the peer to read ----------------
# The consumer's goes there with the slice; the provider's stays on the replica, which the consumer
# may read. Nothing else of a peer is readable on both sides.


@dataclass(frozen=True)
class SliceVersionReconciler:
    """One slice, on either side."""

    cluster: Cluster
    version: str

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(keys.RESOURCE_SLICE, key)
        if obj is None or objects.is_terminating(obj):
            return None
        name = keys.PROVIDER_VERSION if ownership.is_foreign(obj) else keys.CONSUMER_VERSION
        if objects.annotations(obj).get(name) != self.version:
            annotations = {"annotations": {name: self.version}}
            try:
                await self.cluster.patch(keys.RESOURCE_SLICE, key, {"metadata": annotations})
            except KubeError as error:
                if not errors.is_too_large(error):
                    raise
                # Its peer has filled it: nothing to do until that changes it again.
                logger.warning("No room", extra={"slice": str(key), "error": str(error)})
        return None


# What tells of other clusters, and so which changes concern which ForeignCluster -----------------


_TELLING: Final = {
    "namespaces": watches.PEER_NAMESPACES,
    "tenants": watches.TENANTS,
    "identities": watches.IDENTITIES,
    "slices": watches.RESOURCE_SLICES,
    "virtual_nodes": watches.VIRTUAL_NODES,
    "nodes": watches.NODES,
}
"""What tells of peers, by the field of ``ForeignClusterListers``."""


def controller(manager: Manager) -> Setup:
    informers = {name: manager.informer(selection) for name, selection in _TELLING.items()}
    informers["deployments"] = manager.beside_virtual_nodes(watches.DEPLOYMENTS)
    listers = ForeignClusterListers(
        **{name: watches.cached(each) for name, each in informers.items()}
    )
    slices = WatchSource(informers["slices"])
    asked = _asked(manager)
    sources = [
        WatchSource(manager.informer(watches.FOREIGN_CLUSTERS)),
        *(WatchSource(informer, _by_cluster) for informer in informers.values()),
    ]

    def loops() -> list[Runnable]:
        checks = Checker(
            manager.live,
            asked,
            tell=lambda cluster_id: runner.enqueue(Key("", cluster_id)),
            clock=manager.clock,
            user_agent=manager.user_agent,
        )

        def reach(cluster_id: str) -> APIServerHealth | None:
            return forge.within(checks.reach(cluster_id), manager.excess.of(cluster_id))

        reconciler = ForeignClusterReconciler(
            manager.cached, listers, reach=reach, version=own_version(), clock=manager.clock
        )
        runner = Runner("foreigncluster", reconciler, sources, workers=manager.limits.workers)
        manager.excess.tell(lambda cluster_id: runner.enqueue(Key("", cluster_id)))
        stamps = Runner(
            "foreigncluster-stamp",
            SliceVersionReconciler(manager.cached, own_version()),
            [slices],
        )
        return [runner, checks, stamps]

    return loops


def _asked(manager: Manager) -> checker.ProviderSource:
    """Return which API servers are asked, and by whose kubeconfig."""
    identities = manager.informer(watches.IDENTITIES)
    virtual_nodes = manager.informer(watches.VIRTUAL_NODES)
    slices = manager.informer(watches.RESOURCE_SLICES)

    async def wanted() -> Mapping[str, Key]:
        return forge.secrets(identities.items().values(), virtual_nodes.items().values())

    def slice_of(cluster_id: str) -> str:
        return forge.slice_of(cluster_id, slices.items().values())

    def subscribe(changed: Callable[[], None]) -> Callable[[], None]:
        stack = contextlib.ExitStack()
        for informer in (identities, virtual_nodes):
            stack.callback(informer.subscribe(lambda _: changed()))
        return stack.close

    return checker.ProviderSource(wanted, slice_of, subscribe)


def _by_cluster(change: Change[Object]) -> Iterable[Key]:
    clusters = {forge.cluster_of(obj) for obj in (change.old, change.new) if obj}
    return [Key("", cluster_id) for cluster_id in clusters if cluster_id]
