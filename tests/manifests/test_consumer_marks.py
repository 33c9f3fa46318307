"""What a consumer may not say in the metadata of our own kinds.

Source: docs/parity.md SEC-A7, SEC-A20.
"""

import copy
import json
import time
from typing import Any, Final, NamedTuple

import pytest

from apis import allowlist, keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import CurrentMapping, MappedNamespace, OffloadingPatch
from apis.providerpolicy import ProviderPolicy
from controllers.offloading.namespacemap import forge
from controllers.peers.replication import forge as replication
from controllers.peers.replication.forge import Peering
from kubelet.pods import shadowpod
from kubelet.pods.shadowpod import Options
from reflector.kinds import networking
from reflector.kinds.contract import ReflectionContext
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories
from tests.manifests import asking, documents, policytable
from tests.manifests.consumers import KUBELET, ROME

POLICY: Final = "liqo-consumer-marks"
POLICIES: Final = frozenset({POLICY, "liqo-originals"})
SPACE, TWIN = "liqo-tenant-rome", "shop-rome"
OWNER: Final = {"apiVersion": "v1", "kind": "Namespace", "name": TWIN, "uid": "1"}
REPLICA: Final = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}
PATIENCE_S: Final = 300
SPECS: Final[dict[Kind, Object]] = {
    keys.NAMESPACE_MAP: {},
    keys.RESOURCE_SLICE: {},
    keys.RENEW: {"consumerClusterID": "rome", "identityType": "ControlPlane"},
    keys.SHADOW_POD: {"pod": {"containers": [{"name": "a", "image": "a"}]}},
    keys.SHADOW_ENDPOINT_SLICE: {"template": {"addressType": "IPv4", "endpoints": []}},
}


def made(kind: Kind, name: str = "x", /, **metadata: Any) -> Object:
    """Return an object as a consumer may send it, with ``metadata`` besides or instead."""
    is_replica = kind in allowlist.REPLICAS
    base = REPLICA if is_replica else {keys.ORIGIN: "rome"}
    labels = {**base, **metadata.pop("labels", {})}
    labels = {key: value for key, value in labels.items() if value is not None}
    key = Key(SPACE if is_replica else TWIN, name)
    return named(kind, key, metadata={"labels": labels, **metadata}, spec=SPECS[kind])


def who(kind: Kind) -> tuple[str, ...]:
    return ROME if kind in allowlist.REPLICAS else KUBELET


def refused_mark(kubectl: Kubectl, obj: Object, *as_: str) -> str:
    """Return why ``obj`` is not created; nothing changes."""
    return _told(kubectl, "create", "--dry-run=server", "-f", "-", *as_, stdin=json.dumps(obj))


def patched(kubectl: Kubectl, kind: Kind, change: Object, *as_: str, name: str = "old") -> str:
    """Return why the object that stands is not changed; nothing changes."""
    space = SPACE if kind in allowlist.REPLICAS else TWIN
    where = (kind.resource, name, "-n", space)
    merge = ("--type=merge", "--dry-run=server", "-p", json.dumps({"metadata": change}))
    return _told(kubectl, "patch", *where, *merge, *as_)


def _told(kubectl: Kubectl, *arguments: str, stdin: str | None = None) -> str:
    try:
        kubectl.run(*arguments, stdin=stdin)
    except KubectlError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def milan(own_plane: Plane) -> Kubectl:
    """Return kubectl towards a provider with rome's namespaces and rights, once it is judged."""
    kubectl = Kubectl(own_plane.kubeconfig)
    of_tenants = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: "rome"}
    spaces = [
        factories.namespace(SPACE, **of_tenants),
        factories.namespace(TWIN, **{keys.REMOTE_CLUSTER_ID: "rome"}),
    ]
    roles = [documents.named("ClusterRole", role) for role in asking.ROLES]
    rules = [obj for obj in documents.everything() if obj["metadata"]["name"] in POLICIES]
    kubectl.apply([*spaces, *roles, *asking.bindings()])
    old = {keys.REMOTE_CLUSTER_ID: "rome"}
    note = {keys.CORDON: "true"}
    kubectl.apply(
        [
            made(kind, "old", labels=old, annotations=note, finalizers=["milan.example/own"])
            for kind in SPECS
        ]
    )
    kubectl.apply(rules)
    until = time.monotonic() + PATIENCE_S
    unmarked = made(keys.RESOURCE_SLICE, labels=dict.fromkeys(REPLICA))
    while POLICY not in refused_mark(kubectl, unmarked, *ROME):
        assert time.monotonic() < until, "the policy is not in force"
    return kubectl


