"""Whatever the admins of a provider do to twins: local objects stay, and all ends as told."""

import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum

import pytest

from apis import keys, objects
from apis.objects import Kind, Object, named
from kube import errors
from kube.cache import CachedCluster
from reflector.kinds.contract import ReflectionContext
from reflector.reflection import Reflection, ReflectionClients
from tests.fakes import FakeCluster
from tests.reflector.pairs import HERE, PAIR, SIMPLE, THERE, World, forge_of, original
from tests.world import existing

Deed = Callable[[FakeCluster, Kind, Object], Awaitable[object]]


class End(Enum):
    """What comes of a deed."""

    RESTORED = "the twin is again as the original says"
    KEPT = "what they added stays, and nothing is written for it"
    LEFT = "it is theirs now: left alone, and told"


def patch_twin(changes: Object) -> Deed:
    return lambda cluster, kind, _: cluster.patch(kind, THERE, changes)


def relabel(**labels: str | None) -> Deed:
    return patch_twin(
        {"metadata": {"labels": {f"offloading.liqo.io/{k}": v for k, v in labels.items()}}}
    )


def annotate(name: str, value: str | None) -> Deed:
    return patch_twin({"metadata": {"annotations": {name: value}}})


async def edit(cluster: FakeCluster, kind: Kind, twin: Object) -> None:
    field = "spec" if "spec" in twin else "data"
    await cluster.patch(kind, THERE, {field: dict.fromkeys(twin[field])})


async def delete_twin(cluster: FakeCluster, kind: Kind, twin: Object) -> None:
    await cluster.delete(kind, THERE, uid=objects.uid(twin))


async def replace(cluster: FakeCluster, kind: Kind, twin: Object) -> None:
    await delete_twin(cluster, kind, twin)
    await cluster.create(kind, named(kind, THERE, data={"theirs": "dGhlaXJz"}))


async def replace_for_another(cluster: FakeCluster, kind: Kind, twin: Object) -> None:
    await delete_twin(cluster, kind, twin)
    labels = {keys.ORIGIN: "naples", keys.DESTINATION: "milan"}
    await cluster.create(kind, named(kind, THERE, metadata={"labels": labels}))


DEEDS: dict[str, tuple[Deed, End]] = {
    "empties it": (edit, End.RESTORED),
    "deletes it": (delete_twin, End.RESTORED),
    "takes what was sent for older": (annotate(keys.APPLIED, "0"), End.RESTORED),
    "takes the digest away": (annotate(keys.APPLIED, None), End.RESTORED),
    "adds a label": (patch_twin({"metadata": {"labels": {"theirs": "1"}}}), End.KEPT),
    "adds an annotation": (annotate("theirs", "1"), End.KEPT),
    "adds a finalizer": (patch_twin({"metadata": {"finalizers": ["x.io/y"]}}), End.KEPT),
    "gives it to another consumer": (relabel(origin="naples"), End.LEFT),
    "replaces it by their own": (replace, End.LEFT),
    "replaces it by another consumer's": (replace_for_another, End.LEFT),
}


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
@pytest.mark.parametrize(("deed", "end"), DEEDS.values(), ids=DEEDS)
async def test_what_an_admin_does_to_a_twin(deed: Deed, end: End, kind: Kind) -> None:
    world = World()
    local = await world.home.create(kind, original(kind))
    reflection = world.reflection(kind)
    await reflection.reconcile(HERE)
    twin = await existing(world.foreign, kind, THERE)
    await deed(world.foreign, kind, twin)
    theirs = await world.foreign.get(kind, THERE)
    writes = world.writes()

    again_s = await reflection.reconcile(HERE)

    found = await world.foreign.get(kind, THERE)
    assert await world.home.get(kind, HERE) == local
    if end is End.RESTORED:
        assert content(found) == content(twin)
    else:
        assert found == theirs
        assert world.writes() == writes
    assert world.reasons() == ([("Warning", "FailedReflection")] if end is End.LEFT else [])
    assert (again_s is not None) is (end is End.LEFT)


@pytest.mark.parametrize("deed", [replace, replace_for_another], ids=["theirs", "another's"])
async def test_when_the_obstacle_goes_the_twin_is_there_and_the_author_is_told(deed: Deed) -> None:
    world, kind = World(), keys.CONFIG_MAP
    await world.home.create(kind, original(kind))
    reflection = world.reflection(kind)
    await reflection.reconcile(HERE)
    twin = await existing(world.foreign, kind, THERE)
    await deed(world.foreign, kind, twin)
    assert await reflection.reconcile(HERE) is not None
    theirs = await existing(world.foreign, kind, THERE)

    await delete_twin(world.foreign, kind, theirs)
    assert await reflection.reconcile(HERE) is None

    assert content(await world.foreign.get(kind, THERE)) == content(twin)
    assert world.reasons() == [("Warning", "FailedReflection"), ("Normal", "SuccessfulReflection")]


def content(obj: Object | None) -> Object:
    """Return what is said of an object, but for who made which version of it when."""
    metadata = (obj or {"metadata": {}})["metadata"]
    kept = {name: metadata.get(name) for name in ("name", "namespace", "labels", "annotations")}
    body = {name: value for name, value in (obj or {}).items() if name != "metadata"}
    return {**body, "metadata": kept}


class Late(CachedCluster):
    """A provider where somebody makes a namesake after we looked and before we write."""

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        with contextlib.suppress(errors.AlreadyExistsError):
            await self.create(kind, named(kind, THERE, data={"a": "dGhlaXJz"}))
        return await super().apply(kind, obj, manager=manager)


async def test_a_namesake_made_in_the_same_moment_is_not_overwritten() -> None:
    world, kind = World(), keys.CONFIG_MAP
    await world.home.create(kind, original(kind))
    ends = ReflectionClients(CachedCluster(world.home), Late(world.foreign), lambda *_: None)
    reflection = Reflection(forge_of(kind), ReflectionContext(PAIR), ends)

    assert await reflection.reconcile(HERE) is not None

    found = await existing(world.foreign, kind, THERE)
    assert found["data"] == {"a": "dGhlaXJz"}
