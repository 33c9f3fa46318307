"""Every refusal names object, field, rule and cure within 256 characters.

Source: docs/parity.md A-5.

The table has a row for each place in ``webhook/`` and ``apis/`` that refuses: the last test counts
them.
"""

import ast
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from apis import keys, podaffinity
from apis.nodeselector import Term
from apis.objects import Key, Kind, Object, named
from apis.validation import DeniedError
from tests.factories import node, pod, pod_spec
from tests.webhook.reviews import Known, answered, body, by_policy, namespace, offloading
from webhook import admission, app
from webhook.admission import WebhookHandler

ROOT = Path(__file__).parents[2]
PACKAGES = ("webhook", "apis")
TWIN, TENANT_NS = "shop-rome", "liqo-tenant-rome"
LABEL = keys.REMOTE_CLUSTER_ID
OFFLOADING, SHADOW, TENANT, SLICE = (
    keys.NAMESPACE_OFFLOADING,
    keys.SHADOW_POD,
    keys.TENANT,
    keys.RESOURCE_SLICE,
)
NSO, SHADOWS, VNODES, TENANTS, SLICES = (
    "/validate/namespace-offloading",
    "/validate/shadowpods",
    "/validate/virtualnodes",
    "/validate/tenants",
    "/validate/resourceslices",
)


class Row(NamedTuple):
    """What is asked, and what the refusal has to name."""

    field: str
    cure: str
    path: str
    kind: Kind
    obj: Object
    known: Sequence[tuple[Kind, Object]] = ()
    request: Object = MappingProxyType({})  # type: ignore[assignment]  # read only
    is_enforced: bool = False


# What is asked ------------------------------------------------------------------------------------


def terms(count: int, **term: Any) -> Object:
    key = {"key": "region", "operator": "In", "values": ["eu"], **term}
    made: list[Term] = [{"matchExpressions": [{**key, "key": f"k{n}"}]} for n in range(count)]
    return {"clusterSelector": {"nodeSelectorTerms": made}}


def offloaded(**spec: Any) -> tuple[Kind, Object]:
    return OFFLOADING, offloading(**spec)


def ending() -> tuple[Kind, Object]:
    kind, made = offloaded()
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return kind, made


def web(**spec: Any) -> Object:
    return pod("shop", "web", spec=pod_spec(**spec))


def judged(strategy: str) -> Object:
    """Return a pod that was judged by ``strategy``, and to which nothing was added."""
    made = web()
    line = f"strategy={strategy} generation=0 added=nothing"
    made["metadata"]["annotations"] = {keys.PLACEMENT: line}
    return made


def virtual(name: str = "milan") -> tuple[Kind, Object]:
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
    return keys.NODE, node(name, metadata={"labels": labels})


def shadow(labels: Object | None = None, **spec: Any) -> Object:
    have = {keys.ORIGIN: "rome", **(labels or {})}
    metadata = {"labels": {name: value for name, value in have.items() if value}}
    wanted = {"pod": {**pod_spec(), **spec} if spec.get("containers", True) else None}
    return named(SHADOW, Key(TWIN, "web"), metadata=metadata, spec=wanted)


def bearing(**metadata: Any) -> Object:
    made = shadow()
    made["metadata"] |= metadata
    return made


EVERYWHERE = {"weight": 1, "podAffinityTerm": {"topologyKey": "a", "namespaceSelector": {}}}


def ephemeral(**claim: Any) -> list[Object]:
    return [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]


def owned(**container: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "i", **container}]} if container else {}
    return shadow({keys.CREATOR_USER: "rome"}, **spec)


def twin(consumer: str = "rome") -> tuple[Kind, Object]:
    metadata = {"labels": {LABEL: consumer}}
    return keys.NAMESPACE, named(keys.NAMESPACE, Key("", TWIN), metadata=metadata)


def policy(**spec: Any) -> tuple[Kind, Object]:
    return keys.PROVIDER_POLICY, named(keys.PROVIDER_POLICY, Key("", "default"), spec=spec)


def quota(**spec: Any) -> tuple[Kind, Object]:
    spec = {"user": "rome", "resources": {"cpu": "4"}, **spec}
    return keys.QUOTA, named(keys.QUOTA, Key(TENANT_NS, "pool"), spec=spec)


def asking(**resources: Any) -> Object:
    return owned(resources=resources)


def vnode(**spec: Any) -> Object:
    return named(keys.VIRTUAL_NODE, Key(TENANT_NS, "x"), spec=spec)


