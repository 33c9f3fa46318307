"""Grants every slice its resources: ledgers first, then statuses, then Quotas; in one loop.

Each tenant has a ledger of what is booked for it. A leader reads all of them before it grants more,
so two leaders never grant the same resources (``ledger``).
Source: docs/parity.md § 4.5, 4.6, 4.17; SEC-A15.
"""

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apis import keys, naming, objects, ownership, slices
from apis.objects import Key, Object
from apis.offloading import OfferedClass
from apis.resources import Resources
from controllers import watches, writes
from controllers.granting.grants.capacity import (
    EVERY,
    LARGEST_POD_S,
    Capacity,
    LargestPodReconciler,
)
from controllers.granting.grants.forge import division, grants
from controllers.granting.grants.forge.division import Share, SliceDemand
from controllers.granting.grants.forge.grants import (
    GrantInputs,
    LedgerEntry,
    SliceCordon,
    SliceRequest,
)
from controllers.granting.grants.ledger import POLICY, Ledgers
from controllers.manager import Controller, Manager
from kube.cluster import Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
)
from kube.informer import Change
from kube.process import Runnable

ALL: Final = Key("", "grants")
"""The one key: what one slice gets depends on all others."""
FREE: Final = Key("", "free")
"""Its second name, where only pods or nodes changed: no look where as much is free as before.

A look reads live what it decides on: a list that is behind does not show what a leader before us,
or a write without an answer, granted last (docs/decisions/0011-ledgers-of-grants.md).
"""
NOT_YET_S: Final = 0.2

_REFUSED: Final = (ConflictError, ForbiddenError, InvalidError, NotFoundError, TerminalError)

_REPLICAS: Final = watches.written_by_consumers(keys.RESOURCE_SLICE, labels=ownership.REPLICAS)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _GrantState:
    """One look at everything, and what came of it."""

    seen: GrantInputs
    requests: Mapping[Key, SliceRequest]
    shares: Mapping[Key, Share]
    claims: Mapping[Key, SliceDemand]
    cordons: Mapping[Key, SliceCordon]
    failures: Sequence[Exception]
    """What could not be written of single slices, which holds up no other."""
    users: frozenset[str]
    """Those of the slices of class ``shared``."""
    free: Resources
    """What class ``shared`` has to give."""

    @property
    def needs_ledger(self) -> bool:
        return any(claim.is_bounded for claim in self.claims.values())


