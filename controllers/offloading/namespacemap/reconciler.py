"""Keeps the twin namespaces that a map asks for, and no others: many entries side by side."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from apis import keys, objects, policies, whose
from apis.authentication import Binding
from apis.objects import Key, Kind, Object
from apis.offloading import CurrentMapping as Entry
from apis.offloading import NamespaceMap
from apis.policies import ProviderPolicy
from controllers import concerns, selections, upkeep, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.namespacemap import forge
from controllers.offloading.namespacemap.forge import RefusedError, Tenant
from controllers.offloading.namespacemap.twins import Twins
from controllers.pace import Pace
from controllers.views import View
from kube.cluster import Cluster
from kube.errors import KubeError
from kube.events import Recorder
from kube.informer import Change, Informer
from kube.reconcile import TerminalError
from kube.runner import Runner, Source
from kube.written import Written

KIND: Final = keys.NAMESPACE_MAP
FINALIZER: Final = keys.NAMESPACE_MAP_FINALIZER
REFUSED_RETRY_S: Final = 30.0
"""What was in the way is not ours, so no event tells when it is gone."""
RELEASED_RETRY_S: Final = 1.0
"""Until a twin of a map that goes is looked at again, after rights or finalizers in it went."""
AT_ONCE: Final = 16
BATCH: Final = 64
"""As many entries are served until the status tells of them: it holds all, and is written whole."""


@dataclass(frozen=True)
class Observed:
    """What the process knows of whole kinds, read only."""

    namespaces: View
    bindings: View
    policies: View
    tenants: View
    all_bindings: Callable[[], Iterable[tuple[Kind, Binding]]]
    """Of the whole cluster, no matter who made them."""


@dataclass(frozen=True)
class _Look:
    """One look at a map: what came of its entries so far."""

    obj: Object
    twins: Twins
    entries: dict[str, Entry]
    failures: list[Exception]
    held: set[str] = field(default_factory=set)
    """Twins that are not deleted yet: something of the consumer's has just gone from them."""


_IsReady: TypeAlias = Callable[[str, str], Awaitable[bool]]


