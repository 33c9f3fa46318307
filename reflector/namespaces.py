"""Which pairs of namespaces are reflected now, and the loops of each.

Source: docs/parity.md § 6.1, 6.11.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from apis import keys, reflectionpolicy
from apis.objects import Key, Object, named
from apis.offloading import MappedNamespace, MappingPhase, NamespaceMap
from apis.offloading import ReflectionPolicy as Policy
from apis.providerpolicy import AllowedReflection
from apis.reflection import KINDS
from kube import errors, peer
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.dynamicinformer import DynamicInformers, DynamicTasks
from kube.informer import Change, Informer
from kube.slim import Partial
from reflector.informers import CachedClients, CommonInformers, NamespaceInformers, Rights
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.reflection import RecordEvent, Reflection, ReflectionClients

logger = logging.getLogger(__name__)

_NO_PODS: Final = "involvedObject.kind!=Pod"
"""Events of those are many, and told by others."""


@dataclass(frozen=True)
class ReflectorIdentity:
    """Who reflects to whom, and where the peering's objects are at the consumer."""

    home_cluster_id: str
    foreign_cluster_id: str
    tenant_namespace: str


def accepted(namespace_map: NamespaceMap) -> dict[str, str]:
    """Return the remote namespace of each local one that is there and still asked for.

    What is no longer asked for is about to go: twins that are restored meanwhile are lost work.
    """
    return {
        local: current.remote_namespace
        for local, current in namespace_map.current.items()
        if current.phase is MappingPhase.ACCEPTED
        and namespace_map.desired.get(local) == current.remote_namespace
    }


@dataclass(frozen=True)
class Rules:
    """What of a kind leaves, and how it looks then."""

    policy: Policy = Policy.DENY_LIST
    settings: RemoteObjectOptions = field(default_factory=RemoteObjectOptions)


class KindController:
    """The queue and workers of one kind, shared by all namespaces. Fulfils Reconciler.

    ``record`` is for authors of objects, ``warn`` for those who offload a namespace, on its
    NamespaceOffloading.
    """

    def __init__(
        self,
        of_kind: KindReflection,
        rules: Rules,
        record: RecordEvent,
        workers: int,
        *,
        warn: RecordEvent | None = None,
    ) -> None:
        self.of_kind = of_kind
        self.rules = rules
        self.record = record
        self.warn = warn
        self.runner = Runner(f"reflection-{of_kind.row.name}", self, [], workers=workers)
        self._reflections: dict[str, Reflection] = {}

    async def reconcile(self, key: Key) -> float | None:
        reflection = self._reflections.get(key.namespace)
        return await reflection.reconcile(key) if reflection else None

    def begin(self, namespace: str, reflection: Reflection) -> None:
        """Reflect the originals of this kind that are in ``namespace``."""
        self._reflections[namespace] = reflection

    def end(self, namespace: str) -> None:
        self._reflections.pop(namespace, None)


class ReflectionRequest(NamedTuple):
    """A pair of namespaces, and what is said of it: here, by the one who offloads it, and there.

    ``policy`` is that by which leaves what pods mention, if one is asked for.
    """

    pair: MappedNamespace
    policy: Policy | None = None
    offers: AllowedReflection | None = None