class MarkRow(NamedTuple):
    """What is said of which kinds, and what of it is told."""

    kinds: tuple[Kind, ...]
    metadata: Object
    told: str


def labelled(kinds: tuple[Kind, ...], **labels: str | None) -> MarkRow:
    return MarkRow(kinds, {"labels": labels}, next(iter(labels)))


def note_row(name: str) -> MarkRow:
    return MarkRow(allowlist.REPLICAS, {"annotations": {name: "true"}}, name)


EVERY: Final = (*allowlist.REPLICAS, *allowlist.SHADOWS)
CREATED: Final[dict[str, MarkRow]] = {
    "nobody's": labelled(allowlist.REPLICAS, **{keys.REPLICATED: None, keys.ORIGIN_ID: None}),
    "a local one": labelled(allowlist.REPLICAS, **{keys.REPLICATED: None}),
    "of no origin": labelled(allowlist.REPLICAS, **{keys.ORIGIN_ID: None}),
    "replicated, it says, not": labelled(allowlist.REPLICAS, **{keys.REPLICATED: "false"}),
    "another's origin": labelled(EVERY, **{keys.ORIGIN_ID: "turin"}),
    "another's cluster": labelled(EVERY, **{keys.REMOTE_CLUSTER_ID: "turin"}),
    "another's shadow": labelled(EVERY, **{keys.ORIGIN: "turin"}),
    "to be replicated": labelled(EVERY, **{keys.REPLICATION: "true"}),
    "a mark of namespaces": labelled(allowlist.REPLICAS, **{keys.TENANT_NAMESPACE: "true"}),
    "a mark unheard of": labelled(allowlist.REPLICAS, **{"new.pyliqo.io/x": "y"}),
    "a shadow, replicated": labelled(allowlist.SHADOWS, **{keys.REPLICATED: "true"}),
    "a shadow for somebody": labelled(allowlist.SHADOWS, **{keys.REMOTE_ID: "turin"}),
    "cordoned": note_row(keys.CORDON),
    "cordoned with all": note_row(keys.CORDON_TENANT),
    "drained": note_row(keys.DRAIN),
    "the provider's version": note_row(keys.PROVIDER_VERSION),
    "a finalizer": MarkRow(EVERY, {"finalizers": ["x.io/y"]}, "metadata.finalizers"),
    "our finalizer": MarkRow(EVERY, {"finalizers": [keys.NAMESPACE_MAP_FINALIZER]}, "finalizers"),
    "an owner": MarkRow(EVERY, {"ownerReferences": [OWNER]}, "metadata.ownerReferences"),
    "too many": MarkRow(
        EVERY, {"annotations": {f"a{number}": "" for number in range(501)}}, "more than 500"
    ),
    "more labels than there is room for": MarkRow(
        EVERY, {"labels": {f"a{number}": "" for number in range(101)}}, "more than 100 labels"
    ),
}  # fmt: skip
CHANGED: Final[dict[str, MarkRow]] = {
    "no more replicated": labelled(allowlist.REPLICAS, **{keys.REPLICATED: None}),
    "of no origin now": labelled(allowlist.REPLICAS, **{keys.ORIGIN_ID: None}),
    "of no cluster now": labelled(EVERY, **{keys.REMOTE_CLUSTER_ID: None}),
    "no more its shadow": labelled(allowlist.SHADOWS, **{keys.ORIGIN: None}),
    **{
        name: row
        for name, row in CREATED.items()
        if not name.startswith(("nobody", "a local", "of no", "cordoned"))
    },
    "in no cordon": MarkRow(allowlist.REPLICAS, {"annotations": {keys.CORDON: None}}, keys.CORDON),
    "in no cordon, it says": MarkRow(
        allowlist.REPLICAS, {"annotations": {keys.CORDON: "false"}}, keys.CORDON
    ),
    "without what holds it": MarkRow(EVERY, {"finalizers": []}, "metadata.finalizers"),
}


