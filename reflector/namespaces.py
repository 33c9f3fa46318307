"""Which pairs of namespaces are reflected now, and the loops of each.

Source: behaviour.md 6.1, 6.11.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apis.objects import Key, Object
from apis.offloading import MappingPhase, NamespaceMap
from apis.offloading import ReflectionPolicy as Policy
from apis.pairs import Pair
from kube import namespacemaps
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.informer import Informer
from kube.reconcile import TerminalError
from kube.runner import Runner, Source
from kube.scope import Scope, Scopes
from reflector.forge.contract import Forge, Scene, Settings
from reflector.inputs import Inputs, Shared, Sides
from reflector.reflection import Ends, Reflection, Tell

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


@dataclass(frozen=True)
class Rules:
    """What of a kind leaves, and how it looks then."""

    policy: Policy = Policy.DENY_LIST
    settings: Settings = field(default_factory=Settings)


class KindLoop:
    """The queue and workers of one kind, shared by all namespaces. Fulfils Reconciler."""

    def __init__(self, forge: Forge, rules: Rules, tell: Tell, workers: int) -> None:
        self.forge = forge
        self.rules = rules
        self.tell = tell
        self.runner = Runner(f"reflection-{forge.row.name}", self, [], workers=workers)
        self._reflections: dict[str, Reflection] = {}

    async def reconcile(self, key: Key) -> float | None:
        reflection = self._reflections.get(key.namespace)
        return await reflection.reconcile(key) if reflection else None

    def begin(self, namespace: str, reflection: Reflection) -> None:
        """Reflect the originals of this kind that are in ``namespace``."""
        self._reflections[namespace] = reflection

    def end(self, namespace: str) -> None:
        """Leave alone what is in ``namespace`` and its twins."""
        self._reflections.pop(namespace, None)


class Reflected:
    """One pair of namespaces: its informers, and its part in the loop of each kind."""

    def __init__(self, pair: Pair, loops: Iterable[KindLoop], sides: Sides, shared: Shared) -> None:
        self._inputs = Inputs(pair, sides.home, sides.foreign, shared)
        self._pair, self._sides = pair, sides
        self._parts = [(loop, self._reflection(loop)) for loop in loops]

    async def run(self) -> None:
        """Reflect until cancelled; what was reflected then stays."""
        await Scope(self._inputs.followed()).run(begin=self._begin, end=self._end)

    def _reflection(self, loop: KindLoop) -> Reflection:
        forge, rules = loop.forge, loop.rules
        scene = Scene(self._pair, rules.policy, rules.settings, self._inputs)
        both = (self._sides.home, self._sides.foreign)
        originals, twins = both if forge.row.is_outward else reversed(both)
        reflection = Reflection(forge, scene, Ends(originals, twins, loop.tell))
        self._inputs.originals(reflection, loop.runner)
        self._inputs.twins(reflection, loop.runner)
        for input_ in forge.inputs:
            if rules.policy in input_.policies:
                self._inputs.look(input_, scene, loop.runner)
        return reflection

    def _begin(self) -> None:
        for loop, reflection in self._parts:
            loop.begin(reflection.namespace, reflection)

    def _end(self) -> None:
        for loop, reflection in self._parts:
            loop.end(reflection.namespace)


class Namespaces:
    """Starts and stops pairs of namespaces as the provider accepts them. Fulfils Reconciler."""

    def __init__(
        self, identity: Identity, loops: Sequence[KindLoop], home: Cluster, foreign: Cluster
    ) -> None:
        self._identity = identity
        self._loops = loops
        self._live = home
        self._sides = Sides(CachedCluster(home), CachedCluster(foreign))
        self._shared = Shared(self._sides.home)
        selection = namespacemaps.ours(identity.tenant_namespace, identity.foreign_cluster_id)
        self._maps: Informer[Object] = Informer(selection)
        self._runner = Runner("reflected-namespaces", self, [Source(self._maps)])
        self._scopes: Scopes[Pair] = Scopes(self._reflect)
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def running(self) -> Mapping[Pair, asyncio.Task[None]]:
        """The pairs that are reflected now."""
        return self._scopes.running

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
            self._shared.begin(tasks)
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
        if self._tasks is not None:  # else nobody runs us, and nobody would own the tasks
            begun, ended = await self._scopes.keep(self._tasks, wanted)
            for what, pairs in (("Started", begun), ("Stopped", ended)):
                for pair in pairs:
                    logger.info("%s reflecting a namespace", what, extra=_named(pair))
        return None

    def _runners(self) -> list[Runner]:
        return [self._runner, *(loop.runner for loop in self._loops)]

    def _pair(self, local: str, remote: str) -> Pair:
        who = self._identity
        return Pair(who.home_cluster_id, who.foreign_cluster_id, local, remote)

    async def _reflect(self, pair: Pair) -> None:
        await Reflected(pair, self._loops, self._sides, self._shared).run()


def _named(pair: Pair) -> dict[str, str]:
    return {"namespace": pair.local_namespace, "remote_namespace": pair.remote_namespace}