class NamespaceMapReconciler:
    """One replica: an entry that is refused, or that fails, does not hold up the others."""

    def __init__(
        self,
        cluster: Cluster,
        observed: Observed,
        *,
        account: Key,
        events: Recorder,
        pace: Pace | None = None,
    ) -> None:
        self._cluster = cluster
        self._observed = observed
        self._account = account
        self._events = events
        self._written = Written()
        self._given: defaultdict[str, dict[str, Key]] = defaultdict(dict)
        """By tenant namespace and name, which map was given a twin."""
        self._pace = pace or Pace()

    async def reconcile(self, key: Key) -> float | None:
        obj = self._written.newest(key, await self._cluster.get(KIND, key))
        if obj is None or not whose.is_foreign(obj):
            return None
        if (left_s := self._pace.left_s(key)) is not None:
            return left_s
        if objects.is_terminating(obj):
            return await self._dissolve(obj)
        tenant = await self._tenant(obj)
        obj = await upkeep.add_finalizer(self._cluster, KIND, obj, FINALIZER)
        look = await self._look(obj, tenant, await self._policy(obj, tenant))
        await self._remove(look)
        is_more = await self._serve(look)
        await self._report(look)
        upkeep.raise_all(look.failures)
        if is_more:
            return 0.0
        waiting = any(entry.phase != forge.ACCEPTED for entry in look.entries.values())
        return REFUSED_RETRY_S if waiting else None

    async def _tenant(self, obj: Object) -> Tenant:
        where = Key("", obj["metadata"]["namespace"])
        try:
            tenant = forge.tenant(await self._cluster.get(keys.NAMESPACE, where), obj)
            forge.check_welcome(tenant, (await self._observed.tenants()).values())
        except RefusedError as error:
            self._events.event(KIND, obj, "Warning", error.reason, str(error))
            raise TerminalError(error.reason, str(error)) from error
        return tenant

    async def _policy(self, obj: Object, tenant: Tenant) -> ProviderPolicy:
        try:
            return policies.of((await self._observed.policies()).values(), tenant.cluster_id)
        except ValueError as error:
            self._events.event(KIND, obj, "Warning", "InvalidPolicy", str(error))
            raise TerminalError("InvalidPolicy", str(error)) from error

    async def _look(self, obj: Object, tenant: Tenant, policy: ProviderPolicy) -> _Look:
        found = await self._observed.namespaces()
        given = self._given[objects.key_of(obj).namespace]
        twins = Twins(
            self._cluster,
            obj,
            tenant,
            policy,
            found,
            given=given,
            account=self._account,
            bindings=self._observed.all_bindings,
        )
        return _Look(obj, twins, {}, [])

    async def _serve(self, look: _Look) -> bool:
        """Serve who is not served yet, who was never answered first; whether there are more."""
        parsed, missing = NamespaceMap.parse(look.obj), {}
        namespaces = await self._observed.namespaces()
        bindings = await self._observed.bindings()
        for local, name in parsed.desired.items():
            names = (look.obj["metadata"]["namespace"], self._account.name)
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

    async def _make(self, look: _Look, local: str, name: str, current: Mapping[str, Entry]) -> None:
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

    async def _remove(self, look: _Look, is_ready: _IsReady | None = None) -> None:
        """Delete the twins that nobody wants, once ready; the entries of those still going stay."""
        owned = (await self._observed.namespaces()).values()
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
        look = await self._look(obj, Tenant("", ""), ProviderPolicy())
        await self._remove(look, look.twins.is_released)
        obj = await self._report(look)
        upkeep.raise_all(look.failures)
        if look.entries:
            return RELEASED_RETRY_S if look.held else REFUSED_RETRY_S
        await upkeep.remove_finalizer(self._cluster, KIND, obj, FINALIZER)
        return None

    async def _report(self, look: _Look) -> Object:
        before = NamespaceMap.parse(look.obj).current
        entries = forge.clipped(look.entries)
        for local, entry in entries.items():
            if entry.reason and before.get(local) != entry:
                message = f"namespace {local}: {entry.message}"
                self._events.event(KIND, look.obj, "Warning", entry.reason, message)
        status = forge.status(entries, look.twins.policy)
        made = await upkeep.write_status(self._cluster, KIND, look.obj, status, is_tracked=False)
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


# Which changes concern which NamespaceMap of a consumer ------------------------------------------


def controller(manager: Manager) -> Term:
    namespace_maps = manager.informer(selections.NAMESPACE_MAPS)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    bindings = manager.informer(selections.ROLE_BINDINGS)
    policies = manager.informer(selections.PROVIDER_POLICIES)
    tenants = manager.informer(selections.TENANTS)
    everyones = manager.all_bindings()

    sources = [
        Source(namespace_maps),
        Source(namespaces, _by_owner),
        Source(namespaces, concerns.inside(namespace_maps)),
        Source(bindings, _by_owner),
        Source(policies, _by_policy(namespace_maps)),
        Source(tenants, concerns.but_booked(concerns.beside(namespace_maps))),
    ]

    def runner() -> Runner:
        reconciler = NamespaceMapReconciler(
            manager.cached,
            Observed(
                views.cached(namespaces),
                views.cached(bindings),
                views.cached(policies),
                views.cached(tenants),
                lambda: views.each_of(everyones),
            ),
            account=Key(manager.namespace, keys.CONTROLLER_MANAGER),
            events=manager.events,
        )
        return Runner("namespacemap", reconciler, sources, workers=manager.limits.workers)

    return lambda: [runner()]


def _by_policy(namespace_maps: Informer[Object]) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        return [] if old == new else list(namespace_maps.items())  # its status is another loop's

    return keys_of


def _by_owner(change: Change[Object]) -> Iterable[Key]:
    owners = {forge.owner_of(obj) for obj in (change.old, change.new) if obj}
    return [owner for owner in owners if owner]
