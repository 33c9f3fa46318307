"""Looks at the pods of a namespace when its rules change, and until none is out of place."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apis import keys, nodeselector, objects
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceOffloading, VirtualNode
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import LIVING
from controllers import watches, writes
from controllers.manager import Manager, Setup
from controllers.offloading.namespaceoffloading import forge as selection
from controllers.offloading.namespaceoffloading.reconciler import by_node
from controllers.offloading.placement import forge
from controllers.offloading.placement.policies import NONE, SELECTIONS, Policies, PolicySummary
from controllers.watches import Keys, Lister
from kube.cluster import Cluster, Selection, Watched
from kube.controller import Runner, WatchSource
from kube.dynamicinformer import DynamicTasks
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.process import Runnable
from kube.slim import Partial, PlacedPod

LOOK_S: Final = 10.0
"""Until the next look, while a pod is out of place or may get a node that nobody tells of."""
UNLABELLED_S: Final = 0.5
"""Until the namespace has its label, without which a policy lets nobody be evicted there."""
KIND: Final = keys.NAMESPACE_OFFLOADING


@dataclass(frozen=True)
class PlacementListers:
    """What the process knows of whole kinds: the virtual nodes and policies, read only."""

    nodes: Lister
    virtual_nodes: Lister
    are_shown: Callable[[Key, Iterable[Key]], bool]
    """Whether we are told when one of the pods that wait is bound (``Waiting``)."""
    policies: Callable[[str, Iterable[VirtualNode]], Awaitable[PolicySummary]]
    """What is found of ``policies.Policies`` in a namespace that is offloaded to these nodes."""


class PlacementReconciler:
    """One namespace; nothing is listed, and nobody looks again, where every pod is in place."""

    def __init__(
        self,
        cluster: Cluster,
        listers: PlacementListers,
        *,
        events: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._listers = listers
        self._events = events
        self._clock = clock
        self._looked: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> float | None:
        obj = await self._cluster.get(KIND, key)
        offloading = None if obj is None else _understood(obj)
        if obj is None or offloading is None:
            self._looked.pop(key, None)
            self._listers.are_shown(key, ())
            return await self._release(obj) if obj and objects.is_terminating(obj) else None
        pods = await self._pods(key.namespace) if forge.can_misplace(offloading) else []
        out = forge.misplaced(offloading, pods, await self._listers.nodes())
        leaving = await self._leaving(obj, offloading, pods, out)
        if leaving and not await self._is_labelled(key.namespace):
            return UNLABELLED_S
        rule = f"podOffloadingStrategy {offloading.strategy.value} does not place there"
        await self._evict(obj, leaving, rule)
        await self._report(obj, offloading, out)
        waiting = map(objects.key_of, filter(forge.is_unbound, pods))
        is_told = self._listers.are_shown(key, waiting)
        return self._next(key, offloading, is_still=is_told and not out)

    async def _is_labelled(self, namespace: str) -> bool:
        found = await self._cluster.get(keys.NAMESPACE, Key("", namespace))
        return found is not None and keys.SCHEDULING_ENABLED in objects.labels(found)

    async def _pods(self, namespace: str) -> list[Object]:
        living = Selection(keys.POD, PlacedPod, namespace, fields=LIVING)
        found = await self._cluster.list(living)
        return [pod.to_object() for pod in found.items.values()]

    async def _leaving(
        self,
        obj: Object,
        offloading: NamespaceOffloading,
        pods: Sequence[Object],
        out: Sequence[Object],
    ) -> list[Object]:
        if forge.is_asked(obj, offloading):
            return list(out)
        concerned = [*out, *filter(forge.is_unbound, pods)]
        if not concerned or obj["metadata"].get("generation") != 1:
            return []
        namespace = Key("", objects.key_of(obj).namespace)
        found = await self._cluster.get(keys.NAMESPACE, namespace)
        return forge.premature(obj, found, concerned, self._clock())

    async def _release(self, obj: Object) -> float | None:
        """Let go, when the namespace is unoffloaded, who waits for virtual nodes and has none."""
        name = objects.key_of(obj).namespace
        namespace = await self._cluster.get(keys.NAMESPACE, Key("", name))
        if namespace is None or objects.is_terminating(namespace):
            return None  # they go with it
        found = forge.stranded(await self._pods(name))
        failures = await writes.each(found, self._delete)
        if found:
            message = f"deleted {forge.names(found)}, which waited for a virtual node"
            self._events.event(KIND, obj, "Normal", "EvictedPods", message)
        writes.raise_all(failures)
        return LOOK_S if found else None

    async def _delete(self, pod: Object) -> None:
        """Delete a pod without a node, which no disruption budget counts."""
        key, uid = objects.key_of(pod), objects.uid(pod)
        await writes.remove(
            self._cluster, keys.POD, key, is_ours=lambda found: objects.uid(found) == uid
        )

    async def _evict(self, obj: Object, leaving: Sequence[Object], rule: str) -> None:
        """Evict who is ``leaving``, which ``rule`` explains."""
        gone = list[Object]()

        async def evict(pod: Object) -> None:
            if await writes.evict(self._cluster, pod):
                gone.append(pod)

        failures = await writes.each(leaving, evict)
        kept = [pod for pod in leaving if pod not in gone]
        if gone:
            message = f"evicted {forge.names(gone)}, which {rule}"
            self._events.event(KIND, obj, "Normal", "EvictedPods", message)
        if kept:
            message = f"{forge.names(kept)}, which {rule}, cannot be evicted now: tried again"
            self._events.event(KIND, obj, "Warning", "EvictionBlocked", message)
        writes.raise_all(failures)

    async def _report(
        self, obj: Object, offloading: NamespaceOffloading, out: Sequence[Object]
    ) -> None:
        policies = await self._policies(objects.key_of(obj).namespace, offloading)
        told = forge.status(obj, offloading, out, policies, self._clock())
        status = {**objects.status(obj), **told}
        await writes.write_status(self._cluster, KIND, obj, status)

    async def _policies(self, namespace: str, offloading: NamespaceOffloading) -> PolicySummary:
        if offloading.strategy is Strategy.LOCAL:
            return NONE  # they hold for all its pods
        virtual_nodes = map(VirtualNode.parse, (await self._listers.virtual_nodes()).values())
        nodes = await self._listers.nodes()
        chosen = selection.selected_nodes(offloading.cluster_selector, virtual_nodes, nodes)
        return await self._listers.policies(namespace, chosen)

    def _next(self, key: Key, offloading: NamespaceOffloading, *, is_still: bool) -> float | None:
        """Look once more after each change: pods may be on their way that the old rules let in."""
        is_known = self._looked.get(key) == offloading.generation
        self._looked[key] = offloading.generation
        is_new = forge.can_misplace(offloading) and not is_known
        return None if is_still and not is_new else LOOK_S


def _understood(obj: Object) -> NamespaceOffloading | None:
    """Return what ``obj`` says; None where it ends, or where nobody can tell what it says."""
    if objects.is_terminating(obj):
        return None
    try:
        offloading = NamespaceOffloading.parse(obj)
        nodeselector.check(offloading.cluster_selector)
    except ValueError:
        return None
    return offloading


# Which changes may leave pods out of place, or policies where they hold for a part of them -------


def controller(manager: Manager) -> Setup:
    offloadings = manager.informer(watches.OFFLOADINGS)
    nodes = manager.informer(watches.NODES)
    virtual_nodes = manager.informer(watches.VIRTUAL_NODES)
    of_templates = watches.every(keys.VK_OPTIONS_TEMPLATE, namespace=manager.namespace)
    templates = manager.informer(of_templates)
    policies = Policies(manager.cached, manager.namespace)
    sources: list[WatchSource[Any]] = [
        WatchSource(offloadings, _by_offloading),
        WatchSource(nodes, by_node(offloadings)),
        WatchSource(virtual_nodes, _by_spec(offloadings)),
        WatchSource(templates, watches.all_of(offloadings)),
        *(policies.source(manager.informer(each), offloadings) for each in SELECTIONS),
    ]

    def loops() -> list[Runnable]:
        waiting = Waiting(manager.live)
        listers = PlacementListers(
            nodes=watches.cached(nodes),
            virtual_nodes=watches.cached(virtual_nodes),
            are_shown=waiting.are_shown,
            policies=policies.found,
        )
        reconciler = PlacementReconciler(
            manager.cached, listers, events=manager.events, clock=manager.clock
        )
        runner = Runner("placement", reconciler, sources, workers=manager.limits.workers)
        waiting.subscribe(runner.enqueue)
        return [runner, waiting]

    return loops


def _by_spec(offloadings: Informer[Object]) -> Keys:
    """Return whom a VirtualNode concerns, which says what of a template is reflected where."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        is_same = objects.spec(change.old) == objects.spec(change.new)
        return [] if is_same else list(offloadings.items())

    return keys_of


