"""Keeps a ResourceQuota in each tenant namespace and twin: how many objects a consumer may have.

The API server counts at each creation, so requests at the same time pass no bound. It refuses every
creation of a kind that kube-controller-manager does not count yet, as for up to five minutes after
its CRD is new. So a ResourceQuota in pyliqo's own namespace, which limits nobody, shows when it
counts them all. Source: docs/parity.md X5; Kubernetes, "Resource Quotas", "Object count quota".
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from apis import keys, objects, ownership, providerpolicy
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.manager import Controller, Manager
from kube.controller import WatchSource
from kube.informer import Change

KIND: Final = keys.RESOURCE_QUOTA
NAME: Final = "liqo-objects"
UNCOUNTED_S: Final = 15.0
"""Until it is asked again whether the kinds are counted: once, for all namespaces."""
_OF_TENANTS: Final[Mapping[str, str]] = {
    f"count/{kind.resource}": kind.plural
    for kind in (keys.RESOURCE_SLICE, keys.NAMESPACE_MAP, keys.RENEW)
}
_OF_TWINS: Final[Mapping[str, str]] = {
    f"count/{kind.resource}": kind.plural for kind in (keys.SHADOW_ENDPOINT_SLICE, keys.SHADOW_POD)
}


def quota(namespace: str, counted: Mapping[str, str], most: Mapping[str, int]) -> Object:
    """Return the ResourceQuota of a namespace; ``most`` is by plural, as in ProviderPolicies."""
    hard = {name: str(most[plural]) for name, plural in counted.items()}
    metadata = {"labels": dict(ownership.MANAGED)}
    return objects.named(KIND, Key(namespace, NAME), metadata=metadata, spec={"hard": hard})


def is_ours(found: Object) -> bool:
    return objects.labels(found).get(keys.LIQO_MANAGED) == "true"


def is_counting(found: Object | None) -> bool:
    """Whether the status of that in pyliqo's own namespace has a number for each kind."""
    used = (objects.status(found) if found else {}).get("used") or {}
    return {*_OF_TENANTS, *_OF_TWINS} <= used.keys()


class ObjectQuotaReconciler(Controller):
    """The ResourceQuota of one namespace, by the name of that.

    With its Tenant it goes (``authentication/tenant``), with a twin the garbage collector takes it.
    """

    name = "objectquotas"

    def __init__(self, manager: Manager, tick: Callable[[], float] = time.monotonic) -> None:
        super().__init__(manager)
        self._tick = tick
        self._are_counted = False
        """A kind that is counted stays so for as long as its CRD is there."""
        self._asked_s = -math.inf

    def watches(self) -> Sequence[WatchSource[Any]]:
        by_policy = watches.but_booked(self.all_of(watches.PEER_NAMESPACES))
        return (
            self.watch(watches.PEER_NAMESPACES, of_peers),
            self.watch(watches.TENANTS, watches.but_booked(_around)),
            self.watch(watches.PROVIDER_POLICIES, by_policy),
            self.watch(watches.ROLE_BINDINGS, self._by_binding),
        )

    def _by_binding(self, change: Change[Object]) -> Iterable[Key]:
        is_new = change.old is None and change.key.name == self.manager.account.name
        return _around(change) if is_new else []

    async def reconcile(self, key: Key) -> float | None:
        namespace = await self.cached.get(keys.NAMESPACE, key)
        if namespace is None or objects.is_terminating(namespace):
            return None
        peer, consumer = ownership.peer_of(namespace), ownership.consumer_of(namespace)
        if peer and await self._is_tenants(key.name):
            consumer = peer
        right = Key(key.name, self.manager.account.name)  # which comes first
        if not consumer or right not in await self.all(watches.ROLE_BINDINGS):
            return None
        if not await self._is_counting():
            return UNCOUNTED_S
        try:
            policies = (await self.all(watches.PROVIDER_POLICIES)).values()
            policy = providerpolicy.policy_of(policies, consumer)
        except ValueError:
            return None  # who grants says so; what held before holds
        counted = _OF_TENANTS if peer else _OF_TWINS
        wanted = quota(key.name, counted, policy.max_objects)
        await writes.ensure(self.cached, KIND, wanted, is_ours=is_ours)
        return None

    async def _is_tenants(self, namespace: str) -> bool:
        """Whether the peer is a consumer here, rather than only a provider."""
        found = (await self.all(watches.TENANTS)).items()
        here = [one for key, one in found if key.namespace == namespace]
        return any(not objects.is_terminating(one) for one in here)

    async def _is_counting(self) -> bool:
        is_due = self._tick() - self._asked_s >= UNCOUNTED_S
        if not self._are_counted and is_due:
            self._asked_s = self._tick()
            found = await self.cached.get_live(KIND, Key(self.manager.namespace, NAME))
            self._are_counted = is_counting(found)
        return self._are_counted


def _around(change: Change[Object]) -> Iterable[Key]:
    return [Key("", change.key.namespace)]


def of_peers(change: Change[Object]) -> Iterable[Key]:
    """Return a namespace that is new, or another peer's now; what else changes counts nothing."""
    before, now = (
        (ownership.peer_of(each), ownership.consumer_of(each)) for each in (change.old, change.new)
    )
    return [change.key] if before != now else []
