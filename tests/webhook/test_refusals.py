"""Every refusal names object, field, rule and cure within 256 characters.

Source: docs/parity.md A-5.

``tests/tables/refusals.yaml`` has a row for each place in ``webhook/`` and ``apis/`` that refuses:
the last test counts them.
"""

import ast
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from apis import keys
from apis.nodeselector import Term
from apis.objects import Key, Kind, Object, named
from apis.validation import DeniedError
from tests import factories
from tests.webhook import reviews
from tests.webhook.reviews import Known, answer_of, body
from webhook import admission, app
from webhook.admission import WebhookHandler

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "tables" / "refusals.yaml"
PACKAGES = ("webhook", "apis")
TWIN, TENANT_NS = "shop-rome", "liqo-tenant-rome"
LABEL = keys.REMOTE_CLUSTER_ID


class RefusalRow(NamedTuple):
    """What is asked, and what the refusal has to name."""

    path: str
    field: str
    cure: str
    obj: Any
    old: Any = None
    known: Sequence[Any] = ()
    request: Object = MappingProxyType({})  # type: ignore[assignment]  # read only
    is_enforced: bool = False


ROWS = [
    RefusalRow(path, **row)
    for path, rows in yaml.safe_load(TABLE.read_text(encoding="utf-8")).items()
    for row in rows
]


# What is asked ------------------------------------------------------------------------------------


def terms_of(count: int, **term: Any) -> Object:
    key = {"key": "region", "operator": "In", "values": ["eu"], **term}
    made: list[Term] = [{"matchExpressions": [{**key, "key": f"k{n}"}]} for n in range(count)]
    return {"nodeSelectorTerms": made}


def selecting(terms: Any = None, **spec: Any) -> Object:
    if terms is not None:
        how = terms if isinstance(terms, dict) else {"count": terms}
        spec["clusterSelector"] = terms_of(**how)
    return reviews.offloading(**spec)


def ending() -> Object:
    made = selecting()
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def web_pod(**spec: Any) -> Object:
    return factories.pod("shop", "web", spec=factories.pod_spec(**spec))


def choosy(terms: int = 0, expressions: int = 0) -> Object:
    """Return a pod that requires so many terms, or one of so many expressions."""
    one = {"matchExpressions": [{"key": "a", "operator": "Exists"}] * expressions}
    required = terms_of(terms) if terms else {"nodeSelectorTerms": [one]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return web_pod(affinity={"nodeAffinity": affinity})


def placed(strategy: str) -> Object:
    """Return a pod that was judged by ``strategy``, and to which nothing was added."""
    made = web_pod()
    line = f"strategy={strategy} generation=0 added=nothing"
    made["metadata"]["annotations"] = {keys.PLACEMENT: line}
    return made


def node_of_kubelet(name: str = "milan") -> Object:
    return factories.node(name, metadata={"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}})


def refused_shadow(labels: Object | None = None, **spec: Any) -> Object:
    have = {keys.ORIGIN: "rome", **(labels or {})}
    metadata = {"labels": {name: value for name, value in have.items() if value}}
    wanted = {**factories.pod_spec(), **spec} if spec.get("containers", True) else None
    return named(keys.SHADOW_POD, Key(TWIN, "web"), metadata=metadata, spec={"pod": wanted})


def bearing(**metadata: Any) -> Object:
    made = refused_shadow()
    made["metadata"] |= metadata
    return made


def owned(**container: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "i", **container}]} if container else {}
    return refused_shadow({keys.CREATOR_USER: "rome"}, **spec)


def remote_namespace(consumer: str = "rome") -> Object:
    return named(keys.NAMESPACE, Key("", TWIN), metadata={"labels": {LABEL: consumer}})


def quota(**spec: Any) -> Object:
    spec = {"user": "rome", "resources": {"cpu": "4"}, **spec}
    return named(keys.QUOTA, Key(TENANT_NS, "pool"), spec=spec)


def provider_policy(**spec: Any) -> Object:
    return named(keys.PROVIDER_POLICY, Key("", "default"), spec=spec)


def vnode(namespace: str = TENANT_NS, **spec: Any) -> Object:
    return named(keys.VIRTUAL_NODE, Key(namespace, "x"), spec=spec)


def refused_tenant(label: str = "rome", cluster_id: str = "rome") -> Object:
    key, metadata = Key(TENANT_NS, "x"), {"labels": {LABEL: label}}
    return named(keys.TENANT, key, metadata=metadata, spec={"clusterID": cluster_id})


def other_tenant(**key: str) -> Object:
    return named(keys.TENANT, Key(**key), spec={"clusterID": "b"})


def home(label: str = "rome") -> Object:
    labels = {keys.TENANT_NAMESPACE: "true", LABEL: label}
    return named(keys.NAMESPACE, Key("", TENANT_NS), metadata={"labels": labels})


def slice_(where: str = TENANT_NS, **metadata: Any) -> Object:
    labels = {keys.REPLICATION: "true", LABEL: "rome", **metadata.pop("labels", {})}
    return named(keys.RESOURCE_SLICE, Key(where, "x"), metadata={"labels": labels, **metadata})


def cluster_role_binding() -> Object:
    role, user = {"kind": "ClusterRole", "name": "edit"}, {"kind": "User", "name": "rome"}
    return named(keys.CLUSTER_ROLE_BINDING, Key("", "given"), roleRef=role, subjects=[user])


CONFIG = named(keys.CONFIG_MAP, Key("liqo", "clusterid-configmap"), data={"CLUSTER_ID": "rome"})
NODE = {"kind": "Node", "name": "milan"}


MADE: dict[str, tuple[Kind, Callable[..., Object]]] = {
    "bearing": (keys.SHADOW_POD, bearing),
    "binding": (keys.POD, partial(dict, metadata={"name": "web"}, target=NODE)),
    "by_policy": (keys.NAMESPACE_OFFLOADING, reviews.by_policy),
    "choosy": (keys.POD, choosy),
    "config": (keys.CONFIG_MAP, CONFIG.copy),
    "ending": (keys.NAMESPACE_OFFLOADING, ending),
    "given": (keys.CLUSTER_ROLE_BINDING, cluster_role_binding),
    "home": (keys.NAMESPACE, home),
    "judged": (keys.POD, placed),
    "namespace": (keys.NAMESPACE, reviews.labelled_namespace),
    "node": (keys.NODE, factories.node),
    "offloading": (keys.NAMESPACE_OFFLOADING, selecting),
    "other_tenant": (keys.TENANT, other_tenant),
    "owned": (keys.SHADOW_POD, owned),
    "policy": (keys.PROVIDER_POLICY, provider_policy),
    "quota": (keys.QUOTA, quota),
    "service": (keys.SERVICE, web_pod),
    "shadow": (keys.SHADOW_POD, refused_shadow),
    "slice": (keys.RESOURCE_SLICE, slice_),
    "strange": (keys.POD, partial(factories.pod, TWIN, "web")),
    "tenant": (keys.TENANT, refused_tenant),
    "twin": (keys.NAMESPACE, remote_namespace),
    "virtual": (keys.NODE, node_of_kubelet),
    "vnode": (keys.VIRTUAL_NODE, vnode),
    "web": (keys.POD, web_pod),
}
"""What a row calls an object: its kind, and what makes it."""


def object_of(name: Any) -> tuple[Kind, Object]:
    """Return the object that a row names, alone or with its arguments."""
    name, arguments = (name, {}) if isinstance(name, str) else next(iter(name.items()))
    kind, make = MADE[name]
    return kind, make(**arguments)


# What is answered ---------------------------------------------------------------------------------


def sent(row: RefusalRow) -> tuple[WebhookHandler, bytes]:
    known = Known(*map(object_of, row.known))
    handlers = app.webhook_handlers(known, is_enforced=row.is_enforced)
    kind, obj = object_of(row.obj)
    where, name = obj["metadata"].get("namespace", "shop"), obj["metadata"]["name"]
    how = {"namespace": where, "name": name, **row.request}
    if row.old is not None:
        how |= {"operation": "UPDATE", "oldObject": object_of(row.old)[1]}
    if row.request.get("operation") == "DELETE":
        how["oldObject"] = obj
    return handlers[row.path], body(obj, kind=kind, **how)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.path}: {row.field}, {row.cure}")
