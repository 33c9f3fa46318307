"""How twins look, kind by kind."""

import copy
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.pairs import Pair
from reflector.forge import configmap, secret, service, twins
from reflector.forge.twins import Settings
from reflector.policy import Filter
from reflector.reflection import FORGES

PAIR = Pair("rome", "milan", "foo", "foo-rome")
LABELS = {
    "offloading.liqo.io/origin": "rome",
    "offloading.liqo.io/destination": "milan",
}


def local(kind: Kind, name: str = "mine", **rest: Any) -> Object:
    metadata = {
        "uid": "1",
        "resourceVersion": "7",
        "labels": {"app": "web", "team": "a"},
        "annotations": {"note": "1", keys.LAST_APPLIED: "{}"},
        "ownerReferences": [{"kind": "Deployment"}],
        "finalizers": ["example.com/wait"],
        "managedFields": [{"manager": "kubectl"}],
    }
    return named(kind, Key("foo", name), metadata=metadata, **rest)


@pytest.mark.parametrize("kind", list(FORGES), ids=str)
def test_metadata_is_what_means_something_on_both_sides(kind: Kind) -> None:
    original = local(kind)
    snapshot = copy.deepcopy(original)
    settings = Settings(Filter(frozenset({"team"})))

    twin = FORGES[kind].remote(original, PAIR, settings)

    assert twin["metadata"] == {
        "name": "mine",
        "namespace": "foo-rome",
        "labels": {"app": "web", **LABELS},
        "annotations": {"note": "1"},
    }
    assert (twin["apiVersion"], twin["kind"]) == (kind.api_version, kind.kind)
    assert original == snapshot


def test_ownership_labels_are_ours_to_say() -> None:
    forged = local(keys.CONFIG_MAP)
    forged["metadata"]["labels"] = {"offloading.liqo.io/origin": "naples"}

    twin = configmap.remote(forged, PAIR, Settings())

    assert twin["metadata"]["labels"] == LABELS


def test_config_map() -> None:
    original = local(keys.CONFIG_MAP, data={"a": "1"}, binaryData={"b": "eA=="}, immutable=True)

    twin = configmap.remote(original, PAIR, Settings())

    assert {name: twin[name] for name in ("data", "binaryData", "immutable")} == {
        "data": {"a": "1"},
        "binaryData": {"b": "eA=="},
        "immutable": True,
    }


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("wispy-firefly", "kube-root-ca.crt.wispy"),
        ("rome", "kube-root-ca.crt.rome"),
        ("cool-firefly", "kube-root-ca.crt.cool-a"),
    ],
)
def test_root_certificates_go_by_another_name(origin: str, name: str) -> None:
    pair = Pair(origin, "milan", "foo", "foo-rome")
    root = local(keys.CONFIG_MAP, "kube-root-ca.crt", data={"ca.crt": "PEM"})

    assert configmap.remote(root, pair, Settings())["metadata"]["name"] == name
    assert configmap.twin_name("kube-root-ca.crt", pair) == name
    assert configmap.original_name(name, pair) == "kube-root-ca.crt"
    assert configmap.original_name("settings", pair) == "settings"


def test_secret() -> None:
    original = local(keys.SECRET, type="kubernetes.io/tls", data={"tls.key": "eA=="})

    twin = secret.remote(original, PAIR, Settings())

    assert (twin["type"], twin["data"]) == ("kubernetes.io/tls", {"tls.key": "eA=="})
    assert "immutable" not in twin


