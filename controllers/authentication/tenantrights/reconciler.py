"""Gives this process its rights in each tenant namespace, and gives them up last."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, ownership
from apis.objects import Key, Kind, Object
from controllers import watches, writes
from controllers.authentication.tenantrights import forge
from controllers.manager import Manager, Setup
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.informer import Change

KIND: Final = keys.ROLE_BINDING
FINALIZER: Final = keys.TENANT_RIGHTS_FINALIZER
GOING_POLL_S: Final = 2.0
NEEDING: Final[tuple[Kind, ...]] = (
    keys.TENANT,
    keys.IDENTITY,
    keys.RESOURCE_SLICE,
    keys.NAMESPACE_MAP,
    keys.RENEW,
)
"""What is ended, or replicated, with Secrets of its namespace. While a namespace is being deleted
nothing is created in it: once these are gone, no others come."""


@dataclass(frozen=True)
class TenantRightsReconciler:
    """One tenant namespace, by its name; ``account`` is that of this process."""

    cluster: Cluster
    account: Key

    async def reconcile(self, key: Key) -> float | None:
        where = Key(key.name, self.account.name)
        namespace = await self.cluster.get(keys.NAMESPACE, key)
        found = await self.cluster.get(KIND, where)
        if found is not None and not forge.is_one(found):
            found = None
        if found is not None and objects.is_terminating(found):
            return await self._let_go(found)
        if namespace is None:
            return None
        if objects.is_terminating(namespace):
            return await self._let_go(found) if found else None
        if ownership.peer_of(namespace):
            wanted = forge.binding(namespace, self.account)
            await writes.ensure(self.cluster, KIND, wanted, is_ours=forge.is_one)
        elif found is not None:
            await writes.remove(self.cluster, KIND, where, is_ours=forge.is_one)
        return None

    async def _let_go(self, found: Object) -> float | None:
        """Let the binding go that nothing needs any more; where it is wanted, it is made again."""
        if FINALIZER not in objects.finalizers(found):
            return None
        where = objects.key_of(found).namespace
        namespace = await self.cluster.get_live(keys.NAMESPACE, Key("", where))
        if namespace and objects.is_terminating(namespace) and await self._is_needed(where):
            return GOING_POLL_S
        await writes.remove_finalizer(self.cluster, KIND, found, FINALIZER)
        return None

    async def _is_needed(self, namespace: str) -> bool:
        """Whether something in a namespace that is being deleted waits for this process."""
        for kind in NEEDING:
            if (await self.cluster.list(Selection(kind, Object, namespace))).items:
                return True
        secrets = await self.cluster.list(Selection(keys.SECRET, Object, namespace))
        return any(objects.finalizers(each) for each in secrets.items.values())


# Which changes concern the rights in which tenant namespace --------------------------------------


def controller(manager: Manager) -> Setup:
    namespaces = manager.informer(watches.PEER_NAMESPACES)
    bindings = manager.informer(watches.ROLE_BINDINGS)
    account = Key(manager.namespace, keys.CONTROLLER_MANAGER)

    def runner() -> Runner:
        sources = [WatchSource(namespaces, by_namespace), WatchSource(bindings, by_binding)]
        reconciler = TenantRightsReconciler(manager.cached, account)
        return Runner("tenantrights", reconciler, sources)

    return lambda: [runner()]


def by_namespace(change: Change[Object]) -> Iterable[Key]:
    """Return the namespace if it is, or was, a tenant's."""
    is_one = any(ownership.peer_of(each) for each in (change.old, change.new) if each)
    return [change.key] if is_one else []


def by_binding(change: Change[Object]) -> Iterable[Key]:
    is_one = any(forge.is_one(each) for each in (change.old, change.new) if each)
    return [Key("", change.key.namespace)] if is_one else []
