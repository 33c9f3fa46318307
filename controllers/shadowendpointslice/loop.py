"""Which changes concern which ShadowEndpointSlice."""

from collections.abc import Iterable
from typing import Any, Final

from apis import keys, remap
from apis.objects import Key
from controllers import concerns, fabric, selections
from controllers.manager import Manager, Term
from controllers.shadowendpointslice import forge
from controllers.shadowendpointslice.forge import Addressed, Reach
from controllers.shadowendpointslice.reconciler import ShadowEndpointSliceReconciler
from kube.cluster import Selection
from kube.informer import Change
from kube.runner import Runner, Source

WORKERS: Final = 10
SHADOWS: Final = selections.every(keys.SHADOW_ENDPOINT_SLICE)
SLICES: Final = selections.every(
    keys.ENDPOINT_SLICE, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_ENDPOINT_SLICE}"
)
API_SERVERS: Final = selections.every(
    keys.ENDPOINT_SLICE, namespace="default", labels=f"{keys.SERVICE_NAME}=kubernetes"
)
NODES: Final = Selection(keys.NODE, Addressed, labels=f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}")
PEERS: Final = selections.every(keys.FOREIGN_CLUSTER)


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    shadows, slices = manager.informer(SHADOWS), manager.informer(SLICES)
    api_servers, nodes = manager.informer(API_SERVERS), manager.informer(NODES)
    peers = manager.informer(PEERS)

    configurations = fabric.configurations(manager)

    def reach(consumer: str) -> Reach:
        known = configurations.items().values() if configurations else None
        own = forge.own(nodes.items().values(), api_servers.items().values())
        return Reach(own, None if known is None else remap.of_peer(known, consumer))

    all_of_them = concerns.all_of(shadows)

    def by_node(change: Change[Addressed]) -> Iterable[Key]:
        before, after = (each.texts() if each else [] for each in (change.old, change.new))
        return [] if before == after else all_of_them(change)

    def by_peer(change: Change[Any]) -> Iterable[Key]:
        before, after = map(forge.is_reachable, (change.old, change.new))
        return [] if before == after else all_of_them(change)

    sources: list[Source[Any]] = [
        Source(shadows),
        Source(slices),
        Source(api_servers, all_of_them),
        Source(nodes, by_node),
        Source(peers, by_peer),
        *([Source(configurations, all_of_them)] if configurations else []),
    ]

    def runner() -> Runner:
        reconciler = ShadowEndpointSliceReconciler(
            manager.cached, reach=reach, peers=peers.items, events=manager.events
        )
        return Runner("shadowendpointslice", reconciler, sources, workers=WORKERS)

    return lambda: [runner()]
