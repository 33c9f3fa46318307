"""Keeps a ResourceQuota in each tenant namespace and twin: how many objects a consumer may have.

The API server counts at each creation, so requests at the same time pass no bound. It refuses every
creation of a kind that kube-controller-manager does not count yet, as for up to five minutes after
its CRD is new. So a ResourceQuota in pyliqo's own namespace, which limits nobody, shows when it
counts them all. Source: docs/parity.md X5; Kubernetes, "Resource Quotas", "Object count quota".
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, ownership, providerpolicy
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.manager import Manager, Setup
from controllers.watches import Lister, cached
from kube.cluster import Cluster
from kube.controller import Runner, WatchSource
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
    labels = {keys.APP_MANAGED_BY: "liqo", keys.LIQO_MANAGED: "true"}
    return objects.named(
        KIND, Key(namespace, NAME), metadata={"labels": labels}, spec={"hard": hard}
    )


def is_ours(found: Object) -> bool:
    return objects.labels(found).get(keys.LIQO_MANAGED) == "true"


def is_counting(found: Object | None) -> bool:
    """Whether the status of that in pyliqo's own namespace has a number for each kind."""
    used = (objects.status(found) if found else {}).get("used") or {}
    return {*_OF_TENANTS, *_OF_TWINS} <= used.keys()


@dataclass
class ObjectQuotaReconciler:
    """The ResourceQuota of one namespace, by the name of that; ``account`` is of this process.

    With its Tenant it goes (``authentication/tenant``), with a twin the garbage collector takes it.
    """

    cluster: Cluster
    account: Key
    tenants: Lister
    policies: Lister
    bindings: Lister
    """What gives this process its rights there comes first."""
    clock: Callable[[], float] = time.monotonic
    _are_counted: bool = False
    """A kind that is counted stays so for as long as its CRD is there."""
    _asked_s: float = -math.inf

    async def reconcile(self, key: Key) -> float | None:
        namespace = await self.cluster.get(keys.NAMESPACE, key)
        if namespace is None or objects.is_terminating(namespace):
            return None
        peer, consumer = ownership.peer_of(namespace), ownership.consumer_of(namespace)
        if peer and await self._is_tenants(key.name):
            consumer = peer
        if not consumer or Key(key.name, self.account.name) not in await self.bindings():
            return None
        if not await self._is_counting():
            return UNCOUNTED_S
        try:
            policy = providerpolicy.policy_of((await self.policies()).values(), consumer)
        except ValueError:
            return None  # who grants says so; what held before holds
        counted = _OF_TENANTS if peer else _OF_TWINS
        wanted = quota(key.name, counted, policy.max_objects)
        await writes.ensure(self.cluster, KIND, wanted, is_ours=is_ours)
        return None

    async def _is_tenants(self, namespace: str) -> bool:
        """Whether the peer is a consumer here, rather than only a provider."""
        found = (await self.tenants()).items()
        here = [one for key, one in found if key.namespace == namespace]
        return any(not objects.is_terminating(one) for one in here)

    async def _is_counting(self) -> bool:
        is_due = self.clock() - self._asked_s >= UNCOUNTED_S
        if not self._are_counted and is_due:
            self._asked_s = self.clock()
            found = await self.cluster.get_live(KIND, Key(self.account.namespace, NAME))
            self._are_counted = is_counting(found)
        return self._are_counted


def controller(manager: Manager) -> Setup:
    namespaces = manager.informer(watches.PEER_NAMESPACES)
    tenants = manager.informer(watches.TENANTS)
    granted = manager.informer(watches.PROVIDER_POLICIES)
    bindings = manager.informer(watches.ROLE_BINDINGS)
    account = Key(manager.namespace, keys.CONTROLLER_MANAGER)

    def by_binding(change: Change[Object]) -> Iterable[Key]:
        is_new = change.old is None and change.key.name == account.name
        return [Key("", change.key.namespace)] if is_new else []

    def runner() -> Runner:
        listers = (cached(tenants), cached(granted), cached(bindings))
        reconciler = ObjectQuotaReconciler(manager.cached, account, *listers)
        sources = [
            WatchSource(namespaces, of_peers),
            WatchSource(
                tenants, watches.but_booked(lambda change: [Key("", change.key.namespace)])
            ),
            WatchSource(granted, watches.but_booked(watches.all_of(namespaces))),
            WatchSource(bindings, by_binding),
        ]
        return Runner("objectquotas", reconciler, sources)

    return lambda: [runner()]


def of_peers(change: Change[Object]) -> Iterable[Key]:
    """Return a namespace that is new, or another peer's now; what else changes counts nothing."""
    before, now = (
        (ownership.peer_of(each), ownership.consumer_of(each)) for each in (change.old, change.new)
    )
    return [change.key] if before != now else []