@pytest.mark.cluster
@pytest.mark.parametrize("row", CREATED)
def test_what_a_consumer_may_not_create(milan: Kubectl, row: str) -> None:
    kinds, metadata, told = CREATED[row]

    for kind in kinds:
        said = refused_mark(milan, made(kind, **metadata), *who(kind))
        assert POLICY in said, (kind, said)
        assert told in said, (kind, said)


@pytest.mark.cluster
@pytest.mark.parametrize("row", CHANGED)
def test_what_a_consumer_may_not_change(milan: Kubectl, row: str) -> None:
    kinds, metadata, told = CHANGED[row]

    for kind in kinds:
        said = patched(milan, kind, metadata, *who(kind))
        assert POLICY in said, (kind, said)
        assert told in said, (kind, said)


@pytest.mark.cluster
def test_as_much_as_may_be_said_is_judged_within_the_limits_of_a_policy(milan: Kubectl) -> None:
    long = "x" * 180
    ours = {f"{long}.liqo.io/{number}": "y" for number in range(490)}
    short = {f"a.liqo.io/{number}": "y" for number in range(490)}
    labels = dict(list(ours.items())[: policytable.MOST_LABELS - 5])
    for kind in EVERY:
        notes = short if kind in allowlist.REPLICAS else ours
        said = refused_mark(milan, made(kind, labels=labels, annotations=notes), *who(kind))
        assert (f"{long}.liqo.io/" in said) == (kind in allowlist.REPLICAS)
        assert "budget" not in said


@pytest.mark.cluster
def test_a_shadow_that_is_larger_than_any_endpointslice_is_refused(milan: Kubectl) -> None:
    large = made(keys.SHADOW_ENDPOINT_SLICE)
    endpoints = [{"addresses": ["10.0.0.1"]}] * 1001
    large["spec"] = {"template": {"addressType": "IPv4", "endpoints": endpoints}}

    assert "more than 1000 endpoints" in refused_mark(milan, large, *KUBELET)


@pytest.mark.cluster
def test_what_names_something_outside_of_our_domains_means_nothing(milan: Kubectl) -> None:
    theirs = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "notliqo.io/replicated": "x",
        "liqo.io.example/cordon": "x",
        "team": "web",
    }
    for kind in EVERY:
        obj = made(kind, annotations=theirs, labels={"team": "web", "notliqo.io/originID": "x"})
        assert refused_mark(milan, obj, *who(kind)) == ""
        assert patched(milan, kind, {"annotations": theirs}, *who(kind)) == ""


@pytest.mark.cluster
def test_who_is_no_consumer_is_not_judged(milan: Kubectl) -> None:
    """A local slice is made, and a shadow is held, by users of the provider."""
    for kind in EVERY:
        local = made(
            kind, labels={keys.REPLICATION: "true", keys.REPLICATED: None}, finalizers=["a.io/b"]
        )
        assert refused_mark(milan, local) == ""
        assert patched(milan, kind, {"finalizers": [], "labels": {keys.ORIGIN_ID: None}}) == ""


