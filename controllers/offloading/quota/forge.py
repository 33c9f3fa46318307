"""Who may have a Pod now, and the status of the Quota that books it. Pure.

What is booked is written into the Quota before a Pod is created, and stays there by name until the
Pod is seen. So what runs and what is booked together are never less than what exists, no matter
who is killed when. Source: docs/parity.md § 4.10; SEC-A12.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from apis import objects, quotas, resources
from apis.objects import Key, Object
from apis.quotas import Demand, QuotaGrant, QuotaRefusal
from apis.resources import Quantity, Resources

MOST: Final = 500
"""Bookings without a Pod in one Quota: they are written again each time, and bound an object."""
NOTHING: Final[Resources] = MappingProxyType({})


@dataclass(frozen=True)
class Reservation:
    """Room for the Pod of one ShadowPod: for a new one, or for one that is to take so much."""

    key: Key
    uid: str
    requests: Resources

    @classmethod
    def parse(cls, entry: Object) -> "Reservation":
        """Return the booking; ValueError where it is not one of ours."""
        key = Key(str(entry.get("namespace") or ""), str(entry.get("name") or ""))
        return cls(
            key, str(entry.get("uid") or ""), resources.parse_resources(entry.get("requests"))
        )

    def to_json(self) -> Object:
        requests = resources.to_json(self.requests)
        return {**self.key._asdict(), "uid": self.uid, "requests": requests}


@dataclass(frozen=True)
class Reserve:
    """Room that is booked ahead: out of it ``keeper`` creates Pods with no write before."""

    keeper: str = ""
    requests: Resources = field(default_factory=dict)

    @classmethod
    def parse(cls, quota: Object) -> "Reserve":
        """Return that of ``quota``; ValueError where it is not one of ours."""
        entry = objects.status(quota).get("reserve") or {}
        return cls(str(entry.get("keeper") or ""), resources.parse_resources(entry.get("requests")))

    def to_json(self) -> Object:
        return {"keeper": self.keeper, "requests": resources.to_json(self.requests)}


@dataclass(frozen=True)
class ShadowPodDemand:
    """A ShadowPod whose work is not over; ``demand`` is None where it cannot be read."""

    key: Key
    uid: str
    created: str
    demand: Demand | None
    problem: str = ""
    was_admitted: bool = False
    growth: Demand | None = None
    """What its Pod is to take since its specification changed, if that is more than it takes."""

    @property
    def order(self) -> tuple[bool, str, Key]:
        """Return what sorts claims: who ran before comes first, then the oldest."""
        return not self.was_admitted, self.created, self.key

    @functools.cached_property
    def shape(self) -> object:
        """Return what claims share that get the same verdict: one of them is compared."""
        demand = self.demand
        usage = frozenset(demand.usage.items()) if demand else self.problem
        return self.was_admitted, usage, demand and (demand.soft, demand.hard)


@dataclass(frozen=True)
class Running:
    """A Pod that exists, and the UID of its ShadowPod; one that has ended takes nothing."""

    owner: str
    usage: Resources
    is_over: bool = False


@dataclass
class Account:
    """All of one user, by key: ShadowPods whose work is not over, and Pods that exist."""

    claims: dict[Key, ShadowPodDemand] = field(default_factory=dict)
    """Read only, as all of these: changed by ``ask`` and ``leave``."""
    by_uid: dict[str, ShadowPodDemand] = field(default_factory=dict)
    waiting: dict[str, ShadowPodDemand] = field(default_factory=dict)
    """Those without a Pod, by UID."""
    growing: dict[str, ShadowPodDemand] = field(default_factory=dict)
    pods: dict[Key, Running] = field(default_factory=dict)
    """Changed by ``put`` and ``drop``."""
    owners: Counter[str] = field(default_factory=Counter)
    """How many Pods each ShadowPod has, by its UID; none that has none."""
    used: Resources = field(default_factory=dict)
    """What those Pods take together that have not ended."""
    taken: dict[str, Resources] = field(default_factory=dict)
    """What each of them takes, by the UID of its ShadowPod."""

    def ask(self, claim: ShadowPodDemand) -> None:
        self.leave(claim.key)
        self.claims[claim.key] = self.by_uid[claim.uid] = claim
        if claim.uid not in self.owners:
            self.waiting[claim.uid] = claim
        if claim.growth is not None:
            self.growing[claim.uid] = claim

    def leave(self, key: Key) -> None:
        if (gone := self.claims.pop(key, None)) is not None:
            for each in (self.by_uid, self.waiting, self.growing):
                each.pop(gone.uid, None)

    def put(self, key: Key, pod: Running) -> None:
        self.drop(key)
        self.pods[key] = pod
        self.owners[pod.owner] += 1
        self.waiting.pop(pod.owner, None)
        if not pod.is_over:
            self.used = resources.total([self.used, pod.usage])
            self.taken[pod.owner] = pod.usage

    def drop(self, key: Key) -> None:
        gone = self.pods.pop(key, None)
        if gone is None:
            return
        self.owners[gone.owner] -= 1
        if not self.owners[gone.owner]:
            del self.owners[gone.owner]
            if (claim := self.by_uid.get(gone.owner)) is not None:
                self.waiting[claim.uid] = claim
        if not gone.is_over:
            left = resources.less(self.used, gone.usage)
            self.used = {name: amount for name, amount in left.items() if amount}
            self.taken.pop(gone.owner, None)


class Plan(NamedTuple):
    """The Quota's next status, and who is told that he has to wait, by UID."""

    status: Object
    made: Sequence[Reservation]
    """What of its bookings is new, and for a Pod that does not exist."""
    refused: Mapping[str, QuotaRefusal]
    ahead: Resources
    """What may be booked ahead, if nobody else has a reserve."""


