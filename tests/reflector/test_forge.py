"""How twins look, kind by kind."""

import copy
from typing import Any, Final

import pytest

from apis import apply, keys, reflection
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from apis.reflection import (
    CLAIM,
    CONFIG_MAP,
    ENDPOINT_SLICE,
    INGRESS,
    SECRET,
    SERVICE,
    ReflectedKind,
)
from apis.reflectionpolicy import MetadataFilter
from kube.untrusted import decode, schemas
from reflector.kinds import configuration, networking
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from tests import factories
from tests.reflector.pairs import PAIR

SCENE = ReflectionContext(PAIR)
SIMPLE = [KIND_REFLECTIONS[row] for row in (CONFIG_MAP, SECRET, SERVICE, INGRESS)]
LABELS = {"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"}


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


@pytest.mark.parametrize("forge", SIMPLE, ids=lambda forge: forge.row.name)
def test_metadata_is_what_means_something_on_both_sides(forge: KindReflection) -> None:
    original, kind = local(forge.row.kind), forge.row.twin
    snapshot = copy.deepcopy(original)
    settings = RemoteObjectOptions(MetadataFilter(frozenset({"team"})))

    twin = forge.twin(original, ReflectionContext(PAIR, settings=settings))

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

    twin = configuration.remote_config_map(forged, SCENE)

    assert twin["metadata"]["labels"] == LABELS


def test_config_map() -> None:
    original = local(keys.CONFIG_MAP, data={"a": "1"}, binaryData={"b": "eA=="}, immutable=True)

    twin = configuration.remote_config_map(original, SCENE)

    assert {name: twin[name] for name in ("data", "binaryData", "immutable")} == {
        "data": {"a": "1"},
        "binaryData": {"b": "eA=="},
        "immutable": True,
    }


@factories.cases("origin, name")
def test_root_certificates_go_by_another_name(origin: str, name: str) -> None:
    pair = MappedNamespace(origin, "milan", "foo", "foo-rome")
    root = local(keys.CONFIG_MAP, "kube-root-ca.crt", data={"ca.crt": "PEM"})

    assert (
        configuration.remote_config_map(root, ReflectionContext(pair))["metadata"]["name"] == name
    )
    assert configuration.remote_config_map_name("kube-root-ca.crt", pair) == name
    assert configuration.local_config_map_name(name, pair) == "kube-root-ca.crt"
    assert configuration.local_config_map_name("settings", pair) == "settings"


def test_secret() -> None:
    original = local(keys.SECRET, type="kubernetes.io/tls", data={"tls.key": "eA=="})

    twin = configuration.remote_secret(original, SCENE)

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
        (
            {"externalName": "db.foo.svc.cluster.local"},
            {"externalName": "db.foo-rome.svc.cluster.local"},
        ),
        ({"externalName": "db.foo.svc"}, {"externalName": "db.foo-rome.svc"}),
        ({"externalName": "db.bar.svc"}, {"externalName": "db.bar.svc"}),
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
        (
            {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
            {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
        ),
        ({"trafficDistribution": "PreferClose"}, {}),
        ({"loadBalancerClass": "mine", "type": "LoadBalancer"}, {"type": "LoadBalancer"}),
    ],
    ids=lambda value: next(iter(value), "nothing"),
)
def test_service_fields(spec: Object, expected: Object) -> None:
    assert networking.remote_service(served(**spec), SCENE)["spec"] == expected


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
        ({"port": 80}, {"liqo.io/force-remote-node-port": "true"}, {"port": 80, "nodePort": 0}),
        (
            {"name": "h", "port": 1, "targetPort": "x", "protocol": "UDP", "appProtocol": "h2c"},
            {},
            {"name": "h", "port": 1, "targetPort": "x", "protocol": "UDP", "appProtocol": "h2c"}
            | {"nodePort": 0},
        ),
    ],
)
def test_service_ports(port: Object, annotations: dict[str, str], expected: Object) -> None:
    twin = networking.remote_service(served(ports=[port], annotations=annotations), SCENE)

    assert twin["spec"]["ports"] == [expected]
    assert "status" not in twin


@factories.cases("type_, enabled, class_, expected")
def test_load_balancer_class(
    *, type_: str, enabled: bool, class_: str, expected: str | None
) -> None:
    settings = RemoteObjectOptions(enable_load_balancer=enabled, load_balancer_class=class_)

    spec = networking.remote_service(
        served(type=type_), ReflectionContext(PAIR, settings=settings)
    )["spec"]

    assert spec.get("loadBalancerClass") == expected


@factories.cases("wanted, found, is_fixed")
def test_a_service_is_headless_for_its_life_unless_it_has_no_address(
    *, wanted: Object, found: Object, is_fixed: bool
) -> None:
    assert networking.is_service_fixed({"spec": wanted}, {"spec": found}) is is_fixed


