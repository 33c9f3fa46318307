"""What the admins of a provider do to each kind of twin, at once, while the reflector runs.

Two API servers; of each row an original at home and a twin there. Source: docs/parity.md F-33.
"""

import contextlib
import copy
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from kube import client, errors
from kube.client import ClusterClient
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import conftest, factories
from tests.journeys import world
from tests.reflector import pairs
from tests.reflector.mapped import offloaded_pairs
from tests.reflector.test_process import process
from tests.world import remove

pytestmark = pytest.mark.cluster

MILAN = "milan-of-hostile-admins"
"""The node at home to which the claims go."""
CLAIM, SLICE, SHADOW = (
    keys.PERSISTENT_VOLUME_CLAIM,
    keys.ENDPOINT_SLICE,
    keys.SHADOW_ENDPOINT_SLICE,
)
TWIN_OF = {SLICE: SHADOW}
EDIT: dict[Kind, Object] = {
    keys.CONFIG_MAP: {"data": {"a": "theirs"}},
    keys.SECRET: {"data": {"a": "dGhlaXJz"}},
    keys.SERVICE: {"spec": {"selector": {"app": "theirs"}}},
    keys.INGRESS: {"spec": {"rules": [{"host": "theirs.example"}]}},
    SHADOW: {"spec": {"template": {"addressType": "IPv4", "endpoints": [], "ports": []}}},
    CLAIM: {"metadata": {"labels": {"app": "theirs"}}},
}


class End(Enum):
    """What comes of a deed."""

    RESTORED = "the twin is again as the original says"
    KEPT = "what they added stays"
    LEFT = "it is theirs now: left alone, and told at home"
    STUCK = "it goes when they let it, and comes again"


@dataclass(frozen=True)
class There:
    """The provider, as its admins see one twin."""

    cluster: ClusterClient
    kind: Kind
    twin: Object

    @property
    def key(self) -> Key:
        return objects.key_of(self.twin)

    async def patch(self, changes: Object) -> None:
        await self.cluster.patch(self.kind, self.key, changes)

    async def edit(self) -> None:
        await self.patch(EDIT[self.kind])

    async def apply_as_another(self) -> None:
        body = copy.deepcopy(EDIT[self.kind])
        if self.kind == keys.SERVICE:
            body["spec"]["ports"] = self.twin["spec"]["ports"]
        metadata = {**body.pop("metadata", {}), "name": self.key.name}
        made = {**body, "metadata": {**metadata, "namespace": self.key.namespace}}
        await self.cluster.apply(self.kind, made, manager="theirs")

    async def delete(self) -> None:
        await self.cluster.delete(self.kind, self.key, uid=objects.uid(self.twin))
        await self.release()

    async def release(self) -> None:
        """Take all finalizers off what is being deleted: no controller does on this server."""
        found = await self.cluster.get_live(self.kind, self.key)
        if found and objects.is_terminating(found):
            metadata = {"uid": objects.uid(found), "finalizers": None}
            await self.patch({"metadata": metadata})

    async def delete_but_hold(self) -> None:
        await self.patch({"metadata": {"finalizers": ["theirs.example/hold"]}})
        await self.cluster.delete(self.kind, self.key, uid=objects.uid(self.twin))

    async def take_labels(self) -> None:
        await self._label(origin=None, destination=None)

    async def give_away(self) -> None:
        await self._label(origin="naples")

    async def replace(self) -> None:
        """Put one of theirs in the twin's place: again, while the reflector is there first."""
        body = {name: value for name, value in self.twin.items() if name != "metadata"}
        body.pop("status", None)
        if self.kind == keys.SERVICE:
            body["spec"] = {"ports": [{"port": 80}]}
        theirs = {**body, **named(self.kind, self.key)}
        while True:
            found = await self.cluster.get_live(self.kind, self.key) or self.twin
            await There(self.cluster, self.kind, found).delete()
            with contextlib.suppress(errors.AlreadyExistsError):
                await self.cluster.create(self.kind, theirs)
                return

    async def add_label(self) -> None:
        await self.patch({"metadata": {"labels": {"theirs": "1"}}})

    async def add_annotation_and_finalizer(self) -> None:
        metadata = {"annotations": {"theirs": "1"}, "finalizers": ["theirs.example/hold"]}
        await self.patch({"metadata": metadata})

    async def take_digest(self) -> None:
        await self.patch({"metadata": {"annotations": {keys.APPLIED: None}}})

    async def edit_and_take_labels(self) -> None:
        await self.edit()
        await self.take_labels()

    async def _label(self, **labels: str | None) -> None:
        named_ = {f"offloading.liqo.io/{name}": value for name, value in labels.items()}
        await self.patch({"metadata": {"labels": named_}})


class Deed(NamedTuple):
    """What an admin does, and what comes of it."""

    do: Callable[[There], Awaitable[None]]
    end: End


DEEDS: dict[str, Deed] = {
    "edits": Deed(There.edit, End.RESTORED),
    "applies-as-another": Deed(There.apply_as_another, End.RESTORED),
    "deletes": Deed(There.delete, End.RESTORED),
    "takes-labels": Deed(There.take_labels, End.RESTORED),
    "edits-and-takes-labels": Deed(There.edit_and_take_labels, End.RESTORED),
    "takes-digest": Deed(There.take_digest, End.RESTORED),
    "gives-away": Deed(There.give_away, End.LEFT),
    "replaces": Deed(There.replace, End.LEFT),
    "deletes-but-holds": Deed(There.delete_but_hold, End.STUCK),
    "adds-label": Deed(There.add_label, End.KEPT),
    "adds-annotation-and-finalizer": Deed(There.add_annotation_and_finalizer, End.KEPT),
}