def tenant(label: str = "rome", cluster_id: str = "rome") -> Object:
    metadata = {"labels": {LABEL: label}}
    return named(TENANT, Key(TENANT_NS, "x"), metadata=metadata, spec={"clusterID": cluster_id})


def home(label: str = "rome", is_tenant: str = "true") -> tuple[Kind, Object]:
    labels = {keys.TENANT_NAMESPACE: is_tenant, LABEL: label}
    return keys.NAMESPACE, named(keys.NAMESPACE, Key("", TENANT_NS), metadata={"labels": labels})


def other_tenant(key: Key) -> tuple[Kind, Object]:
    return TENANT, named(TENANT, key, spec={"clusterID": "b"})


def slice_(where: str = TENANT_NS, **metadata: Any) -> Object:
    labels = {keys.REPLICATION: "true", LABEL: "rome", **metadata.pop("labels", {})}
    return named(SLICE, Key(where, "x"), metadata={"labels": labels, **metadata})


def update(old: Object, **more: Any) -> Object:
    return {"operation": "UPDATE", "oldObject": old, **more}


GIVEN = named(
    keys.CLUSTER_ROLE_BINDING,
    Key("", "given"),
    roleRef={"kind": "ClusterRole", "name": "edit"},
    subjects=[{"kind": "User", "name": "rome"}],
)
CONFIG = {
    "metadata": {"namespace": "liqo", "name": "clusterid-configmap"},
    "data": {"CLUSTER_ID": "rome"},
}
SELECTED = {"namespaceMappingStrategy": "SelectedName"}
ROME = {"userInfo": {"username": "rome", "groups": ["liqo.io"]}}
MILAN = {"userInfo": {"username": "milan"}}
BINDING = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "milan"}}

