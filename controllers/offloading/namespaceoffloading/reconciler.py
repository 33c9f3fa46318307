"""Writes the entries of one namespace into the maps of the selected clusters, and nothing else."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from apis import keys, nodeselector, objects, ownership
from apis.objects import Key, Object
from apis.offloading import NamespaceOffloading, VirtualNode, is_scheduling_ours
from controllers import watches, writes
from controllers.manager import Controller, Manager
from controllers.offloading.namespaceoffloading import forge
from controllers.offloading.virtualnode.forge import rights
from controllers.watches import Keys
from kube.cluster import Cluster
from kube.controller import Runner, TerminalError, WatchSource
from kube.errors import ForbiddenError, InvalidError, KubeError
from kube.informer import Change, Informer, by_namespace
from kube.slim import ReadYourWrites

ORPHAN_S: Final = 10.0
"""How long a NamespaceOffloading may take after admission has labelled its namespace."""
LABEL_REMOVED: Final = (
    f"the label {keys.SCHEDULING_ENABLED} was set in advance and goes with the "
    "NamespaceOffloading: what sets it again has new pods refused"
)
KIND: Final = keys.NAMESPACE_OFFLOADING
FINALIZER: Final = keys.NAMESPACE_OFFLOADING_FINALIZER

_NOT_THERE: Final = forge.MappingStatus(required=False)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MappedCluster:
    """One cluster: its map, and those of its virtual nodes that are here to stay."""

    namespace_map: Object
    virtual_nodes: tuple[VirtualNode, ...]

    @property
    def key(self) -> Key:
        return objects.key_of(self.namespace_map)


class NamespaceOffloadingReconciler(Controller):
    """One namespace: rights first, then the entry in each map; backwards when it ends."""

    name = "namespaceoffloading"

    def __init__(self, manager: Manager, tick: Callable[[], float] = time.monotonic) -> None:
        super().__init__(manager)
        self._tick = tick
        self._orphans: dict[Key, float] = {}
        self._entries = MappingWriter(self.cached)
        self._written = ReadYourWrites()
        self._withdrawals = Unmappings(self.clock, tick)

    def watches(self) -> Sequence[WatchSource[Any]]:
        by_node_ = by_node(self.manager.informer(watches.OFFLOADINGS))
        return (
            self.watch(watches.OFFLOADINGS),
            self.watch(watches.ENABLED_NAMESPACES, _by_namespace),
            self.watch(watches.NAMESPACE_MAPS, self._by_map),
            self.watch(watches.VIRTUAL_NODES, by_node_),
            self.watch(watches.NODES, by_node_),
            self.watch(watches.ROLE_BINDINGS, _by_binding),
        )

    def _by_map(self, change: Change[Object]) -> Iterable[Key]:
        if not any(ownership.destination(obj) for obj in (change.old, change.new) if obj):
            return []  # a replica, which is for the provider in us
        offloadings = self.informer(watches.OFFLOADINGS)
        touched = forge.touched(change.old, change.new)
        if touched is None:
            return list(offloadings.items())
        wanted = map(_offloading_in, touched)
        # A peer may name any namespace, and only offloaded ones are this controller's.
        return [key for key in wanted if offloadings.get(key) is not None]

    def runner(self) -> Runner:
        workers = max(self.limits.workers, AT_ONCE)
        return Runner(self.name, self, self.watches(), workers=workers)

    async def reconcile(self, key: Key) -> float | None:
        obj = self._written.newest(key, await self.cached.get(KIND, key))
        if obj is None:
            self._withdrawals.forget(key.namespace)
            return await self._take_back_label(key)
        self._orphans.pop(key, None)
        if objects.is_terminating(obj) or await self._is_ending(key.namespace):
            await self._withdraw(key.namespace, obj)
            return self._withdrawals.next_s(key.namespace)
        offloading = await self._understood(key.namespace, obj)
        made = await writes.add_finalizer(self.cached, KIND, obj, FINALIZER)
        self._remember(obj, made)
        await self._offload(key.namespace, made, offloading)
        return self._withdrawals.next_s(key.namespace)

    async def _is_ending(self, namespace: str) -> bool:
        """Whether the namespace goes, and this with it: nothing can be made in it any more."""
        found = await self.cached.get(keys.NAMESPACE, Key("", namespace))
        return found is not None and objects.is_terminating(found)

    async def _understood(self, namespace: str, obj: Object) -> NamespaceOffloading:
        try:
            forge.check_namespace(namespace)
            offloading = NamespaceOffloading.parse(obj)
            nodeselector.check(offloading.cluster_selector)
        except ValueError as error:
            await self._say_invalid(obj, str(error))
            raise TerminalError("Invalid", str(error)) from error
        return offloading

    async def _say_invalid(self, obj: Object, message: str) -> None:
        self.events.event(KIND, obj, "Warning", "Invalid", message)
        peers = await self._peers([])
        maps = [peer.key.name for peer in peers.values()]
        status = forge.invalid(obj, maps, message, self.clock())
        await writes.write_status(self.cached, KIND, obj, status)

    async def _offload(self, namespace: str, obj: Object, offloading: NamespaceOffloading) -> None:
        virtual_nodes = await self._virtual_nodes()
        nodes = await self.all(watches.NODES)
        chosen = forge.selected(offloading.cluster_selector, virtual_nodes, nodes)
        await self._label(namespace, obj, offloading)
        name = offloading.remote_name(namespace, self.manager.cluster_id)
        peers = await self._peers(virtual_nodes)
        wanted = {cluster_id: name for cluster_id in peers if cluster_id in chosen}
        statuses, failures = await self._enter_all(obj, peers, wanted)
        await self._report(obj, name, statuses)
        writes.raise_all(failures)

    async def _withdraw(self, namespace: str, obj: Object) -> None:
        await self._unlabel(namespace, obj)
        peers = await self._peers(await self._virtual_nodes())
        statuses, failures = await self._enter_all(obj, peers, {})
        is_left = bool(failures) or any(each.exists for each in statuses.values())
        if is_left or not _ends_with_ours(obj):
            name = str(objects.status(obj).get("remoteNamespaceName", ""))
            obj = await self._report(obj, name, statuses)
        writes.raise_all(failures)
        if is_left:
            return  # an event of the map follows
        bound = await self._bound(namespace)
        writes.raise_all(await writes.each(bound, self._remove_binding))
        self._withdrawals.forget(namespace)
        self._remember(obj, await writes.remove_finalizer(self.cached, KIND, obj, FINALIZER))

    async def _enter_all(
        self, obj: Object, peers: Mapping[str, MappedCluster], wanted: Mapping[str, str]
    ) -> tuple[dict[str, forge.MappingStatus], list[Exception]]:
        """Return the statuses by map after all entries are written, and what went wrong."""
        statuses: dict[str, forge.MappingStatus] = {}
        failures: list[Exception] = []
        namespace = objects.key_of(obj).namespace
        bound = frozenset((await self._bound(namespace)).values())
        for cluster_id, peer in peers.items():
            found = peer.namespace_map
            try:
                found = await self._enter(namespace, peer, wanted.get(cluster_id))
                mapped = forge.mapping_status(namespace, found)
                statuses[peer.key.name] = await self._as_asked(obj, peer, mapped, bound)
            except Exception as error:  # noqa: BLE001  # the other peers do not wait for this one
                if isinstance(error, InvalidError):
                    said = f"cluster {cluster_id} is not asked for this namespace: {error.said}"
                    self.events.event(KIND, obj, "Warning", "NotMapped", said)
                failures.append(error)
                statuses[peer.key.name] = forge.mapping_status(namespace, found)
        return statuses, failures

    async def _enter(self, namespace: str, peer: MappedCluster, wanted: str | None) -> Object:
        """Return the map after its entry for ``namespace`` is ``wanted``, or gone if None."""
        desired = peer.namespace_map.get("spec", {}).get("desiredMapping") or {}
        failures = list[Exception]()
        if wanted is not None:
            failures = await writes.each(peer.virtual_nodes, partial(self._bind, namespace))
            if len(failures) == len(peer.virtual_nodes):
                writes.raise_all(failures)  # rights come first
        found = peer.namespace_map
        if desired.get(namespace) != wanted:
            logger.info("Mapping namespace", extra={"kind": "namespacemap", "key": str(peer.key)})
            found = await self._entries.write(peer.key, namespace, wanted)
            if wanted is None:
                self._withdrawals.going(namespace, peer.key)
        writes.raise_all(failures)
        return found

    async def _bind(self, namespace: str, virtual_node: VirtualNode) -> None:
        binding, is_ours = (
            rights.offloaded_namespace(virtual_node, namespace),
            rights.is_of(virtual_node),
        )
        await writes.ensure(self.cached, keys.ROLE_BINDING, binding, is_ours=is_ours)

    async def _as_asked(
        self, obj: Object, peer: MappedCluster, mapped: forge.MappingStatus, bound: frozenset[str]
    ) -> forge.MappingStatus:
        """Return how the namespace is mapped, as far as the cluster was asked for it.

        What a cluster says of a namespace that it was never asked for counts for nothing: our own
        binding there, the status, or the entry that this process took back, tells. What it was
        asked to give up is waited for as long as ``Unmapping`` says.
        """
        namespace, names = objects.key_of(obj).namespace, {each.name for each in peer.virtual_nodes}
        if mapped.required:
            self._withdrawals.ended(namespace, peer.key)
            return mapped
        since = forge.asked_since(obj, peer.key.name)
        is_asked = since or self._withdrawals.has(namespace, peer.key) or names & bound
        if not (mapped.exists and is_asked):
            await self._revoke_peer(namespace, peer)
            self._withdrawals.ended(namespace, peer.key)
            return _NOT_THERE
        going = self._withdrawals.going(namespace, peer.key, since)
        if going.is_revoked:
            await self._revoke_peer(namespace, peer, is_late=True)
        if going.is_over:
            return self._left(obj, peer)
        return mapped

    def _left(self, obj: Object, peer: MappedCluster) -> forge.MappingStatus:
        namespace, cluster_id = objects.key_of(obj).namespace, peer.key.name
        message = (
            f"cluster {cluster_id} has not said that its twin of namespace {namespace} is gone, "
            f"and is not waited for: ask its administrator whether something is left there"
        )
        self.events.event(KIND, obj, "Warning", "TwinMayBeLeft", message)
        return forge.MappingStatus(required=False, message=message, is_left=True)

    async def _revoke_peer(
        self, namespace: str, peer: MappedCluster, *, is_late: bool = False
    ) -> None:
        """Take the rights of its virtual kubelets away; ``is_late`` whatever its map says."""
        names = {each.name for each in peer.virtual_nodes}
        bound = await self._bound(namespace)
        if not names.intersection(bound.values()):
            return
        found = None if is_late else await self.cached.get_live(keys.NAMESPACE_MAP, peer.key)
        if found and forge.mapping_status(namespace, found).exists:
            return  # the cache was behind
        theirs = [key for key, virtual_node in bound.items() if virtual_node in names]
        writes.raise_all(await writes.each(theirs, self._remove_binding))

    async def _bound(self, namespace: str) -> dict[Key, str]:
        here = await self.found_by(watches.ROLE_BINDINGS, by_namespace, namespace)
        return {
            key: rights.virtual_node_of(binding)
            for key, binding in here.items()
            if rights.is_for_offloading(binding)
        }

    async def _remove_binding(self, key: Key) -> None:
        is_ours = rights.is_for_offloading
        await writes.remove(self.cached, keys.ROLE_BINDING, key, is_ours=is_ours)

    async def _virtual_nodes(self) -> list[VirtualNode]:
        found = await self.all(watches.VIRTUAL_NODES)
        return [VirtualNode.parse(found[key]) for key in sorted(found)]

    async def _peers(self, virtual_nodes: list[VirtualNode]) -> Mapping[str, MappedCluster]:
        staying = {
            key
            for key, obj in (await self.all(watches.VIRTUAL_NODES)).items()
            if not objects.is_terminating(obj)
        }
        return {
            cluster_id: MappedCluster(
                namespace_map,
                tuple(
                    node
                    for node in virtual_nodes
                    if node.cluster_id == cluster_id and Key(node.namespace, node.name) in staying
                ),
            )
            for cluster_id, namespace_map in (await self._maps()).items()
        }

    async def _maps(self) -> dict[str, Object]:
        """Return the map of each cluster: the one called like it, where its tenant namespace is."""
        found = {}
        for key, each in (await self.all(watches.NAMESPACE_MAPS)).items():
            if key.name != ownership.destination(each) or objects.is_terminating(each):
                continue
            if key.name == await watches.peer_in(self.cached, key.namespace):
                found[key.name] = each
        return found

    async def _label(self, namespace: str, obj: Object, offloading: NamespaceOffloading) -> None:
        found = await self.cached.get(keys.NAMESPACE, Key("", namespace))
        changes = forge.scheduling_enabled(found, obj, offloading.strategy) if found else None
        if changes:
            await self.cached.patch(keys.NAMESPACE, Key("", namespace), changes)

    async def _unlabel(self, namespace: str, ending: Object | None = None) -> None:
        """Remove the label that pyliqo set, and with an ``ending`` offloading also a user's.

        Without a NamespaceOffloading every new pod is refused for its sake.
        """
        key, is_only_ours = Key("", namespace), ending is None
        found = await self.cached.get(keys.NAMESPACE, key)
        if not found or not forge.scheduling_removed(found, is_only_ours=is_only_ours):
            return
        found = await self.cached.get_live(keys.NAMESPACE, key)
        changes = found and forge.scheduling_removed(found, is_only_ours=is_only_ours)
        if not found or not changes:
            return
        await self.cached.patch(keys.NAMESPACE, key, changes)
        if ending and not is_scheduling_ours(found):
            self.events.event(KIND, ending, "Normal", "LabelRemoved", LABEL_REMOVED)

    async def _take_back_label(self, key: Key) -> float | None:
        """Take back a label whose NamespaceOffloading never came, after a grace period."""
        namespace = await self.cached.get(keys.NAMESPACE, Key("", key.namespace))
        if namespace is None or not is_scheduling_ours(namespace):
            self._orphans.pop(key, None)
            return None
        now = self._tick()
        left_s = self._orphans.setdefault(key, now) + ORPHAN_S - now
        if left_s > 0:
            return left_s
        if await self.cached.get_live(KIND, key) is None:
            await self._unlabel(key.namespace)
        self._orphans.pop(key, None)
        return None

    async def _report(
        self, obj: Object, name: str, statuses: Mapping[str, forge.MappingStatus]
    ) -> Object:
        status = forge.status(obj, name, statuses, self.clock())
        before = objects.status(obj).get("offloadingPhase")
        written = await writes.write_status(self.cached, KIND, obj, status)
        self._remember(obj, written)
        after = status["offloadingPhase"]
        if after != before and after in {"AllFailed", "SomeFailed"}:
            message = (
                "a remote cluster refused the namespace: see status.remoteNamespacesConditions"
            )
            self.events.event(KIND, obj, "Warning", after, message)
        return written

    def _remember(self, before: Object, made: Object) -> None:
        if made is not before:
            self._written.add(before, made)


def _ends_with_ours(obj: Object) -> bool:
    """Whether the object is gone when our finalizer is: nobody reads its last status."""
    return objects.is_terminating(obj) and set(objects.finalizers(obj)) <= {FINALIZER}


# Writes the entries of NamespaceMaps: those that come while one is on its way go together ---------
# Each write of a map costs the server the whole of it, with a thousand entries 60 ms and more.


@dataclass
class _MappingGroup:
    """Entries that go in one patch, and what came of it."""

    entries: dict[str, str | None] = field(default_factory=dict)
    answer: Object | KubeError | None = None


class _MappingQueue:
    """Those who write one map: a group is on its way, and the next one is open."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.open = _MappingGroup()


