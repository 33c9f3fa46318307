"""A reflector that dies right before or right after any call it makes loses and doubles nothing.

The life of an object of each kind runs once to count the calls, then once for each call and side.
Another time every second write is refused, as somebody else writes too. Source: docs/parity.md
F-2, F-16.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast

import pytest

from apis import keys, objects, reflection
from apis.objects import Key, Kind, Object, named
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from reflector.kinds import configuration
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.reflection import Reflection, ReflectionClients
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet.doom import Doom, KilledError
from tests.reflector import pairs
from tests.reflector.looks import listed_node, lived
from tests.reflector.pairs import HERE, PAIR
from tests.reflector.test_forge import ROUTE

NOW: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROUNDS: Final = 8
"""Enough for the longest way, and for as many turns of it that are cut short."""
CHANGING: Final = frozenset({"create", "apply", "patch", "patch_status", "delete"})
SKIPPED: Final = {"metadata": {"annotations": {keys.SKIP_REFLECTION: "true"}}}
WANTED: Final = {"metadata": {"annotations": {keys.SKIP_REFLECTION: None}}}
ALL: Final = {
    **KIND_REFLECTIONS,
    (row := reflection.custom(ROUTE)): configuration.custom_resource(row),
}


def event() -> Object:
    where = Key(PAIR.remote_namespace, HERE.name)
    involved = {"kind": "ConfigMap", "namespace": where.namespace, "name": "about"}
    body = {"involvedObject": involved, "type": "Warning", "reason": "Odd", "count": 1}
    return named(keys.EVENT, where, **body)


def original_to_crash(kind: Kind) -> Object:
    made = {keys.EVENT: event(), ROUTE: named(ROUTE, HERE, spec={"hostnames": ["a.example"]})}
    return made.get(kind) or pairs.original(kind)


class Around:
    """What the caches of a reflector have of home. Fulfils Lister."""

    def __init__(self, home: FakeCluster) -> None:
        self._home = home

    def get(self, kind: Kind, key: Key) -> Any:
        if kind == keys.NODE:
            return listed_node(key.name, PAIR.destination)
        return self._home.everything().get((kind, key))

    def recent(self, key: Key) -> Any:
        found = self.get(keys.POD, key)
        return lived(found) if found else None

    def each(self, kind: Kind) -> Iterable[Any]:
        return [found for (of, _), found in self._home.everything().items() if of == kind]


class Contested:
    """Every second write of the twins' cluster is refused, as somebody else wrote just then."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self.refused = cluster, 0
        self._is_next = True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if name not in CHANGING:
            return found

        async def call(*args: Any, **rest: Any) -> Any:
            self._is_next = not self._is_next
            if self._is_next:
                return await found(*args, **rest)
            self.refused += 1
            raise errors.ConflictError("somebody else was faster")

        return call


