"""Webhooks of others before and after ours, on a real API server. Source: docs/parity.md F-31.

Six neighbours x two orders x reinvoked or not x two failure policies: what is stored is what the
namespace asks for, or the pod is refused with the field that was undone.
"""

import base64
import functools
import itertools
import json
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from apis import keys
from apis.objects import Key, Object, named
from tests.factories import pod, pod_spec
from tests.webhook.installed import Answer, Installed, path_of
from tests.webhook.placed import EU
from tests.webhook.reviews import offloading, wait_until
from tests.webhook.served import CA, leaf, store

pytestmark = pytest.mark.cluster

SIDECAR: Final = {"name": "beside", "image": "proxy"}
OWN: Final = {"key": "neighbour", "operator": "Exists"}
US: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "region", "operator": "In", "values": ["us"]}]}
            ]
        }
    }
}


def add_sidecar(spec: Object) -> None:
    if SIDECAR["name"] not in [one["name"] for one in spec["containers"]]:
        spec["containers"].append(SIDECAR)


def add_toleration(spec: Object) -> None:
    if OWN not in spec.setdefault("tolerations", []):
        spec["tolerations"].append(OWN)


def select_nodes(spec: Object) -> None:
    spec["nodeSelector"] = {"disk": "ssd"}


def take_tolerations(spec: Object) -> None:
    spec.pop("tolerations", None)


def take_affinity(spec: Object) -> None:
    spec.pop("affinity", None)


def replace_affinity(spec: Object) -> None:
    spec["affinity"] = US


ADDING: Final = (add_sidecar, add_toleration, select_nodes)
UNDOING: Final[dict[Callable[[Object], None], str]] = {
    take_tolerations: "spec.tolerations",
    take_affinity: "spec.affinity",
    replace_affinity: "spec.affinity",
}


class NeighbourCase(NamedTuple):
    """A neighbour, and how it is registered."""

    change: Callable[[Object], None]
    is_after: bool
    reinvocation: str
    failure: str

    @property
    def name(self) -> str:
        """Return its configuration's name; API servers call them in the order of names."""
        order = "zz" if self.is_after else "aa"
        words = (order, self.change.__name__.replace("_", "-"), self.reinvocation, self.failure)
        return "-".join(words).lower()

    @property
    def has_the_last_word(self) -> bool:
        """Whether it undoes again what ours put back when it was asked a second time."""
        return self.change in UNDOING and self.is_after and self.reinvocation == "IfNeeded"


CASES: Final = [
    NeighbourCase(*case)
    for case in itertools.product(
        (*ADDING, *UNDOING), (False, True), ("Never", "IfNeeded"), ("Fail", "Ignore")
    )
]


class Neighbours(ThreadingHTTPServer):
    """Answers for all of them; the path of a request names the case."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.asked: set[str] = set()

    def changes(self, path: str, spec: Object) -> list[Object]:
        """Return the patch of the neighbour at ``path``."""
        self.asked.add(path)
        case = next(one for one in CASES if one.name == path.strip("/"))
        changed = json.loads(json.dumps(spec))
        case.change(changed)
        return [] if changed == spec else [{"op": "replace", "path": "/spec", "value": changed}]


class _Answering(BaseHTTPRequestHandler):
    server: Neighbours

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        patch = self.server.changes(path, body["request"]["object"]["spec"])
        response: Object = {"uid": body["request"]["uid"], "allowed": True}
        if patch:
            encoded = base64.b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        sent = json.dumps({**body, "request": None, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def neighbours(
    live: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[NeighbourCase, str]]:
    """Register all of them, each for one offloaded namespace; yield these."""
    folder = tmp_path_factory.mktemp("neighbours")
    store(folder, leaf())
    mark = secrets.token_hex(3)
    made: list[Object] = []
    with Neighbours(folder / "current") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            for case in CASES:
                made.append(_registered(server, case, mark))
                assert live.create(keys.MUTATING_WEBHOOKS, made[-1]).is_done
            spaces = {case: _space(live, f"{mark}-{case.name}") for case in CASES}
            for case, space in spaces.items():
                wait_until(functools.partial(_is_asked, live, server, case, space))
            yield spaces
        finally:
            for obj in made:
                live.send("DELETE", path_of(keys.MUTATING_WEBHOOKS, obj))
            server.shutdown()


def _is_asked(live: Installed, server: Neighbours, case: NeighbourCase, space: str) -> bool:
    created_beside(live, space, dryRun="All")
    return f"/{case.name}" in server.asked


def _registered(server: Neighbours, case: NeighbourCase, mark: str) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    hook = {
        "name": "neighbour.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": case.failure,
        "reinvocationPolicy": case.reinvocation,
        "timeoutSeconds": 30,
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/{case.name}",
            "caBundle": base64.b64encode(CA.certificate).decode(),
        },
        "namespaceSelector": {"matchLabels": {"neighbour": f"{mark}-{case.name}"}},
        "rules": [{**rule, "resources": ["pods"], "scope": "Namespaced"}],
    }
    name = f"{case.name}-{mark}"
    return named(keys.MUTATING_WEBHOOKS, Key("", name), webhooks=[hook])


def _space(live: Installed, mark: str) -> str:
    space = live.space({keys.SCHEDULING_ENABLED: "true", "neighbour": mark})
    how = offloading(space, podOffloadingStrategy="Remote", clusterSelector=EU)
    assert live.create(keys.NAMESPACE_OFFLOADING, how).is_done
    return space


def created_beside(live: Installed, space: str, **how: Any) -> Answer:
    obj = pod(space, f"p-{secrets.token_hex(4)}", spec=pod_spec())
    return live.create(keys.POD, obj, **how)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_stored_is_as_the_namespace_asks_or_nothing_is(
    live: Installed, neighbours: dict[NeighbourCase, str], case: NeighbourCase
) -> None:
    found = created_beside(live, neighbours[case])

    if case.has_the_last_word:
        assert found.status == 403
        assert f"{UNDOING[case.change]}" in found.message
        assert "another webhook undid what the NamespaceOffloading asks for" in found.message
        return
    assert found.is_done, found.message
    spec = found.body["spec"]
    tolerated = [one.get("key") for one in spec["tolerations"]]
    assert tolerated.count(keys.VIRTUAL_NODE_TAINT) == 1
    affinity = spec["affinity"]["nodeAffinity"]
    for term in affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        asked = {(one["key"], *one["values"]) for one in term["matchExpressions"] if one["values"]}
        assert asked >= {(keys.NODE_TYPE, keys.VIRTUAL_NODE_TYPE), ("region", "eu")}
    if case.change in ADDING:
        again = json.loads(json.dumps(spec))
        case.change(again)
        assert len(again["containers"]) == len(spec["containers"])
        assert again.get("nodeSelector") == spec.get("nodeSelector")
        assert len(again["tolerations"]) == len(spec["tolerations"])
