"""Keeps the twin namespaces that a map asks for, and no others: many entries side by side."""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from apis import allowlist, keys, objects, ownership, providerpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import CurrentMapping as Entry
from apis.offloading import NamespaceMap
from apis.providerpolicy import ProviderPolicy
from controllers import watches, writes
from controllers.manager import Controller, Manager
from controllers.offloading.namespacemap import forge
from controllers.offloading.namespacemap.forge import (
    MapTenant,
    NamespaceLimit,
    NamespaceRefusedError,
)
from kube.cluster import Cluster, Selection
from kube.controller import TerminalError, WatchSource
from kube.errors import AlreadyExistsError, ConflictError, ForbiddenError, KubeError, NotFoundError
from kube.informer import Change
from kube.ratelimit import LargeWriteLimit
from kube.slim import ReadYourWrites

KIND: Final = keys.NAMESPACE_MAP
FINALIZER: Final = keys.NAMESPACE_MAP_FINALIZER
REFUSED_RETRY_S: Final = 30.0
"""What was in the way is not ours, so no event tells when it is gone."""
RELEASED_RETRY_S: Final = 1.0
"""Until a twin of a map that goes is looked at again, after rights or finalizers in it went."""
AT_ONCE: Final = 16
BATCH: Final = 64
"""As many entries are served until the status tells of them: it holds all, and is written whole."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _MapState:
    """One look at a map: what came of its entries so far."""

    obj: Object
    twins: "RemoteNamespaces"
    entries: dict[str, Entry]
    failures: list[Exception]
    held: set[str] = field(default_factory=set)
    """Twins that are not deleted yet: something of the consumer's has just gone from them."""


_IsReady: TypeAlias = Callable[[str, str], Awaitable[bool]]