def own(kind: Kind) -> Object:
    """Return what the provider itself has in rome's tenant namespace: it offloads to rome, too."""
    labels = {keys.REPLICATION: "true", keys.REMOTE_ID: "rome"}
    metadata = {"labels": labels, "finalizers": [keys.REPLICATION_FINALIZER]}
    return named(kind, Key(SPACE, "own"), metadata=metadata, spec=SPECS[kind])


TOUCHES: Final[dict[str, tuple[str, ...]]] = {
    "patch": ("patch", "{kind}", "own", "--type=merge", "-p", '{{"spec": {spec}}}'),
    "label": ("label", "{kind}", "own", "liqo.io/replicated=true"),
    "status": ("patch", "{kind}", "own", "--subresource=status", "--type=merge", "-p", "{status}"),
    "delete": ("delete", "{kind}", "own", "--wait=false"),
    "delete all": ("delete", "{kind}", "--all", "--wait=false"),
}
NEWS: Final[dict[Kind, Object]] = {
    keys.NAMESPACE_MAP: {"desiredMapping": {"kube-system": "kube-system"}},
    keys.RESOURCE_SLICE: {"consumerClusterID": "rome"},
    keys.RENEW: {"CSR": "AAAA"},
}


@pytest.mark.cluster
@pytest.mark.parametrize("touch", TOUCHES)
def test_a_consumer_touches_nothing_of_the_providers_own(milan: Kubectl, touch: str) -> None:
    """Which lies beside its replicas where both clusters offload to each other."""
    for kind in allowlist.REPLICAS:
        milan.apply([own(kind)])
        values = {"kind": kind.resource, "spec": json.dumps(NEWS[kind]), "status": '{"status": {}}'}
        line = [word.format_map(values) for word in TOUCHES[touch]]
        said = _told(milan, *line, "--dry-run=server", "-n", SPACE, *ROME)
        if touch == "status":  # the right to it is nobody's but the provider's
            assert "forbidden" in said.lower(), said
        else:
            assert "liqo-originals" in said, said
            assert f"{kind.plural} {SPACE}/own is the provider's own" in said, said
        assert _told(milan, *line, "--dry-run=server", "-n", SPACE) == "", "not of its own users"


@pytest.mark.cluster
def test_a_consumer_deletes_its_replicas(milan: Kubectl) -> None:
    for kind in allowlist.REPLICAS:
        milan.apply([made(kind, "gone")])
        delete = ("delete", kind.resource, "gone", "-n", SPACE, "--wait=false")
        assert _told(milan, *delete, *ROME) == ""


PEERING: Final = Peering("rome", "milan", "liqo-tenant-milan", SPACE)


def originals() -> dict[Kind, Object]:
    """Return what rome replicates, with all that its users and controllers may write on it."""
    labels = {
        keys.REPLICATION: "true",
        keys.REMOTE_ID: "milan",
        keys.REMOTE_CLUSTER_ID: "milan",
        keys.LIQO_MANAGED: "true",
        keys.OWNERSHIP: "x",
        "team": "web",
        "odd.liqo.io/x": "y",
    }
    notes = {
        keys.CREATE_VIRTUAL_NODE: "true",
        keys.CONSUMER_VERSION: "1",
        keys.LAST_APPLIED: "{}",
        keys.CORDON: "true",
        "note": "x",
    }
    metadata = {"labels": labels, "annotations": notes, "finalizers": [keys.REPLICATION_FINALIZER]}
    return {
        kind: named(kind, Key("liqo-tenant-milan", "x"), metadata=metadata, spec=SPECS[kind])
        for kind in allowlist.REPLICAS
    }


@pytest.mark.cluster
def test_what_our_replicator_sends_passes(milan: Kubectl) -> None:
    for kind, local in originals().items():
        assert refused_mark(milan, replication.replica(kind, local, PEERING), *ROME) == ""
        stands = milan.get(kind.resource, "old", "-n", SPACE)
        changes = replication.changes(kind, local, stands, PEERING)
        assert changes["metadata"]["annotations"]
        assert patched(milan, kind, changes["metadata"], *ROME) == ""


