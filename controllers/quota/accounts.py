"""What users have asked for, what runs for them, and what their Quotas have booked, from caches."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from apis import keys, objects, quantity, quotas
from apis.objects import Key, Object
from apis.quotas import Demand, Refusal
from controllers.quota.additions import completed
from controllers.quota.forge import Account, Claim, Running
from controllers.shadowpod.slim import SlimPod, SlimShadow
from kube.informer import Change, Informer

FINISHED: Final = frozenset({"Succeeded", "Failed"})


class Additions:
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
        self.refused: dict[str, Refusal] = {}
        self._shadows, self._pods = shadows, pods
        self._additions = additions
        self._accounts: dict[str, Account] = {}
        self._admitted: set[str] = set()
        self._granted: dict[str, dict[Key, Object]] = {}
        self._booked: dict[Key, frozenset[str]] = {}
        self._creating: set[str] = set()
        self._drawn: set[str] = set()
        quotas_.subscribe(self._on_quota)
        shadows.subscribe(self._on_shadow)
        pods.subscribe(self._on_pod)
        additions.subscribe(self._on_addition)

    def of(self, user: str) -> Account:
        """Return all of ``user``; read only."""
        return self._accounts.get(user) or Account()

    def quota_of(self, user: str) -> Key | None:
        """Return the Quota of ``user``, the oldest should there be several."""
        found = self._granted.get(user)
        return min(found, key=lambda key: quotas.age(found[key])) if found else None

    def quota(self, key: Key) -> Object | None:
        """Return the Quota as the cache has it."""
        return next((held[key] for held in self._granted.values() if key in held), None)

    def take(self, key: Key, quota: Object) -> list[Key]:
        """Believe what was just written; return the ShadowPods that are booked since."""
        after = booked(quota)
        before = self._booked.get(key, frozenset())
        self._booked[key] = frozenset(after)
        return [where for uid, where in after.items() if uid not in before]

    def draw(self, uids: Iterable[str]) -> None:
        """Let those ShadowPods have their Pods out of the reserve; without any, none has."""
        self._drawn = set(uids)

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
        quota, uid = self.quota_of(user_of(shadow)), objects.uid(shadow)
        return quota is not None and (uid in self._booked.get(quota, ()) or uid in self._drawn)

    def refusal(self, shadow: Object) -> Refusal | None:
        """Return why ``shadow`` has to wait; None while nobody has judged it."""
        user = user_of(shadow)
        if self.quota_of(user) is None:
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

    def _on_quota(self, change: Change[Object]) -> None:
        self._booked.pop(change.key, None)
        if change.old is not None:
            user = granted_to(change.old)
            self._granted.get(user, {}).pop(change.key, None)
            if not self._granted.get(user):
                self._granted.pop(user, None)
        if change.new is not None:
            self._granted.setdefault(granted_to(change.new), {})[change.key] = change.new
            self._booked[change.key] = frozenset(booked(change.new))

    def _on_shadow(self, change: Change[SlimShadow]) -> None:
        if change.old is not None:
            self._account(change.old).claims.pop(change.key, None)
        if change.new is not None and is_claim(change.new):
            self._account(change.new).claims[change.key] = self._claim(change.key, change.new)
        elif change.new is None and change.old is not None:
            self._admitted.discard(change.old.metadata.uid)
            self.refused.pop(change.old.metadata.uid, None)
            self._forget(change.old)

    def _on_pod(self, change: Change[SlimPod]) -> None:
        if change.old is not None:
            self._account(change.old).drop(change.key)
        if change.new is None:
            if change.old is not None:
                self._forget(change.old)
            return
        running = _running(change.new)
        account = self._account(change.new)
        account.put(change.key, running)
        self._admit(account, change.key, running.owner)

    def _on_addition(self) -> None:
        for account in self._accounts.values():
            for key in account.claims:
                if (shadow := self._shadows.get(key)) is not None:
                    account.claims[key] = self._claim(key, shadow)

    def _admit(self, account: Account, key: Key, uid: str) -> None:
        claim = account.claims.get(key)
        if claim is None or claim.uid != uid:
            return
        self._admitted.add(uid)
        if not claim.was_admitted:
            account.claims[key] = dataclasses.replace(claim, was_admitted=True)

    def _claim(self, key: Key, shadow: SlimShadow) -> Claim:
        uid, created = shadow.metadata.uid, shadow.metadata.creationTimestamp or ""
        pod = self._pods.get(key)
        if pod is not None and owner_of(pod) == uid:
            self._admitted.add(uid)
        was_admitted = shadow.status.phase == "Running" or uid in self._admitted
        try:
            demand = self._additions.demand(key.namespace, shadow.needs())
        except ValueError as error:
            return Claim(key, uid, created, None, str(error), was_admitted)
        return Claim(key, uid, created, demand, "", was_admitted)

    def _forget(self, obj: SlimShadow | SlimPod) -> None:
        """Keep no account of a user who has nothing any more."""
        account = self.of(creator(obj))
        if not account.claims and not account.pods:
            self._accounts.pop(creator(obj), None)

    def _account(self, obj: SlimShadow | SlimPod) -> Account:
        return self._accounts.setdefault(creator(obj), Account())


def creator(obj: SlimShadow | SlimPod) -> str:
    """Return the user that ``obj`` is accounted to, "" for none."""
    return (obj.metadata.labels or {}).get(keys.CREATOR_USER, "")


def user_of(shadow: Mapping[str, Any]) -> str:
    """Return the user that ``shadow`` is accounted to, "" for none."""
    return objects.labels(shadow).get(keys.CREATOR_USER, "")


def granted_to(quota: Object) -> str:
    """Return the label of the user whom ``quota`` limits."""
    return quotas.label(str((quota.get("spec") or {}).get("user") or ""))


def booked(quota: Object) -> dict[str, Key]:
    """Return the ShadowPods that ``quota`` has booked a Pod for, by UID."""
    found = (quota.get("status") or {}).get("bookings") or []
    return {one["uid"]: Key(one["namespace"], one["name"]) for one in found}


def is_claim(shadow: SlimShadow) -> bool:
    """Whether it may still want a Pod."""
    return not shadow.metadata.deletionTimestamp and shadow.status.phase not in FINISHED


def is_news(old: SlimShadow | SlimPod | None, new: SlimShadow | SlimPod | None) -> bool:
    """Whether what somebody takes, or asks for, may be another than before.

    The same once more is news too: a resync asks for a look at everything.
    """
    if old is None or new is None or old is new:
        return True
    return _what_counts(old) != _what_counts(new)


def _what_counts(obj: SlimShadow | SlimPod) -> tuple[object, ...]:
    is_over = obj.status.phase in FINISHED
    is_leaving = isinstance(obj, SlimShadow) and obj.metadata.deletionTimestamp is not None
    return is_over, is_leaving, creator(obj), bytes(obj.spec)


def owner_of(pod: SlimPod) -> str:
    """Return the UID of the ShadowPod that controls ``pod``."""
    owners = pod.metadata.ownerReferences or []
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def _running(pod: SlimPod) -> Running:
    try:
        usage = Demand.of(pod.needs()).usage
    except ValueError:  # nobody else's API server has judged what ours let in
        usage = {quotas.PODS: quantity.parse(1)}
    return Running(owner_of(pod), usage, pod.status.phase in FINISHED)
