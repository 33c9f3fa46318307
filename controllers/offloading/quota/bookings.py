"""What the Quotas have booked, from a cache, and what the loop that keeps them has just written."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from apis import objects, quotas, resources
from apis.objects import Key, Object
from apis.resources import Resources
from controllers.offloading.quota.forge import Reservation
from kube.informer import Change, Informer


class Bookings:
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
        """Return the Quota as the cache has it."""
        return next((held[key] for held in self._granted.values() if key in held), None)

    def has(self, user: str, uid: str) -> bool:
        """Whether the Quota of ``user`` has booked that ShadowPod, by name or ahead."""
        quota = self.quota_of(user)
        if quota is None or uid in self._withdrawn.get(quota, ()):
            return False
        return uid in self._booked.get(quota, ()) or uid in self._drawn

    def covers(self, user: str, uid: str, usage: Resources) -> bool:
        """Whether so much is booked for that ShadowPod."""
        quota = self.quota_of(user)
        if quota is None or uid in self._withdrawn.get(quota, ()):
            return False
        if (entry := self._booked.get(quota, {}).get(uid)) is not None:
            return not resources.more(usage, resources.parse(entry.get("requests")))
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
    """Return the label of the user whom ``quota`` limits."""
    return quotas.label(str(objects.spec(quota).get("user") or ""))


def booked(quota: Object) -> dict[str, Object]:
    """Return what ``quota`` has booked, by the UID of the ShadowPod."""
    return {one["uid"]: one for one in objects.status(quota).get("bookings") or []}


def news(before: Mapping[str, Object], after: Mapping[str, Object]) -> list[Key]:
    """Return the ShadowPods for which another amount is booked than before, or any at all."""
    return [
        Key(one["namespace"], one["name"]) for uid, one in after.items() if before.get(uid) != one
    ]
