"""What may leave home."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from apis import allowlist, keys, reflectionpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from apis.reflectionpolicy import MetadataFilter
from kube import client
from sandbox.controlplane import Plane

SKIP = "liqo.io/skip-reflection"
ALLOW = "liqo.io/allow-reflection"


def obj(
    kind: Kind, name: str = "mine", namespace: str = "foo", type_: str = "", **metadata: Object
) -> Object:
    rest = {"type": type_} if type_ else {}
    return named(kind, Key(namespace, name), metadata=dict(metadata), **rest)


@pytest.mark.parametrize("kind", [keys.CONFIG_MAP, keys.SECRET, keys.SERVICE], ids=str)
@pytest.mark.parametrize(
    ("chosen", "annotations", "leaves"),
    [
        (Policy.DENY_LIST, {}, True),
        (Policy.DENY_LIST, {SKIP: "true"}, False),
        (Policy.DENY_LIST, {SKIP: ""}, False),
        (Policy.DENY_LIST, {SKIP: "yes"}, False),
        (Policy.DENY_LIST, {SKIP: "false"}, True),
        (Policy.DENY_LIST, {SKIP: "False"}, True),
        (Policy.DENY_LIST, {ALLOW: "false"}, True),
        (Policy.DENY_LIST, {ALLOW: "true", SKIP: "true"}, False),
        (Policy.ALLOW_LIST, {}, False),
        (Policy.ALLOW_LIST, {ALLOW: "true"}, True),
        (Policy.ALLOW_LIST, {ALLOW: ""}, True),
        (Policy.ALLOW_LIST, {ALLOW: "FALSE"}, False),
        (Policy.ALLOW_LIST, {SKIP: "true"}, False),
        (Policy.ALLOW_LIST, {ALLOW: "true", SKIP: "true"}, True),
        (Policy.CUSTOM, {SKIP: "true"}, True),
    ],
)
def test_annotations_decide_as_the_policy_says(
    *, kind: Kind, chosen: Policy, annotations: dict[str, str], leaves: bool
) -> None:
    reason = reflectionpolicy.reason_to_stay(kind, obj(kind, annotations=annotations), chosen)

    assert (reason is None) is leaves


@pytest.mark.parametrize("chosen", Policy)
@pytest.mark.parametrize(
    "protected",
    [
        obj(keys.SECRET, type_="kubernetes.io/service-account-token"),
        obj(keys.SECRET, type_="bootstrap.kubernetes.io/token"),
        obj(keys.SECRET, type_="helm.sh/release.v1"),
        obj(keys.SECRET, type_="helm.sh/release.v2"),
        obj(
            keys.SECRET,
            labels={"offloading.liqo.io/service-account-name": "default"},
            annotations={"offloading.liqo.io/service-account-for-pod-name": "web"},
        ),
        obj(keys.SERVICE, name="kubernetes", namespace="default"),
    ],
    ids=["token", "bootstrap", "helm", "future helm", "pod token", "default/kubernetes"],
)
def test_the_protected_set_never_leaves(protected: Object, chosen: Policy) -> None:
    kind = keys.SERVICE if protected["kind"] == "Service" else keys.SECRET
    protected["metadata"].setdefault("annotations", {})[ALLOW] = "true"

    assert reflectionpolicy.is_protected(kind, protected)
    assert reflectionpolicy.reason_to_stay(kind, protected, chosen) is not None


@pytest.mark.parametrize(
    "ordinary",
    [
        obj(keys.SECRET, type_="Opaque"),
        obj(keys.SECRET, type_="kubernetes.io/tls"),
        obj(keys.SECRET, type_="kubernetes.io/dockerconfigjson"),
        obj(keys.SECRET, labels={"offloading.liqo.io/service-account-name": "default"}),
        obj(keys.SECRET, name="kubernetes", namespace="default"),
    ],
    ids=["opaque", "tls", "pull", "only the label", "a secret called kubernetes"],
)
def test_other_secrets_leave(ordinary: Object) -> None:
    assert reflectionpolicy.reason_to_stay(keys.SECRET, ordinary, Policy.DENY_LIST) is None


@pytest.mark.parametrize("chosen", Policy)
@pytest.mark.parametrize(
    ("annotations", "leaves"),
    [({}, True), ({SKIP: "true"}, False), ({SKIP: "false"}, True), ({ALLOW: "true"}, True)],
)
def test_the_root_certificates_leave_unless_skipped(
    *, chosen: Policy, annotations: dict[str, str], leaves: bool
) -> None:
    root = obj(keys.CONFIG_MAP, name="kube-root-ca.crt", annotations=annotations)

    assert (reflectionpolicy.reason_to_stay(keys.CONFIG_MAP, root, chosen) is None) is leaves


def test_root_certificates_that_ask_for_both_are_an_error() -> None:
    both = {SKIP: "true", ALLOW: "true"}
    root = obj(keys.CONFIG_MAP, name="kube-root-ca.crt", annotations=both)

    with pytest.raises(reflectionpolicy.ContradictionError, match="contradict"):
        reflectionpolicy.reason_to_stay(keys.CONFIG_MAP, root, Policy.DENY_LIST)


def test_annotations_of_this_cluster_stay() -> None:
    stay = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "cloud.google.com/neg": "x",
        "cloud.google.com/neg-status": "x",
        "kubernetes.digitalocean.com/load-balancer-id": "x",
        "ingress.kubernetes.io/backends": "x",
        "ingress.kubernetes.io/forwarding-rule": "x",
        "ingress.kubernetes.io/target-proxy": "x",
        "ingress.kubernetes.io/url-map": "x",
        "metallb.universe.tf/address-pool": "x",
        "metallb.universe.tf/ip-allocated-from-pool": "x",
        "metallb.universe.tf/loadBalancerIPs": "x",
        "loadbalancer.openstack.org/load-balancer-id": "x",
    }
    asked = obj(keys.SERVICE, annotations={**stay, "mine": "1", "unwanted": "1"})
    hidden = MetadataFilter(annotations_not_reflected=frozenset({"unwanted"}))

    assert hidden.annotations(asked) == {"mine": "1"}


def test_labels_stay_that_are_told_to() -> None:
    asked = obj(keys.SERVICE, labels={"app": "web", "team": "a"})

    assert MetadataFilter(frozenset({"team"})).labels(asked) == {"app": "web"}
    assert MetadataFilter().labels(asked) == {"app": "web", "team": "a"}


# What of a user's labels and annotations goes to a provider.


def test_the_domains_in_which_names_mean_something() -> None:
    ours = ("liqo.io/a", "pyliqo.io/a", "offloading.liqo.io/a", "a.b.pyliqo.io/a")
    others = ("a", "notliqo.io/a", "liqo.io", "liqo.io.example/a", "a/liqo.io/b", "xliqo.io/a")

    assert all(map(allowlist.is_ours, ours))
    assert not any(map(allowlist.is_ours, others))


def test_annotations_of_a_replica_leave_room_for_those_of_its_provider() -> None:
    """X1, X2: what is too much stays at the consumer, our own marks never."""
    noted = {
        "long": "x" * allowlist.MOST_CHARACTERS,
        "b": "y" * 100,
        keys.CREATE_VIRTUAL_NODE: "true",
    }

    kept = allowlist.annotations_of_replica({**noted, keys.LAST_APPLIED: "{}"})

    assert kept == {name: value for name, value in noted.items() if name != "long"}


def test_what_a_provider_refuses_stays_at_the_consumer() -> None:
    noted = {keys.CREATE_VIRTUAL_NODE: "true", keys.CORDON: "true", "odd.liqo.io/x": "y", "a": "b"}
    labels = {keys.REMOTE_ID: "milan", keys.OWNERSHIP: "x", keys.TENANT_NAMESPACE: "true", "a": "b"}
    users = {keys.REPLICATED: "true", keys.ORIGIN: "turin", "liqo.io/x": "y", "a": "b"}

    kept = {keys.CREATE_VIRTUAL_NODE: "true", "a": "b"}
    assert allowlist.annotations_of_replica(noted) == kept
    assert allowlist.labels_of_replica(labels) == {keys.REMOTE_ID: "milan", "a": "b"}
    assert allowlist.labels_of_shadow(users) == {"liqo.io/x": "y", "a": "b"}


# Whatever in a PodSpec names a ConfigMap or a Secret is known as a mention of it.


KINDS: Final = {"secret": keys.SECRET, "configmap": keys.CONFIG_MAP}
PATHS: Final = [(kind, path) for kind, paths in reflectionpolicy.PATHS.items() for path in paths]


def spec_with(path: str, value: str) -> Object:
    """Return a PodSpec with ``value`` at ``path``, beside one that is somebody else's."""
    made: Any = value
    for step in reversed(path.split(".")):
        field = step.removesuffix("[]")
        made = {field: made if field == step else [{"name": "other"}, made]}
    found: Object = made
    return found


