"""What tells of other clusters, and so which changes concern which ForeignCluster."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from apis.objects import Key, Object
from controllers import selections, views
from controllers.manager import Manager, Term
from controllers.peers.foreigncluster import checker, forge
from controllers.peers.foreigncluster.checker import Checker
from controllers.peers.foreigncluster.forge import Reach
from controllers.peers.foreigncluster.reconciler import ForeignClusterReconciler, Observed
from controllers.peers.foreigncluster.stamp import StampReconciler
from kube import version
from kube.informer import Change
from kube.process import Loop
from kube.runner import Runner, Source

_TELLING: Final = {
    "namespaces": selections.PEER_NAMESPACES,
    "tenants": selections.TENANTS,
    "identities": selections.IDENTITIES,
    "slices": selections.RESOURCE_SLICES,
    "virtual_nodes": selections.VIRTUAL_NODES,
    "nodes": selections.NODES,
}
"""What tells of peers, by the field of ``Observed``."""


def controller(manager: Manager) -> Term:
    informers = {name: manager.informer(selection) for name, selection in _TELLING.items()}
    informers["deployments"] = manager.beside_virtual_nodes(selections.DEPLOYMENTS)
    observed = Observed(**{name: views.cached(each) for name, each in informers.items()})
    slices = Source(informers["slices"])
    asked = _asked(manager)
    sources = [
        Source(manager.informer(selections.FOREIGN_CLUSTERS)),
        *(Source(informer, _by_cluster) for informer in informers.values()),
    ]

    def loops() -> list[Loop]:
        checks = Checker(
            manager.live,
            asked,
            tell=lambda cluster_id: runner.enqueue(Key("", cluster_id)),
            clock=manager.clock,
            user_agent=manager.user_agent,
        )

        def reach(cluster_id: str) -> Reach | None:
            return forge.within(checks.reach(cluster_id), manager.excess.of(cluster_id))

        reconciler = ForeignClusterReconciler(
            manager.cached, observed, reach=reach, version=version.own(), clock=manager.clock
        )
        runner = Runner("foreigncluster", reconciler, sources, workers=manager.limits.workers)
        manager.excess.tell(lambda cluster_id: runner.enqueue(Key("", cluster_id)))
        stamps = Runner(
            "foreigncluster-stamp", StampReconciler(manager.cached, version.own()), [slices]
        )
        return [runner, checks, stamps]

    return loops


def _asked(manager: Manager) -> checker.Source:
    """Return which API servers are asked, and by whose kubeconfig."""
    identities = manager.informer(selections.IDENTITIES)
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    slices = manager.informer(selections.RESOURCE_SLICES)

    async def wanted() -> Mapping[str, Key]:
        return forge.secrets(identities.items().values(), virtual_nodes.items().values())

    def slice_of(cluster_id: str) -> str:
        return forge.slice_of(cluster_id, slices.items().values())

    def subscribe(changed: Callable[[], None]) -> Callable[[], None]:
        stack = contextlib.ExitStack()
        for informer in (identities, virtual_nodes):
            stack.callback(informer.subscribe(lambda _: changed()))
        return stack.close

    return checker.Source(wanted, slice_of, subscribe)


def _by_cluster(change: Change[Object]) -> Iterable[Key]:
    clusters = {forge.cluster_of(obj) for obj in (change.old, change.new) if obj}
    return [Key("", cluster_id) for cluster_id in clusters if cluster_id]
