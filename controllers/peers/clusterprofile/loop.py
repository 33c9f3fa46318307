"""Which changes concern which ClusterProfile; without the flag, or the kind, nothing is done."""

from collections.abc import Iterable

from apis import keys
from apis.objects import Key, Object
from controllers import selections
from controllers.manager import Manager, Term
from controllers.peers.clusterprofile import forge
from controllers.peers.clusterprofile.reconciler import ClusterProfileReconciler
from kube import errors
from kube.informer import Change
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    """Return the term of this controller; without its flag it has no loops."""
    if not manager.limits.makes_profiles:
        return list
    profiles = manager.informer(
        selections.every(
            keys.CLUSTER_PROFILE,
            namespace=manager.namespace,
            labels=f"{forge.MANAGER_LABEL}={forge.MANAGER}",
        ),
        may_lack=(errors.NotFoundError,),
    )
    foreign_clusters = manager.informer(selections.FOREIGN_CLUSTERS)

    def by_profile(change: Change[Object]) -> Iterable[Key]:
        return [Key("", change.key.name)]

    def runner() -> Runner:
        reconciler = ClusterProfileReconciler(manager.cached, manager.namespace, manager.clock)
        sources = [Source(foreign_clusters), Source(profiles, by_profile)]
        return Runner("clusterprofile", reconciler, sources)

    return lambda: [runner()]
