"""Keeps the ledger in the status of one Quota, by compare-and-swap.

Source: docs/parity.md § 4.10; SEC-A12; F-1.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from apis import keys, objects, quotas
from apis.objects import Key, Object
from apis.quotas import QuotaGrant, QuotaRefusal
from apis.resources import Resources
from controllers import watches
from controllers.manager import Manager
from controllers.offloading.quota import forge, ledger
from controllers.offloading.quota.forge import Account, Plan, Reservation, Reserve
from controllers.offloading.quota.ledger import Accounts, AdmissionDefaults, granted_to
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.cluster import Cluster, Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.errors import ConflictError
from kube.informer import Change, Informer
from kube.slim import ReadYourWrites

SETTLE_S: Final = 1.0
"""What only tells that booked Pods are there is written together with what else comes."""
HELD_S: Final = 15.0
"""A lease lasts as long: who kept the ledger before creates nothing any more out of its reserve."""
BEHIND_S: Final = 0.1
SHARE: Final = 8
"""Each event asks for a look, which takes longer the more there is: then as many times as long
nothing is looked at."""

logger = logging.getLogger(__name__)


class QuotaReconciler:
    """Plans by what the caches hold, writes what differs, lets those who got room know at once.

    The Quota is the cached one, or what was written of it since: a write that starts from an older
    one is refused, and then it is read live.

    ``term`` names this leadership: another who kept the ledger before knew Pods that our caches
    may lack, so nothing is booked before these have shown all that exists. The reserve of the one
    who kept it counts as taken for a while after that.
    """

    def __init__(
        self,
        cluster: Cluster,
        accounts: Accounts,
        *,
        term: str,
        tell: Callable[[Key], None],
        tick: Callable[[], float],
    ) -> None:
        self._cluster, self._accounts = cluster, accounts
        self._bookings = accounts.bookings
        self.idle = ExpiredReservations(cluster, accounts, tick)
        """Tells of bookings that nobody will use any more."""
        self._term, self._tell, self._tick = term, tell, tick
        self._taken_over: set[Key] = set()
        self._refused: set[Key] = set()
        self._written = ReadYourWrites()
        self._unknown: dict[Key, Mapping[Key, str]] = {}
        self._unsettled: dict[Key, float] = {}
        self._free_at: dict[Key, float] = {}
        self._since: dict[Key, float] = {}
        self._left: dict[Key, Resources] = {}
        self._drawn: dict[Key, dict[str, Reservation]] = {}
        self._bookings.draw({})

    async def reconcile(self, key: Key) -> float | None:
        if (left_s := self._free_at.get(key, 0.0) - self._tick()) > 0:
            return left_s
        quota = await self._newest(key)
        if quota is None or self._bookings.quota_of(granted_to(quota)) != key:
            self._forget(key)
            return None  # none, or not the one that counts for its user
        try:
            grant, held, reserve = (
                QuotaGrant.parse(quota),
                forge.bookings(quota),
                Reserve.parse(quota),
            )
        except ValueError as error:
            raise TerminalError(quotas.UNREADABLE, str(error)) from error
        held, others = self._and_drawn(key, held), self._of_others(key, reserve)
        gone, again_s = await self.idle.gone(grant, held)
        gone |= self._accounts.all_put_off()
        account = self._accounts.of(grant.user)
        began = self._tick()
        plan = forge.plan(grant, held, account, gone, others.requests)
        self._answer(grant, plan.refused)
        booked = {one["uid"] for one in plan.status["bookings"]}
        self._bookings.withdraw(key, gone - booked)
        self._draw(quota, grant, plan, gone)
        self._free_at[key] = self._tick() + SHARE * (self._tick() - began)
        ahead = others if others.requests else Reserve(self._term, plan.ahead)
        kept_s = await self._keep(quota, grant, plan, ahead)
        return again_s if kept_s is None else kept_s

    async def _newest(self, key: Key) -> Object | None:
        """Return the Quota from which the next write may start."""
        if key in self._taken_over and key not in self._refused:
            known = self._written.newest(key, self._bookings.quota(key))
            if known is not None:
                return known
        self._refused.discard(key)
        return await self._cluster.get_live(keys.QUOTA, key)

    def _forget(self, key: Key) -> None:
        self._taken_over.discard(key)
        self._refused.discard(key)
        self._written.forget(key)
        self.idle.forget(key)
        kept: tuple[dict[Key, Any], ...] = (
            *(self._unknown, self._unsettled, self._free_at, self._since),
            *(self._left, self._drawn),
        )
        for one in kept:
            one.pop(key, None)

    async def _keep(
        self, quota: Object, grant: QuotaGrant, plan: Plan, ahead: Reserve
    ) -> float | None:
        """Write what is planned, unless it can wait; return when to look again.

        A reserve is written with what else is: alone it is worth no write.
        """
        before: Object = objects.status(quota)
        ours = {"keeper": self._term, "reserve": ahead.to_json()}
        wanted: Object = {**plan.status, **ours}
        if {**before, **ours} == wanted:
            self._unsettled.pop(grant.key, None)
            is_kept_waiting = bool(plan.refused) and ahead.keeper != self._term
            return await self._outlast(quota, grant) if is_kept_waiting else None
        if not forge.is_urgent(before, wanted, self._drawn.get(grant.key, {}).keys()):
            since = self._unsettled.setdefault(grant.key, self._tick())
            if (left_s := since + SETTLE_S - self._tick()) > 0:
                return left_s
        if before.get("keeper") != self._term or grant.key not in self._taken_over:
            return await self._take_over(quota, grant)
        await self._write(quota, wanted)
        self._unsettled.pop(grant.key, None)
        self._left[grant.key] = ahead.requests if ahead.keeper == self._term else {}
        self._drawn.pop(grant.key, None)
        self._bookings.draw(self._all_drawn())
        return None

    # The reserve -------------------------------------------------------------------------------

    def _and_drawn(self, key: Key, held: Sequence[Reservation]) -> list[Reservation]:
        """Return what is booked by name, and what was drawn and is to be named yet."""
        by_name = {one.uid for one in held}
        drawn = self._drawn.get(key, {}).items()
        return [*held, *(one for uid, one in drawn if uid not in by_name)]

    def _of_others(self, key: Key, reserve: Reserve) -> Reserve:
        """Return the reserve of a predecessor, as long as Pods may be created out of it."""
        since = self._since.get(key)
        is_over = since is not None and self._tick() - since >= HELD_S
        return Reserve() if is_over or reserve.keeper == self._term else reserve

    def _draw(self, quota: Object, grant: QuotaGrant, plan: Plan, gone: AbstractSet[str]) -> None:
        """Let Pods be created out of our reserve, before the write that books them by name.

        What is drawn was free at this look, too: a Pod that grew meanwhile comes first.
        """
        mine = {uid: one for uid, one in self._drawn.get(grant.key, {}).items() if uid not in gone}
        found: list[Reservation] = []
        if objects.status(quota).get("keeper") == self._term:
            left = self._left.get(grant.key, {})
            found, self._left[grant.key] = forge.drawn(grant, plan.made, left)
        self._drawn[grant.key] = mine | {one.uid: one for one in found}
        self._bookings.draw(self._all_drawn())
        for one in found:
            self._tell(one.key)

    def _all_drawn(self) -> dict[str, Reservation]:
        return {uid: one for drawn in self._drawn.values() for uid, one in drawn.items()}

    async def _outlast(self, quota: Object, grant: QuotaGrant) -> float:
        """Take over, so that a predecessor's reserve comes to its end; return when it does."""
        if grant.key not in self._taken_over:
            return await self._take_over(quota, grant)
        return max(BEHIND_S, self._since[grant.key] + HELD_S - self._tick())

    # Taking over -------------------------------------------------------------------------------

    async def _take_over(self, quota: Object, grant: QuotaGrant) -> float:
        """Make the ledger ours, and wait until we know what was known to whom kept it before.

        Who kept it creates nothing any more, so one list has all Pods; those that the caches lack
        are looked at again one by one, since under churn there is always one that is gone.
        """
        self._taken_over.discard(grant.key)
        if objects.status(quota).get("keeper") != self._term:
            self._unknown.pop(grant.key, None)
            await self._write(quota, {**objects.status(quota), "keeper": self._term})
            self._since[grant.key] = self._tick()
        self._since.setdefault(grant.key, self._tick())
        if grant.key not in self._unknown:
            found = await self._pods_of(grant.user)
        else:
            found = await self._still_there(self._unknown[grant.key])
        unknown = {key: uid for key, uid in found.items() if not self._accounts.has_pod(key, uid)}
        if unknown:
            self._unknown[grant.key] = unknown
            return BEHIND_S
        self._unknown.pop(grant.key, None)
        self._taken_over.add(grant.key)
        return 0.0

    async def _pods_of(self, user: str) -> Mapping[Key, str]:
        chosen = f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD},{keys.CREATOR_USER}={user}"
        listed = (await self._cluster.list(Selection(keys.POD, SlimPod, labels=chosen))).items
        return {key: pod.metadata.uid for key, pod in listed.items()}

    async def _still_there(self, pods: Mapping[Key, str]) -> Mapping[Key, str]:
        left = {}
        for key, uid in pods.items():
            if not self._accounts.has_pod(key, uid):
                pod = await self._cluster.get_live(keys.POD, key)
                if pod is not None and objects.uid(pod) == uid:
                    left[key] = uid
        return left

    async def _write(self, quota: Object, wanted: Object) -> None:
        changes = objects.merge_patch(objects.status(quota), wanted)
        version = {"resourceVersion": quota["metadata"]["resourceVersion"]}
        key = objects.key_of(quota)
        try:
            made = await self._cluster.patch_status(keys.QUOTA, key, changes, metadata=version)
        except ConflictError:
            self._refused.add(key)
            raise
        self._written.add(quota, made)
        for booked in self._bookings.take(key, made):
            self._tell(booked)

    def _answer(self, grant: QuotaGrant, refused: Mapping[str, QuotaRefusal]) -> None:
        """Report to those that wait why, once for each reason."""
        known, claims = self._accounts.refused, self._accounts.of(grant.user).by_uid
        for uid in (known.keys() & claims.keys()) - refused.keys():
            del known[uid]
        for uid, found in refused.items():
            before, known[uid] = known.get(uid), found
            if before is None or before.without_amounts != found.without_amounts:
                self._tell(claims[uid].key)


