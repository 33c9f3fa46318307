"""Which changes concern which ShadowPod; where Quotas are enforced, their loop runs beside it."""

from collections.abc import Iterable
from typing import Any, Final

from apis import keys
from apis.objects import Key, Object
from controllers import fabric, selections
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.quota import bookings
from controllers.quota import loop as quota
from controllers.quota.accounts import Accounts
from controllers.shadowpod import slim
from controllers.shadowpod.reconciler import ShadowPodReconciler
from controllers.shadowpod.slim import SlimPod, SlimShadow
from kube.cluster import Selection
from kube.informer import Change
from kube.runner import Runner, Source

SHADOW_PODS: Final = Selection(keys.SHADOW_POD, SlimShadow)
PODS: Final = Selection(keys.POD, SlimPod, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}")


def controller(manager: Manager) -> Term:
    """Return the term of this controller, and of that for Quotas."""
    shadow_pods, pods = manager.informer(SHADOW_PODS), manager.informer(PODS)
    sources: list[Source[Any]] = [Source(shadow_pods), Source(pods)]
    ends = slim.Ends(pods)
    reached = fabric.reached(manager)
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
            ends=ends,
            reached=reached,
        )
        workers = manager.limits.shadow_pod_workers
        return Runner("shadowpod", reconciler, sources, workers=workers)

    if ledger is None:
        return lambda: [runner()]
    quotas = quota.controller(manager, ledger, shadow_pods, pods)

    def both() -> list[Any]:
        made = runner()
        keeper = quotas(made.enqueue)
        ledger.wake = keeper.enqueue
        return [made, keeper]

    return both


def _by_quota(ledger: Accounts) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = (bookings.booked(obj) if obj else {} for obj in (change.old, change.new))
        news = bookings.news(before, after)
        users = {bookings.granted_to(obj) for obj in (change.old, change.new) if obj}
        if change.old and change.new and len(users) == 1:
            return news
        return [*news, *(key for user in users for key in ledger.waiting(user))]

    return keys_of
