"""A volume moves whole, or not at all, wherever the command is interrupted."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import click
import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from kube import errors
from liqoctl.clusters import Side
from liqoctl.forge import move as forge
from liqoctl.forge.move import MoveOptions
from liqoctl.move import Move
from liqoctl.output import Progress
from tests import factories
from tests.fakes import FakeCluster

CLAIM = keys.PERSISTENT_VOLUME_CLAIM
HERE = Key("shop", "data")
WANTED = MoveOptions(HERE, "turin", "image")
CALLS = 19
"""Writes and scripts of a whole move: it may be interrupted at each."""
DATA = "what the store wrote"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class Cut(errors.NotReachableError):
    """Where a test interrupts."""


class World(FakeCluster):
    """A cluster whose claims are bound and whose pods run at once; disks are by UIDs of claims."""

    def __init__(self) -> None:
        super().__init__()
        self.disks: dict[str, str] = {}
        self.left: int | None = None
        """Calls until the connection is cut; None for never."""
        self.calls = 0
        self.is_playing = False
        self.refused: Key | None = None
        """A claim that cannot be made, as the connection is cut."""

    def count(self) -> None:
        if self.is_playing:
            return
        self.calls += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Cut("cut")

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.count()
        if objects.key_of(obj) == self.refused:
            raise Cut("cut")
        made = await super().create(kind, obj)
        self.is_playing = True
        await self._play(kind, objects.key_of(made), made)
        self.is_playing = False
        return made

    async def _play(self, kind: Kind, key: Key, made: Object) -> None:
        """Do what controllers and kubelets do, which nobody cuts."""
        uid = objects.uid(made)
        if kind == keys.POD:
            status = {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True}]}
            await super().patch_status(kind, key, status)
        if kind == CLAIM:
            self.disks[uid] = ""
            name = objects.annotations(made)[keys.SELECTED_NODE]
            await super().create(keys.PERSISTENT_VOLUME, moved_volume(f"pvc-{uid}", name))
            await super().patch(kind, key, {"spec": {"volumeName": f"pvc-{uid}"}})
            await super().patch_status(kind, key, {"phase": "Bound"})

    async def patch(self, kind: Kind, key: Key, changes: Object, **rest: Any) -> Object:
        self.count()
        return await super().patch(kind, key, changes, **rest)

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        self.count()
        if kind == CLAIM:
            self.disks.pop(uid)
            assert DATA in self.disks.values(), "the last whole copy went"
        await super().delete(kind, key, uid=uid, grace_s=grace_s)

    async def disk(self, pod: Key, path: str) -> str:
        """Return the UID of the claim that ``pod`` has at ``path``."""
        found = await self.get(keys.POD, pod)
        assert found
        (name,) = (
            mount["name"]
            for mount in found["spec"]["containers"][0]["volumeMounts"]
            if mount["mountPath"] == path
        )
        (claim,) = (
            each["persistentVolumeClaim"]["claimName"]
            for each in found["spec"]["volumes"]
            if each["name"] == name
        )
        behind = await self.get(CLAIM, Key(pod.namespace, claim))
        return objects.uid(behind or {"metadata": {}})


class Disks:
    """Fulfils Hands on the disks of a world."""

    def __init__(self, world: World, *, spoils: bool = False) -> None:
        self.world, self.spoils = world, spoils

    async def run(self, pod: Key, script: str) -> str:
        self.world.count()
        disks = self.world.disks
        if script == forge.COPY_HERE:
            disks[await self.world.disk(pod, forge.TO)] = disks[
                await self.world.disk(pod, forge.FROM)
            ]
            return ""
        folder = forge.TO if script == forge.digest_of(forge.TO) else forge.FROM
        return f"{disks[await self.world.disk(pod, folder)]!r}  -"

    @contextlib.asynccontextmanager
    async def pipe(
        self, source: tuple[Key, str], target: tuple[Key, str]
    ) -> AsyncIterator[AsyncIterator[int]]:
        from_, to = [
            await self.world.disk(pod, path)
            for (pod, _), path in ((source, forge.FROM), (target, forge.TO))
        ]

        async def passed() -> AsyncIterator[int]:
            self.world.disks[to] = self.world.disks[from_][:3]
            self.world.count()
            yield 3
            self.world.disks[to] = "" if self.spoils else self.world.disks[from_]
            yield len(DATA)

        yield passed()


def moved_volume(name: str, node: str) -> Object:
    expression = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"nodeAffinity": {"required": terms}}
    return named(keys.PERSISTENT_VOLUME, Key("", name), spec=spec)


def node(name: str, *, storage: str = "true") -> Object:
    labels = {
        keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE,
        keys.REMOTE_CLUSTER_ID: name,
        keys.STORAGE_AVAILABLE: storage,
    }
    return named(keys.NODE, Key("", name), metadata={"labels": labels}, status=READY)


def claim_to_move(key: Key = HERE, **spec: Any) -> Object:
    annotations = {keys.SELECTED_NODE: "milan", "note": "1"}
    metadata = {"labels": {"app": "store"}, "annotations": annotations}
    body = {
        "storageClassName": keys.VIRTUAL_STORAGE_CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **spec,
    }
    return named(CLAIM, key, metadata=metadata, spec=body)


async def cluster_to_move_in(made: Object | None = None, strategy: str = "LocalAndRemote") -> World:
    cluster = World()
    for one in (node("milan"), node("turin"), node("naples", storage="false")):
        await cluster.create(keys.NODE, one)
    home = {"labels": {"kubernetes.io/hostname": "rome-1"}}
    await cluster.create(
        keys.NODE, named(keys.NODE, Key("", "rome-1"), metadata=home, status=READY)
    )
    spec = {"podOffloadingStrategy": strategy}
    offloading = named(keys.NAMESPACE_OFFLOADING, Key("shop", keys.OFFLOADING_NAME), spec=spec)
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading)
    data = await cluster.create(CLAIM, made or claim_to_move())
    cluster.disks[objects.uid(data)] = DATA
    return cluster


def move(cluster: World, wanted: MoveOptions = WANTED, **rest: Any) -> Move:
    return Move(Side(cluster, Progress()), wanted, Disks(cluster, **rest), timeout_s=5)  # type: ignore[arg-type]  # the fake is a Cluster


async def is_moved(cluster: World) -> bool:
    found = await cluster.get(CLAIM, HERE)
    assert found
    annotations = objects.annotations(found)
    assert annotations == {keys.SELECTED_NODE: "turin", "note": "1"}
    assert objects.labels(found) == {"app": "store"}
    assert await cluster.get(CLAIM, WANTED.copy) is None
    assert not [key for kind, key in cluster.everything() if kind == keys.POD]
    return cluster.disks == {objects.uid(found): DATA}


async def test_the_data_is_where_it_was_asked_to_be() -> None:
    cluster = await cluster_to_move_in()
    cluster.calls = 0

    await move(cluster).go()

    assert await is_moved(cluster)
    assert cluster.calls == CALLS


@pytest.mark.parametrize("calls", range(CALLS))
async def test_interrupted_anywhere_the_same_command_goes_on(calls: int) -> None:
    cluster = await cluster_to_move_in()
    cluster.left = calls

    with pytest.raises(Cut):
        await move(cluster).go()
    assert DATA in cluster.disks.values()
    cluster.left = None
    await move(cluster).go()

    assert await is_moved(cluster)


class Endless(Disks):
    """A copy that is under way until somebody ends the command."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_under_way = asyncio.Event()

    @contextlib.asynccontextmanager
    async def pipe(
        self, source: tuple[Key, str], target: tuple[Key, str]
    ) -> AsyncIterator[AsyncIterator[int]]:
        async def passed() -> AsyncIterator[int]:
            yield 1
            self.is_under_way.set()
            await asyncio.Event().wait()

        yield passed()


