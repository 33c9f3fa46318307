"""Gives this process its rights in each tenant namespace, and gives them up last."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from apis import keys, objects, ownership
from apis.objects import Key, Kind, Object
from controllers import watches, writes
from controllers.authentication.tenantrights import forge
from controllers.manager import Controller
from kube.cluster import Selection
from kube.controller import WatchSource
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


class TenantRightsReconciler(Controller):
    """One tenant namespace, by its name."""

    name = "tenantrights"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.PEER_NAMESPACES, by_namespace),
            self.watch(watches.ROLE_BINDINGS, by_binding),
        )

    async def reconcile(self, key: Key) -> float | None:
        account = self.manager.account
        where = Key(key.name, account.name)
        namespace = await self.cached.get(keys.NAMESPACE, key)
        found = await self.cached.get(KIND, where)
        if found is not None and not watches.opens_secrets(found):
            found = None
        if found is not None and objects.is_terminating(found):
            return await self._let_go(found)
        if namespace is None:
            return None
        if objects.is_terminating(namespace):
            return await self._let_go(found) if found else None
        if ownership.peer_of(namespace):
            wanted = forge.binding(namespace, account)
            await writes.ensure(self.cached, KIND, wanted, is_ours=watches.opens_secrets)
        elif found is not None:
            await writes.remove(self.cached, KIND, where, is_ours=watches.opens_secrets)
        return None

    async def _let_go(self, found: Object) -> float | None:
        """Let the binding go that nothing needs any more; where it is wanted, it is made again."""
        if FINALIZER not in objects.finalizers(found):
            return None
        where = objects.key_of(found).namespace
        namespace = await self.cached.get_live(keys.NAMESPACE, Key("", where))
        if namespace and objects.is_terminating(namespace) and await self._is_needed(where):
            return GOING_POLL_S
        await writes.remove_finalizer(self.cached, KIND, found, FINALIZER)
        return None

    async def _is_needed(self, namespace: str) -> bool:
        """Whether something in a namespace that is being deleted waits for this process."""
        for kind in NEEDING:
            if (await self.cached.list(Selection(kind, Object, namespace))).items:
                return True
        secrets = await self.cached.list(Selection(keys.SECRET, Object, namespace))
        return any(objects.finalizers(each) for each in secrets.items.values())


def by_namespace(change: Change[Object]) -> Iterable[Key]:
    is_one = any(ownership.peer_of(each) for each in (change.old, change.new) if each)
    return [change.key] if is_one else []


def by_binding(change: Change[Object]) -> Iterable[Key]:
    is_one = any(watches.opens_secrets(each) for each in (change.old, change.new) if each)
    return [Key("", change.key.namespace)] if is_one else []
