"""AdmissionReviews as an API server sends them, and what a webhook may look up."""

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jsonpatch
import msgspec
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube.errors import KubeError
from webhook import admission, app
from webhook.admission import Request, WebhookHandler

PATIENCE_S = 300
T = TypeVar("T")


class Known:
    """An ``admission.Lookup`` over a dict; ``error`` is what every look-up raises."""

    def __init__(self, *objects: tuple[Kind, Object], error: KubeError | None = None) -> None:
        self._objects = {(kind, _key(obj)): obj for kind, obj in objects}
        self._error = error
        self.asked: list[tuple[Kind, Key]] = []

    def cached(self, kind: Kind, key: Key) -> Object | None:
        return self._objects.get((kind, key))

    def get(self, kind: Kind, key: Key) -> Object | None:
        self.asked.append((kind, key))
        if self._error:
            raise self._error
        return self._objects.get((kind, key))

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        if self._error:
            raise self._error
        return {key: obj for (found, key), obj in self._objects.items() if found == kind}

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        return self.get(kind, key)

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        return self.all(kind)

    def select_live(
        self, kind: Kind, shape: type[T], namespace: str = "", fields: str = ""
    ) -> Mapping[Key, T]:
        return {
            key: msgspec.json.decode(msgspec.json.encode(obj), type=shape)
            for key, obj in self.all(kind).items()
            if not namespace or key.namespace == namespace
        }

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        return True

    def within(self, seconds: float) -> "Known":
        return self


def _key(obj: Object) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def offloading(namespace: str = "shop", *, name: str = keys.OFFLOADING_NAME, **spec: Any) -> Object:
    return named(keys.NAMESPACE_OFFLOADING, Key(namespace, name), spec=spec)


TABLE = Path(__file__).parents[1] / "tables" / "namespaceoffloadings.yaml"
REFUSED = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
"""By a name: what a NamespaceOffloading is, and what its refusal says."""


def wrong_offloading(row: Object, namespace: str = "shop") -> Object:
    """Return the NamespaceOffloading of a row of ``REFUSED``, of ``namespace`` if it has none."""
    spec = row.get("spec", {})
    if count := row.get("terms", 0):
        term = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
        spec = {"clusterSelector": {"nodeSelectorTerms": [term] * count}}
    name = row.get("name", keys.OFFLOADING_NAME)
    return offloading(row.get("namespace", namespace), name=name, **spec)


def by_policy(said: str) -> Object:
    """Return a NamespaceOffloading that asks for a policy of reflection."""
    key, metadata = Key("shop", keys.OFFLOADING_NAME), {keys.REFLECTION_POLICY: said}
    return named(keys.NAMESPACE_OFFLOADING, key, metadata={"annotations": metadata}, spec={})


def labelled_namespace(name: str, *, is_labelled: bool = True) -> Object:
    labels = {"liqo.io/scheduling-enabled": "true"} if is_labelled else {}
    return named(keys.NAMESPACE, Key("", name), metadata={"labels": labels})


def review(
    obj: Object | None,
    *,
    kind: Kind = keys.POD,
    operation: str = "CREATE",
    namespace: str = "shop",
    **request: Any,
) -> Object:
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    shape = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": shape,
            "resource": resource,
            "requestKind": shape,
            "requestResource": resource,
            "name": "web",
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            **request,
        },
    }


def body(*args: Any, **kwargs: Any) -> bytes:
    return json.dumps(review(*args, **kwargs)).encode()


def answer_of(sent: bytes, judge: WebhookHandler) -> Object:
    """Return the AdmissionReview that answers the body ``sent``."""
    return admission.answer(admission.parse(sent, budget_s=8.0), judge)


def response(
    known: Known,
    path: str,
    obj: Object,
    *,
    status: int = 200,
    is_enforced: bool = False,
    **request: Any,
) -> Object:
    """Return what the app answers to a review of ``obj``; ``object`` is that as it was admitted."""
    client = app.create_app(app.webhook_handlers(known, is_enforced=is_enforced)).test_client()
    sent = body(obj, **request)
    found = client.post(path, data=sent, content_type="application/json")
    assert found.status_code == status
    answer: Object = found.get_json()
    if answer["response"]["allowed"]:
        answer["response"]["object"] = jsonpatch.apply_patch(obj, patch_of(answer))
    answered: Object = answer["response"]
    return answered


def patch_of(answer: Object) -> list[Object]:
    encoded = answer["response"].get("patch")
    found: list[Object] = json.loads(base64.b64decode(encoded)) if encoded else []
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"it did not come true in {PATIENCE_S} s"
        pause.wait(0.01)