def served(**spec: Any) -> Object:
    original = local(keys.SERVICE, spec=spec, status={"loadBalancer": {"ingress": [{"ip": "1"}]}})
    annotations = spec.pop("annotations", {})
    original["metadata"]["annotations"] = annotations
    return original


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"type": "ClusterIP"}, {"type": "ClusterIP"}),
        ({"selector": {"app": "web"}}, {"selector": {"app": "web"}}),
        ({"externalName": "example.com"}, {"externalName": "example.com"}),
        ({"allocateLoadBalancerNodePorts": False}, {"allocateLoadBalancerNodePorts": False}),
        ({"externalTrafficPolicy": "Local"}, {"externalTrafficPolicy": "Local"}),
        ({"internalTrafficPolicy": "Local"}, {"internalTrafficPolicy": "Local"}),
        ({"ipFamilyPolicy": "SingleStack"}, {"ipFamilyPolicy": "SingleStack"}),
        ({"loadBalancerSourceRanges": ["::/0"]}, {"loadBalancerSourceRanges": ["::/0"]}),
        ({"publishNotReadyAddresses": True}, {"publishNotReadyAddresses": True}),
        ({"sessionAffinity": "ClientIP"}, {"sessionAffinity": "ClientIP"}),
        ({"clusterIP": "10.0.0.1"}, {}),
        ({"clusterIP": "None"}, {"clusterIP": "None"}),
        ({"clusterIPs": ["10.0.0.1"]}, {}),
        ({"ipFamilies": ["IPv4"]}, {}),
        ({"externalIPs": ["192.0.2.1"]}, {}),
        ({"loadBalancerIP": "192.0.2.1"}, {}),
        ({"healthCheckNodePort": 30000}, {}),
        ({"sessionAffinityConfig": {"clientIP": {}}}, {}),
        ({"trafficDistribution": "PreferClose"}, {}),
        ({"loadBalancerClass": "mine", "type": "LoadBalancer"}, {"type": "LoadBalancer"}),
    ],
    ids=lambda value: next(iter(value), "nothing"),
)
def test_service_fields(spec: Object, expected: Object) -> None:
    assert service.remote(served(**spec), PAIR, Settings())["spec"] == expected


@pytest.mark.parametrize(
    ("port", "annotations", "expected"),
    [
        ({"port": 80}, {}, {"port": 80, "nodePort": 0}),
        ({"port": 80, "nodePort": 30080}, {}, {"port": 80}),
        (
            {"port": 80, "nodePort": 30080},
            {"liqo.io/force-remote-node-port": "true"},
            {"port": 80, "nodePort": 30080},
        ),
        (
            {"port": 80, "nodePort": 30080},
            {"liqo.io/force-remote-node-port": "false"},
            {"port": 80},
        ),
        (
            {"port": 80},
            {"liqo.io/force-remote-node-port": "true"},
            {"port": 80, "nodePort": 0},
        ),
        (
            {"name": "h", "port": 1, "targetPort": "x", "protocol": "UDP", "appProtocol": "h2c"},
            {},
            {"name": "h", "port": 1, "targetPort": "x", "protocol": "UDP", "appProtocol": "h2c"}
            | {"nodePort": 0},
        ),
    ],
)
def test_service_ports(port: Object, annotations: dict[str, str], expected: Object) -> None:
    twin = service.remote(served(ports=[port], annotations=annotations), PAIR, Settings())

    assert twin["spec"]["ports"] == [expected]
    assert "status" not in twin


@pytest.mark.parametrize(
    ("type_", "enabled", "class_", "expected"),
    [
        ("LoadBalancer", True, "theirs", "theirs"),
        ("LoadBalancer", False, "theirs", None),
        ("LoadBalancer", True, "", None),
        ("ClusterIP", True, "theirs", None),
    ],
)
def test_load_balancer_class(
    *, type_: str, enabled: bool, class_: str, expected: str | None
) -> None:
    settings = Settings(enable_load_balancer=enabled, load_balancer_class=class_)

    spec = service.remote(served(type=type_), PAIR, settings)["spec"]

    assert spec.get("loadBalancerClass") == expected


@pytest.mark.parametrize(
    ("twin", "current"),
    [
        ({"data": {"a": "1"}}, True),
        ({"data": {"a": "1"}, "kind": "ConfigMap"}, True),
        ({"data": {"a": "2"}}, False),
        ({"data": {"a": "1", "b": "1"}}, False),
        ({}, False),
        ({"data": {"a": "1"}, "immutable": True}, False),
    ],
)
def test_a_twin_is_current_when_nothing_differs(*, twin: Object, current: bool) -> None:
    wanted = {"metadata": {"labels": LABELS}, "data": {"a": "1"}}
    found = {"metadata": {"labels": LABELS, "uid": "2"}, **twin}

    assert twins.is_current(wanted, found, configmap.FIELDS) is current


def test_a_twin_whose_fields_the_server_completes_is_never_surely_current() -> None:
    same = {"metadata": {"labels": LABELS}, "spec": {}}

    assert not twins.is_current(same, same, ())
