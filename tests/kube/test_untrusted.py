"""What another cluster says has the shape that code expects."""

import ast
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
from kube.cluster import Selection
from kube.peer import PeerCluster
from kube.slim import Packed, Partial
from kube.untrusted import decode, schemas
from kube.wire import UntrustedBytes
from tests import factories
from tests.kube.running import serving
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
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "podIP": "10.1.0.7",
    },
}


def test_what_does_not_fit_its_place_is_absent_and_told() -> None:
    told: list[str] = []
    said = copy.deepcopy(LIE)
    assert decode.fitted(keys.POD, said, told.append) == BELIEVED
    assert said == LIE
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
    said = {**LIE, "spec": {"size": {"cm": 7}}, "status": {"deep": deep}}
    told: list[str] = []
    found = decode.fitted(WIDGET, said, told.append)
    assert found["spec"] == {"size": {"cm": 7}}
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
