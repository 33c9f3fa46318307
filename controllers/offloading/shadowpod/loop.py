"""Which changes concern which ShadowPod; where Quotas are enforced, their loop runs beside it."""

from collections.abc import Iterable
from typing import Any, Final

from apis import keys
from apis.objects import Key, Object
from controllers import fabric, selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.quota import bookings
from controllers.offloading.quota import loop as quota
from controllers.offloading.quota.accounts import Accounts
from controllers.offloading.shadowpod import forge, slim
from controllers.offloading.shadowpod.permission import Permission
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.runner import Runner, Source

SHADOW_PODS: Final = Selection(keys.SHADOW_POD, SlimShadow)
PODS: Final = Selection(keys.POD, SlimPod, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}")


def controller(manager: Manager) -> Term:
    """Return the term of this controller, and of that for Quotas."""
    shadow_pods, pods = manager.informer(SHADOW_PODS), manager.informer(PODS)
    sources: list[Source[Any]] = [Source(shadow_pods), Source(pods)]
    policies = manager.informer(selections.PROVIDER_POLICIES)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    sources.append(Source(policies, by_policy(shadow_pods)))
    permission = Permission(policies.items, namespaces.items)
    ends = slim.Ends(pods)
    reached = fabric.reached(manager)
    consumer = views.consumers(manager.informer(selections.PEER_NAMESPACES))
    ledger: Accounts | None = None
    if manager.limits.is_enforced:
        ledger = quota.accounts_of(manager, shadow_pods, pods)
        sources.append(Source(manager.informer(selections.QUOTAS), _by_quota(ledger)))

    def runner() -> Runner:
        reconciler = ShadowPodReconciler(
            manager.cached,
            events=manager.events,
            clock=manager.clock,
            find=slim.seen(shadow_pods, pods),
            ledger=ledger,
            permission=permission,
            ends=ends,
            reached=lambda twin: reached(consumer(twin)),
        )
        return Runner(
            "shadowpod",
            reconciler,
            sources,
            workers=manager.limits.shadow_pod_workers,
            wait_for=[namespaces],
            line=lambda key: consumer(key.namespace),
        )

    if ledger is None:
        return lambda: [runner()]
    quotas = quota.controller(manager, ledger, shadow_pods, pods)

    def both() -> list[Any]:
        made = runner()
        keeper = quotas(made.enqueue)
        ledger.wake = keeper.enqueue
        return [made, keeper]

    return both


def by_policy(shadow_pods: Informer[SlimShadow]) -> Keys:
    """Return that another policy concerns what the one before did not allow."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old == new:
            return []  # its status is another loop's
        found = shadow_pods.items().items()
        return [key for key, one in found if forge.is_not_allowed(one.status.conditions)]

    return keys_of


def _by_quota(ledger: Accounts) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = (bookings.booked(obj) if obj else {} for obj in (change.old, change.new))
        news = bookings.news(before, after)
        users = {bookings.granted_to(obj) for obj in (change.old, change.new) if obj}
        if change.old and change.new and len(users) == 1:
            return news
        return [*news, *(key for user in users for key in ledger.waiting(user))]

    return keys_of
