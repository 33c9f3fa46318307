"""Which pairs of namespaces are reflected now, and the loops of each.

Source: behaviour.md 6.1, 6.11.
"""

import asyncio
import functools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apis import keys
from apis.objects import Key, Kind, Object
from apis.offloading import MappingPhase, NamespaceMap
from apis.pairs import Pair
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.informer import Change, Informer
from kube.reconcile import TerminalError
from kube.runner import Runner, Source
from reflector.reflection import FORGES, Ends, Reflection, Rules, Tell

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Who reflects to whom, and where the peering's objects are at home."""

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


class KindLoop:
    """The queue and workers of one kind, shared by all namespaces. Fulfils Reconciler."""

    def __init__(self, kind: Kind, rules: Rules, tell: Tell, workers: int) -> None:
        self.kind = kind
        self.rules = rules
        self.tell = tell
        self.runner = Runner(f"reflection-{kind}", self, [], workers=workers)
        self._reflections: dict[str, Reflection] = {}

    async def reconcile(self, key: Key) -> float | None:
        reflection = self._reflections.get(key.namespace)
        return await reflection.reconcile(key) if reflection else None

    def begin(self, namespace: str, reflection: Reflection) -> None:
        """Reflect what of this kind is in the local ``namespace``."""
        self._reflections[namespace] = reflection

    def end(self, namespace: str) -> None:
        """Leave alone what is in ``namespace`` and its twins."""
        self._reflections.pop(namespace, None)


@dataclass(frozen=True)
class _Side:
    """One kind in one pair of namespaces."""

    loop: KindLoop
    reflection: Reflection
    local: Informer[Object]
    remote: Informer[Object]

    def sources(self) -> tuple[Source[Object], Source[Object]]:
        """Return what both sides' changes enqueue: the key of the original."""
        there = functools.partial(_originals, self.reflection)
        return Source(self.local), Source(self.remote, there)


def _originals(reflection: Reflection, change: Change[Object]) -> Iterable[Key]:
    return [reflection.original_of(change.key)]


class Reflected:
    """One pair of namespaces: its informers, and its part in the loop of each kind."""

    def __init__(
        self, pair: Pair, loops: Iterable[KindLoop], home: CachedCluster, foreign: CachedCluster
    ) -> None:
        self._pair = pair
        self._home = home
        self._foreign = foreign
        self._sides = [self._side(loop) for loop in loops]

    async def run(self) -> None:
        """Reflect until cancelled; what was reflected then stays."""
        async with asyncio.TaskGroup() as tasks:
            for side in self._sides:
                tasks.create_task(side.local.run(self._home))
                tasks.create_task(side.remote.run(self._foreign))
            for side in self._sides:
                await side.local.synced.wait()
                await side.remote.synced.wait()
            attached = [(side, side.sources()) for side in self._sides]
            self._begin(attached)
            try:
                await asyncio.Event().wait()
            finally:
                self._end(attached)

    def _side(self, loop: KindLoop) -> _Side:
        pair = self._pair
        labels = ",".join([pair.selector(), *FORGES[loop.kind].selector])
        there = Selection(loop.kind, Object, pair.remote_namespace, labels=labels)
        ends = Ends(self._home, self._foreign, loop.tell)
        reflection = Reflection(loop.kind, pair, loop.rules, ends)
        here = Selection(loop.kind, Object, pair.local_namespace)
        return _Side(loop, reflection, Informer(here), Informer(there))

    def _begin(self, attached: Sequence[tuple[_Side, Sequence[Source[Object]]]]) -> None:
        for side, sources in attached:
            self._home.add(side.local)
            self._foreign.add(side.remote)
            side.loop.begin(self._pair.local_namespace, side.reflection)
            for source in sources:
                side.loop.runner.attach(source)

    def _end(self, attached: Sequence[tuple[_Side, Sequence[Source[Object]]]]) -> None:
        for side, sources in attached:
            for source in sources:
                side.loop.runner.detach(source)
            side.loop.end(self._pair.local_namespace)
            self._home.remove(side.local)
            self._foreign.remove(side.remote)


class Namespaces:
    """Starts and stops pairs of namespaces as the provider accepts them. Fulfils Reconciler."""

    def __init__(
        self, identity: Identity, loops: Sequence[KindLoop], home: Cluster, foreign: Cluster
    ) -> None:
        self._identity = identity
        self._loops = loops
        self._live = home
        self._home = CachedCluster(home)
        self._foreign = CachedCluster(foreign)
        labels = f"{keys.REMOTE_CLUSTER_ID}={identity.foreign_cluster_id},{keys.REPLICATION}=true"
        selection = Selection(keys.NAMESPACE_MAP, Object, identity.tenant_namespace, labels=labels)
        self._maps: Informer[Object] = Informer(selection)
        self._runner = Runner("reflected-namespaces", self, [Source(self._maps)])
        self._running: dict[Pair, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def running(self) -> Mapping[Pair, asyncio.Task[None]]:
        """The pairs that are reflected now."""
        return self._running

    @property
    def maps(self) -> Informer[Object]:
        """The informer that says which namespaces are offloaded; for readiness."""
        return self._maps

    def is_alive(self) -> bool:
        """Whether no worker is stuck."""
        return all(runner.is_alive() for runner in self._runners())

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Reflect until cancelled; run ``beside`` as long."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._maps.run(self._live))
            for work in beside:
                tasks.create_task(work)
            for runner in self._runners():
                tasks.create_task(runner.run())

    async def reconcile(self, _key: Key) -> float | None:
        maps = [NamespaceMap.parse(found) for found in self._maps.items().values()]
        if len(maps) > 1:
            message = f"{len(maps)} NamespaceMaps in {self._identity.tenant_namespace}: keep one"
            raise TerminalError("TooManyNamespaceMaps", message)
        wanted = {self._pair(*names) for found in maps for names in accepted(found).items()}
        for pair in self._running.keys() - wanted:
            await self._stop(pair)
        for pair in wanted - self._running.keys():
            self._start(pair)
        return None

    def _runners(self) -> list[Runner]:
        return [self._runner, *(loop.runner for loop in self._loops)]

    def _pair(self, local: str, remote: str) -> Pair:
        who = self._identity
        return Pair(who.home_cluster_id, who.foreign_cluster_id, local, remote)

    def _start(self, pair: Pair) -> None:
        if self._tasks is None:  # nobody runs us, so nobody would own the task
            return
        reflected = Reflected(pair, self._loops, self._home, self._foreign)
        self._running[pair] = self._tasks.create_task(reflected.run())
        logger.info("Started reflecting a namespace", extra=_named(pair))

    async def _stop(self, pair: Pair) -> None:
        task = self._running.pop(pair)
        task.cancel()
        await asyncio.wait([task])
        logger.info("Stopped reflecting a namespace", extra=_named(pair))


def _named(pair: Pair) -> dict[str, str]:
    return {"namespace": pair.local_namespace, "remote_namespace": pair.remote_namespace}
