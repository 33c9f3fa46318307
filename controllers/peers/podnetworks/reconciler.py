"""Keeps the networks of this cluster's pods in the ConfigMap of its cluster ID.

A peering user may read that ConfigMap and no Node; ``liqoctl peer`` names the networks to the
consumer, which publishes no address outside of them. Source: docs/decisions/0013 (5).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from apis import keys, own, podnetworks
from apis.objects import Key
from apis.own import Addressed
from kube.cluster import Cluster

AGAIN_S: Final = 600.0
"""Seconds after which it is looked at again, since nothing tells that somebody changed it."""


class PodNetworksReconciler:
    """Its one key is that of the ConfigMap."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Callable[[], Mapping[Key, Addressed]],
        flags: Sequence[str] = (),
    ) -> None:
        self._cluster, self._nodes, self._flags = cluster, nodes, flags

    async def reconcile(self, key: Key) -> float | None:
        of_nodes = (text for node in self._nodes().values() for text in node.pod_networks())
        said = own.networks(self._flags) or podnetworks.of_nodes(of_nodes)
        wanted = podnetworks.written(said)
        found = await self._cluster.get_live(keys.CONFIG_MAP, key)
        had = ((found or {}).get("data") or {}).get(keys.POD_CIDRS_KEY, "")
        if found is not None and had != wanted:
            await self._cluster.patch(
                keys.CONFIG_MAP, key, {"data": {keys.POD_CIDRS_KEY: wanted or None}}
            )
        return AGAIN_S