class GrantsReconciler(Controller):
    """All slices at once; ``term`` names this leadership in the ledger."""

    name = "grants"

    def __init__(
        self, manager: Manager, term: str = "", tick: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(manager)
        self._ledgers = Ledgers(self.live, term or secrets.token_hex(8), tick)
        self.is_shared = False
        """Whether what is free counts: some slice is a part of it."""
        self.free: Callable[[frozenset[str]], Resources | None] = lambda _: None
        """What is free, the pods of these users not counted; None while it is not known yet."""
        self._divided: tuple[frozenset[str], Resources] | None = None
        """For whose slices how much was divided, where nothing of it is left to do."""

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.RESOURCE_SLICES, _of_slice),
            self.watch(watches.QUOTAS, everything),
            self.watch(watches.TENANTS, everything),
            self.watch(watches.PROVIDER_POLICIES, everything),
            self.watch(watches.STORAGE_CLASSES, everything),
        )

    def loops(self) -> Sequence[Runnable]:
        capacity = Capacity(self.live)
        self.free = capacity.free
        runner = Runner(self.name, self, self.watches(), back_off_s=BACK_OFF_S)
        room = LargestPodReconciler(self.manager, capacity.largest).runner()

        def on_change() -> None:
            if self.is_shared:
                runner.enqueue(FREE, SETTLE_S)
            room.enqueue(EVERY, LARGEST_POD_S)

        capacity.subscribe(on_change)
        return [runner, room, capacity]

    async def reconcile(self, key: Key) -> float | None:
        if key not in {ALL, FREE} or (key == FREE and self._is_divided()):
            return None
        self._divided = None
        policy = await self.live.get_live(keys.PROVIDER_POLICY, POLICY)
        try:
            look = await self._look(policy)
        except (ForbiddenError, NotFoundError) as error:
            await self._tell_withheld(error)
            raise
        if look is None:
            return NOT_YET_S
        await self._grant(policy, look)
        if not all(share.is_final for share in look.shares.values()):
            return NOT_YET_S
        self._divided = look.users, look.free
        return None

    def _is_divided(self) -> bool:
        return self._divided is not None and self.free(self._divided[0]) == self._divided[1]

    async def _grant(self, policy: Object | None, look: _GrantState) -> None:
        failures = [*look.failures, *await self._close(look)]  # what protects goes first
        entries = grants.entries(look.claims, look.shares, look.free.keys())
        unbooked = await self._ledgers.book(
            policy, look.seen.tenants, entries if look.needs_ledger else None, look.cordons
        )
        failures += dict.fromkeys(unbooked.values())
        writes.raise_all([*failures, *await self._write_all(look, entries, unbooked.keys())])

    # Looking -----------------------------------------------------------------------------------

    async def _look(self, policy: Object | None) -> _GrantState | None:
        seen, known = await self._seen(policy)
        marked, failures = await self._marked(seen.slices, known)
        seen = dataclasses.replace(seen, slices=marked)
        found = grants.slice_requests(seen, self.manager.standard)
        claims = {one.claim.key: one.claim for one in found}
        claims |= {claim.key: claim for claim in grants.leaving(seen, claims.keys())}
        users = frozenset(
            naming.quota_name(claim.key.name, claim.tenant)
            for claim in claims.values()
            if claim.is_shared
        )
        self.is_shared = bool(users)
        free = self.free(users) if users else {}
        if free is None:
            return None
        shares = division.divide(claims.values(), free)
        are_so = {key: obj for key, obj in marked.items() if key not in failures}
        kept = grants.current_cordons(known, are_so, seen.tenants)
        ours = {one.claim.key: one for one in found}
        failed = tuple(failures.values())
        return _GrantState(seen, ours, shares, claims, kept, failed, users, free)

    async def _marked(
        self, found: Mapping[Key, Object], known: Mapping[Key, SliceCordon]
    ) -> tuple[dict[Key, Object], dict[Key, Exception]]:
        """Return the slices, those that were made again with their cordon and drain back on them.

        One that is gone again meanwhile is left out: its next change brings us back. One that has
        no room for them counts as if it had them, so that its Quota is closed. Source: X1.
        """
        marked, failures = dict(found), dict[Key, Exception]()
        for key, obj in found.items():
            if annotations := grants.lost_cordons(obj, known):
                changes = {"metadata": {"uid": objects.uid(obj), "annotations": annotations}}
                try:
                    marked[key] = await self.live.patch(keys.RESOURCE_SLICE, key, changes)
                except (ConflictError, NotFoundError):
                    del marked[key]
                except KubeError as error:
                    failures[key] = error
                    notes = {**objects.annotations(obj), **annotations}
                    metadata = {**obj["metadata"], "annotations": notes}
                    marked[key] = {**obj, "metadata": metadata}
        return marked, failures

    async def _seen(self, policy: Object | None) -> tuple[GrantInputs, Mapping[Key, SliceCordon]]:
        """Return what there is, and which slices are kept in check."""
        found, quotas, tenants = await asyncio.gather(
            self.live.list(_REPLICAS),
            self.live.list(Selection(keys.QUOTA, Object)),
            self.live.list(watches.TENANTS),
        )
        known = dict(await self.all(watches.PROVIDER_POLICIES))
        known.pop(POLICY, None)
        if policy is not None:
            known[POLICY] = policy
        booked = self._ledgers.read(policy, tenants.items)
        seen = GrantInputs(
            slices=found.items,
            quotas=quotas.items,
            tenants=tenants.items,
            policies=known,
            ledger=booked.entries,
        )
        return seen, booked.cordons

    # Writing -----------------------------------------------------------------------------------

    async def _tell_withheld(self, error: KubeError) -> None:
        """Say on each slice that waits for an answer why it gets none; the next look grants it."""
        seen = GrantInputs(
            slices=(await self.live.list(_REPLICAS)).items,
            quotas={},
            tenants=await self.all(watches.TENANTS),
            policies=await self.all(watches.PROVIDER_POLICIES),
            ledger={},
        )
        refusal = grants.withheld(error.said, is_kind=isinstance(error, NotFoundError))
        for one in grants.slice_requests(seen, self.manager.standard):
            if one.is_ours and not slices.answer(one.obj, slices.RESOURCES):
                status = grants.denied(one.obj, refusal, self.clock())
                with contextlib.suppress(ConflictError, InvalidError, BusyError):
                    await self._write_status(one.obj, status)

    async def _write_all(
        self, look: _GrantState, entries: Mapping[Key, LedgerEntry], unbooked: Collection[str]
    ) -> list[Exception]:
        storage = grants.storage_classes((await self.all(watches.STORAGE_CLASSES)).values())

        async def write(one: SliceRequest) -> None:
            key = one.claim.key
            is_held_up = one.claim.is_bounded and key.namespace in unbooked
            share = None if is_held_up else look.shares.get(key)
            try:
                await self._write(one, share, look, storage)
            except _REFUSED:
                raise  # it did not happen
            except BaseException:
                self._ledgers.doubt({key: entries[key]} if key in entries else {})
                raise

        answers = await asyncio.gather(
            *(write(one) for one in look.requests.values()), return_exceptions=True
        )
        return [answer for answer in answers if isinstance(answer, Exception)]

    async def _write(
        self,
        application: SliceRequest,
        share: Share | None,
        look: _GrantState,
        storage: Sequence[OfferedClass],
    ) -> None:
        obj = application.obj
        if objects.is_terminating(obj):
            return
        is_cordoned = self._is_cordoned(application, look)
        if is_cordoned:  # also where its status can be written no more
            await self._write_quota(obj, application, look, is_cordoned=True)
        status = grants.status(application, share, self.manager.standard, storage, self.clock())
        if status is not None:
            obj = await self._write_status(obj, status)
        if not is_cordoned:
            await self._write_quota(obj, application, look, is_cordoned=False)

    async def _write_status(self, obj: Object, status: Object) -> Object:
        changes = objects.merge_patch(objects.status(obj), status)
        if not changes:
            return obj
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        made = await self.live.patch_status(
            keys.RESOURCE_SLICE, objects.key_of(obj), changes, metadata=version
        )
        if told := grants.news(obj, made):
            type_, reason, message = told
            self.events.event(keys.RESOURCE_SLICE, made, type_, reason, message)
        return made

    async def _close(self, look: _GrantState) -> list[Exception]:
        """Have the Quotas of slices that take no part, and hold something, follow their tenants."""
        failures = list[Exception]()
        for slice_, quotas in look.seen.quotas_of.items():
            tenant = grants.tenant_of(look.seen.tenants, slice_.namespace)
            if slice_ in look.requests or tenant is None:
                continue
            is_cordoned = grants.is_closed_to(look.seen.slices.get(slice_), tenant)
            for quota in quotas:
                if changes := grants.closed(quota, is_cordoned=is_cordoned):
                    try:
                        await self.live.patch(keys.QUOTA, objects.key_of(quota), changes)
                    except KubeError as error:
                        failures.append(error)
        return failures

    @staticmethod
    def _is_cordoned(application: SliceRequest, look: _GrantState) -> bool:
        obj = application.obj
        tenant = grants.tenant_of(look.seen.tenants, objects.key_of(obj).namespace)
        return tenant is None or grants.is_closed_to(obj, tenant)

    async def _write_quota(
        self, obj: Object, application: SliceRequest, look: _GrantState, *, is_cordoned: bool
    ) -> None:
        wanted = grants.quota(
            obj,
            application.claim.tenant,
            application.policy.limits_enforcement or self.manager.standard.limits_enforcement,
            is_cordoned=is_cordoned,
        )
        found = look.seen.quotas.get(objects.key_of(wanted))
        if found is None:
            if slices.is_accepted(obj, slices.RESOURCES):
                await self.live.create(keys.QUOTA, wanted)
            return
        if not objects.is_controlled_by(found, obj):
            key = objects.key_of(wanted)
            message = f"quota {key} exists and is not of this slice: rename or remove it"
            raise TerminalError("NameTaken", message)
        if changes := grants.quota_changes(found, wanted, obj):
            await self.live.patch(keys.QUOTA, objects.key_of(wanted), changes)


# Which changes ask for a new division of what is granted -----------------------------------------


_BY_SPEC: Final = frozenset(kind.kind for kind in (keys.QUOTA, keys.TENANT, keys.PROVIDER_POLICY))
"""Of these the status is nothing to us: what pods have booked, and what we write ourselves."""
_VERSIONS: Final = frozenset({"resourceVersion", "managedFields"})
BACK_OFF_S: Final = 10.0
"""So soon all are looked at again, where one slice cannot be written for ever."""
SETTLE_S: Final = 0.5
"""Changes of local pods are looked at together."""


def everything(change: Change[Object]) -> Iterable[Key]:
    kind = (change.new or change.old or {}).get("kind")
    if kind in _BY_SPEC and change.old and change.new and change.old["spec"] == change.new["spec"]:
        return []
    return [ALL]


def _of_slice(change: Change[Object]) -> Iterable[Key]:
    """Return nothing for what only tells of the room on nodes, which is told every few seconds."""
    if change.old is change.new or change.old is None or change.new is None:
        return [ALL]
    return [] if _what_counts(change.old) == _what_counts(change.new) else [ALL]


def _what_counts(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _VERSIONS}
    status = {**objects.status(obj), "largestPod": None}
    return {**obj, "metadata": metadata, "status": status}