class NamespaceMapReconciler(Controller):
    """One replica: an entry that is refused, or that fails, does not hold up the others."""

    name = "namespacemap"
    is_parallel = True
    reads = watches.ALL_BINDINGS

    def __init__(self, manager: Manager, pace: LargeWriteLimit | None = None) -> None:
        super().__init__(manager)
        self._written = ReadYourWrites()
        self._given: defaultdict[str, dict[str, Key]] = defaultdict(dict)
        """By tenant namespace and name, which map was given a twin."""
        self._pace = pace or LargeWriteLimit()

    def watches(self) -> Sequence[WatchSource[Any]]:
        maps = watches.NAMESPACE_MAPS
        return (
            self.watch(maps),
            self.watch(watches.PEER_NAMESPACES, _by_owner),
            self.watch(watches.PEER_NAMESPACES, self.inside(maps)),
            self.watch(watches.ROLE_BINDINGS, _by_owner),
            self.watch(watches.PROVIDER_POLICIES, self._by_policy),
            self.watch(watches.TENANTS, watches.but_booked(self.beside(maps))),
        )

    def _by_policy(self, change: Change[Object]) -> Iterable[Key]:
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old == new:
            return []  # its status is another loop's
        return list(self.informer(watches.NAMESPACE_MAPS).items())

    async def reconcile(self, key: Key) -> float | None:
        obj = self._written.newest(key, await self.cached.get(KIND, key))
        if obj is None or not ownership.is_foreign(obj):
            return None
        if (left_s := self._pace.left_s(key)) is not None:
            return left_s
        if objects.is_terminating(obj):
            return await self._dissolve(obj)
        tenant = await self._tenant(obj)
        obj = await writes.add_finalizer(self.cached, KIND, obj, FINALIZER)
        look = await self._look(obj, tenant, await self._policy(obj, tenant))
        await self._remove(look)
        is_more = await self._serve(look)
        await self._report(look)
        writes.raise_all(look.failures)
        if is_more:
            return 0.0
        waiting = any(entry.phase != forge.ACCEPTED for entry in look.entries.values())
        return REFUSED_RETRY_S if waiting else None

    async def _tenant(self, obj: Object) -> MapTenant:
        where = Key("", obj["metadata"]["namespace"])
        try:
            tenant = forge.tenant(await self.cached.get(keys.NAMESPACE, where), obj)
            forge.check_welcome(tenant, (await self.all(watches.TENANTS)).values())
        except NamespaceRefusedError as error:
            self.events.event(KIND, obj, "Warning", error.reason, str(error))
            raise TerminalError(error.reason, str(error)) from error
        return tenant

    async def _policy(self, obj: Object, tenant: MapTenant) -> ProviderPolicy:
        try:
            policies = (await self.all(watches.PROVIDER_POLICIES)).values()
            return providerpolicy.policy_of(policies, tenant.cluster_id)
        except ValueError as error:
            self.events.event(KIND, obj, "Warning", "InvalidPolicy", str(error))
            raise TerminalError("InvalidPolicy", str(error)) from error

    async def _look(self, obj: Object, tenant: MapTenant, policy: ProviderPolicy) -> _MapState:
        found = await self.all(watches.PEER_NAMESPACES)
        given = self._given[objects.key_of(obj).namespace]
        twins = RemoteNamespaces(self.manager, obj, tenant, policy, found, given=given)
        return _MapState(obj, twins, {}, [])

    async def _serve(self, look: _MapState) -> bool:
        """Serve who is not served yet, who was never answered first; whether there are more."""
        parsed, missing = NamespaceMap.parse(look.obj), {}
        namespaces = await self.all(watches.PEER_NAMESPACES)
        bindings = await self.all(watches.ROLE_BINDINGS)
        for local, name in parsed.desired.items():
            names = (look.obj["metadata"]["namespace"], self.manager.account.name)
            bound = [bindings.get(Key(name, each)) for each in names]
            twin = namespaces.get(Key("", name))
            if forge.is_served(look.obj, local, twin, bound, look.twins.policy):
                look.entries[local] = Entry(name, forge.ACCEPTED)
            else:
                missing[local] = name
        turn = sorted(missing, key=lambda local: (local in parsed.current, local))
        for local in turn[BATCH:]:
            if local in parsed.current:
                look.entries[local] = parsed.current[local]
        await _side_by_side(
            lambda local: self._make(look, local, missing[local], parsed.current), turn[:BATCH]
        )
        return any(local not in parsed.current for local in turn[BATCH:])

    async def _make(
        self, look: _MapState, local: str, name: str, current: Mapping[str, Entry]
    ) -> None:
        try:
            look.entries[local] = await look.twins.make(local, name)
        except KubeError as error:
            look.failures.append(error)
            message = "the cluster did not answer as expected"
            failed = Entry(name, forge.FAILED, "Error", message)
            before = current.get(local)
            # It is there: an answer that we did not get changes nothing.
            is_there = before == Entry(name, forge.ACCEPTED)
            look.entries[local] = before if before and is_there else failed

    async def _remove(self, look: _MapState, is_ready: _IsReady | None = None) -> None:
        """Delete the twins that nobody wants, once ready; the entries of those still going stay."""
        owned = (await self.all(watches.PEER_NAMESPACES)).values()
        going = forge.leftovers(look.obj, owned)
        current = NamespaceMap.parse(look.obj).current

        async def remove(name: str) -> None:
            local = going[name]
            try:
                if is_ready and not await is_ready(local, name):
                    look.held.add(name)
                    look.entries[local] = Entry(name, forge.TERMINATING)
                elif not await look.twins.is_gone(local, name):
                    look.entries[local] = Entry(name, forge.TERMINATING)
            except KubeError as error:
                look.failures.append(error)
                look.entries[local] = current.get(local) or Entry(name, forge.TERMINATING)

        await _side_by_side(remove, going)

    async def _dissolve(self, obj: Object) -> float | None:
        if FINALIZER not in objects.finalizers(obj):
            return None
        look = await self._look(obj, MapTenant("", ""), ProviderPolicy())
        await self._remove(look, look.twins.is_released)
        obj = await self._report(look)
        writes.raise_all(look.failures)
        if look.entries:
            return RELEASED_RETRY_S if look.held else REFUSED_RETRY_S
        await writes.remove_finalizer(self.cached, KIND, obj, FINALIZER)
        return None

    async def _report(self, look: _MapState) -> Object:
        before = NamespaceMap.parse(look.obj).current
        entries = forge.clipped(look.entries)
        for local, entry in entries.items():
            if entry.reason and before.get(local) != entry:
                message = f"namespace {local}: {entry.message}"
                self.events.event(KIND, look.obj, "Warning", entry.reason, message)
        status = forge.status(entries, look.twins.policy)
        made = await writes.write_status(self.cached, KIND, look.obj, status)
        if made is not look.obj:
            self._written.add(look.obj, made)
            self._pace.wrote(objects.key_of(made), len(look.entries))
        return made


