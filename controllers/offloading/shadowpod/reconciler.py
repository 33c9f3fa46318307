"""Creates the Pod of a ShadowPod, keeps its metadata, and reports its phase."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

from apis import apply, keys, objects, quotas
from apis.apply import Names
from apis.networks import Remap
from apis.objects import Key, Object
from apis.providerpolicy import ProviderPolicy
from apis.quotas import QuotaRefusal
from controllers import watches, writes
from controllers.manager import Manager, Setup
from controllers.offloading.quota import ledger
from controllers.offloading.quota import reconciler as quota
from controllers.offloading.quota.ledger import Accounts
from controllers.offloading.shadowpod import forge, slim
from controllers.offloading.shadowpod.forge import Permission
from controllers.offloading.shadowpod.slim import FinalPhases, Find, SlimPod, SlimShadow
from controllers.watches import Keys
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.errors import AlreadyExistsError, BusyError, ForbiddenError, InvalidError, NotFoundError
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.slim import ReadYourWrites

RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 300.0
_Asked: TypeAlias = tuple[tuple[str, int], frozenset[tuple[str, int]] | None]
ADMISSION_FAILED: Final = 500
"""What an API server answers when a webhook that has to judge does not."""
AWAITED_S: Final = 5.0
"""A Pod that was created is in the cache by then, or asked for again."""

logger = logging.getLogger(__name__)


class PodNotAllowedError(InvalidError):
    """The provider's policy does not allow such a Pod, or not any more."""


