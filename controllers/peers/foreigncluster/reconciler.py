"""Keeps the status of one ForeignCluster true, and makes the object when a peer shows up."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis import keys, objects, whose
from apis.objects import Key, Object
from controllers.peers.foreigncluster import forge
from controllers.peers.foreigncluster.forge import Facts, Reach
from controllers.views import View
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError

KIND: Final = keys.FOREIGN_CLUSTER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observed:
    """All that tells about peers."""

    namespaces: View
    tenants: View
    identities: View
    slices: View
    virtual_nodes: View
    deployments: View
    nodes: View

    async def of(self, cluster_id: str, reach: Reach | None = None) -> Facts:
        """Return what there is about one cluster."""
        tenants = _about(cluster_id, await self.tenants())
        identities = _about(cluster_id, await self.identities())
        namespaces = [
            each["metadata"]["name"]
            for _, each in sorted((await self.namespaces()).items())
            if whose.peer_of(each) == cluster_id
        ]
        found = await self.slices()
        return Facts(
            cluster_id,
            namespace=next(iter(namespaces), ""),
            tenant=next(iter(tenants), None),
            identity=next(filter(forge.is_of_control_plane, identities), None),
            replicas=[
                found[key]
                for key in sorted(found)
                if key.namespace in namespaces and whose.is_foreign(found[key], cluster_id)
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
        observed: Observed,
        *,
        reach: Callable[[str], Reach | None],
        version: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._observed = observed
        self._reach = reach
        self._version = version
        self._clock = clock

    async def reconcile(self, key: Key) -> float | None:
        facts = await self._observed.of(key.name, self._reach(key.name))
        found = await self._cluster.get(KIND, key)
        if found is None:
            await self._create(facts)
        elif not objects.is_terminating(found):
            await self._tell(key, found, facts)
        return None

    async def _create(self, facts: Facts) -> None:
        if facts.is_there():
            logger.info("Creating ForeignCluster", extra={"cluster": facts.cluster_id})
            with contextlib.suppress(AlreadyExistsError):
                await self._cluster.create(KIND, forge.foreign_cluster(facts.cluster_id))

    async def _tell(self, key: Key, found: Object, facts: Facts) -> None:
        before, generation = objects.status(found), found["metadata"].get("generation", 1)
        now, version = self._clock(), self._version
        after = forge.status(before, facts, generation, now, version=version)
        if changes := objects.merge_patch(before, after):
            await self._cluster.patch_status(KIND, key, changes)
