"""How much each slice gets, and how far it may grow before the others have given back. Pure.

Two bounds hold at once: what class ``shared`` gives away, and the limits of each policy. What a
slice may hold at this moment (its entry in the ledger, its status, its Quota) counts until it has
been seen to be less; so the sums hold at every revision, no matter who is killed when.
Source: docs/parity.md § 4.5, 4.17; SEC-A15.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from apis import resources, sharing
from apis.objects import Key
from apis.providerpolicy import ProviderPolicy
from apis.resources import Quantity, Resources
from apis.sharing import Pool


@dataclass(frozen=True)
class SliceDemand:
    """A slice that takes part: what it asks for, and what it may hold at this moment."""

    key: Key
    tenant: str
    policy: ProviderPolicy
    wanted: Resources
    held: Resources = field(default_factory=dict)
    created: str = ""
    is_shared: bool = False
    """Of class ``shared``: what it does not name it wants all of."""
    is_frozen: bool = False
    """Its tenant is cordoned: it gets no more than it has."""
    is_leaving: bool = False
    """It gets nothing any more, and counts until it is gone."""

    @property
    def is_bounded(self) -> bool:
        return self.is_shared or bool(self.policy.limits)

    @property
    def age(self) -> tuple[str, Key]:
        """Return what sorts claims, the oldest first."""
        return self.created, self.key


@dataclass(frozen=True)
class Bound:
    """Some claims that may hold no more than so much together."""

    members: frozenset[Key]
    amounts: Resources
    """What is not named is not bounded."""


@dataclass(frozen=True)
class Share:
    """What a slice is to have in the end, what it may have now, and why it is not what it asked."""

    target: Resources
    now: Resources
    notes: tuple[str, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.now == self.target


def divide(claims: Iterable[SliceDemand], available: Resources) -> dict[Key, Share]:
    """Return the share of each claim; ``available`` is what is free for class ``shared``."""
    everyone = sorted(claims, key=lambda one: one.age)
    ordered = [one for one in everyone if not one.is_leaving]
    shared = [one for one in everyone if one.is_shared]
    offers, pooled, notes = _shared(shared, available)
    asked = {one.key: _frozen(one, offers.get(one.key, one.wanted)) for one in ordered}
    limits = _limits(everyone)
    targets, limited = _limited(everyone, asked, limits)
    now = _grown(everyone, targets, [*pooled, *limits])
    return {
        one.key: Share(
            targets[one.key],
            now[one.key],
            (*notes.get(one.key, ()), *limited.get(one.key, ())),
        )
        for one in ordered
    }


# Class shared -------------------------------------------------------------------------------------


def _shared(
    claims: Sequence[SliceDemand], available: Resources
) -> tuple[dict[Key, Resources], list[Bound], dict[Key, list[str]]]:
    """Return what each gets, what they may hold together, and what was rounded."""
    takers = [one for one in claims if not one.is_leaving]
    pools = {one.tenant: sharing.pool(available, one.policy.sharing) for one in takers}
    whole = {
        name: max(pool.amounts[name] for pool in pools.values()) for name in available if pools
    }
    members, everyone = _by_tenant(takers), _by_tenant(claims)
    bounds = [Bound(frozenset(one.key for one in claims), whole)]
    bounds += [
        Bound(frozenset(one.key for one in everyone[tenant]), pools[tenant].amounts)
        for tenant in members
    ]
    left = {tenant: _left(pools[tenant].amounts, everyone[tenant]) for tenant in members}
    offers: dict[Key, dict[str, Quantity]] = {one.key: {} for one in takers}
    for name, total in _left(whole, claims).items():
        for key, amount in _offered(name, total, members, left).items():
            offers[key][name] = amount
    notes = {one.key: _notes(one, pools[one.tenant], offers[one.key]) for one in takers}
    return dict(offers), bounds, notes


def _left(amounts: Resources, claims: Iterable[SliceDemand]) -> dict[str, Quantity]:
    """Return what those who leave do not hold of ``amounts``."""
    gone = resources.total(one.held for one in claims if one.is_leaving)
    rest = resources.less(amounts, gone)
    return {name: max(amount, Quantity()) for name, amount in rest.items()}


def _offered(
    name: str,
    total: Quantity,
    members: Mapping[str, Sequence[SliceDemand]],
    left: Mapping[str, Resources],
) -> dict[Key, Quantity]:
    """Divide one resource among tenants, and each part among its slices."""
    wants = [_together(name, members[tenant], left[tenant][name]) for tenant in members]
    parts = sharing.shares(name, total, wants)
    offered: dict[Key, Quantity] = {}
    for part, of_tenant in zip(parts, members.values(), strict=True):
        amounts = sharing.shares(name, part, [one.wanted.get(name) for one in of_tenant])
        offered |= {one.key: amount for one, amount in zip(of_tenant, amounts, strict=True)}
    return offered


def _together(name: str, claims: Sequence[SliceDemand], most: Quantity) -> Quantity:
    wants = [one.wanted.get(name) for one in claims]
    known = [want for want in wants if want is not None]
    return most if len(known) < len(wants) else min(most, sum(known, Quantity()))


def _by_tenant(claims: Sequence[SliceDemand]) -> dict[str, list[SliceDemand]]:
    members: dict[str, list[SliceDemand]] = {}
    for one in claims:
        members.setdefault(one.tenant, []).append(one)
    return members


def _notes(claim: SliceDemand, pool: Pool, offer: Resources) -> list[str]:
    rounded = [pool.notes[name] for name in sorted(pool.notes) if name in offer]
    short = [
        f"{name}: asked for {amount}, {_or_none(offer, name)} of it is free to share"
        for name, amount in sorted(claim.wanted.items())
        if offer.get(name, Quantity()) < amount
    ]
    without = [
        f"{name}: {pool.amounts[name]} to share, none left for this slice"
        for name, amount in sorted(offer.items())
        if not amount and pool.amounts[name] and name not in claim.wanted
    ]
    return [*rounded, *short, *without]


def _or_none(amounts: Resources, name: str) -> str:
    amount = amounts.get(name)
    return str(amount) if amount else "none"


# Limits of policies -------------------------------------------------------------------------------


def _limits(claims: Sequence[SliceDemand]) -> list[Bound]:
    by_name = sorted(claims, key=lambda one: one.policy.name)
    groups = [list(group) for _, group in groupby(by_name, key=lambda one: one.policy.name)]
    return [
        Bound(frozenset(one.key for one in group), group[0].policy.limits)
        for group in groups
        if group[0].policy.limits
    ]


def _limited(
    claims: Sequence[SliceDemand], asked: Mapping[Key, Resources], limits: Sequence[Bound]
) -> tuple[dict[Key, Resources], dict[Key, list[str]]]:
    """Cut what is asked to the limits: who has something keeps it, the oldest first."""
    targets = {key: dict(amounts) for key, amounts in asked.items()}
    notes: dict[Key, list[str]] = {}
    for bound in limits:
        members = [one for one in claims if one.key in bound.members]
        policy = members[0].policy.name
        takers = [one for one in members if one.key in targets]
        for name, most in _left(bound.amounts, members).items():
            wants = [(one.key, targets[one.key].get(name), one.held.get(name)) for one in takers]
            for key, amount in _in_turn(most, wants).items():
                wanted = targets[key][name]
                targets[key][name] = amount
                if amount < wanted:
                    all_ = bound.amounts[name]
                    said = f"{name}: {amount} of {wanted}, policy {policy} grants {all_} in all"
                    notes.setdefault(key, []).append(said)
    return dict(targets), notes


def _in_turn(
    most: Quantity, wants: Sequence[tuple[Key, Quantity | None, Quantity | None]]
) -> dict[Key, Quantity]:
    """Return what each gets of ``most``: first what it has, and then what is more, by turns."""
    asking = [(key, want, held or Quantity()) for key, want, held in wants if want is not None]
    got: dict[Key, Quantity] = {}
    left = most
    for key, want, held in asking:
        got[key] = max(min(want, held, left), Quantity())
        left -= got[key]
    for key, want, _ in asking:
        more = max(min(want - got[key], left), Quantity())
        got[key] += more
        left -= more
    return {key: Quantity(got[key].nanos, want.form) for key, want, _ in asking}


def _frozen(claim: SliceDemand, asked: Resources) -> Resources:
    if not claim.is_frozen:
        return asked
    have = {name: claim.held.get(name, Quantity()) for name in asked}
    return {name: min(amount, have[name]) for name, amount in asked.items()}


# From what is held to what is meant ---------------------------------------------------------------


def _grown(
    claims: Sequence[SliceDemand], targets: Mapping[Key, Resources], bounds: Sequence[Bound]
) -> dict[Key, Resources]:
    """Return what each may have now: less at once, more as far as the others leave room."""
    rooms = [_room(bound, claims) for bound in bounds]
    now: dict[Key, Resources] = {}
    for one in claims:
        if one.is_leaving:
            continue
        mine = [room for bound, room in zip(bounds, rooms, strict=True) if one.key in bound.members]
        now[one.key] = {
            name: _step(name, amount, one.held.get(name, Quantity()), mine)
            for name, amount in targets[one.key].items()
        }
    return now


def _room(bound: Bound, claims: Sequence[SliceDemand]) -> dict[str, Quantity]:
    held = resources.total(one.held for one in claims if one.key in bound.members)
    return resources.less(bound.amounts, held)


def _step(
    name: str, target: Quantity, held: Quantity, rooms: Sequence[dict[str, Quantity]]
) -> Quantity:
    if target <= held:
        return target
    left = [room[name] for room in rooms if name in room]
    more = max(min([target - held, *left]), Quantity())
    for room in rooms:
        if name in room:
            room[name] -= more
    return Quantity(held.nanos + more.nanos, target.form)