class ShadowPodReconciler:
    """Reads two objects, forges two, writes what differs.

    Without a ``ledger`` there is room for each Pod, without ``permission`` each may be made.
    """

    def __init__(  # noqa: PLR0913  # all but one by name
        self,
        cluster: Cluster,
        *,
        events: EventRecorder,
        clock: Callable[[], datetime],
        tick: Callable[[], float] = time.monotonic,
        find: Find | None = None,
        ledger: Accounts | None = None,
        permission: Permission | None = None,
        ends: FinalPhases | None = None,
        reached: Callable[[str], Remap] = lambda _twin: Remap(),
    ) -> None:
        self._reached = reached
        self._final_phases = ends or FinalPhases()
        self._cluster = cluster
        self._find = find or cluster.get
        self._events = events
        self._clock, self._tick = clock, tick
        self._ledger = ledger
        self._permission = permission
        self._growth = Growth(cluster, ledger)
        self._written = ReadYourWrites()
        self._pauses_s: dict[Key, float] = {}
        self._created: dict[Key, tuple[str, float]] = {}
        self._until: dict[Key, tuple[_Asked, float]] = {}
        self._unrecorded: dict[Key, tuple[str, Names]] = {}

    async def reconcile(self, key: Key) -> float | None:
        shadow = self._written.newest(key, await self._find(keys.SHADOW_POD, key))
        if shadow is None or objects.is_terminating(shadow):
            self._forget(key)
            return None  # the owner reference takes the pod along
        if await self._is_over(key, shadow):
            return None
        try:
            existing = await self._find(keys.POD, key)
            if existing is not None:
                self._created.pop(key, None)
            elif (left_s := self._left_s(shadow)) > 0:
                return left_s
            existing = existing or await self._admit(key, shadow)
        except PodNotAllowedError as error:
            return await self._refuse_for_now(shadow, str(error), forge.NOT_ALLOWED)
        except InvalidError as error:
            return await self._refuse_for_now(shadow, str(error))
        return await self._look_after(shadow, existing) if existing else None

    def _forget(self, key: Key) -> None:
        for one in (self._pauses_s, self._until, self._created, self._unrecorded):
            one.pop(key, None)

    def _left_s(self, shadow: Object) -> float:
        """Return the seconds until a Pod that is not there may be created, 0 for now."""
        return AWAITED_S if self._is_on_its_way(shadow) else self._put_off_s(shadow)

    def _is_on_its_way(self, shadow: Object) -> bool:
        """Whether its first Pod was created just now, and the cache has yet to show it."""
        if forge.phase(shadow):
            return False
        uid, at = self._created.get(objects.key_of(shadow), ("", 0.0))
        return uid == objects.uid(shadow) and self._tick() - at < AWAITED_S

    async def _is_over(self, key: Key, shadow: Object) -> bool:
        """Whether no Pod is made of it any more: finished work is not started again."""
        if forge.is_finished(shadow):
            await self._write(shadow, forge.ended(shadow))
            self._final_phases.forget(shadow)
            await self._stop(key, shadow)
        elif phase := self._final_phases.of(shadow):
            await self._write(shadow, {**objects.status(shadow), "phase": phase})
        elif forge.ends_within_s(shadow) is not None:
            await self._end(key)  # its consumer is about to delete it
        else:
            return False
        return True

    async def _stop(self, key: Key, shadow: Object) -> None:
        """End a Pod that runs although the consumer saw its work finished."""
        if forge.final(shadow) not in objects.FINAL_PHASES:
            return
        existing = await self._find(keys.POD, key)
        if existing is not None and not forge.is_over(existing):
            await self._end(key)

    async def _end(self, key: Key) -> None:
        """End the Pod, if it runs, in the time that its ShadowPod says; no other follows."""
        shadow, existing = await self._both(key)
        if shadow is None or existing is None or not objects.is_controlled_by(existing, shadow):
            return
        grace_s = forge.ends_within_s(shadow)
        is_asked = grace_s is not None or forge.final(shadow) in objects.FINAL_PHASES
        if is_asked and not forge.is_over(existing):
            logger.info("Ending pod", extra={"pod": str(key), "grace_s": grace_s})
            uid = objects.uid(existing)
            await self._cluster.delete(keys.POD, key, uid=uid, grace_s=grace_s)

    async def _look_after(self, shadow: Object, existing: Object) -> float | None:
        key = objects.key_of(shadow)
        if forge.is_of_predecessor(existing, shadow):
            return None  # its deletion brings us back
        if not objects.is_controlled_by(existing, shadow):
            return await self._refuse_for_now(
                shadow, f"pod {key} exists and is not the ShadowPod's"
            )
        self._pauses_s.pop(key, None)
        self._until.pop(key, None)
        if not objects.is_terminating(existing):  # else another event follows when it is gone
            await self._keep(key, shadow, existing)
        return None

    async def _refuse_for_now(
        self, shadow: Object, message: str, reason: str = forge.FAILED_CREATE
    ) -> float:
        """Say why there is no Pod; nothing tells when the obstacle goes, so look again."""
        await self._refuse(shadow, reason, message)
        if (left_s := self._put_off_s(shadow)) > 0:
            return left_s
        self._put_off(shadow)
        key = objects.key_of(shadow)
        pause_s = self._pauses_s.get(key, RETRY_S)
        self._pauses_s[key] = min(2 * pause_s, MAX_RETRY_S)
        self._until[key] = self._asked(shadow), self._tick() + pause_s
        return pause_s

    def _put_off_s(self, shadow: Object) -> float:
        """Return the seconds until room is asked for again, after none was given the last time."""
        asked, until = self._until.get(objects.key_of(shadow), (None, 0.0))
        is_put_off = self._ledger is not None and asked == self._asked(shadow)
        return until - self._tick() if is_put_off else 0.0

    def _asked(self, shadow: Object) -> _Asked:
        """Return what is asked of which rules: another answer comes of another one only."""
        return _version(shadow), self._permission.version() if self._permission else None

    async def _keep(self, key: Key, shadow: Object, existing: Object) -> None:
        if forge.is_behind(shadow):
            shadow = await self._follow(key, shadow)
        await self._keep_metadata(shadow, existing)
        await self._write(shadow, forge.status(shadow, existing, self._clock()))

    async def _follow(self, key: Key, seen: Object) -> Object:
        """Bring the Pod to a specification that changed; return what says which one it follows."""
        shadow, existing = await self._both(key)
        if shadow is None or existing is None or not objects.is_controlled_by(existing, shadow):
            return seen  # the cache was behind; what it lacks brings us back
        is_allowed, refusal = self._growth.may_become(shadow, existing)
        if is_allowed:
            refusal = await self._growth.change(shadow, existing)
        elif refusal is None or forge.is_told(seen, refusal, keys.UPDATED_CONDITION):
            return seen  # its booking, or what is new of it, brings us back
        if refusal is not None:
            self._events.event(keys.SHADOW_POD, shadow, "Warning", *refusal)
        return await self._write(seen, forge.updated(shadow, seen, refusal, self._clock()))

    async def _admit(self, key: Key, seen: Object) -> Object | None:
        """Create the Pod if it is booked; its booking, or what is new of it, brings us back."""
        if self._ledger is None:
            return await self._create(key, seen)
        if self._ledger.is_booked(seen):
            with self._ledger.creating(objects.uid(seen)):
                return await self._create(key, seen)
        self._ledger.ask(seen)
        refused = self._ledger.refusal(seen)
        if refused is not None and not forge.is_told(seen, refused):
            await self._refuse(seen, *refused)
        return None

    def _put_off(self, shadow: Object) -> None:
        if self._ledger is not None:
            self._ledger.put_off(shadow)

    async def _create(self, key: Key, seen: Object) -> Object | None:
        """Create the Pod of the ShadowPod that was ``seen``; return what stands there then.

        A first Pod needs no read: a taken name is told, and the owner reference ends what its
        ShadowPod does not outlive. Source: docs/parity.md C-30.
        """
        if "spec" in seen and not forge.phase(seen):
            try:
                return await self._made(seen)
            except AlreadyExistsError:
                logger.info("Pod is there already", extra={"pod": str(key)})
        shadow, existing = await self._both(key)
        if shadow is None or objects.is_terminating(shadow) or forge.is_finished(shadow):
            return None  # the cache was behind
        if _version(shadow) != _version(seen):
            return None  # it is another one by now, which brings us back, and is checked first
        return existing or await self._made(shadow)

    async def _made(self, shadow: Object) -> Object | None:
        key = objects.key_of(shadow)
        self._check(shadow)
        logger.info("Creating pod", extra={"pod": str(key)})
        try:
            created = await self._cluster.create(keys.POD, self._pod(shadow))
        except (ForbiddenError, InvalidError, BusyError) as error:
            if isinstance(error, BusyError) and error.status != ADMISSION_FAILED:
                raise
            if await self._ends(key.namespace):
                return None  # it goes with its namespace
            if not isinstance(error, InvalidError):
                await self._refuse(shadow, forge.FAILED_CREATE, str(error))
                self._put_off(shadow)
            raise
        self._created[key] = objects.uid(shadow), self._tick()
        self._tell_made(shadow)
        return created

    def _check(self, shadow: Object) -> None:
        if refusal := forge.unreadable(shadow):
            raise InvalidError(refusal.message)
        if self._permission and (said := self._permission.refusal(shadow)):
            raise PodNotAllowedError(said)

    def _tell_made(self, shadow: Object) -> None:
        self._tell_left_out(shadow)
        if forge.phase(shadow):  # once more: of a first pod the ShadowPod itself tells enough
            message = f"created pod {objects.key_of(shadow)} again"
            self._events.event(keys.SHADOW_POD, shadow, "Normal", "CreatedPod", message)

    def _tell_left_out(self, shadow: Object) -> None:
        if message := forge.left_out(shadow, self._policy(shadow)):
            self._events.event(keys.SHADOW_POD, shadow, "Normal", forge.LEFT_OUT, message)

    def _pod(self, shadow: Object) -> Object:
        try:
            reached = self._reached(objects.key_of(shadow).namespace)
            return forge.pod(shadow, reached, self._policy(shadow))
        except ValueError as error:
            raise InvalidError(str(error)) from error

    def _policy(self, shadow: Object) -> ProviderPolicy:
        return self._permission.policy(shadow) if self._permission else forge.DEFAULT_POLICY

    async def _both(self, key: Key) -> tuple[Object | None, Object | None]:
        return await asyncio.gather(
            self._cluster.get_live(keys.SHADOW_POD, key), self._cluster.get_live(keys.POD, key)
        )

    async def _ends(self, namespace: str) -> bool:
        found = await self._cluster.get_live(keys.NAMESPACE, Key("", namespace))
        return found is None or objects.is_terminating(found)

    async def _keep_metadata(self, shadow: Object, existing: Object) -> None:
        """Bring labels and annotations to those of the ShadowPod: what it lost goes here, too."""
        wanted = forge.metadata(shadow, self._policy(shadow))
        if patch := apply.patch(existing, wanted, self._unrecorded_of(existing, wanted)):
            metadata = {"uid": objects.uid(existing), **patch}
            await self._cluster.patch(keys.POD, objects.key_of(existing), {"metadata": metadata})
            if apply.taken_off(patch):
                self._tell_left_out(shadow)

    def _unrecorded_of(self, existing: Object, wanted: Object) -> Names:
        """Return what was written to a Pod that does not record it: what it was to have at first.

        That is one that an older version made.
        """
        if keys.APPLIED_META in objects.annotations(existing):
            return {}
        key, uid = objects.key_of(existing), objects.uid(existing)
        known = self._unrecorded.get(key)
        if known is None or known[0] != uid:
            known = uid, {field: frozenset(wanted[field]) for field in apply.FIELDS}
            self._unrecorded[key] = known
        return known[1]

    async def _refuse(self, shadow: Object, reason: str, message: str) -> None:
        self._events.event(keys.SHADOW_POD, shadow, "Warning", reason, message)
        await self._write(shadow, forge.refused(shadow, reason, message, self._clock()))

    async def _write(self, shadow: Object, status: Object) -> Object:
        made = await writes.write_status(self._cluster, keys.SHADOW_POD, shadow, status)
        if made is not shadow:
            self._written.add(shadow, made)
        return made