class Life:
    """One kind, the process that reflects it, and what the clusters do by themselves."""

    def __init__(self, forge: KindReflection, doom: Doom) -> None:
        self.forge, self._doom = forge, doom
        self.home, self.foreign = (FakeCluster(now=lambda: NOW) for _ in range(2))
        self.seen: list[str] = []
        is_outward = forge.row.is_outward
        self.originals, self.twins = (
            (self.home, self.foreign) if is_outward else (self.foreign, self.home)
        )
        self.begin(doom.over(self.twins))

    def begin(self, twins: Cluster) -> None:
        """Start the process: it remembers nothing."""
        self._twins_seen = twins
        ends = ReflectionClients(
            CachedCluster(self._doom.over(self.originals)), CachedCluster(twins), lambda *_: None
        )
        settings = RemoteObjectOptions(enable_storage=True)
        context = ReflectionContext(PAIR, self.forge.row.default, settings, Around(self.home))
        self.reflection = Reflection(self.forge, context, ends)

    @property
    def key(self) -> Key:
        return objects.key_of(original_to_crash(self.forge.row.kind))

    async def settle(self) -> None:
        for _ in range(ROUNDS):
            before = await self.state()
            is_disturbed = await self._turn()
            await self._volumes_follow()
            if not is_disturbed and await self.state() == before:
                self.seen.append(before)
                return
        raise AssertionError("it goes on writing")

    async def _turn(self) -> bool:
        """Look at the one object; return whether that was cut short."""
        try:
            await self.reflection.reconcile(self.key)
        except KilledError:
            self.begin(self._twins_seen)
            return True
        except errors.ConflictError:
            return True  # tried again, as the queue does
        return False

    async def state(self) -> str:
        """Return all there is and how often it was written, without what is new in each run."""
        lists = [await each.list(_ANY) for each in (self.home, self.foreign)]
        writes = [listing.version for listing in lists]
        there = {
            f"{side} {kind} {key}": _lasting(found)
            for side, cluster in (("home", self.home), ("provider", self.foreign))
            for (kind, key), found in cluster.everything().items()
        }
        text = json.dumps([writes, there], sort_keys=True, indent=1)
        return _NEW_IN_EACH.sub("new", text)

    async def change(self, cluster: FakeCluster, key: Key, changes: Object) -> None:
        kind = self.forge.row.kind if cluster is self.originals else self.forge.row.twin
        await cluster.patch(kind, key, changes)
        await self.settle()

    async def remove(self, cluster: FakeCluster, key: Key) -> None:
        kind = self.forge.row.kind if cluster is self.originals else self.forge.row.twin
        found = await cluster.get(kind, key)
        assert found, f"{kind} {key} is there"
        await cluster.delete(kind, key, uid=objects.uid(found))
        await self.settle()

    async def _volumes_follow(self) -> None:
        """Bind, release and fill volumes, as the controllers of both clusters do."""
        kind = keys.PERSISTENT_VOLUME_CLAIM
        here = await self.home.get(kind, HERE)
        for volume in Around(self.home).each(keys.PERSISTENT_VOLUME):
            where = objects.key_of(volume)
            phase = "Bound" if here else "Released"
            await self.home.patch_status(keys.PERSISTENT_VOLUME, where, {"phase": phase})
            if here:
                await self.home.patch(kind, HERE, {"spec": {"volumeName": where.name}})
        there = Key(PAIR.remote_namespace, HERE.name)
        if twin := await self.foreign.get(kind, there):
            capacity = twin["spec"]["resources"]["requests"]
            await self.foreign.patch_status(kind, there, {"capacity": capacity})


_ANY: Final = Selection(keys.CONFIG_MAP, Object)
_VERSION: Final = "resourceVersion"
_NEW_IN_EACH: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
"""UIDs, and the digests of what names one."""


def _lasting(found: Object) -> Object:
    metadata = {name: value for name, value in found["metadata"].items() if name != _VERSION}
    return {**found, "metadata": metadata}


async def states_of(life: Life) -> list[str]:
    """Create, change, drift, lose, skip and delete; return what there was after each step."""
    kind, twin = life.forge.row.kind, life.reflection.twin_of(life.key)
    await life.home.create(keys.CONFIG_MAP, factories.config_map(HERE.namespace, "about"))
    await life.originals.create(kind, original_to_crash(kind))
    await life.settle()
    await life.change(life.originals, life.key, CHANGES.get(kind, LABELLED))
    if life.forge.row.is_outward:
        await life.change(life.twins, twin, {"metadata": {"labels": {"tier": "theirs", "b": "2"}}})
        await life.remove(life.twins, twin)
    if kind == ROUTE:
        await life.foreign.patch_status(ROUTE, twin, {"parents": [{"name": "theirs"}]})
        await life.settle()
    await life.change(life.originals, life.key, SKIPPED)
    await life.change(life.originals, life.key, WANTED)
    await life.remove(life.originals, life.key)
    return life.seen


LABELLED: Final = {"metadata": {"labels": {"tier": "front"}}}
CHANGES: Final[dict[Kind, Object]] = {
    keys.EVENT: {"count": 2},
    keys.PERSISTENT_VOLUME_CLAIM: LABELLED
    | {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
}


@pytest.mark.parametrize("forge", ALL.values(), ids=lambda forge: forge.row.name)
async def test_killed_at_whatever_call_it_ends_the_same_with_as_many_writes(
    forge: KindReflection,
) -> None:
    whole = Doom()
    undisturbed = await states_of(Life(forge, whole))
    assert whole.calls > 1

    for at in range(whole.calls):
        for is_after in (False, True):
            lived = await states_of(Life(forge, Doom(at, is_after=is_after)))
            side = "after" if is_after else "before"
            assert lived == undisturbed, f"killed {side} call {at} of {whole.calls}"


@pytest.mark.parametrize("forge", ALL.values(), ids=lambda forge: forge.row.name)
async def test_refused_every_second_write_it_ends_the_same(forge: KindReflection) -> None:
    undisturbed = await states_of(Life(forge, Doom()))
    life = Life(forge, Doom())
    contested = Contested(life.twins)
    life.begin(cast("Cluster", contested))

    assert await states_of(life) == undisturbed
    assert contested.refused > 1
