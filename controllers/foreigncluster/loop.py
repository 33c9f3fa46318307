"""What tells of other clusters, and so which changes concern which ForeignCluster."""

import contextlib
from collections.abc import Callable, Iterable, Mapping

from apis.objects import Key, Object
from controllers import selections, views
from controllers.foreigncluster import checker, forge
from controllers.foreigncluster.checker import Checker
from controllers.foreigncluster.reconciler import ForeignClusterReconciler, Observed
from controllers.foreigncluster.stamp import StampReconciler
from controllers.manager import Manager, Term
from kube import version
from kube.informer import Change
from kube.process import Loop
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    identities = manager.informer(selections.IDENTITIES)
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    slices = manager.informer(selections.RESOURCE_SLICES)
    observed = Observed(
        namespaces=views.cached(manager.informer(selections.PEER_NAMESPACES)),
        tenants=views.cached(manager.informer(selections.TENANTS)),
        identities=views.cached(identities),
        slices=views.cached(slices),
        virtual_nodes=views.cached(virtual_nodes),
        deployments=views.cached(manager.informer(selections.DEPLOYMENTS)),
        nodes=views.cached(manager.informer(selections.NODES)),
    )
    about_peers = (
        selections.PEER_NAMESPACES,
        selections.TENANTS,
        selections.IDENTITIES,
        selections.RESOURCE_SLICES,
        selections.VIRTUAL_NODES,
        selections.DEPLOYMENTS,
        selections.NODES,
    )
    sources = [
        Source(manager.informer(selections.FOREIGN_CLUSTERS)),
        *(Source(manager.informer(selection), _by_cluster) for selection in about_peers),
    ]

    async def wanted() -> Mapping[str, Key]:
        return forge.secrets(identities.items().values(), virtual_nodes.items().values())

    def slice_of(cluster_id: str) -> str:
        return forge.slice_of(cluster_id, slices.items().values())

    def subscribe(changed: Callable[[], None]) -> Callable[[], None]:
        stack = contextlib.ExitStack()
        for informer in (identities, virtual_nodes):
            stack.callback(informer.subscribe(lambda _: changed()))
        return stack.close

    def loops() -> list[Loop]:
        checks = Checker(
            manager.live,
            checker.Source(wanted, slice_of, subscribe),
            tell=lambda cluster_id: runner.enqueue(Key("", cluster_id)),
            clock=manager.clock,
            user_agent=manager.user_agent,
        )
        reconciler = ForeignClusterReconciler(
            manager.cached, observed, reach=checks.reach, version=version.own(), clock=manager.clock
        )
        runner = Runner("foreigncluster", reconciler, sources, workers=manager.limits.workers)
        stamps = Runner(
            "foreigncluster-stamp", StampReconciler(manager.cached, version.own()), [Source(slices)]
        )
        return [runner, checks, stamps]

    return loops


def _by_cluster(change: Change[Object]) -> Iterable[Key]:
    clusters = {forge.cluster_of(obj) for obj in (change.old, change.new) if obj}
    return [Key("", cluster_id) for cluster_id in clusters if cluster_id]