def of_liqo(kind: Kind, **metadata: Any) -> Object:
    """Return a replica as Liqo 1.0.1 makes it, with all of the local object's marks."""
    labels = {
        keys.REPLICATION: "false",
        keys.REPLICATED: "true",
        keys.ORIGIN_ID: "rome",
        keys.REMOTE_CLUSTER_ID: "rome",
        keys.REMOTE_ID: "milan",
        keys.LIQO_MANAGED: "true",
        "app.kubernetes.io/managed-by": "argocd",
    }
    annotations = {keys.CREATE_VIRTUAL_NODE: "true", keys.LAST_APPLIED: "{}"}
    body = {"labels": labels, "annotations": annotations, **metadata}
    return named(kind, Key(SPACE, "liqo"), metadata=body, spec=SPECS[kind])


@pytest.mark.cluster
def test_what_liqo_sends_passes_and_its_whole_updates_too(milan: Kubectl) -> None:
    for kind in allowlist.REPLICAS:
        made_ = of_liqo(kind)
        assert refused_mark(milan, made_, *ROME) == ""
        milan.apply([made_])
        milan.run("annotate", kind.resource, "liqo", "-n", SPACE, f"{keys.CORDON_TENANT}=true")
        stands = milan.get(kind.resource, "liqo", "-n", SPACE)
        put = ("replace", "--dry-run=server", "-f", "-")
        assert _told(milan, *put, *ROME, stdin=json.dumps(stands)) == ""


@pytest.mark.cluster
def test_what_a_virtual_kubelet_and_a_reflector_send_passes(milan: Kubectl) -> None:
    """Also of users who write marks on their pods and Services, which mean nothing to anybody."""
    pair = MappedNamespace("rome", "milan", "shop", TWIN)
    theirs = {mark.key: "true" for mark in allowlist.SHADOW_LABELS} | {"app": "web"}
    notes = {keys.CORDON: "true", "liqo.io/foo": "x"}
    metadata = {"labels": theirs, "annotations": notes, "uid": "1"}
    options = Options("milan", OffloadingPatch())
    shadow = shadowpod.shadow(factories.pod("shop", metadata=metadata), pair, options, "milan-x")
    local = named(
        keys.ENDPOINT_SLICE, Key("shop", "web"), metadata=metadata,
        addressType="IPv4", endpoints=[], ports=[],
    )  # fmt: skip
    for obj in (shadow, networking.shadow_endpoint_slice(local, ReflectionContext(pair))):
        assert obj["metadata"]["labels"]["app"] == "web"
        assert refused_mark(milan, obj, *KUBELET) == ""