def _by_offloading(change: Change[Object]) -> Iterable[Key]:
    return [] if forge.is_same_question(change.old, change.new) else [change.key]


# Pods that wait for a node: a watch tells when one no longer waits --------------------------------

UNBOUND: Final = Selection(keys.POD, Partial, fields="spec.nodeName=")


class Waiting:
    """Which pods were seen to wait, by whose question; a ``Loop``.

    Nothing is watched while none waits: pods of namespaces that nobody offloads cost nothing here.
    """

    name = "waiting-pods"

    def __init__(self, cluster: Watched) -> None:
        self._cluster = cluster
        self._pods: dict[Key, frozenset[Key]] = {}
        self._changed = asyncio.Event()
        self._watch: DynamicTasks[Kind] = DynamicTasks(self._follow)
        self._shown: Informer[Partial] = Informer(UNBOUND)
        self._wake: Callable[[Key], None] = lambda _asker: None

    def subscribe(self, wake: Callable[[Key], None]) -> None:
        """Call ``wake`` with who asked for a pod that is bound now, or gone."""
        self._wake = wake

    def are_shown(self, asker: Key, pods: Iterable[Key]) -> bool:
        """Remember that ``pods``, and no others, wait; whether the watch shows all of them.

        One that it does not show may have been bound already, and then nobody is told.
        """
        found = frozenset(pods)
        if found:
            self._pods[asker] = found
        else:
            self._pods.pop(asker, None)
        self._changed.set()
        return all(self._shown.get(key) is not None for key in found)

    async def run(self) -> None:
        """Watch as long as pods wait; it never ends by itself."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                await self._watch.keep(tasks, [UNBOUND.kind] if self._pods else [])
                await self._changed.wait()

    def is_alive(self) -> bool:
        return True

    async def drain(self) -> None:
        return

    async def _follow(self, _: Kind) -> None:
        self._shown = Informer(UNBOUND)
        self._shown.subscribe(self._on_change)
        try:
            await self._shown.run(self._cluster)
        finally:
            self._shown = Informer(UNBOUND)

    def _on_change(self, change: Change[Partial]) -> None:
        if change.new is not None:
            return
        for asker, pods in self._pods.items():
            if change.key in pods:
                self._wake(asker)