ROWS = [
    # The webhook's own configuration
    Row("services", "correct its configuration", "/mutate/pod", keys.SERVICE, web()),
    Row(
        "DELETE", "correct its config", "/mutate/pod", keys.POD, web(), (), {"operation": "DELETE"}
    ),
    # Pods
    Row(
        keys.SCHEDULING_ENABLED,
        "create or correct",
        "/mutate/pod",
        keys.POD,
        web(),
        [(keys.NAMESPACE, namespace("shop"))],
    ),
    Row(
        "is being deleted",
        "try again when it is gone",
        "/mutate/pod",
        keys.POD,
        web(),
        [(keys.NAMESPACE, namespace("shop")), ending()],
    ),
    Row(
        "namespaceoffloading shop/offloading",
        "correct it",
        "/mutate/pod",
        keys.POD,
        web(),
        [offloaded(podOffloadingStrategy="x")],
    ),
    Row(
        "spec.clusterSelector",
        "shorten it",
        "/mutate/pod",
        keys.POD,
        web(),
        [offloaded(**terms(101))],
    ),
    Row(
        "spec.affinity.nodeAffinity",
        "shorten one",
        "/mutate/pod",
        keys.POD,
        web(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": terms(60)["clusterSelector"]
                }
            }
        ),
        [offloaded(podOffloadingStrategy="Remote", **terms(2))],
    ),
    Row(
        "spec.affinity.nodeAffinity",
        "with fewer",
        "/mutate/pod",
        keys.POD,
        web(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 101}
                        ]
                    }
                }
            }
        ),
        [offloaded(podOffloadingStrategy="Remote")],
    ),
    Row(
        "spec.tolerations",
        "let it leave",
        "/validate/pod",
        keys.POD,
        judged("Remote"),
        [offloaded(podOffloadingStrategy="Remote")],
    ),
    Row(
        "spec.tolerations",
        "create the pod again",
        "/validate/pod",
        keys.POD,
        judged("Local"),
        [offloaded(podOffloadingStrategy="Remote")],
    ),
    Row(
        "spec.nodeName",
        "choose another node",
        "/validate/pod",
        keys.POD,
        web(nodeName="milan"),
        [offloaded(podOffloadingStrategy="Local"), virtual()],
    ),
    Row(
        "spec.clusterSelector",
        "choose another node",
        "/validate/pod/binding",
        keys.POD,
        BINDING,
        [offloaded(**terms(1)), virtual(), (keys.POD, web())],
        {"subResource": "binding"},
    ),
    Row(
        "spec.clusterSelector",
        "correct it",
        "/validate/pod",
        keys.POD,
        web(nodeName="milan"),
        [offloaded(**terms(1, operator="Like")), virtual()],
    ),
    Row(
        "the pod is not of a ShadowPod",
        "ask the provider",
        "/validate/pod/connection",
        keys.POD,
        pod(TWIN, "web"),
        [twin(), (keys.POD, pod(TWIN, "web"))],
        {"operation": "CONNECT", "subResource": "exec", "name": "web", **ROME},
    ),
    Row(
        "target must be an object",
        "correct it",
        "/validate/pod/binding",
        keys.POD,
        {**BINDING, "target": "milan"},
        (),
        {"subResource": "binding"},
    ),
    # NamespaceOffloadings
    Row("metadata.name", "rename it", NSO, OFFLOADING, offloading(name="x")),
    Row(
        "kube-system",
        "offload another namespace",
        NSO,
        OFFLOADING,
        offloading("kube-system"),
        (),
        {"namespace": "kube-system"},
    ),
    Row(
        "spec.namespaceMappingStrategy",
        "create it again",
        NSO,
        OFFLOADING,
        offloading(),
        (),
        update(offloading(namespaceMappingStrategy="EnforceSameName")),
    ),
    Row("spec.clusterSelector", "with fewer", NSO, OFFLOADING, offloading(**terms(100))),
    Row("nodeSelectorTerms[0]", "correct it", NSO, OFFLOADING, offloading(**terms(1, values=[]))),
    Row(keys.REFLECTION_POLICY, "use DenyList", NSO, OFFLOADING, by_policy("all")),
    Row("spec.remoteNamespaceName", "set it", NSO, OFFLOADING, offloading(**SELECTED)),
    Row(
        "remote namespace",
        "choose another",
        NSO,
        OFFLOADING,
        offloading(**SELECTED, remoteNamespaceName="A" * 63),
    ),
    Row(
        "spec.remoteNamespaceName",
        "choose another",
        NSO,
        OFFLOADING,
        offloading(**SELECTED, remoteNamespaceName="kube-system"),
    ),
    Row(
        "kept for namespace b",
        "spec.remoteNamespaceName",
        NSO,
        OFFLOADING,
        offloading(**SELECTED, remoteNamespaceName="b-rome"),
        [(keys.CONFIG_MAP, CONFIG), (keys.NAMESPACE, namespace("b"))],
    ),
    Row(
        "already that of b",
        "spec.remoteNamespaceName",
        NSO,
        OFFLOADING,
        offloading(**SELECTED, remoteNamespaceName="b-rome"),
        [(keys.CONFIG_MAP, CONFIG), (OFFLOADING, offloading("b"))],
    ),
    Row(
        "podOffloadingStrategy",
        "correct it",
        NSO,
        OFFLOADING,
        offloading(podOffloadingStrategy="x"),
    ),
    # VirtualNodes
    Row(
        "spec.vkOptionsTemplateRef.namespace",
        "refer to one there",
        VNODES,
        keys.VIRTUAL_NODE,
        vnode(vkOptionsTemplateRef={"name": "a", "namespace": "shop"}),
    ),
    Row(
        "spec.vkOptionsTemplateRef",
        "try again then",
        "/mutate/virtualnodes",
        keys.VIRTUAL_NODE,
        vnode(),
    ),
    Row(
        "metadata.name",
        "choose another name",
        VNODES,
        keys.VIRTUAL_NODE,
        vnode(),
        [home(), virtual("x")],
        {"name": "x"},
    ),
    Row("metadata.namespace", "in the tenant namespace", VNODES, keys.VIRTUAL_NODE, vnode()),
    Row(
        "metadata.name",
        "choose another name",
        VNODES,
        keys.VIRTUAL_NODE,
        vnode(),
        [home(), (keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, Key("other", "x")))],
        {"name": "x"},
    ),
    Row("spec.template", "leave it out", VNODES, keys.VIRTUAL_NODE, vnode(template={"a": 1})),
    Row(
        "spec.resourceQuota.hard.cpu",
        "correct it",
        VNODES,
        keys.VIRTUAL_NODE,
        vnode(resourceQuota={"hard": {"cpu": "-1"}}),
    ),
    Row(
        "spec.vkOptionsTemplateRef.namespace must be a string",
        "correct it",
        VNODES,
        keys.VIRTUAL_NODE,
        vnode(vkOptionsTemplateRef={"namespace": 1}),
    ),
    # ShadowPods
    Row(keys.ORIGIN, "set it", SHADOWS, SHADOW, shadow({keys.ORIGIN: ""}), [twin()]),
    Row("metadata.finalizers", "leave them out", SHADOWS, SHADOW, bearing(finalizers=["a/b"])),
    Row(
        "metadata.annotations",
        "set it so",
        SHADOWS,
        SHADOW,
        bearing(annotations={"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}),
        [twin()],
    ),
    Row("namespace", "create it first", SHADOWS, SHADOW, shadow()),
    Row(keys.ORIGIN, "use a namespace mapped", SHADOWS, SHADOW, shadow(), [twin("milan")]),
    Row("spec.pod", "give the spec", SHADOWS, SHADOW, shadow(containers=None), [twin()]),
    Row("spec.pod.hostPID", "leave it out", SHADOWS, SHADOW, shadow(hostPID=True), [twin()]),
    Row(
        "spec.pod.ephemeralContainers",
        "add them once",
        SHADOWS,
        SHADOW,
        shadow(ephemeralContainers=[{"name": "debug"}]),
        [twin()],
    ),
    Row(
        "spec.pod.volumes must be a list",
        "correct it",
        SHADOWS,
        SHADOW,
        shadow(volumes=1),
        [twin()],
    ),
    Row(
        "volumeClaimTemplate.spec.storageClassName 'slow' is none of those offered (fast)",
        "name one of them",
        SHADOWS,
        SHADOW,
        shadow(volumes=ephemeral(storageClassName="slow")),
        [twin(), policy(storageClasses=[{"storageClassName": "fast"}])],
    ),
    Row(
        "volumeClaimTemplate.spec.dataSourceRef",
        "no ProviderPolicy allows it",
        SHADOWS,
        SHADOW,
        shadow(volumes=ephemeral(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "x"})),
        [twin()],
    ),
    Row(
        "namespaceSelector reaches over pods of others",
        "affinityNamespaces",
        SHADOWS,
        SHADOW,
        shadow(affinity={"podAntiAffinity": {podaffinity.PREFERRED: [EVERYWHERE]}}),
        [twin()],
    ),
    Row(
        "spec.pod.volumes[0].nfs",
        "ProviderPolicy with it in volumeTypes",
        SHADOWS,
        SHADOW,
        shadow(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
        [twin()],
    ),
    Row(
        keys.ORIGIN,
        "leave it as it was",
        SHADOWS,
        SHADOW,
        shadow(),
        (),
        update(shadow({keys.ORIGIN: "b"})),
    ),
    Row(
        keys.DELETION_GRACE,
        "give it from 1 to 3600 seconds",
        SHADOWS,
        SHADOW,
        bearing(annotations={keys.DELETION_GRACE: "0"}),
        (),
        update(shadow()),
    ),
    Row(
        "spec.pod.nodeSelector",
        "create the pod again",
        SHADOWS,
        SHADOW,
        shadow(nodeSelector={"a": "b"}),
        (),
        update(shadow()),
    ),
    Row(
        keys.CREATOR_USER,
        "leave it as it was",
        SHADOWS,
        SHADOW,
        owned(),
        (),
        update(shadow()),
        is_enforced=True,
    ),
    Row(
        keys.CREATOR_USER,
        "let its creator",
        SHADOWS,
        SHADOW,
        owned(image="j"),
        (),
        update(owned(), **MILAN),
        is_enforced=True,
    ),
    Row(
        keys.CREATOR_USER,
        "look at its configuration",
        SHADOWS,
        SHADOW,
        shadow(),
        [twin()],
        is_enforced=True,
    ),
    Row(
        keys.CREATOR_USER,
        "use a shorter one",
        "/mutate/shadowpods",
        SHADOW,
        shadow(),
        (),
        {"userInfo": {"username": "u" * 300}},
        is_enforced=True,
    ),
    Row(
        "'rome' has no Quota",
        "ask the provider",
        SHADOWS,
        SHADOW,
        owned(),
        [twin()],
        is_enforced=True,
    ),
    Row(
        "is cordoned",
        "ask the provider",
        SHADOWS,
        SHADOW,
        owned(),
        [twin(), quota(cordoned=True)],
        is_enforced=True,
    ),
    Row(
        "cannot be read",
        "has to correct it",
        SHADOWS,
        SHADOW,
        owned(),
        [twin(), quota(resources={"cpu": "x"})],
        is_enforced=True,
    ),
    Row(
        "of nvidia.com/gpu",
        "ask for less",
        SHADOWS,
        SHADOW,
        asking(requests={"nvidia.com/gpu": "1"}),
        [twin(), quota()],
        is_enforced=True,
    ),
    Row(
        "of cpu",
        "ask for less",
        SHADOWS,
        SHADOW,
        asking(requests={"cpu": "5"}),
        [twin(), quota()],
        is_enforced=True,
    ),
    Row(
        "resources.requests.cpu",
        "correct it",
        SHADOWS,
        SHADOW,
        asking(requests={"cpu": "x"}),
        [twin(), quota()],
        is_enforced=True,
    ),
    Row(
        "resources.requests.cpu",
        "correct it",
        SHADOWS,
        SHADOW,
        asking(requests={"cpu": "-1"}),
        [twin(), quota()],
        is_enforced=True,
    ),
    Row(
        "resources.requests.cpu",
        "set it in the pod",
        SHADOWS,
        SHADOW,
        asking(requests={"memory": "1"}),
        [twin(), quota(limitsEnforcement="Soft")],
        is_enforced=True,
    ),
    Row(
        "resources.limits.cpu",
        "set both equal",
        SHADOWS,
        SHADOW,
        asking(requests={"cpu": "1", "memory": "1"}),
        [twin(), quota(limitsEnforcement="Hard")],
        is_enforced=True,
    ),
    # Tenants
    Row(keys.TENANT_NAMESPACE, "create the Tenant", TENANTS, TENANT, tenant()),
    Row(LABEL, "correct or remove", TENANTS, TENANT, tenant("milan"), [home()]),
    Row(LABEL, "in its own namespace", TENANTS, TENANT, tenant(), [home("milan")]),
    Row(
        "the tenant 'y'",
        "delete that one",
        TENANTS,
        TENANT,
        tenant(),
        [home(), other_tenant(Key(TENANT_NS, "y"))],
    ),
    Row(
        "tenant 'x'",
        "choose another name",
        TENANTS,
        TENANT,
        tenant(),
        [home(), other_tenant(Key("b", "x"))],
        {"name": "x"},
    ),
    Row(
        "spec.clusterID",
        "another cluster ID",
        TENANTS,
        TENANT,
        tenant("system:a", "system:a"),
        [home("system:a")],
    ),
    Row(
        "spec.clusterID",
        "remove that",
        TENANTS,
        TENANT,
        tenant(),
        [home(), (keys.CLUSTER_ROLE_BINDING, GIVEN)],
    ),
    # ResourceSlices
    Row("metadata.name", "choose another", SLICES, SLICE, slice_(), [(SLICE, slice_("b"))]),
    Row("metadata.name", "choose another", SLICES, SLICE, slice_(), [(keys.NODE, node("x"))]),
    Row(
        LABEL,
        "leave it as it was",
        SLICES,
        SLICE,
        slice_(),
        (),
        update(slice_(labels={LABEL: "b"}), **ROME),
    ),
    Row(
        "liqo.io/cordon",
        "leave it as it was",
        SLICES,
        SLICE,
        slice_(),
        (),
        update(slice_(annotations={"liqo.io/cordon": "true"}), **ROME),
    ),
]


# What is answered ---------------------------------------------------------------------------------


def sent(row: Row) -> tuple[WebhookHandler, bytes]:
    judges = app.webhook_handlers(Known(*row.known), is_enforced=row.is_enforced)
    where = row.obj["metadata"].get("namespace", "shop")
    how = {"namespace": where, "name": row.obj["metadata"]["name"], **row.request}
    if row.request.get("operation") == "DELETE":
        how["oldObject"] = row.obj
    return judges[row.path], body(row.obj, kind=row.kind, **how)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.path}: {row.field}, {row.cure}")
def test_a_refusal_names_object_field_rule_and_cure(row: Row) -> None:
    judge, review = sent(row)

    answer = answered(review, judge)["response"]

    message: str = answer["status"]["message"]
    problem, _, cure = message.rpartition(": ")
    about = f"{judge.kind} {row.obj['metadata'].get('namespace', 'shop')}/"
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
    [row for row in ROWS if "name" not in row.request and row.kind != SLICE],
    ids=lambda row: f"{row.path}: {row.field}, {row.cure}",
)
def test_the_cure_survives_the_longest_names(row: Row) -> None:
    judge, review = sent(row._replace(request={**row.request, "name": "n" * 253}))

    message: str = answered(review, judge)["response"]["status"]["message"]

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


def place_of(row: Row) -> Place | None:
    judge, review = sent(row)
    try:
        request = admission.parse(review, budget_s=1)
        admission.expect(request, judge)
        judge.handler(request)
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
    assert missing == [], "add a row to ROWS for each of these"