async def test_ctrl_c_ends_the_pods_that_copy_and_loses_nothing() -> None:
    cluster = await cluster_to_move_in()
    hands = Endless(cluster)
    begun = Move(Side(cluster, Progress()), WANTED, hands, timeout_s=5)  # type: ignore[arg-type]  # the fake is a Cluster
    running = asyncio.create_task(begun.go())
    await hands.is_under_way.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not [key for kind, key in cluster.everything() if kind == keys.POD]
    await move(cluster).go()
    assert await is_moved(cluster)


async def test_a_copy_that_differs_replaces_nothing() -> None:
    cluster = await cluster_to_move_in()

    with pytest.raises(click.ClickException, match="differs"):
        await move(cluster, spoils=True).go()
    assert DATA in cluster.disks.values()
    await move(cluster).go()

    assert await is_moved(cluster)


def pod(namespace: str = "shop") -> Object:
    made = factories.pod(namespace, "store")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return {**made, "spec": {**made["spec"], "volumes": volumes}}


Change = Callable[[World], Any]


def forged(field: str, part: Object) -> Change:
    """Return what a user of the namespace can write: a record with ``part`` in it."""

    def write(world: World) -> Any:
        copied = forge.copied_claim(WANTED, claim_to_move())
        notes = copied["metadata"]["annotations"]
        record = json.loads(notes[keys.MOVED_CLAIM])
        record[field] = {**record[field], **part}
        notes[keys.MOVED_CLAIM] = json.dumps(record)
        return world.create(CLAIM, copied)

    return write


def rewritten(**parts: Any) -> Change:
    """Return what a user can write as well: a record whose ``parts`` are anything."""

    def write(world: World) -> Any:
        copied = forge.copied_claim(WANTED, claim_to_move())
        notes = copied["metadata"]["annotations"]
        notes[keys.MOVED_CLAIM] = json.dumps({**json.loads(notes[keys.MOVED_CLAIM]), **parts})
        return world.create(CLAIM, copied)

    return write