@pytest.mark.parametrize(("kind", "path"), PATHS)
def test_each_is_found(kind: Kind, path: str) -> None:
    found = reflectionpolicy.mentioned(spec_with(path, "it"))

    assert (kind, "it") in found
    assert found <= {(kind, "it"), (keys.SECRET, "other")}


def test_what_names_nothing_mentions_nothing() -> None:
    assert not reflectionpolicy.mentioned(
        {"volumes": [{"name": "a", "secret": {}}, {"csi": None}], "other": 1}
    )


@pytest.mark.cluster
async def test_an_api_server_knows_no_other_way_to_name_one(plane: Plane) -> None:
    async with client.connect(plane.kubeconfig) as real:
        published = json.loads(await real.get_text("/openapi/v3/api/v1"))["components"]["schemas"]

    named = set(_named(published, "io.k8s.api.core.v1.PodSpec"))

    assert named == {(KINDS[kind.kind.lower()], path) for kind, path in PATHS}


def _named(
    schemas: Mapping[str, Any], type_: str, at: str = "", under: Kind | None = None
) -> Iterator[tuple[Kind, str]]:
    """Yield where ``type_`` names one: by a ``name`` below a field of its kind, or by itself."""
    for field, schema in schemas[type_].get("properties", {}).items():
        kind = next((kind for word, kind in KINDS.items() if word in field.lower()), under)
        inner = schema.get("items", schema)
        types = [one["$ref"] for one in inner.get("allOf", [inner]) if "$ref" in one]
        path = f"{at}{field}{'[]' if schema.get('type') == 'array' else ''}"
        if types:
            yield from _named(schemas, types[0].rsplit("/")[-1], f"{path}.", kind)
        elif kind is not None and (field == "name" or field.lower().endswith("secretname")):
            yield kind, path