def _version(shadow: Object) -> tuple[str, int]:
    """Return which ShadowPod it is, and which specification of it."""
    return objects.uid(shadow), int(shadow["metadata"].get("generation") or 1)


# Which changes concern which ShadowPod; where Quotas are enforced, their loop runs beside it -----


SHADOW_PODS: Final = Selection(keys.SHADOW_POD, SlimShadow)
PODS: Final = Selection(keys.POD, SlimPod, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}")


def controller(manager: Manager) -> Setup:
    """Return the term of this controller, and of that for Quotas."""
    shadow_pods, pods = manager.informer(SHADOW_PODS), manager.informer(PODS)
    sources: list[WatchSource[Any]] = [WatchSource(shadow_pods), WatchSource(pods)]
    policies = manager.informer(watches.PROVIDER_POLICIES)
    namespaces = manager.informer(watches.PEER_NAMESPACES)
    sources.append(WatchSource(policies, by_policy(shadow_pods)))
    permission = Permission(policies.items, namespaces.items)
    ends = slim.FinalPhases(pods)
    reached = manager.reached()
    consumer = watches.consumers(manager.informer(watches.PEER_NAMESPACES))
    accounts: Accounts | None = None
    if manager.limits.is_enforced:
        accounts = quota.accounts_of(manager, shadow_pods, pods)
        sources.append(WatchSource(manager.informer(watches.QUOTAS), _by_quota(accounts)))

    def runner() -> Runner:
        reconciler = ShadowPodReconciler(
            manager.cached,
            events=manager.events,
            clock=manager.clock,
            find=slim.seen(shadow_pods, pods),
            ledger=accounts,
            permission=permission,
            ends=ends,
            reached=lambda twin: reached(consumer(twin)),
        )
        return Runner(
            "shadowpod",
            reconciler,
            sources,
            workers=manager.limits.shadow_pod_workers,
            wait_for=[namespaces],
            line=lambda key: consumer(key.namespace),
        )

    if accounts is None:
        return lambda: [runner()]
    quotas = quota.controller(manager, accounts, shadow_pods, pods)

    def both() -> list[Any]:
        made = runner()
        keeper = quotas(made.enqueue)
        accounts.wake = keeper.enqueue
        return [made, keeper]

    return both


