"""What users have asked for and what runs for them, from caches; who waits is told why."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from apis import keys, objects, quotas
from apis.objects import Key, Object
from apis.quotas import Refusal
from apis.resources import Resources
from controllers.offloading.quota import taking
from controllers.offloading.quota.bookings import Bookings
from controllers.offloading.quota.forge import Account, ShadowPodDemand
from controllers.offloading.quota.taking import Additions
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.informer import Change, Informer


class Accounts:
    """Follows caches; who is told to wait, and what is being created, is kept beside them.

    Nothing in here decides on its own: a Pod is created for what the Quota's status has booked.
    """

    def __init__(
        self,
        quotas_: Informer[Object],
        shadows: Informer[SlimShadow],
        pods: Informer[SlimPod],
        additions: Additions,
    ) -> None:
        self.bookings = Bookings(quotas_)
        self.refused: dict[str, Refusal] = {}
        self._shadows, self._pods = shadows, pods
        self._additions = additions
        self._accounts: dict[str, Account] = {}
        self._admitted: set[str] = set()
        self._put_off: set[str] = set()
        self.wake: Callable[[Key], None] = lambda _: None
        """Asks for a look at a Quota."""
        self._creating: set[str] = set()
        shadows.subscribe(self._on_shadow)
        pods.subscribe(self._on_pod)
        additions.subscribe(self._on_addition)

    def of(self, user: str) -> Account:
        """Return all of ``user``; read only."""
        return self._accounts.get(user) or Account()

    def waiting(self, user: str) -> list[Key]:
        """Return the ShadowPods of ``user`` that have no Pod."""
        account = self.of(user)
        owners = account.owners()
        return [one.key for one in account.claims.values() if one.uid not in owners]

    def has_pod(self, key: Key, uid: str) -> bool:
        """Whether the Pod ``key`` of that UID, or a later one, is in the cache."""
        found = self._pods.get(key)
        return found is not None and found.metadata.uid == uid

    # For those who create ----------------------------------------------------------------------

    def is_booked(self, shadow: Object) -> bool:
        """Whether the user's Quota has booked the Pod of ``shadow``, by name or ahead."""
        user, uid = user_of(shadow), objects.uid(shadow)
        if uid in self._put_off or not self.bookings.has(user, uid):
            return False
        claim = self.of(user).claims.get(objects.key_of(shadow))
        growth = claim.growth if claim else None
        return growth is None or self.covers(shadow, growth.usage)

    def covers(self, shadow: Object, usage: Resources) -> bool:
        """Whether so much is booked for the Pod of ``shadow``."""
        return self.bookings.covers(user_of(shadow), objects.uid(shadow), usage)

    def put_off(self, shadow: Object) -> None:
        """Give the booking of ``shadow`` back, since no Pod can be created for it now."""
        self._put_off.add(objects.uid(shadow))
        self._wake(shadow)

    def ask(self, shadow: Object) -> None:
        """Let ``shadow`` be judged again after that."""
        if objects.uid(shadow) in self._put_off:
            self._put_off.discard(objects.uid(shadow))
            self._wake(shadow)

    def all_put_off(self) -> AbstractSet[str]:
        """Return the UIDs of those for whom nothing is to be booked."""
        return self._put_off

    def _wake(self, shadow: Object) -> None:
        if (quota := self.bookings.quota_of(user_of(shadow))) is not None:
            self.wake(quota)

    def refusal(self, shadow: Object) -> Refusal | None:
        """Return why ``shadow`` has to wait; None while nobody has judged it."""
        user = user_of(shadow)
        if self.bookings.quota_of(user) is None:
            return quotas.missing(user)
        return self.refused.get(objects.uid(shadow))

    @contextlib.contextmanager
    def creating(self, uid: str) -> Iterator[None]:
        """Keep the booking of that ShadowPod, whatever becomes of it meanwhile."""
        self._creating.add(uid)
        try:
            yield
        finally:
            self._creating.discard(uid)

    def is_creating(self, uid: str) -> bool:
        """Whether a Pod of that ShadowPod may be on its way to the server."""
        return uid in self._creating

    # Following ---------------------------------------------------------------------------------

    def _on_shadow(self, change: Change[SlimShadow]) -> None:
        if change.old is not None:
            self._account(change.old).claims.pop(change.key, None)
        if change.new is not None and taking.is_claim(change.new):
            self._account(change.new).claims[change.key] = self._claim(change.key, change.new)
        elif change.new is None and change.old is not None:
            self._admitted.discard(change.old.metadata.uid)
            self.refused.pop(change.old.metadata.uid, None)
            self._put_off.discard(change.old.metadata.uid)
            self._forget(change.old)

    def _on_pod(self, change: Change[SlimPod]) -> None:
        if change.old is not None:
            self._account(change.old).drop(change.key)
        if change.new is None:
            if change.old is not None:
                self._forget(change.old)
            return
        running = taking.running(change.new)
        account = self._account(change.new)
        account.put(change.key, running)
        self._admit(account, change.key, change.new)

    def _on_addition(self) -> None:
        for account in self._accounts.values():
            for key in account.claims:
                if (shadow := self._shadows.get(key)) is not None:
                    account.claims[key] = self._claim(key, shadow)

    def _admit(self, account: Account, key: Key, pod: SlimPod) -> None:
        claim = account.claims.get(key)
        if claim is None or claim.uid != taking.owner_of(pod):
            return
        self._admitted.add(claim.uid)
        shadow = self._shadows.get(key)
        growth = taking.growth(shadow, pod) if shadow is not None else None
        if not claim.was_admitted or growth != claim.growth:
            account.claims[key] = dataclasses.replace(claim, was_admitted=True, growth=growth)

    def _claim(self, key: Key, shadow: SlimShadow) -> ShadowPodDemand:
        uid, created = shadow.metadata.uid, shadow.metadata.creation_timestamp or ""
        pod = self._pods.get(key)
        pod = pod if pod is not None and taking.owner_of(pod) == uid else None
        if pod is not None:
            self._admitted.add(uid)
        was_admitted = shadow.status.phase == "Running" or uid in self._admitted
        try:
            demand = self._additions.demand(key.namespace, shadow.needs())
        except ValueError as error:
            return ShadowPodDemand(key, uid, created, None, str(error), was_admitted)
        is_as_created = shadow.metadata.generation <= 1
        growth = taking.growth(shadow, pod) if pod else None if is_as_created else demand
        return ShadowPodDemand(key, uid, created, demand, "", was_admitted, growth)

    def _forget(self, obj: SlimShadow | SlimPod) -> None:
        """Keep no account of a user who has nothing any more."""
        account = self.of(taking.creator(obj))
        if not account.claims and not account.pods:
            self._accounts.pop(taking.creator(obj), None)

    def _account(self, obj: SlimShadow | SlimPod) -> Account:
        return self._accounts.setdefault(taking.creator(obj), Account())


def user_of(shadow: Mapping[str, Any]) -> str:
    """Return the user that ``shadow`` is accounted to, "" for none."""
    return objects.labels(shadow).get(keys.CREATOR_USER, "")
