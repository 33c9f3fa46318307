"""Which changes concern which Quota."""

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

from apis.objects import Key
from controllers import concerns, selections
from controllers.manager import Manager
from controllers.offloading.quota import taking
from controllers.offloading.quota.accounts import Accounts
from controllers.offloading.quota.reconciler import QuotaReconciler
from controllers.offloading.quota.taking import Additions
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.informer import Change, Informer
from kube.runner import Runner, Source


def accounts_of(
    manager: Manager, shadow_pods: Informer[SlimShadow], pods: Informer[SlimPod]
) -> Accounts:
    """Return the accounts of all users, which follow the caches from now on."""
    additions = Additions(
        manager.informer(selections.LIMIT_RANGES), manager.informer(selections.RUNTIME_CLASSES)
    )
    return Accounts(manager.informer(selections.QUOTAS), shadow_pods, pods, additions)


def controller(
    manager: Manager,
    ledger: Accounts,
    shadow_pods: Informer[SlimShadow],
    pods: Informer[SlimPod],
) -> Callable[[Callable[[Key], None]], Runner]:
    """Return what makes the loop again, given whom to tell of a ShadowPod that has to wait."""
    quotas = manager.informer(selections.QUOTAS)
    added = (
        manager.informer(selections.LIMIT_RANGES),
        manager.informer(selections.RUNTIME_CLASSES),
    )

    def of_user(change: Change[Any]) -> Iterable[Key]:
        if not taking.is_news(change.old, change.new):
            return []
        users = {taking.creator(obj) for obj in (change.old, change.new) if obj}
        return [key for user in users if (key := ledger.bookings.quota_of(user))]

    sources: list[Source[Any]] = [
        Source(quotas),
        Source(shadow_pods, of_user),
        Source(pods, of_user),
        *(Source(informer, concerns.all_of(quotas)) for informer in added),
    ]

    def runner(tell: Callable[[Key], None]) -> Runner:
        term = secrets.token_hex(8)
        reconciler = QuotaReconciler(
            manager.live, ledger, term=term, tell=tell, tick=time.monotonic
        )
        return Runner("quota", reconciler, sources)

    return runner