def bookings(quota: Object) -> list[Reservation]:
    """Return what is booked for Pods that were not seen yet."""
    return [Reservation.parse(one) for one in objects.status(quota).get("bookings") or []]


def orphans(held: Iterable[Reservation], account: Account) -> list[Reservation]:
    """Return the bookings without a Pod whose ShadowPod is gone, goes, or has finished."""
    known = (account.by_uid, account.owners)
    return [one for one in held if not any(one.uid in each for each in known)]


def idle(held: Iterable[Reservation], account: Account) -> list[Reservation]:
    """Return the bookings for more than their Pod takes, and than it is to take."""
    found = [one for one in held if _is_of_more(one, account.taken)]
    return [one for one in found if _growth(account.growing.get(one.uid)) != one.requests]


def is_fulfilled(booking: Reservation, account: Account) -> bool:
    has = account.taken.get(booking.uid)
    return has is not None and not resources.more(booking.requests, has)


def plan(
    grant: QuotaGrant,
    held: Sequence[Reservation],
    account: Account,
    gone: AbstractSet[str],
    others: Resources = NOTHING,
) -> Plan:
    """Return what is booked next: what is there, who grows, then who waits, by turns, if they fit.

    ``gone`` are the UIDs of those who will not use what is booked for them; ``others`` is what
    somebody else may be about to use.
    """
    owners, taken = account.owners, account.taken
    kept = {
        one.uid: one
        for one in held
        if one.uid not in gone and (one.uid not in owners or _is_of_more(one, taken))
    }
    limit = resources.less(grant.total, others)
    free = resources.less(limit, _used(account, kept))
    grown, refused = _grown(grant, account, kept, free)
    kept |= {one.uid: one for one in grown}
    used = _used(account, kept)
    free = resources.less(limit, used)
    has_place = kept.keys() | gone
    waiting = [one for uid, one in account.waiting.items() if uid not in has_place]
    made, told = _served(grant, waiting, free, MOST - len(kept))
    booked = resources.total([used, *(one.requests for one in made)])
    return Plan(
        {
            "used": _shown(grant, account.used),
            "booked": _shown(grant, booked),
            "bookings": [one.to_json() for one in (*kept.values(), *made)],
        },
        made,
        {**told, **refused},
        _half(resources.less(grant.total, booked)),
    )


def _is_of_more(booking: Reservation, taken: Mapping[str, Resources]) -> bool:
    """Whether there is a Pod that takes less than is booked for it."""
    has = taken.get(booking.uid)
    return has is not None and bool(resources.more(booking.requests, has))


def _growth(claim: ShadowPodDemand | None) -> Resources:
    return claim.growth.usage if claim and claim.growth else NOTHING


def _used(account: Account, kept: Mapping[str, Reservation]) -> Resources:
    taken = account.taken
    rests = (resources.more(one.requests, taken.get(uid, NOTHING)) for uid, one in kept.items())
    return resources.total([account.used, *rests])


def _grown(
    grant: QuotaGrant, account: Account, kept: Mapping[str, Reservation], free: Resources
) -> tuple[list[Reservation], dict[str, QuotaRefusal]]:
    """Return the bookings that grow, the oldest ShadowPod first, and why others do not."""
    found: list[Reservation] = []
    refused: dict[str, QuotaRefusal] = {}
    taken = account.taken
    for claim in sorted(account.growing.values(), key=lambda one: one.order):
        if claim.growth is None or not (claim.uid in taken or claim.uid in kept):
            continue
        held = kept[claim.uid].requests if claim.uid in kept else NOTHING
        has, wanted = resources.most(taken.get(claim.uid, NOTHING), held), claim.growth.usage
        if not (more := resources.more(wanted, has)):
            continue
        if refusal := quotas.growth_refusal(grant, claim.growth, has, free):
            refused[claim.uid] = refusal
        elif claim.uid in kept or len(kept) + len(found) < MOST:
            found.append(Reservation(claim.key, claim.uid, wanted))
            free = resources.less(free, more)
    return found, refused


def drawn(
    grant: QuotaGrant, made: Iterable[Reservation], left: Resources
) -> tuple[list[Reservation], Resources]:
    """Return which of the bookings fit what is ``left`` of the reserve, and what is left then."""
    found = []
    for one in made:
        if resources.fits(quotas.counted(grant, one.requests), left):
            found.append(one)
            left = resources.less(left, one.requests)
    return found, left


