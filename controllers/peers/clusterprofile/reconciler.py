"""Keeps the ClusterProfile of one peer, and takes it away with the peer."""

from collections.abc import Callable
from datetime import datetime

from apis import keys, objects
from apis.objects import Key
from controllers import upkeep
from controllers.peers.clusterprofile import forge
from kube.cluster import Cluster

KIND = keys.CLUSTER_PROFILE


class ClusterProfileReconciler:
    """Its keys are those of ForeignClusters."""

    def __init__(self, cluster: Cluster, namespace: str, clock: Callable[[], datetime]) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock

    async def reconcile(self, key: Key) -> float | None:
        peer = await self._cluster.get(keys.FOREIGN_CLUSTER, key)
        if peer is None or objects.is_terminating(peer):
            where = Key(self._namespace, key.name)
            await upkeep.remove(self._cluster, KIND, where, is_ours=forge.is_ours)
            return None
        wanted = forge.profile(key.name, self._namespace)
        made = await upkeep.ensure(self._cluster, KIND, wanted, is_ours=forge.is_ours)
        status = forge.status(objects.status(made), peer, self._clock())
        await upkeep.write_status(self._cluster, KIND, made, status)
        return None