def original_for_provider(kind: Kind, namespace: str, name: str) -> Object:
    if kind == CLAIM:
        claim = factories.claim(namespace, name, node=MILAN)
        claim["metadata"]["labels"] = {"app": "store"}
        return claim
    return pairs.original(kind, Key(namespace, name))


KINDS = (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE, keys.INGRESS, SLICE, CLAIM)
ROWS = [(kind, name, deed) for kind in KINDS for name, deed in DEEDS.items()]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("provider")) as plane:
        yield plane


@dataclass(frozen=True)
class Both:
    """Both API servers, and which namespaces belong together."""

    home: ClusterClient
    there: ClusterClient
    tenant: str
    pair: MappedNamespace

    async def until(self, kind: Kind, holds: Callable[[world.World], bool]) -> world.World:
        return await world.until(self.there, kind, self.pair.remote_namespace, holds)


@pytest.fixture
async def both(plane: Plane, provider: Plane, crds: None) -> AsyncIterator[Both]:
    await conftest.install_crds(provider.kubeconfig)
    stem = f"test-{secrets.token_hex(4)}"
    pair = MappedNamespace("rome", "milan", stem, f"{stem}-remote")
    async with (
        client.connect(plane.kubeconfig) as home,
        client.connect(provider.kubeconfig) as there,
    ):
        identity = await offloaded_pairs(
            home, stem, there=there, kubeconfig=provider.kubeconfig.read_bytes()
        )
        await home.create(keys.NODE, factories.virtual_node(MILAN))
        yield Both(home, there, identity.tenant_namespace, pair)
        await remove(home, keys.NODE, Key("", MILAN))


async def test_admins_of_a_provider_lose_nothing_of_ours_and_block_nothing(
    both: Both, plane: Plane
) -> None:
    local = both.pair.local_namespace
    ours = {}
    for kind, name, _ in ROWS:
        ours[kind, name] = await both.home.create(kind, original_for_provider(kind, local, name))
    with process(plane, both.tenant, "one", "--enable-storage"):
        twins: dict[tuple[Kind, str], Object] = {}
        for kind in KINDS:
            there = TWIN_OF.get(kind, kind)
            found = await both.until(there, lambda found: {key.name for key in found} >= set(DEEDS))
            twins |= {(kind, key.name): twin for key, twin in found.items()}
        for kind, name, deed in ROWS:
            await deed.do(There(both.there, TWIN_OF.get(kind, kind), twins[kind, name]))

        for kind in KINDS:  # new ones come through meanwhile
            await both.home.create(kind, original_for_provider(kind, local, "another"))
        for kind in KINDS:
            await both.until(TWIN_OF.get(kind, kind), lambda found: is_there(found, "another"))
        for kind, name, deed in ROWS:
            await until_ended(both, TWIN_OF.get(kind, kind), twins[kind, name], deed.end)
        told = {(kind.kind, name) for kind, name, deed in ROWS if deed.end is End.LEFT}
        await world.until(both.home, keys.EVENT, local, lambda seen: warned(seen) >= told)

    for kind, name, _ in ROWS:
        assert await both.home.get_live(kind, Key(local, name)) == ours[kind, name]
    assert len(ROWS) == 66


async def until_ended(both: Both, kind: Kind, twin: Object, end: End) -> None:
    """Wait until what was done to ``twin`` has ended as it should."""
    key = objects.key_of(twin)

    def holds(found: world.World) -> bool:
        return key in found and _ENDS[end](both.pair, twin, found[key])

    if end is End.STUCK:
        await There(both.there, kind, twin).release()
    await both.until(kind, holds)


def is_there(found: world.World, name: str) -> bool:
    return any(key.name == name for key in found)


def content(obj: Object) -> Any:
    """Return what is said of a twin: body and own metadata, but for what admins may add."""
    labels = {name: value for name, value in objects.labels(obj).items() if name != "theirs"}
    digest = objects.annotations(obj).get(keys.APPLIED)
    body = {name: obj.get(name) for name in ("data", "spec", "type")}
    return labels, digest, body


def _is_restored(_pair: MappedNamespace, twin: Object, found: Object) -> bool:
    return not objects.is_terminating(found) and _same(found, twin)


def _is_kept(_pair: MappedNamespace, twin: Object, found: Object) -> bool:
    theirs = {**objects.labels(found), **objects.annotations(found)}
    return theirs.get("theirs") == "1" and _same(found, twin)


def _is_left(pair: MappedNamespace, _twin: Object, found: Object) -> bool:
    return not pair.reflects(found)


def _is_new(pair: MappedNamespace, twin: Object, found: Object) -> bool:
    return objects.uid(found) != objects.uid(twin) and _is_restored(pair, twin, found)


def _same(found: Object, twin: Object) -> bool:
    return bool(content(_without_addresses(found)) == content(_without_addresses(twin)))


def _without_addresses(obj: Object) -> Object:
    """Return a Service without what the server gave it, which differs once it is made again."""
    given = ("clusterIP", "clusterIPs")
    spec = {name: value for name, value in obj.get("spec", {}).items() if name not in given}
    return {**obj, "spec": spec}


_ENDS: dict[End, Callable[[MappedNamespace, Object, Object], bool]] = {
    End.RESTORED: _is_restored,
    End.KEPT: _is_kept,
    End.LEFT: _is_left,
    End.STUCK: _is_new,
}


def warned(events: world.World) -> set[tuple[str, str]]:
    return {
        (event["involvedObject"]["kind"], event["involvedObject"]["name"])
        for event in events.values()
        if (event["type"], event["reason"]) == ("Warning", keys.FAILED_REFLECTION)
    }