def test_a_refusal_names_object_field_rule_and_cure(row: RefusalRow) -> None:
    handler, review = sent(row)

    answer = answer_of(review, handler)["response"]

    message: str = answer["status"]["message"]
    problem, _, cure = message.rpartition(": ")
    about = f"{handler.kind} {object_of(row.obj)[1]['metadata'].get('namespace', 'shop')}/"
    assert not answer["allowed"]
    assert message.startswith(about)
    assert row.field in problem or row.field in message
    assert row.cure in cure
    assert len(message) <= 256
    assert "…" not in message or len(review) > 1200
    assert len(cure) <= 120
    assert message.isprintable()
    assert answer["auditAnnotations"] == {"verdict": "denied", "reason": message}


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if "name" not in row.request and row.path != "/validate/resourceslices"],
    ids=lambda row: f"{row.path}: {row.field}, {row.cure}",
)
def test_the_cure_survives_the_longest_names(row: RefusalRow) -> None:
    handler, review = sent(row._replace(request={**row.request, "name": "n" * 253}))

    message: str = answer_of(review, handler)["response"]["status"]["message"]

    assert len(message) <= 256
    assert row.cure in message


# Whether that is all of them ----------------------------------------------------------------------


class Place(NamedTuple):
    """A statement that refuses."""

    path: Path
    first: int
    last: int


@cache
def places() -> frozenset[Place]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return frozenset(place for path in paths for place in refusing(path))


def refusing(path: Path) -> Iterator[Place]:
    for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call):
            name = statement.exc.func
            if isinstance(name, ast.Name) and name.id == DeniedError.__name__:
                yield Place(path, statement.lineno, statement.end_lineno or statement.lineno)


def place_of(row: RefusalRow) -> Place | None:
    handler, review = sent(row)
    try:
        request = admission.parse(review, budget_s=1)
        admission.expect(request, handler)
        handler.handle(request)
    except DeniedError as denied:
        last = traceback.extract_tb(denied.__traceback__)[-1]
        return next(
            one
            for one in places()
            if one.path == Path(last.filename) and one.first <= (last.lineno or 0) <= one.last
        )
    return None


def test_every_refusal_is_in_the_table() -> None:
    shown = {place_of(row) for row in ROWS}

    missing = sorted(f"{one.path.relative_to(ROOT)}:{one.first}" for one in places() - shown)
    assert missing == [], "add a row to the table for each of these"