# Which changes concern which Quota ---------------------------------------------------------------


def accounts_of(
    manager: Manager, shadow_pods: Informer[SlimShadow], pods: Informer[SlimPod]
) -> Accounts:
    """Return the accounts of all users, which follow the caches from now on."""
    additions = AdmissionDefaults(
        manager.informer(watches.LIMIT_RANGES), manager.informer(watches.RUNTIME_CLASSES)
    )
    return Accounts(manager.informer(watches.QUOTAS), shadow_pods, pods, additions)


def controller(
    manager: Manager,
    accounts: Accounts,
    shadow_pods: Informer[SlimShadow],
    pods: Informer[SlimPod],
) -> Callable[[Callable[[Key], None]], Runner]:
    """Return what makes the loop again, given whom to tell of a ShadowPod that has to wait."""
    quotas = manager.informer(watches.QUOTAS)
    added = (
        manager.informer(watches.LIMIT_RANGES),
        manager.informer(watches.RUNTIME_CLASSES),
    )

    def of_user(change: Change[Any]) -> Iterable[Key]:
        if not ledger.is_news(change.old, change.new):
            return []
        users = {ledger.creator(obj) for obj in (change.old, change.new) if obj}
        return [key for user in users if (key := accounts.bookings.quota_of(user))]

    sources: list[WatchSource[Any]] = [
        WatchSource(quotas),
        WatchSource(shadow_pods, of_user),
        WatchSource(pods, of_user),
        *(WatchSource(informer, lambda _: list(quotas.items())) for informer in added),
    ]

    def runner(tell: Callable[[Key], None]) -> Runner:
        term = secrets.token_hex(8)
        reconciler = QuotaReconciler(
            manager.live, accounts, term=term, tell=tell, tick=time.monotonic
        )
        return Runner("quota", reconciler, sources)

    return runner


