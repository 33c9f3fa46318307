"""Which changes concern what this cluster says of its pods' networks."""

from collections.abc import Iterable

from apis import keys
from apis.objects import Key
from apis.own import Addressed
from controllers.manager import Manager, Term
from controllers.peers.podnetworks.reconciler import PodNetworksReconciler
from kube import ownaddresses
from kube.informer import Change
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    nodes = manager.informer(ownaddresses.NODES)
    where = Key(manager.namespace, keys.CLUSTER_ID_CONFIG_MAP)

    def by_node(change: Change[Addressed]) -> Iterable[Key]:
        return [where] if change.old is None or ownaddresses.is_moved(change) else []

    def runner() -> Runner:
        reconciler = PodNetworksReconciler(manager.cached, nodes.items, manager.limits.pod_cidrs)
        return Runner("podnetworks", reconciler, [Source(nodes, by_node)])

    return lambda: [runner()]
