"""Which changes concern which ResourceSlice, on either side."""

from collections.abc import Iterable

from apis import naming, slices
from apis.objects import Key, Object
from controllers import concerns, selections, views
from controllers.granting.resourceslice.consumer import LocalSliceReconciler
from controllers.granting.resourceslice.provider import Observed, ReplicaReconciler
from controllers.manager import Manager, Term
from kube.informer import Change
from kube.process import Loop
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    slices = manager.informer(selections.RESOURCE_SLICES)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    identities = manager.informer(selections.IDENTITIES)
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    tenants = manager.informer(selections.TENANTS)
    secrets = manager.tenant_secrets()

    local = [
        Source(slices),
        Source(namespaces, concerns.inside(slices)),
        Source(identities, _by_name),
        Source(virtual_nodes, _by_name),
    ]
    replicas = [
        Source(slices),
        Source(namespaces, concerns.inside(slices)),
        Source(tenants, concerns.but_booked(concerns.beside(slices))),
        Source(secrets, _by_certificate),
    ]

    def loops() -> list[Loop]:
        consumer = LocalSliceReconciler(
            manager.cached,
            manager.cluster_id,
            manager.private_key,
            manager.events,
            manager.namespace,
        )
        observed = Observed(views.cached(tenants), views.cached(secrets))
        provider = ReplicaReconciler(
            manager.cached, observed, manager.issuer, manager.events, manager.clock
        )
        workers = manager.limits.workers
        return [
            Runner("localslice", consumer, local, workers=workers),
            Runner("slicereplica", provider, replicas, workers=workers),
        ]

    return loops


def _by_name(change: Change[Object]) -> Iterable[Key]:
    """Return the slice that an Identity or a VirtualNode is of."""
    name = slices.of_virtual_node(change.new or change.old or {"metadata": {}})
    return [Key(change.key.namespace, name)] if name else []


def _by_certificate(change: Change[Object]) -> Iterable[Key]:
    """Return the slice whose certificate a Secret keeps."""
    prefix = f"{naming.remote_certificate()}-"
    name = change.key.name.removeprefix(prefix)
    is_one = change.key.name.startswith(prefix) and name
    return [Key(change.key.namespace, name)] if is_one else []
