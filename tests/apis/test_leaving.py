"""What may leave home."""

import pytest

from apis import keys, reflectionpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from apis.reflectionpolicy import MetadataFilter

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