class NamespaceReflection:
    """One pair of namespaces: its informers, and its part in the controller of each kind."""

    def __init__(
        self,
        request: ReflectionRequest,
        controllers: Iterable[KindController],
        clients: CachedClients,
        common: CommonInformers,
    ) -> None:
        self._informers = NamespaceInformers(request.pair, clients, common)
        self._request, self._clients, self._budget = request, clients, common.budget
        self._parts = [(each, self._reflection(each)) for each in controllers]
        self._informers.report_excess(self._warn_of_excess)
        self._rights = [rights for each, _ in self._parts if (rights := self._rights_of(each))]

    async def run(self) -> None:
        """Reflect until cancelled; what was reflected then stays."""
        await self._remember()
        async with asyncio.TaskGroup() as tasks:
            for rights in self._rights:
                tasks.create_task(rights.run())
            await DynamicInformers(self._informers.followed()).run(begin=self._begin, end=self._end)

    async def _remember(self) -> None:
        """Let what a reflector before us told be known, as far as Events still say it."""
        pair = self._request.pair
        labels = f"{keys.REMOTE_CLUSTER_ID}={pair.destination}"
        of = Selection(keys.EVENT, Object, pair.local_namespace, labels=labels, fields=_NO_PODS)
        with contextlib.suppress(errors.KubeError):  # then some of it is told once more
            listed = (await self._clients.home.list(of)).items.values()
            events = reflectionpolicy.last_events(listed)
            for _, reflection in self._parts:
                reflection.reporter.remember(reflection.namespace, events)
            for rights in self._rights:
                rights.remember(pair.destination, events)

    def _rights_of(self, controller: KindController) -> Rights | None:
        """Return who tells of rights that are missing: who grants them may take them away."""
        if controller.warn is None:
            return None
        where, row = self._request.pair.local_namespace, controller.of_kind.row
        rights = Rights(self._clients.home, where, row, controller.warn)
        self._informers.report_rights(rights)
        return rights

    def _reflection(self, controller: KindController) -> Reflection:
        of_kind, rules = controller.of_kind, controller.rules
        policy = reflectionpolicy.in_namespace(of_kind.row, rules.policy, self._request.policy)
        context = ReflectionContext(
            self._request.pair, policy, rules.settings, self._informers, self._request.offers
        )
        both = (self._clients.home, self._clients.foreign)
        source, target = both if of_kind.row.is_outward else reversed(both)
        clients = ReflectionClients(source, target, controller.record, self._budget)
        reflection = Reflection(of_kind, context, clients)
        reflection.on_absence = functools.partial(self._warn, controller)
        self._informers.follow_source(reflection, controller.runner)
        self._informers.follow_target(reflection, controller.runner)
        for input_ in of_kind.inputs:
            if policy in input_.policies and input_.is_needed(rules.settings):
                self._informers.follow_input(input_, context, controller.runner)
        if of_kind.rate_limited_read is not None:
            reflection.patience = self._informers.patience(of_kind.rate_limited_read, context)
        return reflection

    def _warn_of_excess(self, said: str) -> None:
        for controller, _ in self._parts[:1]:
            message = f"the provider says more than is kept of it: {said}"
            self._event(controller, keys.TOO_MUCH, message)

    def _warn(self, controller: KindController, message: str) -> None:
        self._event(controller, keys.MASS_ABSENCE, message)

    def _event(self, controller: KindController, reason: str, message: str) -> None:
        where = Key(self._request.pair.local_namespace, keys.OFFLOADING_NAME)
        logger.warning("Told of a provider", extra={"key": str(where), "said": message})
        if controller.warn:
            offloading = named(keys.NAMESPACE_OFFLOADING, where)
            controller.warn(offloading, "Warning", reason, message)

    def _begin(self) -> None:
        for controller, reflection in self._parts:
            controller.begin(reflection.namespace, reflection)
        self._informers.begun()
        if not self._informers.is_lacking():
            for rights in self._rights:
                rights.listed()

    def _end(self) -> None:
        for controller, reflection in self._parts:
            controller.end(reflection.namespace)


