"""Keeps the status of one ForeignCluster true, and makes the object when a peer shows up."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from apis import keys, objects, ownership
from apis.objects import Key, Object
from controllers import watches
from controllers.manager import Controller, Manager
from controllers.peers.foreigncluster import checker, forge
from controllers.peers.foreigncluster.checker import Checker
from controllers.peers.foreigncluster.forge import APIServerHealth, PeerFacts
from kube import errors
from kube.controller import WatchSource
from kube.errors import AlreadyExistsError, KubeError
from kube.informer import Change
from kube.process import Runnable, own_version

KIND: Final = keys.FOREIGN_CLUSTER
_TELLING: Final = (
    watches.PEER_NAMESPACES,
    watches.TENANTS,
    watches.IDENTITIES,
    watches.RESOURCE_SLICES,
    watches.VIRTUAL_NODES,
    watches.NODES,
    watches.DEPLOYMENTS,
)
"""What tells of peers."""

logger = logging.getLogger(__name__)


def _about(cluster_id: str, found: Mapping[Key, Object]) -> list[Object]:
    return [found[key] for key in sorted(found) if forge.cluster_of(found[key]) == cluster_id]


class ForeignClusterReconciler(Controller):
    """One other cluster; the status is computed again each time and written where it differs."""

    name = "foreigncluster"
    is_parallel = True

    def __init__(self, manager: Manager, version: str | None = None) -> None:
        super().__init__(manager)
        self._version = version or own_version()
        self.reach: Callable[[str], APIServerHealth | None] = lambda _: None
        """Whether a cluster's API server answers, once its loops run."""

    def watches(self) -> Sequence[WatchSource[Any]]:
        telling = (self.watch(selection, _by_cluster) for selection in _TELLING)
        return self.watch(watches.FOREIGN_CLUSTERS), *telling

    def loops(self) -> Sequence[Runnable]:
        runner = self.runner()

        def tell(cluster_id: str) -> None:
            runner.enqueue(Key("", cluster_id))

        def reach(cluster_id: str) -> APIServerHealth | None:
            return forge.within(checks.reach(cluster_id), self.manager.excess.of(cluster_id))

        user_agent = self.manager.user_agent
        checks = Checker(
            self.live, self._providers(), tell=tell, clock=self.clock, user_agent=user_agent
        )
        self.reach = reach
        self.manager.excess.tell(tell)
        return [runner, checks]

    def _providers(self) -> checker.ProviderSource:
        """Return which API servers are asked, and by whose kubeconfig."""
        identities = self.informer(watches.IDENTITIES)
        virtual_nodes = self.informer(watches.VIRTUAL_NODES)
        slices = self.informer(watches.RESOURCE_SLICES)

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

    async def _facts(self, cluster_id: str) -> PeerFacts:
        tenants = _about(cluster_id, await self.all(watches.TENANTS))
        identities = _about(cluster_id, await self.all(watches.IDENTITIES))
        namespaces = [
            each["metadata"]["name"]
            for _, each in sorted((await self.all(watches.PEER_NAMESPACES)).items())
            if ownership.peer_of(each) == cluster_id
        ]
        found = await self.all(watches.RESOURCE_SLICES)
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
            virtual_nodes=_about(cluster_id, await self.all(watches.VIRTUAL_NODES)),
            deployments=await self.all(watches.DEPLOYMENTS),
            nodes={key.name: node for key, node in (await self.all(watches.NODES)).items()},
            reach=self.reach(cluster_id),
        )

    async def reconcile(self, key: Key) -> float | None:
        facts = await self._facts(key.name)
        found = await self.cached.get(KIND, key)
        if found is None:
            await self._create(facts)
        elif not objects.is_terminating(found):
            await self._tell(key, found, facts)
        return None

    async def _create(self, facts: PeerFacts) -> None:
        if facts.is_there():
            logger.info("Creating ForeignCluster", extra={"cluster": facts.cluster_id})
            with contextlib.suppress(AlreadyExistsError):
                await self.cached.create(KIND, forge.foreign_cluster(facts.cluster_id))

    async def _tell(self, key: Key, found: Object, facts: PeerFacts) -> None:
        before, generation = objects.status(found), found["metadata"].get("generation", 1)
        now, version = self.clock(), self._version
        after = forge.status(before, facts, generation, now, version=version)
        if changes := objects.merge_patch(before, after):
            await self.cached.patch_status(KIND, key, changes)


# Writes on each slice which version of pyliqo looks after it, for the peer to read ----------------
# The consumer's goes there with the slice; the provider's stays on the replica, which the consumer
# may read. Nothing else of a peer is readable on both sides.


class SliceVersionReconciler(Controller):
    """One slice, on either side."""

    name = "foreigncluster-stamp"

    def __init__(self, manager: Manager, version: str | None = None) -> None:
        super().__init__(manager)
        self._version = version or own_version()

    def watches(self) -> Sequence[WatchSource[Any]]:
        return [self.watch(watches.RESOURCE_SLICES)]

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(keys.RESOURCE_SLICE, key)
        if obj is None or objects.is_terminating(obj):
            return None
        name = keys.PROVIDER_VERSION if ownership.is_foreign(obj) else keys.CONSUMER_VERSION
        if objects.annotations(obj).get(name) != self._version:
            annotations = {"annotations": {name: self._version}}
            try:
                await self.cached.patch(keys.RESOURCE_SLICE, key, {"metadata": annotations})
            except KubeError as error:
                if not errors.is_too_large(error):
                    raise
                # Its peer has filled it: nothing to do until that changes it again.
                logger.warning("No room", extra={"slice": str(key), "error": str(error)})
        return None


def _by_cluster(change: Change[Object]) -> Iterable[Key]:
    clusters = {forge.cluster_of(obj) for obj in (change.old, change.new) if obj}
    return [Key("", cluster_id) for cluster_id in clusters if cluster_id]