@pytest.mark.parametrize(
    ("enabled", "class_", "expected"),
    [(True, "theirs", "theirs"), (False, "theirs", None), (True, "", None)],
)
def test_an_ingress_is_served_by_a_class_of_the_provider(
    *, enabled: bool, class_: str, expected: str | None
) -> None:
    rules: list[Object] = [{"host": "shop.example"}]
    tls: list[Object] = [{"secretName": "shop"}]
    fields = {"rules": rules, "tls": tls, "defaultBackend": {"service": {"name": "web"}}}
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    original = local(keys.INGRESS, spec={**fields, "ingressClassName": "mine"}, status=status)
    original["metadata"]["annotations"] = {keys.INGRESS_CLASS: "mine", "note": "1"}
    settings = RemoteObjectOptions(enable_ingress=enabled, ingress_class=class_)

    twin = KIND_REFLECTIONS[INGRESS].twin(original, ReflectionContext(PAIR, settings=settings))

    assert twin["spec"] == {**fields, **({"ingressClassName": expected} if expected else {})}
    assert twin["metadata"]["annotations"] == {"note": "1"}
    assert "status" not in twin


def test_each_kind_goes_as_the_reference_has_it() -> None:
    """Source: docs/parity.md § 6.3. Pods and tokens of ServiceAccounts are the kubelet's.

    Of the first three Liqo has 3 workers each, and of Events all by default.
    """
    expected = {
        "configmap": ("out", "DenyList", 10, True, "ConfigMap"),
        "secret": ("out", "DenyList", 10, True, "Secret"),
        "service": ("out", "DenyList", 10, True, "Service"),
        "endpointslice": ("out", "CustomLiqo", 10, False, "ShadowEndpointSlice"),
        "ingress": ("out", "DenyList", 3, True, "Ingress"),
        "persistentvolumeclaim": ("out", "CustomLiqo", 3, False, "PersistentVolumeClaim"),
        "event": ("home", "Relevant", 3, True, "Event"),
    }

    assert expected == {
        row.name: (
            "out" if row.is_outward else "home",
            row.default.value,
            row.workers,
            row.is_configurable,
            row.twin.kind,
        )
        for row in KIND_REFLECTIONS
    }


BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
PORT: Final = {
    "name": "http",
    "port": 80,
    "targetPort": "web",
    "protocol": "TCP",
    "appProtocol": "http",
    "nodePort": 30_080,
}
FULL: Final[dict[ReflectedKind, Object]] = {
    CONFIG_MAP: {"data": {"a": "1"}, "binaryData": {"b": "eA=="}, "immutable": True},
    SECRET: {"data": {"a": "eA=="}, "type": "kubernetes.io/tls", "immutable": True},
    SERVICE: {
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": "web"},
            "ports": [PORT],
            "clusterIP": "None",
            "externalName": "db.example",
            "allocateLoadBalancerNodePorts": False,
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local",
            "ipFamilyPolicy": "PreferDualStack",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "publishNotReadyAddresses": True,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        }
    },
    ENDPOINT_SLICE: {
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.1.0.7"],
                "hostname": "web-0",
                "zone": "a",
                "hints": {"forZones": [{"name": "a"}]},
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": "web-0", "namespace": "foo", "uid": "7"},
            }
        ],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    },
    INGRESS: {
        "spec": {
            "defaultBackend": BACKEND,
            "rules": [
                {
                    "host": "shop.example",
                    "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]},
                }
            ],
            "tls": [{"hosts": ["shop.example"], "secretName": "shop"}],
        }
    },
    CLAIM: {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
            "storageClassName": "liqo",
        }
    },
}
"""Of each kind an original with every field that its twin has."""
OFFERED: Final = RemoteObjectOptions(
    enable_ingress=True,
    ingress_class="shared",
    enable_load_balancer=True,
    load_balancer_class="shared",
    enable_storage=True,
    storage_class="fast",
)


