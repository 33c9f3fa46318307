"""What users have asked for, what runs for them and what is reserved in Quotas, from caches."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from apis import keys, objects, quotas, resources
from apis.objects import Key, Object
from apis.quotas import Demand, QuotaRefusal
from apis.resources import Resources
from controllers.offloading.quota.forge import (
    Account,
    Reservation,
    Running,
    ShadowPodDemand,
    completed,
)
from controllers.offloading.shadowpod import forge
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.informer import Change, Informer


class AdmissionDefaults:
    """Knows the LimitRanges of each namespace and the RuntimeClasses, from caches."""

    def __init__(self, ranges: Informer[Object], classes: Informer[Object]) -> None:
        self._informers = (ranges, classes)
        self._classes = classes
        self._ranges: dict[str, dict[Key, Object]] = {}
        ranges.subscribe(self._on_range)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever pods may take something else than before."""
        for informer in self._informers:
            informer.subscribe(lambda _: changed())

    def demand(self, namespace: str, spec: Object) -> Demand:
        """Return what the Pod of a ShadowPod in ``namespace`` will take.

        Raises:
            ValueError: as ``Demand.of``.
        """
        runtime_class = self._classes.get(Key("", str(spec.get("runtimeClassName"))))
        return completed(spec, self._ranges.get(namespace, {}).values(), runtime_class)

    def _on_range(self, change: Change[Object]) -> None:
        found = self._ranges.setdefault(change.key.namespace, {})
        if change.new is not None:
            found[change.key] = change.new
        else:
            found.pop(change.key, None)
        if not found:
            del self._ranges[change.key.namespace]


def creator(obj: SlimShadow | SlimPod) -> str:
    """Return the user that ``obj`` is accounted to, "" for none."""
    return (obj.metadata.labels or {}).get(keys.CREATOR_USER, "")


def is_claim(shadow: SlimShadow) -> bool:
    return (
        not shadow.metadata.deletion_timestamp and shadow.status.phase not in objects.FINAL_PHASES
    )


def is_news(old: SlimShadow | SlimPod | None, new: SlimShadow | SlimPod | None) -> bool:
    """Whether what somebody takes, or asks for, may be another than before.

    The same once more is news too: a resync asks for a look at everything.
    """
    if old is None or new is None or old is new:
        return True
    return _what_counts(old) != _what_counts(new)


def _what_counts(obj: SlimShadow | SlimPod) -> tuple[object, ...]:
    is_over = obj.status.phase in objects.FINAL_PHASES
    is_leaving = isinstance(obj, SlimShadow) and obj.metadata.deletion_timestamp is not None
    return is_over, is_leaving, creator(obj), bytes(obj.spec)


def owner_of(pod: SlimPod) -> str:
    owners = pod.metadata.owner_references or []
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def growth_of(shadow: SlimShadow, pod: SlimPod) -> Demand | None:
    """Return what the Pod is to take if that is more; only a specification that changed asks so."""
    if shadow.metadata.generation <= 1:
        return None
    with contextlib.suppress(ValueError):  # who brings the Pod to it says so
        return forge.grown({"spec": {"pod": shadow.needs()}}, {"spec": pod.needs()})
    return None


def running_pod(pod: SlimPod) -> Running:
    """Return what ``pod`` takes, and for which ShadowPod."""
    try:
        usage = Demand.of(pod.needs()).usage
    except ValueError:  # an amount that the API server let in and we cannot read
        usage = {quotas.PODS: resources.parse_quantity(1)}
    return Running(owner_of(pod), usage, pod.status.phase in objects.FINAL_PHASES)


# What the Quotas have reserved, and what the loop that keeps them has just written ----------------


class Reservations:
    """Follows the Quotas; users are those of their labels, ShadowPods go by their UID."""

    def __init__(self, quotas_: Informer[Object]) -> None:
        self._granted: dict[str, dict[Key, Object]] = {}
        self._booked: dict[Key, Mapping[str, Object]] = {}
        self._withdrawn: dict[Key, AbstractSet[str]] = {}
        self._drawn: Mapping[str, Reservation] = {}
        quotas_.subscribe(self._on_quota)

    def quota_of(self, user: str) -> Key | None:
        """Return the Quota of ``user``, the oldest should there be several."""
        found = self._granted.get(user)
        return min(found, key=lambda key: quotas.age(found[key])) if found else None

    def quota(self, key: Key) -> Object | None:
        return next((held[key] for held in self._granted.values() if key in held), None)

    def has(self, user: str, uid: str) -> bool:
        """Whether the Quota of ``user`` has booked that ShadowPod, by name or ahead."""
        quota = self.quota_of(user)
        if quota is None or uid in self._withdrawn.get(quota, ()):
            return False
        return uid in self._booked.get(quota, ()) or uid in self._drawn

    def covers(self, user: str, uid: str, usage: Resources) -> bool:
        quota = self.quota_of(user)
        if quota is None or uid in self._withdrawn.get(quota, ()):
            return False
        if (entry := self._booked.get(quota, {}).get(uid)) is not None:
            return not resources.more(usage, resources.parse_resources(entry.get("requests")))
        return uid in self._drawn and not resources.more(usage, self._drawn[uid].requests)

    # For the loop that keeps Quotas --------------------------------------------------------------

    def take(self, key: Key, quota: Object) -> list[Key]:
        """Believe what was just written; return the ShadowPods that are booked since."""
        before, self._booked[key] = self._booked.get(key, {}), booked(quota)
        return news(before, self._booked[key])

    def withdraw(self, key: Key, uids: AbstractSet[str]) -> None:
        """Let nobody rest on those bookings of the Quota any more: they are about to go."""
        self._withdrawn[key] = uids

    def draw(self, drawn: Mapping[str, Reservation]) -> None:
        """Let those ShadowPods, by UID, have their Pods out of the reserve, and no others."""
        self._drawn = drawn

    def _on_quota(self, change: Change[Object]) -> None:
        self._booked.pop(change.key, None)
        if change.new is None:
            self._withdrawn.pop(change.key, None)
        if change.old is not None:
            user = granted_to(change.old)
            self._granted.get(user, {}).pop(change.key, None)
            if not self._granted.get(user):
                self._granted.pop(user, None)
        if change.new is not None:
            self._granted.setdefault(granted_to(change.new), {})[change.key] = change.new
            self._booked[change.key] = booked(change.new)