async def _side_by_side(work: Callable[[str], Awaitable[None]], names: Iterable[str]) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with turn:
            await work(name)

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(one(name))


# The remote namespaces of one map, by the provider's own record -----------------------------------
# Source: docs/parity.md SEC-A4 to SEC-A6: nothing that exists is adopted, and what was read is read
# again before it is relied on.


class RemoteNamespaces:
    """Those of one map of one tenant, as one look at them finds them; ``found`` is from a cache."""

    def __init__(  # noqa: PLR0913  # one look, all of it
        self,
        manager: Manager,
        namespace_map: Object,
        tenant: MapTenant,
        policy: ProviderPolicy,
        found: Mapping[Key, Object],
        *,
        given: dict[str, Key],
    ) -> None:
        self._manager, self._cluster = manager, manager.cached
        self._map, self._found = namespace_map, found
        self._tenant, self.policy = tenant, policy
        self._bound: Mapping[str, str] | None = None
        self._answered = NamespaceMap.parse(namespace_map).current
        asker = objects.key_of(namespace_map)
        self._room = NamespaceLimit(found.values(), asker, tenant, policy, given)

    async def make(self, local: str, name: str) -> Entry:
        """Return the entry of ``local`` after its twin and the rights in it are there.

        Raises:
            KubeError: the server did not do what was asked: try again.
        """
        try:
            twin = await self._namespace(local, name)
            if objects.is_terminating(twin):
                return Entry(name, forge.TERMINATING, "Terminating", "it is still being deleted")
            await self._bind(local, twin)
            await self._update(twin)
        except NamespaceRefusedError as error:
            return Entry(name, forge.FAILED, error.reason, str(error))
        return Entry(name, forge.ACCEPTED)

    async def _update(self, twin: Object) -> None:
        if changes := forge.outdated(twin, self.policy):
            logger.info("Updating namespace", extra={"namespace": twin["metadata"]["name"]})
            metadata = {"uid": objects.uid(twin), **changes}
            await self._cluster.patch(keys.NAMESPACE, objects.key_of(twin), {"metadata": metadata})

    async def is_gone(self, local: str, name: str) -> bool:
        """Whether the twin is gone, which is asked for if need be; a namesake counts as that."""
        seen = self._found.get(Key("", name))
        if seen and objects.is_terminating(seen) and forge.is_twin(seen, self._map, local):
            if is_stuck(seen):
                await release(self._cluster, name)
            return False  # an event follows when it is
        is_gone = await writes.remove(
            self._cluster,
            keys.NAMESPACE,
            Key("", name),
            is_ours=lambda found: forge.is_twin(found, self._map, local),
        )
        if is_gone:
            self._room.leave(name)
        return is_gone

    async def is_released(self, local: str, name: str) -> bool:
        """Whether its consumer has no right in the twin, and holds nothing there any more.

        Two looks at least: rights go first, and what had come before that is released after it.
        """
        seen = self._found.get(Key("", name))
        is_here = seen is not None and forge.is_twin(seen, self._map, local)
        if not is_here or objects.is_terminating(seen or {}):
            return True
        owner = objects.key_of(self._map)
        is_out = await writes.remove(
            self._cluster,
            keys.ROLE_BINDING,
            Key(name, owner.namespace),
            is_ours=lambda found: forge.owner_of(found) == owner,
        )
        return is_out and not await release(self._cluster, name)

    async def _namespace(self, local: str, name: str) -> Object:
        """Return the twin, made if need be; what the server then says is ours is what counts."""
        forge.check_name(name)
        key = Key("", name)
        found = self._found.get(key)
        if found is None and local in self._answered:  # once more: somebody else's may be there
            found = await self._cluster.get_live(keys.NAMESPACE, key)
        found = found or await self._create(local, name)
        forge.check_twin(found, self._map, local)
        return found

    async def _create(self, local: str, name: str) -> Object:
        if self._bound is None:
            self._bound = forge.bound_elsewhere(await self._manager.all_bindings())
        forge.check_accounts(name, self._bound)
        self._room.take(local, name)
        wanted = forge.namespace(name, local, self._map, self._tenant, self.policy)
        logger.info("Creating namespace", extra={"namespace": name})
        try:
            return await self._cluster.create(keys.NAMESPACE, wanted)
        except AlreadyExistsError:
            found = await self._cluster.get_live(keys.NAMESPACE, Key("", name))
            if found is None:
                raise ConflictError(f"namespace {name} was replaced meanwhile") from None
            if not forge.is_twin(found, self._map, local):
                self._room.leave(name)
            return found
        except KubeError:
            self._room.leave(name)
            raise

    async def _bind(self, local: str, twin: Object) -> None:
        name = twin["metadata"]["name"]
        await self._check_same(local, twin)
        made: list[Object] = []
        try:
            for wanted in forge.bindings(name, self._map, self._tenant, self._manager.account):
                made += await self._binding(wanted)
            if made:
                await self._check_same(local, twin)
        except (ConflictError, NamespaceRefusedError):
            for each in made:
                key = objects.key_of(each)
                await self._cluster.delete(keys.ROLE_BINDING, key, uid=objects.uid(each))
            raise

    async def _binding(self, wanted: Object) -> list[Object]:
        """Return the binding if it is new; whom an older one binds is the provider's to say."""
        key = objects.key_of(wanted)
        try:
            return [await self._cluster.create(keys.ROLE_BINDING, wanted)]
        except AlreadyExistsError:
            found = await self._cluster.get_live(keys.ROLE_BINDING, key)
            if found and forge.owner_of(found) != objects.key_of(self._map):
                message = f"rolebinding {key} exists and is not ours"
                raise NamespaceRefusedError("Conflict", message) from None
            return []

    async def _check_same(self, local: str, twin: Object) -> None:
        name = twin["metadata"]["name"]
        found = await self._cluster.get_live(keys.NAMESPACE, Key("", name))
        if found is None or objects.uid(found) != objects.uid(twin):
            raise ConflictError(f"namespace {name} was replaced meanwhile")
        forge.check_twin(found, self._map, local)