def test_of_a_record_only_what_cannot_bind_the_claim_is_taken_over() -> None:
    """Owners are those of the copy, whatever its record says. Source: docs/parity.md H12."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "store", "uid": "7"}
    owned = claim_to_move()
    owned["metadata"]["ownerReferences"] = [owner]
    copied = forge.copied_claim(WANTED, owned)
    record = json.loads(copied["metadata"]["annotations"][keys.MOVED_CLAIM])
    bound = {"pv.kubernetes.io/bind-completed": "yes", keys.SELECTED_NODE: "theirs", "mine": "1"}
    record["metadata"] |= {"annotations": bound, "ownerReferences": [{**owner, "uid": "evil"}]}
    copied["metadata"]["annotations"][keys.MOVED_CLAIM] = json.dumps(record)
    copied["metadata"]["uid"] = "of-the-copy"

    made = forge.recreated(WANTED, copied)

    notes = {keys.SELECTED_NODE: "turin", keys.RESTORED_FROM: "of-the-copy", "mine": "1"}
    assert made["metadata"]["annotations"] == notes
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["metadata"]["labels"] == {"app": "store"}

    del copied["metadata"]["ownerReferences"]
    assert "ownerReferences" not in forge.recreated(WANTED, copied)["metadata"]
    gone = forge.next_step(WANTED, None, copied)
    assert str(gone).endswith(f"restore it, or remove persistentvolumeclaim {WANTED.copy}")


REFUSED: dict[str, tuple[Object | None, MoveOptions, Change | None, str]] = {
    "no claim": (None, MoveOptions(Key("shop", "other"), "turin"), None, "does not exist"),
    "no node": (None, MoveOptions(HERE, "nowhere"), None, "node nowhere does not exist"),
    "the same place": (None, MoveOptions(HERE, "milan"), None, "where node milan is already"),
    "no storage": (None, MoveOptions(HERE, "naples"), None, "naples offers no storage"),
    "in use": (None, WANTED, lambda world: world.create(keys.POD, pod()), "pods use it: store"),
    "another class": (claim_to_move(storageClassName="fast"), WANTED, None, "its class is fast"),
    "a device": (claim_to_move(volumeMode="Block"), WANTED, None, "volumeMode is Block"),
    "a record with a volume": (
        None, WANTED, forged("spec", {"volumeName": "theirs"}), "no copy of a move",
    ),
    "a record with a name": (None, WANTED, forged("metadata", {"name": "x"}), "no copy of a move"),
    "a record with finalizers": (
        None, WANTED, forged("metadata", {"finalizers": ["a/b"]}), "no copy of a move",
    ),
    "a record without metadata": (None, WANTED, rewritten(metadata=[]), "no copy of a move"),
    "a record with odd labels": (
        None, WANTED, forged("metadata", {"labels": ["a"]}), "no copy of a move",
    ),
    "a record with odd annotations": (
        None, WANTED, forged("metadata", {"annotations": {"a": 1}}), "no copy of a move",
    ),
    "a namesake of the copy": (
        None,
        WANTED,
        lambda world: world.create(CLAIM, claim_to_move(WANTED.copy)),
        "is in the way",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "wanted", "change", "says"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_moved_is_left_as_it_is(
    made: Object | None, wanted: MoveOptions, change: Change | None, says: str
) -> None:
    cluster = await cluster_to_move_in(made)
    if change:
        await change(cluster)
    before = cluster.everything()

    with pytest.raises(click.ClickException, match=says):
        await move(cluster, wanted).go()

    assert cluster.everything() == before


@pytest.mark.parametrize(
    ("strategy", "target", "says"),
    [("Local", "turin", "strategy Local"), ("Remote", "rome-1", "strategy Remote")],
)
async def test_a_strategy_that_keeps_pods_off_the_target_is_named(
    strategy: str, target: str, says: str
) -> None:
    cluster = await cluster_to_move_in(strategy=strategy)

    with pytest.raises(click.ClickException, match=says):
        await move(cluster, MoveOptions(HERE, target)).go()


async def test_another_target_half_way_is_refused() -> None:
    cluster = await cluster_to_move_in()
    cluster.left = 3
    with pytest.raises(Cut):
        await move(cluster).go()
    cluster.left = None

    with pytest.raises(click.ClickException, match="move to node turin has begun"):
        await move(cluster, MoveOptions(HERE, "rome-1")).go()


async def test_a_claim_that_somebody_made_anew_meanwhile_is_not_filled() -> None:
    cluster = await cluster_to_move_in()
    cluster.refused = HERE
    with pytest.raises(Cut):
        await move(cluster).go()
    cluster.refused = None
    copied = await cluster.get(CLAIM, WANTED.copy)
    assert copied
    theirs = await cluster.create(CLAIM, claim_to_move())
    cluster.disks[objects.uid(theirs)] = "theirs"

    with pytest.raises(click.ClickException, match="somebody else made it again"):
        await move(cluster).go()

    assert cluster.disks == {objects.uid(theirs): "theirs", objects.uid(copied): DATA}