class ReflectedNamespaces:
    """Starts and stops pairs of namespaces as the provider accepts them. Fulfils Reconciler."""

    def __init__(
        self,
        identity: ReflectorIdentity,
        controllers: Sequence[KindController],
        home: Cluster,
        foreign: Cluster,
        *,
        is_first: bool = False,
    ) -> None:
        """``is_first`` says that nobody reflected before, so that nothing of theirs comes late."""
        self._identity, self._controllers, self._live = identity, controllers, home
        self._clients = CachedClients(CachedCluster(home), CachedCluster(foreign))
        self._common = CommonInformers(self._clients.home, is_settled=is_first)
        selection = peer.map_to_provider(identity.tenant_namespace, identity.foreign_cluster_id)
        self.maps: Informer[Object] = Informer(selection)
        """Says which namespaces are offloaded; for readiness."""
        named_so = f"metadata.name={keys.OFFLOADING_NAME}"
        offloadings = Selection(keys.NAMESPACE_OFFLOADING, Partial, fields=named_so)
        self._offloadings: Informer[Partial] = Informer(offloadings)
        own = Key(identity.tenant_namespace, identity.foreign_cluster_id)
        sources: list[WatchSource[Any]] = [
            WatchSource(self.maps),
            WatchSource(self._offloadings, functools.partial(_asks_otherwise, own)),
        ]
        self._runner = Runner("reflected-namespaces", self, sources)
        self._reflected: DynamicTasks[ReflectionRequest] = DynamicTasks(self._reflect)
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def running(self) -> Mapping[MappedNamespace, asyncio.Task[None]]:
        return {request.pair: task for request, task in self._reflected.running.items()}

    def is_alive(self) -> bool:
        return all(runner.is_alive() for runner in self._runners())

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Reflect until cancelled; run ``beside`` as long."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._common.begin(tasks)
            tasks.create_task(self.maps.run(self._live))
            tasks.create_task(self._offloadings.run(self._live))
            for work in beside:
                tasks.create_task(work)
            for runner in self._runners():
                tasks.create_task(runner.run())

    async def reconcile(self, _key: Key) -> float | None:
        maps = [NamespaceMap.parse(found) for found in self.maps.items().values()]
        if len(maps) > 1:
            message = f"{len(maps)} NamespaceMaps in {self._identity.tenant_namespace}: keep one"
            raise TerminalError("TooManyNamespaceMaps", message)
        pairs = [
            (self._pair(*names), AllowedReflection.parse(found.offered))
            for found in maps
            for names in accepted(found).items()
        ]
        wanted = {request for pair in pairs if (request := self._request(*pair))}
        if self._tasks is not None:  # else nobody runs us, and nobody would own the tasks
            begun, ended = await self._reflected.keep(self._tasks, wanted)
            for what, requests in (("Started", begun), ("Stopped", ended)):
                for request in requests:
                    logger.info("%s reflecting a namespace", what, extra=_named(request.pair))
        return None

    def _runners(self) -> list[Runner]:
        return [self._runner, *(controller.runner for controller in self._controllers)]

    def _pair(self, local: str, remote: str) -> MappedNamespace:
        who = self._identity
        return MappedNamespace(who.home_cluster_id, who.foreign_cluster_id, local, remote)

    def _request(
        self, pair: MappedNamespace, offers: AllowedReflection | None
    ) -> ReflectionRequest | None:
        """Return how to reflect ``pair``; None while its NamespaceOffloading is not seen."""
        found = self._offloadings.get(Key(pair.local_namespace, keys.OFFLOADING_NAME))
        if found is None:  # it might narrow what leaves
            return None
        return ReflectionRequest(pair, _policy(found), offers)

    async def _reflect(self, request: ReflectionRequest) -> None:
        """Reflect until cancelled; kinds that may be unknown somewhere hold up no others."""
        known = [each for each in self._controllers if each.of_kind.row in KINDS]
        others = [[each] for each in self._controllers if each.of_kind.row not in KINDS]
        async with asyncio.TaskGroup() as tasks:
            for controllers in (known, *others):
                made = NamespaceReflection(request, controllers, self._clients, self._common)
                tasks.create_task(made.run())


def _policy(offloading: Partial) -> Policy | None:
    return reflectionpolicy.asked_policy(
        {"metadata": {"annotations": offloading.metadata.annotations}}
    )


def _asks_otherwise(own: Key, change: Change[Partial]) -> Iterable[Key]:
    """Return ``own``, the one key there is, when a NamespaceOffloading asks for another policy."""
    before, after = (each and _policy(each) for each in (change.old, change.new))
    came = (change.old is None) != (change.new is None)
    return [own] if came or before != after else []


def _named(pair: MappedNamespace) -> dict[str, str]:
    return {"namespace": pair.local_namespace, "remote_namespace": pair.remote_namespace}
