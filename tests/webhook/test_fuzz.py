"""Whatever is in a review, it is judged or told to be malformed. Source: docs/parity.md SEC-D8.

``PYLIQO_FUZZ`` is the number of reviews that are tried, 300 by default.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apis import keys
from apis.objects import Key, Kind, Object, named
from tests.conftest import size_of
from tests.factories import pod, pod_spec
from tests.webhook import reviews
from tests.webhook.reviews import Known, offloading
from webhook import app, webhooks
from webhook.admission import WebhookHandler

TRIED: Final = size_of("PYLIQO_FUZZ", 100, 2000)
SHOP, TENANT, TWIN = "shop", "liqo-tenant-rome", "shop-rome"
CONSUMER: Final = {keys.REMOTE_CLUSTER_ID: "rome"}
TERM: Object = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
TERMS: Object = {"nodeSelectorTerms": [TERM]}
PROBE: Object = {"httpGet": {"path": "/", "port": 80, "host": "example.com"}}
CONTAINER: Object = {
    "name": "main",
    "image": "nginx",
    "env": [{"name": "A", "value": "1"}],
    "ports": [{"containerPort": 80}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}, "seccompProfile": {"type": "x"}},
    "livenessProbe": PROBE,
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
TOLERATION: Object = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
EVERYTHING: Object = {"operator": "Exists"}
SPEC: Object = pod_spec(
    containers=[CONTAINER],
    initContainers=[{**CONTAINER, "name": "init", "restartPolicy": "Always"}],
    ephemeralContainers=[{"name": "debug", "image": "busybox"}],
    tolerations=[TOLERATION],
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}},
    nodeSelector={"region": "eu"},
    overhead={"cpu": "1m"},
    resources={"requests": {"cpu": "1"}},
    runtimeClassName="liqo",
    securityContext={"sysctls": [{"name": "a", "value": "b"}]},
    volumes=[{"name": "data", "emptyDir": {}}, {"name": "t", "projected": {"sources": [{}]}}],
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}],
)
OWNER: Object = {"kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
MARKED: Object = {"labels": {**CONSUMER, keys.ORIGIN: "rome"}, "annotations": {"a": "b"}}
QUOTA: Object = {"user": "rome", "resources": {"cpu": "4"}, "limitsEnforcement": "Hard"}
ORDERS: Object = {"argocd.argoproj.io/tracking-id": "a", "note": "b"}
SLICE: Object = {"class": "default", "consumerClusterID": "rome", "resources": {"cpu": "1"}}


def of(kind: Kind, namespace: str, spec: Object) -> Object:
    return named(kind, Key(namespace, "web"), metadata=copy.deepcopy(MARKED), spec=spec)


OBJECTS: Final[dict[Kind, Object]] = {
    keys.POD: pod(SHOP, spec=SPEC, metadata={**MARKED, "ownerReferences": [OWNER]}),
    keys.NAMESPACE_OFFLOADING: offloading(
        clusterSelector=TERMS,
        podOffloadingStrategy="Remote",
        namespaceMappingStrategy="EnforceSameName",
    ),
    keys.SHADOW_POD: of(keys.SHADOW_POD, TWIN, {"pod": SPEC}),
    keys.TENANT: of(keys.TENANT, TENANT, {"clusterID": "rome", "authzPolicy": "KeysExchange"}),
    keys.RESOURCE_SLICE: of(keys.RESOURCE_SLICE, TENANT, SLICE),
    keys.VIRTUAL_NODE: of(
        keys.VIRTUAL_NODE, TENANT,
        {"clusterID": "rome", "labels": {"a": "b"}, "resourceQuota": {"hard": {"cpu": "1"}},
         "template": {"spec": {}}, "offloadingPatch": {"nodeSelector": {"a": "b"}}},
    ),
    keys.DAEMON_SET: of(
        keys.DAEMON_SET, SHOP, {"template": {"spec": {**SPEC, "tolerations": [EVERYTHING]}}}
    ),
    keys.FOREIGN_CLUSTER: of(keys.FOREIGN_CLUSTER, "", {"clusterID": "rome"}),
    **{
        kind: named(kind, Key(TWIN, "web"), metadata={"annotations": ORDERS})
        for kind in webhooks.ORDERED.values()
    },
}  # fmt: skip
BINDING: Object = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "milan"}}
VIRTUAL: Object = {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, "region": "eu"}}
KNOWN: Final = Known(
    (keys.NAMESPACE, named(keys.NAMESPACE, Key("", SHOP), metadata={"labels": {}})),
    (keys.NAMESPACE, named(keys.NAMESPACE, Key("", TWIN), metadata={"labels": CONSUMER})),
    (keys.NAMESPACE, named(keys.NAMESPACE, Key("", TENANT), metadata={"labels": CONSUMER})),
    (keys.NAMESPACE_OFFLOADING, OBJECTS[keys.NAMESPACE_OFFLOADING]),
    (keys.NODE, named(keys.NODE, Key("", "milan"), metadata=VIRTUAL)),
    (keys.QUOTA, named(keys.QUOTA, Key(TENANT, "pool"), spec=QUOTA)),
    (keys.POD, OBJECTS[keys.POD]),
)
TABLE: Final = app.webhook_handlers(KNOWN, is_enforced=True)

ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["", "1", "-1", "1e99", "NaN", "\x00", "\ud800", "In", "Exists", "rome"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.text(max_size=4) | st.sampled_from(["name", "key", "values"]), inner, max_size=3
    ),
    max_leaves=6,
)  # fmt: skip


def genuine(path: str, judge: WebhookHandler, operation: str) -> Object:
    """Return a review as an API server sends it to ``path``."""
    obj = BINDING if judge.subresources == ("binding",) else OBJECTS[judge.kind]
    old = OBJECTS[judge.kind] if operation == "UPDATE" else None
    namespace = str(OBJECTS[judge.kind]["metadata"].get("namespace") or "")
    part = {"subResource": judge.subresources[0]} if judge.subresources[0] else {}
    made = reviews.review(
        obj, kind=judge.kind, operation=operation, namespace=namespace, oldObject=old,
        userInfo={"username": "rome", "groups": ["rome"]}, **part,
    )  # fmt: skip
    return copy.deepcopy(made)


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*where, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*where, key))


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, Object]:
    """Draw a path and a review for it, of which one to three values are anything, or gone."""
    path = draw(st.sampled_from(sorted(TABLE)))
    judge = TABLE[path]
    review = genuine(path, judge, draw(st.sampled_from(sorted(judge.operations))))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(list(places(review))))
        holder = review
        for key in above:
            holder = holder[key]
        if draw(st.integers(0, 4)):
            holder[last] = draw(ANYTHING)
        else:
            del holder[last]
    return path, review


def review_of(client: FlaskClient, path: str, sent: bytes) -> tuple[int, Object]:
    found = client.post(path, data=sent, content_type="application/json")
    answer: Object = json.loads(found.data)
    return found.status_code, answer


CLIENT: Final = app.create_app(app.webhook_handlers(KNOWN, is_enforced=True)).test_client()


def test_what_is_tried_is_genuine_before_it_is_spoilt() -> None:
    for path, judge in TABLE.items():
        for operation in judge.operations:
            sent = json.dumps(genuine(path, judge, operation)).encode()
            assert review_of(CLIENT, path, sent)[0] == 200, path


@settings(max_examples=TRIED, deadline=None, suppress_health_check=list(HealthCheck))
@given(tried=spoilt())
def test_no_object_makes_the_webhook_fail(tried: tuple[str, Object]) -> None:
    path, review = tried
    status, answer = review_of(CLIENT, path, json.dumps(review).encode())

    assert status in (200, 400), answer
    if status == 200:
        assert answer["response"]["uid"] == review["request"]["uid"]


@settings(max_examples=TRIED, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(sorted(TABLE)), at=st.floats(0, 1), put=st.binary(max_size=8))
@example("/mutate/pod", 0.0, b"")
def test_no_bytes_make_the_webhook_fail(path: str, at: float, put: bytes) -> None:
    judge = TABLE[path]
    whole = json.dumps(genuine(path, judge, min(judge.operations))).encode()
    where = int(at * len(whole))

    for sent in (whole[:where] + put + whole[where + len(put) :], whole[:where] + put):
        assert review_of(CLIENT, path, sent)[0] in (200, 400)
