"""What another cluster says has the shape that code expects."""

import ast
import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import credentials, peer
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.kubeconfig import KubeconfigError
from kube.peer import PeerCluster
from kube.slim import Packed, Partial
from kube.untrusted import decode, schemas
from kube.wire import UntrustedBytes
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import serving, until
from tests.kubelet import lies, worlds

ROOT: Final = Path(__file__).parent.parent.parent
WIDGET: Final = Kind("example.org", "v1", "Widget", "widgets")
"""A kind that an administrator opted in."""
KINDS: Final = (*schemas.SCHEMAS, WIDGET)
WEB: Final = Key("shop-rome", "web")
LIE: Final[Object] = {
    "metadata": {
        "name": "web",
        "namespace": "shop-rome",
        "resourceVersion": "7",
        "labels": {"good": "one", "bad": 5},
        "annotations": ["x"],
        "generation": "three",
    },
    "status": {
        "phase": 5,
        "conditions": ["x", {"type": "Ready", "status": "True", "reason": {}}],
        "podIP": "10.1.0.7",
        "invented": {},
    },
}
BELIEVED: Final[Object] = {
    "metadata": {
        "name": "web",
        "namespace": "shop-rome",
        "uid": "",
        "resourceVersion": "7",
        "labels": {"good": "one"},
    },
    "spec": {},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.1.0.7"},
}


def test_what_does_not_fit_its_place_is_absent_and_told() -> None:
    told: list[str] = []
    said = copy.deepcopy(LIE)
    assert decode.fitted(keys.POD, said, told.append) == BELIEVED
    assert said == LIE
    many = {str(number): "x" for number in range(20_000)}
    spoiled = {"metadata": {"name": "a"}, "data": {**many, "odd": 1}}
    assert decode.fitted(keys.CONFIG_MAP, spoiled)["data"] == many
    assert told == [
        "Pod.metadata.generation",
        "Pod.metadata.labels",
        "Pod.metadata.annotations",
        "Pod.status.conditions",
        "Pod.status.conditions.reason",
        "Pod.status.phase",
    ]


@settings(max_examples=300, deadline=None)
@given(said=st.one_of(lies.twins, st.dictionaries(lies.words, lies.junk)))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_whatever_is_said_has_its_shape_then(kind: Kind, said: Object) -> None:
    found = decode.fitted(kind, said)
    told: list[str] = []
    assert decode.fitted(kind, found, told.append) == found
    assert told == []
    assert isinstance(found["metadata"]["name"], str)


def test_an_honest_pod_passes_with_all_that_is_read_of_it() -> None:
    status = worlds.running(podIP="10.1.0.7", startTime="2026-01-31T11:00:00Z")
    pod = factories.pod("shop-rome", "web", status=status)
    told: list[str] = []
    found = decode.fitted(keys.POD, pod, told.append)
    own = {"hostIP", "podIPs"}  # the consumer has its own
    assert found["status"] == {name: status[name] for name in status if name not in own}
    assert found["metadata"] == {"uid": "", "resourceVersion": "", **pod["metadata"]}
    assert told == []


def test_a_text_for_people_is_cut_and_a_name_that_is_too_long_is_absent() -> None:
    said = {**LIE, "status": {"message": "x" * 2**17, "phase": "x" * 2**17}}
    found = decode.fitted(keys.POD, said)
    assert found["status"] == {"conditions": [], "message": "x" * 2**16}


def test_of_other_kinds_all_but_endless_depth_passes() -> None:
    deep: Any = []
    for _ in range(decode.DEEPEST + 1):
        deep = [deep]
    said = {**LIE, "spec": {"size": {"cm": 7}}, "status": {"deep": deep}, "more": 1}
    told: list[str] = []
    found = decode.fitted(WIDGET, said, told.append)
    assert found["spec"] == {"size": {"cm": 7}}
    assert found["more"] == 1
    assert "more" not in decode.fitted(keys.POD, said)
    assert "status" not in found
    assert told[0] == "Widget.status"