def refusing() -> list[Object]:
    """Return the policy as one that refuses all that it looks at of what has a label of its own."""
    policy, binding = (
        copy.deepcopy(documents.named(kind, POLICY))
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    )
    for obj in (policy, binding):
        obj["metadata"]["name"] = "looks"
    binding["spec"]["policyName"] = "looks"
    del policy["spec"]["variables"]
    policy["spec"]["validations"] = [{"expression": "false", "message": "looked at"}]
    policy["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"seen": "all"}}
    return [policy, binding]


@pytest.mark.cluster
def test_a_shadow_pod_as_virtual_kubelets_send_it_ends_in_the_condition(milan: Kubectl) -> None:
    """Which is a quarter of what the policy costs otherwise, for each pod."""
    pair = MappedNamespace("rome", "milan", "shop", TWIN)
    seen = {"uid": "1", "labels": {"seen": "all"}}
    local = factories.pod("shop", "seen", metadata=seen)
    shadow = shadowpod.shadow(local, pair, Options("milan", OffloadingPatch()), "milan-x")
    other = made(keys.SHADOW_ENDPOINT_SLICE, labels={"seen": "all"})
    milan.run("create", "-f", "-", *KUBELET, stdin=json.dumps(shadow))
    milan.apply(refusing())
    until = time.monotonic() + PATIENCE_S
    while "looked at" not in refused_mark(milan, other, *KUBELET):
        assert time.monotonic() < until, "the policy is not in force"

    fresh = {**shadow, "metadata": {**shadow["metadata"], "name": "fresh"}}
    marked = made(keys.SHADOW_POD, labels={"seen": "all", keys.ORIGIN_ID: "rome"})
    ended = {"annotations": {keys.FINISHED: "Succeeded"}}
    assert refused_mark(milan, fresh, *KUBELET) == ""
    assert patched(milan, keys.SHADOW_POD, ended, *KUBELET, name="seen") == ""
    assert "looked at" in refused_mark(milan, marked, *KUBELET)
    assert "looked at" in refused_mark(milan, fresh, *KUBELET, "--as-group=turin")


ROOM: Final = 2**21 - 2**19 - 2**16
"""Bytes that an object may have: etcd takes 1.5 MiB, and 64 KiB stay for what a provider adds."""
_FILLED: Final[Object] = {
    "labels": {f"{'a' * 60}.{'b' * 60}.{number}/{'c' * 60}": "d" * 63 for number in range(96)},
    "annotations": {f"a{number}": "x" * 1000 for number in range(16)},
}
_NAMES: Final = [f"{number:a>63}" for number in range(2000)]
_REFUSED: Final = CurrentMapping("a" * 63, forge.FAILED, "NameNotAllowed", "x" * 1024)
_NO_ROOM: Final = {"type": "Resources", "status": "Denied", "reason": "a", "message": "x" * 1024}
_OFFERED: Final = {f"{'a' * 60}{number}.x/{'b' * 60}": "1" for number in range(64)}
LARGEST: Final[dict[Kind, tuple[Object, Object]]] = {
    keys.NAMESPACE_MAP: (
        {"desiredMapping": dict.fromkeys(_NAMES, "b" * 63)},
        forge.status(forge.clipped(dict.fromkeys(_NAMES, _REFUSED)), ProviderPolicy()),
    ),
    keys.RESOURCE_SLICE: (
        {"resources": _OFFERED, "class": "a" * 253, "consumerClusterID": "rome"},
        {"resources": _OFFERED, "conditions": [_NO_ROOM]},
    ),
    keys.RENEW: ({**SPECS[keys.RENEW], "csr": "A" * 16 * 1024}, {}),
}
"""By kind the largest spec that a consumer may send, and status that its provider adds."""


@pytest.mark.cluster
@pytest.mark.parametrize("kind", LARGEST, ids=str)
def test_the_largest_object_of_a_kind_has_room_for_its_provider(milan: Kubectl, kind: Kind) -> None:
    """It is answered, cordoned, drained and deleted."""
    spec, status = LARGEST[kind]
    filled = made(kind, "largest", **_FILLED)
    milan.run("create", "-f", "-", *ROME, stdin=json.dumps({**filled, "spec": spec}))
    where = (kind.resource, "largest", "-n", SPACE)
    marked = {
        "annotations": {keys.CORDON: "true", keys.DRAIN: "true", keys.PROVIDER_VERSION: "v1"},
        "finalizers": [keys.NAMESPACE_MAP_FINALIZER],
    }
    merge = ("patch", *where, "--type=merge", "--patch-file=/dev/stdin")
    if status:
        milan.run(*merge, "--subresource=status", stdin=json.dumps({"status": status}))
    milan.run(*merge, stdin=json.dumps({"metadata": marked}))
    milan.run("delete", *where, "--wait=false")

    found = json.loads(milan.run("get", *where, "-o", "json", "--show-managed-fields"))
    assert found["metadata"]["deletionTimestamp"]
    assert len(json.dumps(found, separators=(",", ":"))) < ROOM
    milan.run(*merge, stdin=json.dumps({"metadata": {"finalizers": None}}))