# Reservations that nobody will use any more: their ShadowPod, or its growth, is gone --------------
# Source: docs/parity.md § 4.10; decision 0009.

ORPHAN_S: Final = 2.0
"""A create of a process that was killed is over by then: its ShadowPod's booking may go."""


class ExpiredReservations:
    """Remembers since when, by Quota, and which Pods of theirs were seen."""

    def __init__(self, cluster: Cluster, accounts: Accounts, tick: Callable[[], float]) -> None:
        self._cluster, self._accounts, self._tick = cluster, accounts, tick
        self._since: dict[Key, dict[str, float]] = {}
        self._seen: dict[Key, set[str]] = {}
        self._had: dict[Key, dict[str, Reservation]] = {}

    def forget(self, key: Key) -> None:
        for one in (self._since, self._seen, self._had):
            one.pop(key, None)

    async def gone(
        self, grant: QuotaGrant, held: Sequence[Reservation]
    ) -> tuple[AbstractSet[str], float | None]:
        """Return the bookings that nobody will use any more, and when to look again.

        A Pod that was seen, and is gone, is not on its way any more. A Pod that is to grow no
        more may just do so.
        """
        account = self._accounts.of(grant.user)
        orphans, idle = forge.orphans(held, account), forge.idle(held, account)
        before = self._seen.get(grant.key, set())
        seen = {one.uid for one in held if one.uid in before or one.uid in account.owners}
        self._seen[grant.key] = seen
        now, begun = self._tick(), self._since.pop(grant.key, {})
        since = {one.uid: begun.get(one.uid, now) for one in (*orphans, *idle)}
        if since:
            self._since[grant.key] = since
        gone = {
            one.uid
            for one in orphans
            if one.uid in seen or (now - since[one.uid] >= ORPHAN_S and await self._is_gone(one))
        }
        had = self._fulfilled(grant.key, held, account)
        gone |= {
            one.uid
            for one in idle
            if had.get(one.uid) == one
            or (now - since[one.uid] >= ORPHAN_S and not self._accounts.is_creating(one.uid))
        }
        return gone, ORPHAN_S / 4 if len(gone) < len(since) else None

    def _fulfilled(
        self, key: Key, held: Sequence[Reservation], account: Account
    ) -> Mapping[str, Reservation]:
        """Return the bookings whose Pod was seen to take what is booked, by UID."""
        had = self._had.get(key, {})
        self._had[key] = {
            one.uid: one
            for one in held
            if had.get(one.uid) == one or forge.is_fulfilled(one, account)
        }
        return self._had[key]

    async def _is_gone(self, booking: Reservation) -> bool:
        """Whether no Pod can come of it: asked of the server, since a cache may be behind."""
        if self._accounts.is_creating(booking.uid):
            return False
        shadow = await self._cluster.get_live(keys.SHADOW_POD, booking.key)
        if shadow is not None and objects.uid(shadow) == booking.uid and not _has_ended(shadow):
            return False
        pod = await self._cluster.get_live(keys.POD, booking.key)
        owner = objects.controller_of(pod) if pod else None
        return owner is None or owner["uid"] != booking.uid


def _has_ended(shadow: Object) -> bool:
    return objects.is_terminating(shadow) or objects.is_finished(shadow)