class MappingWriter:
    """One for all namespaces: a single entry waits for nobody, and a group for one answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lines: WeakValueDictionary[Key, _MappingQueue] = WeakValueDictionary()

    async def write(self, key: Key, namespace: str, wanted: str | None) -> Object:
        """Return the map ``key`` after its entry for ``namespace`` is ``wanted``, gone if None.

        Where the server refuses what is in a patch of several, each of them goes by itself.

        Raises:
            KubeError: what the server said to the patch that the entry was in.
        """
        line = self._lines.setdefault(key, _MappingQueue())
        group = line.open
        group.entries[namespace] = wanted
        async with line.turn:
            answer = group.answer
            if answer is None:  # the first of its group, or after one that was cancelled
                answer = await self._send(key, line, group)
            if isinstance(answer, ForbiddenError | InvalidError) and len(group.entries) > 1:
                answer = await self._patched(key, {namespace: wanted})
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def _send(
        self, key: Key, line: _MappingQueue, group: _MappingGroup
    ) -> Object | KubeError:
        if line.open is group:
            line.open = _MappingGroup()
        group.answer = await self._patched(key, group.entries)
        return group.answer

    async def _patched(self, key: Key, entries: dict[str, str | None]) -> Object | KubeError:
        changes: Object = {
            "metadata": objects.UNTRACKED,
            "spec": {"desiredMapping": entries},
        }
        try:
            return await self._cluster.patch(keys.NAMESPACE_MAP, key, changes)
        except KubeError as error:
            return error


# Since when clusters are asked to unmap namespaces, and how long that is waited for ---------------
# A cluster that never says that its twin is gone keeps no namespace of the consumer from its end.
# Source: docs/parity.md H4; docs/decisions/0013 (13).

REVOKED_S: Final = 60.0
"""After this the virtual kubelet has no rights in the namespace, whatever its provider says."""
LET_GO_S: Final = REVOKED_S + 120.0
"""After this the namespace is free, whatever may be left at the provider."""


@dataclass(frozen=True)
class Unmapping:
    """How long a cluster has been asked to give one twin up; Units: seconds."""

    age_s: float

    @property
    def is_revoked(self) -> bool:
        return self.age_s >= REVOKED_S

    @property
    def is_over(self) -> bool:
        return self.age_s >= LET_GO_S

    @property
    def left_s(self) -> float:
        """Return in how many seconds something changes."""
        return (LET_GO_S if self.is_revoked else REVOKED_S) - self.age_s


class Unmappings:
    """Remembers them by namespace and by the key of the cluster's NamespaceMap.

    The status of the NamespaceOffloading says it too, so that a restart goes on counting.
    """

    def __init__(self, clock: Callable[[], datetime], tick: Callable[[], float]) -> None:
        self._clock, self._tick = clock, tick
        self._since: dict[str, dict[Key, float]] = {}

    def has(self, namespace: str, map_: Key) -> bool:
        """Whether that cluster is asked to give its twin of ``namespace`` up."""
        return map_ in self._since.get(namespace, {})

    def going(self, namespace: str, map_: Key, since: datetime | None = None) -> Unmapping:
        """Return how long that has been so; it began at ``since``, or begins now."""
        known, now = self._since.setdefault(namespace, {}), self._tick()
        if map_ not in known:
            before_s = (self._clock() - since).total_seconds() if since else 0.0
            known[map_] = now - max(0.0, before_s)
        return Unmapping(now - known[map_])

    def ended(self, namespace: str, map_: Key) -> None:
        """Forget it: the twin is gone, or wanted."""
        known = self._since.get(namespace, {})
        known.pop(map_, None)
        if not known:
            self._since.pop(namespace, None)

    def forget(self, namespace: str) -> None:
        self._since.pop(namespace, None)

    def next_s(self, namespace: str) -> float | None:
        """Return in how many seconds something changes in ``namespace``; None if nothing does."""
        left = [
            going.left_s
            for map_ in self._since.get(namespace, {})
            if not (going := self.going(namespace, map_)).is_over
        ]
        return min(left, default=None)


# Which changes concern which NamespaceOffloading -------------------------------------------------


AT_ONCE: Final = 16
"""So many namespaces at once, at least: their entries go into a map together."""


def by_node(offloadings: Informer[Object]) -> Keys:
    """Return whom a VirtualNode or Node concerns: those whose selector may judge it again."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        labels = forge.changed_labels(change.old, change.new)
        if labels is not None and not labels:
            return []
        return [key for key, obj in offloadings.items().items() if forge.reads(obj, labels)]

    return keys_of


def _by_namespace(change: Change[Object]) -> Iterable[Key]:
    return [_offloading_in(change.key.name)]


def _by_binding(change: Change[Object]) -> Iterable[Key]:
    binding = change.new or change.old
    concerns = binding is not None and rights.is_for_offloading(binding)
    return [_offloading_in(change.key.namespace)] if concerns else []


def _offloading_in(namespace: str) -> Key:
    return Key(namespace, keys.OFFLOADING_NAME)