def by_policy(shadow_pods: Informer[SlimShadow]) -> Keys:
    """Return that another policy concerns what the one before did not allow."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old == new:
            return []  # its status is another loop's
        found = shadow_pods.items().items()
        return [key for key, one in found if forge.is_not_allowed(one.status.conditions)]

    return keys_of


def _by_quota(accounts: Accounts) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        before, after = (ledger.booked(obj) if obj else {} for obj in (change.old, change.new))
        news = ledger.news(before, after)
        users = {ledger.granted_to(obj) for obj in (change.old, change.new) if obj}
        if change.old and change.new and len(users) == 1:
            return news
        return [*news, *(key for user in users for key in accounts.waiting(user))]

    return keys_of


# Brings a Pod that exists to a specification that changed: what it takes more is booked before ----
# Source: docs/parity.md § 4.10.


class Growth:
    """Without a ``ledger`` every Pod may grow."""

    def __init__(self, cluster: Cluster, ledger: Accounts | None) -> None:
        self._cluster, self._ledger = cluster, ledger

    def may_become(self, shadow: Object, existing: Object) -> tuple[bool, QuotaRefusal | None]:
        """Return whether the Pod may be as ``shadow`` says now, or why not, once that is decided.

        What it takes more has to be booked before.
        """
        if refusal := forge.unreadable(shadow):
            return False, refusal
        if self._ledger is None:
            return True, None
        try:
            demand = forge.grown(shadow, existing)
        except ValueError as error:
            return False, QuotaRefusal(quotas.UNREADABLE, str(error))
        if demand is None or self._ledger.covers(shadow, demand.usage):
            return True, None
        return False, self._ledger.refusal(shadow)

    async def change(self, shadow: Object, existing: Object) -> QuotaRefusal | None:
        """Make the Pod as ``shadow`` says while its booking is kept; return why it was refused."""
        ledger = self._ledger
        with ledger.creating(objects.uid(shadow)) if ledger else contextlib.nullcontext():
            return await self._change(shadow, existing)

    async def _change(self, shadow: Object, existing: Object) -> QuotaRefusal | None:
        """Make one request after the other."""
        key = objects.key_of(existing)
        while missing := forge.pod_changes(shadow, existing):
            part, patch = missing[0]
            logger.info("Updating pod", extra={"pod": str(key), "part": part or "spec"})
            try:
                made = await self._cluster.patch(keys.POD, key, patch, subresource=part)
            except (ForbiddenError, InvalidError) as error:
                return QuotaRefusal(forge.FAILED_UPDATE, str(error))
            except NotFoundError:
                if not part or not await self._is_there(existing):
                    raise
                lack = f"the Kubernetes of this cluster has no pods/{part}"
                return QuotaRefusal(forge.FAILED_UPDATE, f"pod {key} stays as it is: {lack}")
            if made["metadata"]["resourceVersion"] == existing["metadata"]["resourceVersion"]:
                return QuotaRefusal(
                    forge.FAILED_UPDATE, f"pod {key} stays as it is: {part or 'spec'}"
                )
            existing = made
        return None

    async def _is_there(self, pod: Object) -> bool:
        found = await self._cluster.get_live(keys.POD, objects.key_of(pod))
        return found is not None and objects.uid(found) == objects.uid(pod)
