"""What is booked for slices, in the status of their Tenants, and the round in which that holds.

A leader reads the ProviderPolicy ``default`` and then all ledgers. It books, and raises ``round``
in the status of that policy by compare-and-swap. Only then a slice gets more. Of two leaders at
once one raises the round; the other begins again and reads what the first has booked.
Source: docs/decisions/0011-ledgers-of-grants.md; docs/parity.md X8.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from apis import keys, objects, providerpolicy, resources
from apis.objects import Key, Object
from controllers.granting.grants.forge import grants
from controllers.granting.grants.forge.grants import LedgerEntry, SliceCordon
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError, ConflictError, InvalidError, KubeError

POLICY: Final = Key("", providerpolicy.DEFAULT)
LATE_S: Final = 40.0
"""A write of somebody else, or one that got no answer, has happened by then or never will."""
_OF_ALL: Final = ("grants", "cordoned")
"""What the status of the policy said of all tenants, before each had a ledger of its own."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LedgerState(NamedTuple):
    """What is booked for slices, and how they are kept in check."""

    entries: Mapping[Key, LedgerEntry]
    """Amounts only where somebody may still be writing them."""
    cordons: Mapping[Key, SliceCordon]


class Ledgers:
    """The ledgers of all tenants; ``term`` names this leadership in them."""

    def __init__(self, cluster: Cluster, term: str, tick: Callable[[], float]) -> None:
        self._cluster, self._term, self._tick = cluster, term, tick
        self._doubts: dict[Key, tuple[LedgerEntry, float]] = {}
        self._closed = ""
        """The version of the policy with which our last round ended; nothing was booked since."""

    def read(self, policy: Object | None, tenants: Mapping[Key, Object]) -> LedgerState:
        """Return what they say; ``policy`` was read before ``tenants``."""
        of_all = objects.status(policy)
        entries = grants.parsed_entries(of_all.get("grants") or ())
        kept = grants.parsed_cordons(of_all.get("cordoned") or ())
        self.doubt(entries)
        for key, tenant in tenants.items():
            said = grants.ledger(tenant)
            booked = grants.parsed_entries(said.get("grants") or (), key.namespace)
            if said.get("keeper") != self._term:
                self.doubt(booked)
            entries |= booked
            kept |= grants.parsed_cordons(said.get("cordoned") or (), key.namespace)
        return LedgerState(self._in_doubt(entries), kept)

    def doubt(self, entries: Mapping[Key, LedgerEntry]) -> None:
        """Count ``entries`` for as long as their writes may be on their way."""
        until = self._tick() + LATE_S
        self._doubts |= {key: (entry, until) for key, entry in entries.items()}

    def _in_doubt(self, entries: Mapping[Key, LedgerEntry]) -> dict[Key, LedgerEntry]:
        now = self._tick()
        self._doubts = {key: each for key, each in self._doubts.items() if now < each[1]}
        certain = {key: LedgerEntry(entry.class_, {}) for key, entry in entries.items()}
        return {**certain, **{key: entry for key, (entry, _) in self._doubts.items()}}

    async def book(
        self,
        policy: Object | None,
        tenants: Mapping[Key, Object],
        entries: Mapping[Key, LedgerEntry] | None,
        kept: Mapping[Key, SliceCordon],
    ) -> dict[str, Exception]:
        """Book ``entries``, None where nothing is bounded; return why not, by tenant namespace."""
        homes = dict[str, Object]()
        for key, tenant in sorted(tenants.items()):
            if objects.spec(tenant).get("clusterID"):
                homes.setdefault(key.namespace, tenant)
        failures: dict[str, Exception] = {}

        async def write(tenant: Object) -> None:
            namespace = objects.key_of(tenant).namespace
            is_home = homes.get(namespace) is tenant
            own = _of(entries, namespace) if entries is not None and is_home else None
            before = grants.ledger(tenant)
            if own is not None and self._covers(before, namespace, own):
                own = None
            wanted = self._ledger(before, own, _of(kept, namespace)) if is_home else {}
            try:
                await self._write(tenant, before, wanted)
            except KubeError as error:
                failures[namespace] = error

        await asyncio.gather(*(write(tenant) for tenant in tenants.values()))
        left = _left(objects.status(policy), failures.keys(), is_booked=entries is not None)
        is_bounded = entries is not None and self._closed != _version(policy)
        if is_bounded or (policy is not None and left != _kept(objects.status(policy))):
            try:
                await self._end_round(policy, left)
            except KubeError as error:
                failures = dict.fromkeys(homes, error) | failures
        return failures

    def _covers(self, before: Object, namespace: str, own: Mapping[Key, LedgerEntry]) -> bool:
        """Whether a ledger of ours says enough; who has less than it says costs no write."""
        booked = grants.parsed_entries(before.get("grants") or (), namespace)
        is_ours = before.get("keeper") == self._term or not booked
        return (
            is_ours
            and booked.keys() == own.keys()
            and all(
                own[key].class_ == entry.class_
                and not resources.more(own[key].amounts, entry.amounts)
                for key, entry in booked.items()
            )
        )

    def _ledger(
        self, before: Object, own: Mapping[Key, LedgerEntry] | None, kept: Mapping[Key, SliceCordon]
    ) -> Object:
        if own is None:
            ledger = {name: value for name, value in before.items() if name != "cordoned"}
        else:
            ledger = {"keeper": self._term, "grants": grants.shown_entries(own)} if own else {}
        return {**ledger, "cordoned": grants.shown_cordons(kept)} if kept else ledger

    async def _write(self, tenant: Object, before: Object, wanted: Object) -> None:
        changes = objects.merge_patch(before, wanted)
        if not changes:
            return
        self._closed = ""
        key = objects.key_of(tenant)
        version = {"resourceVersion": tenant["metadata"]["resourceVersion"]}
        ledger = changes if wanted else None
        made = await self._cluster.patch_status(
            keys.TENANT, key, {"ledger": ledger}, metadata=version
        )
        if grants.ledger(made) != wanted:
            message = f"tenant {key}: the API server keeps no status.ledger: run liqoctl install"
            raise InvalidError(message)

    async def _end_round(self, policy: Object | None, left: Object) -> None:
        """Write to the policy that what is booked holds, and what of all tenants is ``left``."""
        if policy is None:
            policy = await self._make_policy()
        before: Object = objects.status(policy)
        wanted = {"keeper": self._term, "round": before.get("round", 0) + 1, **left}
        made = await self._cluster.patch_status(
            keys.PROVIDER_POLICY, POLICY, objects.merge_patch(before, wanted),
            metadata={"resourceVersion": policy["metadata"]["resourceVersion"]},
        )  # fmt: skip
        self._closed = _version(made)

    async def _make_policy(self) -> Object:
        logger.info("Creating the providerpolicy that keeps the round of grants")
        made = objects.named(keys.PROVIDER_POLICY, POLICY, spec={})
        try:
            return await self._cluster.create(keys.PROVIDER_POLICY, made)
        except AlreadyExistsError as error:
            raise ConflictError(f"providerpolicy {POLICY} appeared meanwhile") from error


def _version(policy: Object | None) -> str:
    return str(policy["metadata"]["resourceVersion"]) if policy else "absent"


def _of(found: Mapping[Key, T], namespace: str) -> dict[Key, T]:
    return {key: each for key, each in found.items() if key.namespace == namespace}


def _kept(status: Object) -> Object:
    return {name: status[name] for name in _OF_ALL if name in status}


def _left(status: Object, failed: Iterable[str], *, is_booked: bool) -> Object:
    """Return what the policy goes on saying: of tenants that ``failed``, or that is not booked."""
    kept = _kept(status)
    for name in ("grants", "cordoned") if is_booked else ("cordoned",):
        left = [one for one in kept.pop(name, ()) if one["namespace"] in failed]
        kept |= {name: left} if left else {}
    return kept
