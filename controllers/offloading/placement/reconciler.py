"""Looks at the pods of a namespace when its rules change, and until none is out of place."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from apis import keys, nodeselector, objects, reflection, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceOffloading, VirtualNode, VkOptionsTemplate
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import LIVING
from apis.reflection import ReflectedKind
from controllers import watches, writes
from controllers.manager import Controller, Manager
from controllers.offloading.namespaceoffloading import forge as selection
from controllers.offloading.namespaceoffloading.reconciler import by_node
from controllers.offloading.placement import forge
from controllers.offloading.placement.forge import NO_POLICIES, PolicySummary
from kube.cluster import Cluster, Selection, Watched
from kube.controller import WatchSource
from kube.dynamicinformer import DynamicTasks
from kube.informer import Change, Informer
from kube.process import Runnable
from kube.slim import Partial, PlacedPod

LOOK_S: Final = 10.0
"""Until the next look, while a pod is out of place or may get a node that nobody tells of."""
UNLABELLED_S: Final = 0.5
"""Until the namespace has its label, without which a policy lets nobody be evicted there."""
KIND: Final = keys.NAMESPACE_OFFLOADING


class _PolicyAnnotations(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={"skip": keys.SKIP_REFLECTION, "allow": keys.ALLOW_REFLECTION},
):
    skip: str | None = None
    allow: str | None = None


class _PolicyMeta(objects.Meta, gc=False, frozen=True):
    generation: int = 0
    annotations: _PolicyAnnotations | None = None


class PolicyOutline(msgspec.Struct, gc=False, frozen=True):
    """A policy without its rules."""

    metadata: _PolicyMeta


POLICIES: Final = tuple(Selection(kind, PolicyOutline) for kind in reflection.POLICIES)


class PlacementReconciler(Controller):
    """One namespace; nothing is listed, and nobody looks again, where every pod is in place."""

    name = "placement"
    is_parallel = True

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.waiting = Waiting(self.live)
        self.policies = Policies(self.cached, manager.namespace)
        self._looked: dict[Key, int] = {}

    def watches(self) -> Sequence[WatchSource[Any]]:
        offloadings = self.manager.informer(watches.OFFLOADINGS)
        templates = watches.templates(self.manager.namespace)
        return (
            self.watch(watches.OFFLOADINGS, _by_offloading),
            self.watch(watches.NODES, by_node(offloadings)),
            self.watch(watches.VIRTUAL_NODES, self._by_spec),
            self.watch(templates, self.all_of(watches.OFFLOADINGS)),
            *(self.watch(of, self.policies.keys_of(of.kind, offloadings)) for of in POLICIES),
        )

    def _by_spec(self, change: Change[Object]) -> Iterable[Key]:
        """Return whom a VirtualNode concerns, which says what of a template is reflected where."""
        offloadings = self.informer(watches.OFFLOADINGS)
        old, new = (objects.spec(each).get("vkOptionsTemplateRef") for each in change[1:3])
        return by_node(offloadings)(change) if old == new else list(offloadings.items())

    def loops(self) -> Sequence[Runnable]:
        runner = self.runner()
        self.waiting.subscribe(runner.enqueue)
        return [runner, self.waiting]

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        offloading = None if obj is None else _understood(obj)
        if obj is None or offloading is None:
            self._looked.pop(key, None)
            self.waiting.are_shown(key, ())
            return await self._release(obj) if obj and objects.is_terminating(obj) else None
        pods = await self._pods(key.namespace) if forge.can_misplace(offloading) else []
        out = forge.misplaced(offloading, pods, await self.all(watches.NODES))
        leaving = await self._leaving(obj, offloading, pods, out)
        if leaving and not await self._is_labelled(key.namespace):
            return UNLABELLED_S
        rule = f"podOffloadingStrategy {offloading.strategy.value} does not place there"
        await self._evict(obj, leaving, rule)
        await self._report(obj, offloading, out)
        waiting = map(objects.key_of, filter(forge.is_unbound, pods))
        is_told = self.waiting.are_shown(key, waiting)
        return self._next(key, offloading, is_still=is_told and not out)

    async def _is_labelled(self, namespace: str) -> bool:
        found = await self.cached.get(keys.NAMESPACE, Key("", namespace))
        return found is not None and keys.SCHEDULING_ENABLED in objects.labels(found)

    async def _pods(self, namespace: str) -> list[Object]:
        living = Selection(keys.POD, PlacedPod, namespace, fields=LIVING)
        found = await self.cached.list(living)
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
        found = await self.cached.get(keys.NAMESPACE, namespace)
        return forge.premature(obj, found, concerned, self.clock())

    async def _release(self, obj: Object) -> float | None:
        """Let go, when the namespace is unoffloaded, who waits for virtual nodes and has none."""
        name = objects.key_of(obj).namespace
        namespace = await self.cached.get(keys.NAMESPACE, Key("", name))
        if namespace is None or objects.is_terminating(namespace):
            return None  # they go with it
        found = forge.stranded(await self._pods(name))
        failures = await writes.each(found, self._delete)
        if found:
            message = f"deleted {forge.names(found)}, which waited for a virtual node"
            self.events.event(KIND, obj, "Normal", "EvictedPods", message)
        writes.raise_all(failures)
        return LOOK_S if found else None

    async def _delete(self, pod: Object) -> None:
        """Delete a pod without a node, which no disruption budget counts."""
        key, uid = objects.key_of(pod), objects.uid(pod)
        await writes.remove(self.cached, keys.POD, key, is_ours=writes.same_uid(uid))

    async def _evict(self, obj: Object, leaving: Sequence[Object], rule: str) -> None:
        """Evict who is ``leaving``, which ``rule`` explains."""
        gone = list[Object]()

        async def evict(pod: Object) -> None:
            if await writes.evict(self.cached, pod):
                gone.append(pod)

        failures = await writes.each(leaving, evict)
        kept = [pod for pod in leaving if pod not in gone]
        if gone:
            message = f"evicted {forge.names(gone)}, which {rule}"
            self.events.event(KIND, obj, "Normal", "EvictedPods", message)
        if kept:
            message = f"{forge.names(kept)}, which {rule}, cannot be evicted now: tried again"
            self.events.event(KIND, obj, "Warning", "EvictionBlocked", message)
        writes.raise_all(failures)

    async def _report(
        self, obj: Object, offloading: NamespaceOffloading, out: Sequence[Object]
    ) -> None:
        policies = await self._policies(objects.key_of(obj).namespace, offloading)
        told = forge.status(obj, offloading, out, policies, self.clock())
        status = {**objects.status(obj), **told}
        await writes.write_status(self.cached, KIND, obj, status)

    async def _policies(self, namespace: str, offloading: NamespaceOffloading) -> PolicySummary:
        if offloading.strategy is Strategy.LOCAL:
            return NO_POLICIES  # they hold for all its pods
        virtual_nodes = map(VirtualNode.parse, (await self.all(watches.VIRTUAL_NODES)).values())
        nodes = await self.all(watches.NODES)
        chosen = selection.selected_nodes(offloading.cluster_selector, virtual_nodes, nodes)
        return await self.policies.found(namespace, chosen)

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


def _by_offloading(change: Change[Object]) -> Iterable[Key]:
    return [] if forge.is_same_question(change.old, change.new) else [change.key]


# Pods that wait for a node: a watch tells when one no longer waits --------------------------------

UNBOUND: Final = Selection(keys.POD, Partial, fields="spec.nodeName=")


class Waiting(Runnable):
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


# Which policies of offloaded namespaces hold in this cluster only ---------------------------------


class Policies:
    """The names of all policies by their namespace, as the changes say that it is told of.

    What else is cached of them tells whether one may have come to be reflected, or no longer is.
    One that an administrator opted in is read when its namespace is looked at.
    Source: docs/what-is-reflected.md, "Policies".
    """

    def __init__(self, cluster: Cluster, system: str) -> None:
        self._cluster, self._system = cluster, system
        self._there: dict[str, set[tuple[Kind, str]]] = {}

    def keys_of(
        self, kind: Kind, offloadings: Informer[Object]
    ) -> Callable[[Change[PolicyOutline]], Iterable[Key]]:
        """Return what is told of each policy of ``kind``, and says whom that concerns."""

        def keys_of(change: Change[PolicyOutline]) -> Iterable[Key]:
            self._saw(kind, change)
            key = Key(change.key.namespace, keys.OFFLOADING_NAME)
            is_known = offloadings.get(key) is not None
            return [key] if is_known and _is_policy_news(change.old, change.new) else []

        return keys_of

    def _saw(self, kind: Kind, change: Change[PolicyOutline]) -> None:
        namespace, name = change.key
        there = self._there.setdefault(namespace, set())
        (there.discard if change.new is None else there.add)((kind, name))
        if not there:
            del self._there[namespace]

    async def found(self, namespace: str, nodes: Iterable[VirtualNode]) -> PolicySummary:
        """Return what is in ``namespace``, which is offloaded to ``nodes``."""
        there = self._there.get(namespace, set())
        if not there:
            return NO_POLICIES
        here: set[tuple[Kind, str]] = set()
        for key in sorted({node.template_in(self._system) for node in nodes}):
            rows = await self._opted_in(key)
            here |= {one for one in there if one[0] not in rows}
            for row in rows.values():
                here |= await self._staying(namespace, row)
        return PolicySummary(
            is_any=True, here=tuple(sorted((kind.kind, name) for kind, name in here))
        )

    async def _opted_in(self, key: Key) -> dict[Kind, ReflectedKind]:
        found = await self._cluster.get(keys.VK_OPTIONS_TEMPLATE, key)
        try:
            options = VkOptionsTemplate.parse(found) if found else None
        except ValueError:  # told of the virtual node
            options = None
        rows = map(reflection.opted_in, options.custom_resources if options else ())
        return {row.kind: row for row in rows if row.kind in reflection.OPTIONAL}

    async def _staying(self, namespace: str, row: ReflectedKind) -> set[tuple[Kind, str]]:
        found = await self._cluster.list(Selection(row.kind, Object, namespace))
        return {(row.kind, key.name) for key, obj in found.items.items() if _stays(row, obj)}


def _stays(row: ReflectedKind, obj: Object) -> bool:
    try:
        return reflectionpolicy.reason_to_stay(row.kind, obj, row.default) is not None
    except reflectionpolicy.ContradictionError:
        return True


def _is_policy_news(old: PolicyOutline | None, new: PolicyOutline | None) -> bool:
    """Whether it came, went, or may be reflected otherwise now: a status changes often."""
    if old is None or new is None:
        return True
    was, is_ = old.metadata, new.metadata
    return (was.generation, was.annotations) != (is_.generation, is_.annotations)
