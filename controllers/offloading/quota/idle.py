"""Bookings that nobody will use any more: their ShadowPod, or the growth they are for, is gone.

Source: docs/parity.md § 4.10; decision 0009.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from apis.quotas import Grant
from controllers.offloading.quota import forge
from controllers.offloading.quota.forge import Account, Reservation
from controllers.offloading.quota.ledger import Accounts
from kube.cluster import Cluster

ORPHAN_S: Final = 2.0
"""A create of a process that was killed is over by then: its ShadowPod's booking may go."""


class Idle:
    """Remembers since when, by Quota, and which Pods of theirs were seen."""

    def __init__(self, cluster: Cluster, accounts: Accounts, tick: Callable[[], float]) -> None:
        self._cluster, self._accounts, self._tick = cluster, accounts, tick
        self._since: dict[Key, dict[str, float]] = {}
        self._seen: dict[Key, set[str]] = {}
        self._had: dict[Key, dict[str, Reservation]] = {}

    def forget(self, key: Key) -> None:
        """Forget a Quota."""
        for one in (self._since, self._seen, self._had):
            one.pop(key, None)

    async def gone(
        self, grant: Grant, held: Sequence[Reservation]
    ) -> tuple[AbstractSet[str], float | None]:
        """Return the bookings that nobody will use any more, and when to look again.

        A Pod that was seen, and is gone, is not on its way any more. A Pod that is to grow no
        more may just do so.
        """
        account = self._accounts.of(grant.user)
        orphans, idle = forge.orphans(held, account), forge.idle(held, account)
        seen = self._seen.get(grant.key, set()) | account.owners()
        self._seen[grant.key] = seen = seen & {one.uid for one in held}
        now, before = self._tick(), self._since.pop(grant.key, {})
        since = {one.uid: before.get(one.uid, now) for one in (*orphans, *idle)}
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
