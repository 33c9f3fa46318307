"""Keeps the networks of this cluster's pods in the ConfigMap of its cluster ID.

A peering user may read that ConfigMap and no Node; ``liqoctl peer`` names the networks to the
consumer, which publishes no address outside of them. Source: docs/decisions/0013 (5).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from apis import keys, networks
from apis.networks import NodeAddresses
from apis.objects import Key
from controllers.manager import Manager, Setup
from kube import localaddresses
from kube.cluster import Cluster
from kube.controller import Runner, WatchSource
from kube.informer import Change

AGAIN_S: Final = 600.0
"""Seconds after which it is looked at again, since nothing tells that somebody changed it."""


class PodNetworksReconciler:
    """Its one key is that of the ConfigMap."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Callable[[], Mapping[Key, NodeAddresses]],
        flags: Sequence[str] = (),
    ) -> None:
        self._cluster, self._nodes, self._flags = cluster, nodes, flags

    async def reconcile(self, key: Key) -> float | None:
        of_nodes = (text for node in self._nodes().values() for text in node.pod_networks())
        said = networks.parse_networks(self._flags) or networks.pod_networks_of_nodes(of_nodes)
        wanted = networks.joined_networks(said)
        found = await self._cluster.get_live(keys.CONFIG_MAP, key)
        had = ((found or {}).get("data") or {}).get(keys.POD_CIDRS_KEY, "")
        if found is not None and had != wanted:
            await self._cluster.patch(
                keys.CONFIG_MAP, key, {"data": {keys.POD_CIDRS_KEY: wanted or None}}
            )
        return AGAIN_S


# Which changes concern what this cluster says of its pods' networks ------------------------------


def controller(manager: Manager) -> Setup:
    nodes = manager.informer(localaddresses.NODES)
    where = Key(manager.namespace, keys.CLUSTER_ID_CONFIG_MAP)

    def by_node(change: Change[NodeAddresses]) -> Iterable[Key]:
        return [where] if change.old is None or localaddresses.is_moved(change) else []

    def runner() -> Runner:
        reconciler = PodNetworksReconciler(manager.cached, nodes.items, manager.limits.pod_cidrs)
        return Runner("podnetworks", reconciler, [WatchSource(nodes, by_node)])

    return lambda: [runner()]