@pytest.mark.parametrize(
    "row", [row for row in KIND_REFLECTIONS if row.is_outward], ids=lambda row: row.name
)
def test_of_a_twin_all_that_was_written_is_read_and_nothing_else(row: ReflectedKind) -> None:
    """What a provider adds reaches no code here; nothing that was sent seems to be missing."""
    forge = KIND_REFLECTIONS[row]
    twin = forge.twin(
        local(row.kind, **copy.deepcopy(FULL[row])), ReflectionContext(PAIR, settings=OFFERED)
    )
    said = copy.deepcopy(twin)
    invented = {"clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "invented": [[{}]] * 9}
    said |= {"invented": 1, "spec": {**said.get("spec", {}), **invented}, "status": invented}
    told: list[str] = []

    found = decode.fitted(row.twin, said, told.append)

    assert apply.keeps(found, twin)
    assert told == []
    spec = found.get("spec", {})
    assert not {*invented, "invented"} & {*found, *spec, *found.get("status", {})}
    if "spec" in twin:
        assert spec == twin["spec"]


def test_each_kind_of_twin_has_a_shape() -> None:
    assert {row.twin for row in KIND_REFLECTIONS if row.is_outward} <= schemas.SCHEMAS.keys()


# Custom resources: all but metadata and status goes, the status comes back.


ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
FORGE = configuration.custom_resource(reflection.custom(ROUTE))
CUSTOM_SCENE = ReflectionContext(PAIR)
HERE = Key("foo", "shop")


def route(generation: int = 3, **rest: object) -> Object:
    metadata = {"uid": "1", "generation": generation}
    return named(ROUTE, HERE, metadata=metadata, **rest)


def test_the_twin_has_all_fields_of_the_kind() -> None:
    twin = FORGE.twin(route(spec={"hostnames": ["a"]}, odd={"b": 1}, status={"c": 1}), CUSTOM_SCENE)

    assert (twin["spec"], twin["odd"]) == ({"hostnames": ["a"]}, {"b": 1})
    assert "status" not in twin
    assert twin["kind"] == "HTTPRoute"


def test_the_status_comes_back_as_of_the_generation_here() -> None:
    observed = {"conditions": [{"type": "Accepted", "observedGeneration": 8}]}
    older = {"conditions": [{"type": "Accepted", "observedGeneration": 7}]}
    original = route(status={"gone": 1})

    (write,) = FORGE.back(
        HERE, original, route(8, status={"parents": [observed, older]}), CUSTOM_SCENE
    )

    assert write.verb == "status"
    assert write.body["metadata"] == {"uid": "1"}
    assert write.body["status"] == {
        "gone": None,
        "parents": [
            {"conditions": [{"type": "Accepted", "observedGeneration": 3}]},
            {"conditions": [{"type": "Accepted", "observedGeneration": 7}]},
        ],
    }


def test_a_status_that_is_the_same_or_not_there_yet_is_not_written() -> None:
    same: Object = {"parents": []}

    assert list(FORGE.back(HERE, route(status=same), route(status=same), CUSTOM_SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), route(), CUSTOM_SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), None, CUSTOM_SCENE)) == []
    assert list(FORGE.back(HERE, None, None, CUSTOM_SCENE)) == []


POD_SELECTOR: Object = {"matchLabels": {"app": "web"}}
HERE_AND_OUTSIDE = [{"podSelector": POD_SELECTOR}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]
OF_NAMESPACES = {"podSelector": POD_SELECTOR, "namespaceSelector": {}}


@pytest.mark.parametrize(
    ("kind", "spec", "reason"),
    [
        (keys.NETWORK_POLICY, {"podSelector": {}, "policyTypes": ["Ingress"]}, ""),
        (keys.NETWORK_POLICY, {"podSelector": {}, "ingress": [{"from": HERE_AND_OUTSIDE}]}, ""),
        (
            keys.NETWORK_POLICY,
            {"podSelector": {}, "ingress": [{}, {"from": [*HERE_AND_OUTSIDE, OF_NAMESPACES]}]},
            "its namespaceSelector means namespaces of this cluster",
        ),
        (
            keys.NETWORK_POLICY,
            {"podSelector": {}, "egress": [{"to": [{"namespaceSelector": POD_SELECTOR}]}]},
            "its namespaceSelector means namespaces of this cluster",
        ),
        (
            keys.POD_DISRUPTION_BUDGET,
            {"selector": POD_SELECTOR, "minAvailable": 1, "unhealthyPodEvictionPolicy": "Always"},
            "",
        ),
        (keys.POD_DISRUPTION_BUDGET, {"minAvailable": "50%"}, "percentages go by the scale"),
        (keys.POD_DISRUPTION_BUDGET, {"maxUnavailable": 1}, "percentages go by the scale"),
    ],
)
def test_a_policy_goes_as_it_is_unless_it_would_be_another_one_there(
    kind: Kind, spec: dict[str, Any], reason: str
) -> None:
    forged = configuration.custom_resource(reflection.custom(kind))
    original = named(kind, HERE, spec=spec, status={"currentHealthy": 2})

    stay = forged.reason_to_stay(original, CUSTOM_SCENE)

    assert (reason in stay.reason and stay.is_told) if stay else not reason
    twin = forged.twin(original, CUSTOM_SCENE)
    assert twin["spec"] == spec
    assert "status" not in twin
    there = {**twin, "status": {"currentHealthy": 1}}
    assert list(forged.back(HERE, original, there, CUSTOM_SCENE)) == []


def test_the_right_to_write_a_status_back_is_asked_where_one_comes_back() -> None:
    budgets = reflection.custom(keys.POD_DISRUPTION_BUDGET)

    assert budgets.rights_here() == {("policy", "poddisruptionbudgets"): reflection.READ}
    assert ("gateway.networking.k8s.io", "httproutes/status") in FORGE.row.rights_here()
