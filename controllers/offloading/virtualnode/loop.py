"""Which changes concern which VirtualNode."""

from collections.abc import Callable, Iterable, Sequence

from apis import foreignclusters, keys, naming, own, podnetworks, whose
from apis.objects import Key, Object
from apis.offloading import VirtualNode
from apis.remap import Network
from controllers import concerns, fabric, selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.virtualnode.forge import deployment, rights
from controllers.offloading.virtualnode.forge.deployment import Fabric, LocalCluster
from controllers.offloading.virtualnode.reconciler import Observed, VirtualNodeReconciler
from kube.informer import Change, Informer
from kube.runner import Runner, Source

Those = Callable[[Callable[[Key, Object], bool]], list[Key]]
"""Returns the VirtualNodes that fulfil a condition."""
_BESIDE = (selections.DEPLOYMENTS, selections.SERVICE_ACCOUNTS, selections.ROLES)
"""What is made in the namespace of a VirtualNode, and by users elsewhere."""
_MADE = (
    selections.LEASE_ROLES,
    selections.ROLE_BINDINGS,
    selections.CLUSTER_ROLE_BINDINGS,
)


def controller(manager: Manager) -> Term:
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    nodes = manager.informer(selections.NODES)
    templates = selections.every(keys.VK_OPTIONS_TEMPLATE, namespace=manager.namespace)
    namespace_maps = manager.informer(selections.NAMESPACE_MAPS)
    bindings = manager.informer(selections.ROLE_BINDINGS)
    foreign_clusters = manager.informer(selections.FOREIGN_CLUSTERS)

    networks, servers = fabric.networks(manager), fabric.api_servers(manager)
    identities = manager.informer(selections.IDENTITIES)

    def pod_networks(node: VirtualNode) -> Sequence[Network]:
        where = Key(node.namespace, naming.controlplane_identity(node.cluster_id))
        named, _ = podnetworks.of_identity(identities.get(where))
        return own.collapsed(named)

    def siblings(node: VirtualNode) -> Sequence[VirtualNode]:
        found = [VirtualNode.parse(each) for _, each in sorted(virtual_nodes.items().items())]
        return [each for each in found if each.cluster_id == node.cluster_id] or [node]

    local = LocalCluster(
        manager.cluster_id,
        manager.namespace,
        _fabric(networks, servers),
        manager.own_flags,
        pod_networks,
        siblings,
    )

    def is_gone(cluster_id: str) -> bool:
        return foreignclusters.is_gone(foreign_clusters.get(Key("", cluster_id)))

    def those(holds: Callable[[Key, Object], bool]) -> list[Key]:
        return [key for key, obj in virtual_nodes.items().items() if holds(key, obj)]

    def by_name(change: Change[Object]) -> Iterable[Key]:
        return those(lambda key, _: key.name == change.key.name)

    by_label = _by_label(those)
    sources = [
        Source(virtual_nodes, by_name),
        Source(virtual_nodes, _by_classes(those)),
        Source(nodes, by_name),
        Source(manager.informer(templates), concerns.all_of(virtual_nodes)),
        Source(namespace_maps, _by_map(those)),
        Source(foreign_clusters, _by_cluster(those)),
        Source(identities, _by_identity(those)),
        *(Source(each, concerns.all_of(virtual_nodes)) for each in (networks, servers) if each),
        *(Source(manager.beside_virtual_nodes(selection), by_label) for selection in _BESIDE),
        *(Source(manager.informer(selection), by_label) for selection in _MADE),
    ]

    def runner() -> Runner:
        reconciler = VirtualNodeReconciler(
            manager.cached,
            Observed(views.cached(virtual_nodes), views.cached(bindings), is_gone),
            local=local,
            events=manager.events,
            clock=manager.clock,
        )
        return Runner("virtualnode", reconciler, sources, workers=manager.limits.workers)

    return lambda: [runner()]


def _fabric(
    networks: Informer[Object] | None, servers: Informer[Object] | None
) -> Callable[[], Fabric | None]:
    def known() -> Fabric | None:
        if networks is None or servers is None:
            return None
        return deployment.fabric(networks.items().values(), servers.items().values())

    return known


def _by_classes(those: Those) -> Keys:
    """Return whom it concerns which classes a virtual node of the same provider offers."""

    def classes(obj: Object | None) -> tuple[object, ...]:
        node = VirtualNode.parse(obj) if obj else None
        return (node.cluster_id, node.ingress_classes, node.load_balancer_classes) if node else ()

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = classes(change.old), classes(change.new)
        clusters = {one[0] for one in (before, after) if one}
        if before == after:
            return []
        return those(lambda _, node: VirtualNode.parse(node).cluster_id in clusters)

    return keys_of


def _by_identity(those: Those) -> Keys:
    """Return whom it concerns in which networks the pods of a provider are."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = map(podnetworks.of_identity, (change.old, change.new))
        if before == after:
            return []
        return those(lambda key, _: key.namespace == change.key.namespace)

    return keys_of


def _by_label(those: Those) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        name = rights.virtual_node_of(change.new or change.old or {"metadata": {}})
        return those(lambda key, _: key.name == name) if name else []

    return keys_of


def _by_map(those: Those) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        obj = change.new or change.old or {"metadata": {}}
        cluster_id = whose.destination(obj)
        return those(lambda _, node: VirtualNode.parse(node).cluster_id == cluster_id)

    return keys_of


def _by_cluster(those: Those) -> Keys:
    """Return whom it concerns that a cluster is given up, or comes back."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = (foreignclusters.is_gone(obj) for obj in (change.old, change.new))
        if before == after:
            return []
        return those(lambda _, node: VirtualNode.parse(node).cluster_id == change.key.name)

    return keys_of