# What a consumer wrote into a remote namespace keeps it from no end -------------------------------
# A policy lets a consumer set no finalizer. What stands from before that policy, or from while it
# was away, is taken off when the twin is dissolved.
# Source: docs/parity.md SEC-A20.

KINDS: Final = (
    keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE, keys.SERVICE, keys.INGRESS,
    keys.PERSISTENT_VOLUME_CLAIM, keys.CONFIG_MAP,
)  # fmt: skip
"""What a consumer may write in a twin, as its role there has it, but for Secrets.

The controller manager reads none of these outside of tenant namespaces (R5): one that is held from
before the policy is named by the condition of the Tenant.
"""
_OF_THE_SERVER: Final = frozenset({"foregroundDeletion", "orphan"})
"""Those that the garbage collector takes away itself. Source: Kubernetes, "Finalizers"."""
_STUCK: Final = frozenset({"NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"})
_OF_KUBERNETES: Final = "^[^/]*[.](kubernetes[.]io|k8s[.]io)/"
"""With a word before it: ``kubernetes.io/pvc-protection`` is of claims alone."""
_OF_CLAIMS: Final = f"{_OF_KUBERNETES}|^kubernetes[.]io/"
_OF_SERVICES: Final = f"(?!kubernetes[.]io/)({_OF_KUBERNETES}|{allowlist.SERVICES})"
_OF_PROVIDERS: Final[Mapping[Kind, str]] = {
    keys.SERVICE: _OF_SERVICES,
    keys.INGRESS: _OF_SERVICES,
    keys.PERSISTENT_VOLUME_CLAIM: _OF_CLAIMS,
}
"""Those of load balancers and volumes, whose controllers have something to clean up first."""