@pytest.fixture
async def liar() -> AsyncIterator[PeerCluster]:
    """Yield the client of a peer that answers all with the same lie."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.Response(text=json.dumps({"type": "ADDED", "object": LIE}) + "\n")
        if request.method == "GET" and request.path.endswith("/pods"):
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [LIE]})
        return web.json_response(LIE)

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="x") as found,
    ):
        yield found


async def test_whatever_a_peer_answers_passes_the_door(
    liar: PeerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", **BELIEVED}
    of = Selection(keys.POD, Object, "shop-rome")
    packed = Selection(keys.POD, Packed, "shop-rome")

    assert (await liar.list(of)).items == {WEB: whole}
    assert (await liar.list(packed)).items[WEB].whole() == whole
    partial = (await liar.list(Selection(keys.POD, Partial, "shop-rome"))).items[WEB]
    assert partial.metadata.labels == {"good": "one"}
    assert [event.object async for event in liar.watch(of, "9")] == [whole]
    obj = factories.pod("shop-rome", "web")
    for asked in (
        liar.get(keys.POD, WEB),
        liar.get_live(keys.POD, WEB),
        liar.create(keys.POD, obj),
        liar.apply(keys.POD, obj, manager="x"),
        liar.patch(keys.POD, WEB, {}),
        liar.patch_status(keys.POD, WEB, {}),
    ):
        assert await asked == BELIEVED
    said = [one.message for one in caplog.records if "does not fit" in one.message]
    assert len(said) == 6, "each field is told once"


def test_daemons_have_no_other_client_of_a_peer() -> None:
    """They connect by kubeconfig to their own cluster alone, where they start."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("kubelet", "reflector", "controllers", "webhook", "certs")
        for path in (ROOT / package).rglob("*.py")
        if any(map(_connects, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert {name for name in found if not name.endswith("__main__.py")} == {
        "controllers/granting/customclass.py",
        "webhook/service.py",
    }


def _connects(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "client.connect",
        "ClusterClient",
        "client.ClusterClient",
    }


def test_what_arrived_is_opened_in_one_place() -> None:
    """``UntrustedBytes`` have no method but their length; the one way in has one caller."""
    assert not [name for name in dir(UntrustedBytes) if not name.startswith("_")]
    found = {
        str(path.relative_to(ROOT))
        for package in ("kube", "kubelet", "reflector", "controllers", "webhook", "liqoctl")
        for path in (ROOT / package).rglob("*.py")
        if any(map(_opens, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {"kube/untrusted/decode.py"}


def _opens(node: ast.AST) -> bool:
    """Whether ``node`` names ``kube.wire.said``, or imports it."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "kube.wire" and any(one.name == "said" for one in node.names)
    return isinstance(node, ast.Attribute) and ast.unparse(node) in {"wire.said", "kube.wire.said"}


@pytest.mark.parametrize(
    ("kind", "field"), [(keys.SECRET, "data"), (keys.CONFIG_MAP, "binaryData")]
)
def test_a_value_of_one_mebibyte_is_kept(kind: Kind, field: str) -> None:
    largest = base64.b64encode(bytes(2**20)).decode()
    said = named(kind, Key("shop-rome", "big"), **{field: {"blob": largest}})

    assert decode.fitted(kind, said)[field] == {"blob": largest}


# The identity towards another cluster, and how it changes while we run.


SECRET = Key("liqo-tenant-milan", "key")


def untrusted_secret(token: str, **user: str) -> Object:
    kubeconfig = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "u", "user": {"token": token, **user}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    encoded = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
    return named(keys.SECRET, SECRET, data={"kubeconfig": encoded})


def is_known_as(client: ClusterClient, token: str) -> bool:
    return client.access.authorization == f"Bearer {token}"


async def change_secret(home: FakeCluster, to: Object) -> None:
    await home.patch(keys.SECRET, SECRET, {"data": to["data"]})


async def test_a_renewed_identity_is_used_from_then_on() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, untrusted_secret("one"))

    async with peer.follow(home, SECRET, user_agent="tests") as client:
        assert is_known_as(client, "one")
        await change_secret(home, untrusted_secret("two"))
        await until(lambda: is_known_as(client, "two"))


async def test_what_is_no_identity_leaves_the_old_one() -> None:
    home = FakeCluster()
    made = await home.create(keys.SECRET, untrusted_secret("one"))

    async with peer.follow(home, SECRET, user_agent="tests") as client:
        await change_secret(home, untrusted_secret("bad", exec="canary"))
        await change_secret(home, named(keys.SECRET, SECRET, data={"kubeconfig": "no base64"}))
        await change_secret(home, named(keys.SECRET, SECRET, data={"kubeconfig": None}))
        await home.delete(keys.SECRET, SECRET, uid=made["metadata"]["uid"])
        assert is_known_as(client, "one")
        await home.create(keys.SECRET, untrusted_secret("three"))
        await until(lambda: is_known_as(client, "three"))


@pytest.mark.parametrize("data", ["no base64", "\u00e9", "kl\u00e4r"])
def test_what_is_no_base64_is_no_identity(data: str) -> None:
    with pytest.raises(KubeconfigError, match="base64"):
        peer.identity(named(keys.SECRET, SECRET, data={"kubeconfig": data}))


async def test_a_renewal_that_ends_is_an_error_of_who_rests_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, untrusted_secret("one"))

    def broken(_: ClusterClient, access: object) -> None:
        raise RuntimeError("no other identity")

    monkeypatch.setattr(ClusterClient, "replace", broken)

    async def rests_on_it() -> None:
        async with peer.follow(home, SECRET, user_agent="tests"):
            await change_secret(home, untrusted_secret("two"))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await rests_on_it()

    assert raised.group_contains(RuntimeError, match="no other identity")


async def test_what_is_raised_meanwhile_is_raised_as_it_is() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, untrusted_secret("one"))

    async def fails_itself() -> None:
        async with peer.follow(home, SECRET, user_agent="tests"):
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await fails_itself()


async def test_a_secret_that_is_not_there_yet_is_waited_for() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, named(keys.SECRET, Key(SECRET.namespace, "other")))
    following = peer.follow(home, SECRET, user_agent="tests")

    async def arrives() -> None:
        await until(lambda: home.requests["watch", "secrets"])
        await home.create(keys.SECRET, untrusted_secret("one"))

    arriving = asyncio.create_task(arrives())
    async with following as client:
        assert is_known_as(client, "one")
    await arriving