def _half(amounts: Resources) -> Resources:
    """Return half of what is free: the other half is there for a successor at once."""
    return {
        name: Quantity(amount.nanos // 2, amount.form)
        for name, amount in amounts.items()
        if amount > Quantity()
    }


def _served(
    grant: QuotaGrant, waiting: Iterable[ShadowPodDemand], free: Resources, most: int
) -> tuple[list[Reservation], dict[str, QuotaRefusal]]:
    """Return the bookings of those who fit, by turns, and why the others do not."""
    made: list[Reservation] = []
    refused: dict[str, QuotaRefusal] = {}
    same: dict[object, QuotaRefusal] = {}
    for claim in sorted(waiting, key=lambda one: one.order):
        found = same.get(claim.shape) or _judged(grant, claim, free)
        if found is not None:
            refused[claim.uid] = same[claim.shape] = found  # less is free from now on, never more
        elif claim.demand is not None and len(made) < most:
            made.append(Reservation(claim.key, claim.uid, claim.demand.usage))
            free = resources.less(free, claim.demand.usage)
    return made, refused


def _judged(grant: QuotaGrant, claim: ShadowPodDemand, free: Resources) -> QuotaRefusal | None:
    if claim.demand is None:
        return QuotaRefusal(quotas.UNREADABLE, f"{claim.problem}: delete it, and create it again")
    if claim.was_admitted:
        grant = QuotaGrant(
            grant.key, grant.user, grant.total
        )  # it was welcome then, and only moves
    return quotas.refusal(grant, claim.demand, free)


def _shown(grant: QuotaGrant, amounts: Resources) -> dict[str, str]:
    """Return ``amounts`` as a ResourceList that names at least what the quota limits."""
    named = {name: amounts.get(name, Quantity()) for name in (*grant.total, *amounts)}
    return resources.to_json(dict(sorted(named.items())))


def is_urgent(before: Object, after: Object, drawn: AbstractSet[str] = frozenset()) -> bool:
    """Whether somebody waits for the write; not for what was ``drawn`` from the reserve, by UID.

    That booked Pods are there is told with what else comes, and that Pods are gone: a thousand that
    go are as many changes, of which one write a second tells.
    """
    old, new = ({one["uid"]: one for one in side.get("bookings") or []} for side in (before, after))
    if any(old.get(uid) != one for uid, one in new.items() if uid not in drawn):
        return True
    is_another = before.get("booked") != after["booked"] and not drawn
    return is_another and (not old.keys() <= new.keys() or _is_more_booked(before, after))


def _is_more_booked(before: Object, after: Object) -> bool:
    """Whether more of anything is booked than was said, or nothing readable was said."""
    try:
        said = resources.parse_resources(before["booked"])
    except (KeyError, ValueError):
        return True
    return bool(resources.more(resources.parse_resources(after["booked"]), said))


# What admission here adds to what a pod asks for: it counts before the Pod exists -----------------
# Source: Kubernetes, "Limit Ranges" and "Pod Overhead"; docs/parity.md § 4.10.


def completed(spec: Object, ranges: Iterable[Object], runtime_class: Object | None) -> Demand:
    """Return what a Pod of ``spec`` will take; enforcement checks what ``spec`` says itself.

    A container that neither requests nor limits a resource gets what a LimitRange says; of
    several any one may be first, so the most counts.

    Shape: ``ranges`` are LimitRanges as stored, where ``defaultRequest`` is filled in.

    Raises:
        ValueError: as ``Demand.of``.
    """
    said = Demand.of(spec)
    default, overhead = _defaults(ranges), _overhead(runtime_class)
    if not default and not overhead:
        return said
    filled = {
        **spec,
        **{
            field: [_filled(one, default) for one in spec.get(field) or []]
            for field in ("containers", "initContainers")
        },
        "overhead": resources.to_json(overhead),
    }
    return replace(said, usage=Demand.of(filled).usage)


def _filled(container: Object, default: Resources) -> Object:
    declared = container.get("resources") or {}
    said = {**(declared.get("limits") or {}), **(declared.get("requests") or {})}
    requests = {**resources.to_json(default), **said}
    return {**container, "resources": {**declared, "requests": requests}}


def _defaults(ranges: Iterable[Object]) -> Resources:
    found: dict[str, Any] = {}
    for one in ranges:
        for limit in objects.spec(one).get("limits") or []:
            if limit.get("type") == "Container":
                for name, amount in _readable(limit.get("defaultRequest")).items():
                    found[name] = max(found.get(name, amount), amount)
    return found


def _overhead(runtime_class: Object | None) -> Resources:
    return _readable(((runtime_class or {}).get("overhead") or {}).get("podFixed"))


def _readable(amounts: Object | None) -> Resources:
    """Return the amounts; nothing of what cannot be read, since no pod's owner could mend that."""
    with contextlib.suppress(ValueError):
        return resources.parse_resources(amounts)
    return {}