def granted_to(quota: Object) -> str:
    return quotas.label(str(objects.spec(quota).get("user") or ""))


def booked(quota: Object) -> dict[str, Object]:
    return {one["uid"]: one for one in objects.status(quota).get("bookings") or []}


def news(before: Mapping[str, Object], after: Mapping[str, Object]) -> list[Key]:
    """Return the ShadowPods for which another amount is booked than before, or any at all."""
    return [
        Key(one["namespace"], one["name"]) for uid, one in after.items() if before.get(uid) != one
    ]


# What users have asked for and what runs for them; who waits is told why --------------------------


class Accounts:
    """Follows caches; who is told to wait, and what is being created, is kept beside them.

    Nothing in here decides on its own: a Pod is created for what the Quota's status has booked.
    """

    def __init__(
        self,
        quotas_: Informer[Object],
        shadows: Informer[SlimShadow],
        pods: Informer[SlimPod],
        additions: AdmissionDefaults,
    ) -> None:
        self.bookings = Reservations(quotas_)
        self.refused: dict[str, QuotaRefusal] = {}
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
        return [one.key for one in self.of(user).waiting.values()]

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
        return self.bookings.covers(user_of(shadow), objects.uid(shadow), usage)

    def put_off(self, shadow: Object) -> None:
        """Give the booking of ``shadow`` back, since no Pod can be created for it now."""
        self._put_off.add(objects.uid(shadow))
        self._wake(shadow)

    def ask(self, shadow: Object) -> None:
        """Let ``shadow`` be planned again after that."""
        if objects.uid(shadow) in self._put_off:
            self._put_off.discard(objects.uid(shadow))
            self._wake(shadow)

    def all_put_off(self) -> AbstractSet[str]:
        return self._put_off

    def _wake(self, shadow: Object) -> None:
        if (quota := self.bookings.quota_of(user_of(shadow))) is not None:
            self.wake(quota)

    def refusal(self, shadow: Object) -> QuotaRefusal | None:
        """Return why ``shadow`` has to wait; None while no plan refused it."""
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
            self._account(change.old).leave(change.key)
        if change.new is not None and is_claim(change.new):
            self._account(change.new).ask(self._claim(change.key, change.new))
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
        running = running_pod(change.new)
        account = self._account(change.new)
        account.put(change.key, running)
        self._admit(account, change.key, change.new)

    def _on_addition(self) -> None:
        for account in self._accounts.values():
            for key in list(account.claims):
                if (shadow := self._shadows.get(key)) is not None:
                    account.ask(self._claim(key, shadow))

    def _admit(self, account: Account, key: Key, pod: SlimPod) -> None:
        claim = account.claims.get(key)
        if claim is None or claim.uid != owner_of(pod):
            return
        self._admitted.add(claim.uid)
        shadow = self._shadows.get(key)
        growth = growth_of(shadow, pod) if shadow is not None else None
        if not claim.was_admitted or growth != claim.growth:
            account.ask(dataclasses.replace(claim, was_admitted=True, growth=growth))

    def _claim(self, key: Key, shadow: SlimShadow) -> ShadowPodDemand:
        uid, created = shadow.metadata.uid, shadow.metadata.creation_timestamp or ""
        pod = self._pods.get(key)
        pod = pod if pod is not None and owner_of(pod) == uid else None
        if pod is not None:
            self._admitted.add(uid)
        was_admitted = shadow.status.phase == "Running" or uid in self._admitted
        try:
            demand = self._additions.demand(key.namespace, shadow.needs())
        except ValueError as error:
            return ShadowPodDemand(key, uid, created, None, str(error), was_admitted)
        is_as_created = shadow.metadata.generation <= 1
        growth = growth_of(shadow, pod) if pod else None if is_as_created else demand
        return ShadowPodDemand(key, uid, created, demand, "", was_admitted, growth)

    def _forget(self, obj: SlimShadow | SlimPod) -> None:
        """Keep no account of a user who has nothing any more."""
        account = self.of(creator(obj))
        if not account.claims and not account.pods:
            self._accounts.pop(creator(obj), None)

    def _account(self, obj: SlimShadow | SlimPod) -> Account:
        return self._accounts.setdefault(creator(obj), Account())


def user_of(shadow: Mapping[str, Any]) -> str:
    return objects.labels(shadow).get(keys.CREATOR_USER, "")
