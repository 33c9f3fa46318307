"""Keeps the ClusterProfile of one peer, and takes it away with the peer."""

from collections.abc import Iterable, Sequence
from typing import Any

from apis import keys, objects
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.manager import Controller, Limits
from controllers.peers.clusterprofile import forge
from kube.controller import WatchSource
from kube.errors import NotFoundError
from kube.informer import Change

KIND = keys.CLUSTER_PROFILE


class ClusterProfileReconciler(Controller):
    """Its keys are those of ForeignClusters; a cluster may lack the kind, and has nothing then."""

    name = "clusterprofile"

    @classmethod
    def is_enabled(cls, limits: Limits) -> bool:
        return limits.makes_profiles

    def watches(self) -> Sequence[WatchSource[Any]]:
        labels = f"{forge.MANAGER_LABEL}={forge.MANAGER}"
        profiles = watches.every(KIND, namespace=self.manager.namespace, labels=labels)
        return (
            self.watch(watches.FOREIGN_CLUSTERS),
            self.watch(profiles, _by_profile, may_lack=(NotFoundError,)),
        )

    async def reconcile(self, key: Key) -> float | None:
        namespace = self.manager.namespace
        peer = await self.cached.get(keys.FOREIGN_CLUSTER, key)
        if peer is None or objects.is_terminating(peer):
            where = Key(namespace, key.name)
            await writes.remove(self.cached, KIND, where, is_ours=forge.is_ours)
            return None
        wanted = forge.profile(key.name, namespace)
        made = await writes.ensure(self.cached, KIND, wanted, is_ours=forge.is_ours)
        status = forge.status(objects.status(made), peer, self.clock())
        await writes.write_status(self.cached, KIND, made, status)
        return None


def _by_profile(change: Change[Object]) -> Iterable[Key]:
    return [Key("", change.key.name)]
