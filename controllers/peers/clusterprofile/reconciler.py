"""Keeps the ClusterProfile of one peer, and takes it away with the peer."""

from collections.abc import Callable, Iterable
from datetime import datetime

from apis import keys, objects
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.manager import Manager, Setup
from controllers.peers.clusterprofile import forge
from kube import errors
from kube.cluster import Cluster
from kube.controller import Runner, WatchSource
from kube.informer import Change

KIND = keys.CLUSTER_PROFILE


class ClusterProfileReconciler:
    """Its keys are those of ForeignClusters."""

    def __init__(self, cluster: Cluster, namespace: str, clock: Callable[[], datetime]) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock

    async def reconcile(self, key: Key) -> float | None:
        peer = await self._cluster.get(keys.FOREIGN_CLUSTER, key)
        if peer is None or objects.is_terminating(peer):
            where = Key(self._namespace, key.name)
            await writes.remove(self._cluster, KIND, where, is_ours=forge.is_ours)
            return None
        wanted = forge.profile(key.name, self._namespace)
        made = await writes.ensure(self._cluster, KIND, wanted, is_ours=forge.is_ours)
        status = forge.status(objects.status(made), peer, self._clock())
        await writes.write_status(self._cluster, KIND, made, status)
        return None


# Which changes concern which ClusterProfile; without the flag, or the kind, nothing is done ------


def controller(manager: Manager) -> Setup:
    """Return the set-up of this controller; without its flag it has no loops."""
    if not manager.limits.makes_profiles:
        return list
    profiles = manager.informer(
        watches.every(
            keys.CLUSTER_PROFILE,
            namespace=manager.namespace,
            labels=f"{forge.MANAGER_LABEL}={forge.MANAGER}",
        ),
        may_lack=(errors.NotFoundError,),
    )
    foreign_clusters = manager.informer(watches.FOREIGN_CLUSTERS)

    def by_profile(change: Change[Object]) -> Iterable[Key]:
        return [Key("", change.key.name)]

    def runner() -> Runner:
        reconciler = ClusterProfileReconciler(manager.cached, manager.namespace, manager.clock)
        sources = [WatchSource(foreign_clusters), WatchSource(profiles, by_profile)]
        return Runner("clusterprofile", reconciler, sources)

    return lambda: [runner()]