FULL: Final = 2**20
"""Characters of an object that may have no room for its own deletion: etcd takes 1.5 MiB."""
_UNNOTED: Final[Object] = {"labels": None, "annotations": None, **objects.UNTRACKED}
"""Metadata of a patch that makes room. Nothing reads it any more: the twin goes."""


def foreign_finalizers(kind: Kind, obj: Object) -> list[str]:
    """Return the finalizers of an object in a twin that no controller of a provider sets."""
    theirs = _OF_PROVIDERS.get(kind, "^$")
    return [
        each
        for each in objects.finalizers(obj)
        if each not in _OF_THE_SERVER and not re.search(theirs, each)
    ]


def is_stuck(twin: Object) -> bool:
    """Whether the namespace is being deleted, and something in it cannot be."""
    found = objects.status(twin).get("conditions") or []
    return any(
        one.get("type") in _STUCK and one.get("status") == "True" for one in found
    ) and objects.is_terminating(twin)


async def release(cluster: Cluster, twin: str) -> int:
    """Take off what the consumer set on its objects in ``twin``; return how many had it.

    Whoever filled an object to the last byte keeps it from being deleted, so that is emptied: X4.
    What this process may not change stays; the condition of the Tenant names it.
    """
    released = list[Key]()

    async def let_go(kind: Kind, obj: Object) -> None:
        key = objects.key_of(obj)
        if objects.is_outlined(obj):
            obj = await cluster.get_live(kind, key) or obj
        foreign = foreign_finalizers(kind, obj)
        kept = [each for each in objects.finalizers(obj) if each not in foreign]
        try:
            if _is_full(obj):
                metadata = {"uid": objects.uid(obj), **_UNNOTED}
                obj = await cluster.patch(kind, key, {"metadata": metadata})
            if foreign:
                await writes.set_finalizers(cluster, kind, obj, kept)
        except NotFoundError:
            return
        except ForbiddenError as error:
            logger.warning(
                "Finalizers stay", extra={"kind": str(kind), "key": str(key), "why": str(error)}
            )
            return
        released.append(key)
        logger.info("Released", extra={"kind": str(kind), "key": str(key), "held": foreign})

    async def let_all_go(kind: Kind) -> None:
        of = Selection(kind, Object, twin, whole_up_to=FULL)
        found = (await cluster.list(of)).items.values()
        held = [obj for obj in found if foreign_finalizers(kind, obj) or _is_full(obj)]
        failures.extend(await writes.each(held, partial(let_go, kind)))

    failures = list[Exception]()
    failures += await writes.each(KINDS, let_all_go)
    writes.raise_all(failures)
    return len(released)


def _is_full(obj: Object) -> bool:
    """Whether a finalizer keeps what is too large to be marked as deleted."""
    if objects.is_outlined(obj):
        return True
    metadata = obj["metadata"]
    has_notes = metadata.get("labels") or metadata.get("annotations")
    return bool(has_notes and objects.finalizers(obj)) and len(objects.canonical(obj)) > FULL


# Which changes concern which NamespaceMap of a consumer ------------------------------------------


def _by_owner(change: Change[Object]) -> Iterable[Key]:
    owners = {forge.owner_of(obj) for obj in (change.old, change.new) if obj}
    return [owner for owner in owners if owner]
