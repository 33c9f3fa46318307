"""What a hostile consumer may not write in its twins. Source: security.md A16, A17."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from apis import drift, keys, objects
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from apis.pairs import Pair
from reflector.forge import configmap, ingress, persistentvolumeclaim, secret, service
from reflector.forge.contract import Forge, Scene
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories

pytestmark = pytest.mark.cluster

PAIR: Final = Pair("rome", "milan", "shop", "consumed-by-rome")
TWIN: Final = PAIR.remote_namespace
ROME: Final = ("--as=rome", "--as-group=rome", "--as-group=system:authenticated")
PATIENCE_S: Final = 300
FORGES: Final = {
    forge.row.kind: forge
    for forge in (
        configmap.FORGE, ingress.FORGE, persistentvolumeclaim.FORGE, secret.FORGE, service.FORGE,
    )
}  # fmt: skip


class Row(NamedTuple):
    """One thing that a consumer says, and what it is told."""

    kind: Kind
    changes: Object
    told: str


def claim(namespace: str, name: str) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, name), spec=spec)


HONEST: Final[dict[Kind, Callable[[str, str], Object]]] = {
    keys.CONFIG_MAP: factories.config_map,
    keys.SECRET: factories.secret,
    keys.SERVICE: factories.service,
    keys.INGRESS: factories.ingress,
    keys.PERSISTENT_VOLUME_CLAIM: claim,
}


def external(name: str) -> Row:
    spec = {"type": "ExternalName", "externalName": name, "selector": None}
    return Row(keys.SERVICE, {"spec": spec}, f"spec.externalName {name}")


def annotated(kind: Kind, name: str) -> Row:
    return Row(kind, {"metadata": {"annotations": {name: "x"}}}, f"annotation {name}")


def routed(**spec: Any) -> Row:
    return Row(keys.INGRESS, {"spec": spec}, "it would take all hosts")


BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
HTTP: Final = {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}
SNAPSHOT: Final = {
    "apiGroup": "snapshot.storage.k8s.io",
    "kind": "VolumeSnapshot",
    "name": "theirs",
}
OTHERS: Final = {"kind": "PersistentVolumeClaim", "name": "theirs"}
CLAIM: Final = keys.PERSISTENT_VOLUME_CLAIM

ROWS: Final[dict[str, Row]] = {
    "external-ips": Row(keys.SERVICE, {"spec": {"externalIPs": ["192.0.2.1"]}}, "spec.externalIPs"),
    "load-balancer-ip": Row(
        keys.SERVICE, {"spec": {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"}},
        "spec.loadBalancerIP",
    ),
    "name-metadata": external("169.254.169.254"),
    "name-google": external("metadata.google.internal"),
    "name-amazon": external("instance-data.ec2.internal"),
    "name-loopback": external("127.0.0.1"),
    "name-localhost": external("localhost"),
    "name-api-server": external("kubernetes.default.svc"),
    "name-other-tenant": external("db.consumed-by-turin.svc.cluster.local"),
    "name-node": external("10.89.4.2"),
    "all-hosts": routed(rules=[{"http": HTTP}]),
    "wildcard": routed(rules=[{"host": "*.example.com", "http": HTTP}]),
    "default-backend": routed(defaultBackend=BACKEND),
    "wildcard-certificate": routed(tls=[{"hosts": ["*.example.com"], "secretName": "a"}]),
    "class-annotation": annotated(keys.INGRESS, "kubernetes.io/ingress.class"),
    "address-pool": annotated(keys.SERVICE, "metallb.universe.tf/address-pool"),
    "load-balancer-ips": annotated(keys.SERVICE, "metallb.universe.tf/loadBalancerIPs"),
    "load-balancer-id": annotated(keys.SERVICE, "loadbalancer.openstack.org/load-balancer-id"),
    "neg": annotated(keys.SERVICE, "cloud.google.com/neg"),
    "url-map": annotated(keys.INGRESS, "ingress.kubernetes.io/url-map"),
    "finalizer": Row(keys.SERVICE, {"metadata": {"finalizers": ["a.io/b"]}}, "metadata.finalizers"),
    "finalizer-of-config": Row(
        keys.CONFIG_MAP, {"metadata": {"finalizers": ["a.io/b"]}}, "metadata.finalizers"
    ),
    "account-token": Row(
        keys.SECRET,
        {
            "type": "kubernetes.io/service-account-token",
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
        },
        "gives rights in this cluster",
    ),
    "bootstrap-token": Row(
        keys.SECRET, {"type": "bootstrap.kubernetes.io/token"}, "gives rights in this cluster"
    ),
    "volume-name": Row(CLAIM, {"spec": {"volumeName": "theirs"}}, "spec.volumeName"),
    "selector": Row(CLAIM, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.selector"),
    "snapshot": Row(CLAIM, {"spec": {"dataSource": SNAPSHOT}}, "spec.dataSource"),
    "clone": Row(CLAIM, {"spec": {"dataSourceRef": OTHERS}}, "spec.dataSourceRef"),
    "storage-class": Row(CLAIM, {"spec": {"storageClassName": "gold"}}, "class gold is not"),
    "ingress-class": Row(
        keys.INGRESS, {"spec": {"ingressClassName": "inner"}}, "class inner is not offered"
    ),
    "load-balancer-class": Row(
        keys.SERVICE, {"spec": {"type": "LoadBalancer", "loadBalancerClass": "a.io/b"}},
        "name one of none",
    ),
    "bind-completed": annotated(CLAIM, "pv.kubernetes.io/bind-completed"),
    "selected-node": annotated(CLAIM, "volume.kubernetes.io/selected-node"),
    "provisioner": annotated(CLAIM, "volume.kubernetes.io/storage-provisioner"),
}  # fmt: skip


def changed(obj: Object, changes: Object) -> Object:
    """Return ``obj`` with ``changes`` merged into its dicts; None takes a field away."""
    made = dict(obj)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = changed(made[name], value)
        elif value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made


def hostile(namespace: str) -> dict[str, Object]:
    return {
        name: changed(HONEST[row.kind](namespace, name), row.changes) for name, row in ROWS.items()
    }


def create(kubectl: Kubectl, items: list[Object], *who: str) -> str:
    """Return what is said to those who create ``items``; nothing changes."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", *who, stdin=listed)
    except KubectlError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def provider(admin: Kubectl) -> Kubectl:
    """Return kubectl towards milan with a twin of rome, once the policy is in force."""
    classes = {
        keys.OFFERED_STORAGE_CLASSES: "silver,bronze",
        keys.OFFERED_INGRESS_CLASSES: "outer",
        keys.OFFERED_LOAD_BALANCER_CLASSES: "",
    }
    metadata = {"labels": {keys.REMOTE_CLUSTER_ID: "rome"}, "annotations": classes}
    subject = {"kind": "Group", "apiGroup": keys.RBAC_GROUP, "name": "rome"}
    role = {
        "apiGroup": keys.RBAC_GROUP,
        "kind": "ClusterRole",
        "name": keys.VIRTUAL_KUBELET_REMOTE_ROLE,
    }
    binding = named(keys.ROLE_BINDING, Key(TWIN, "rome"), subjects=[subject], roleRef=role)
    admin.apply([named(keys.NAMESPACE, Key("", TWIN), metadata=metadata), binding])
    asyncio.run(_until_in_force(admin))
    return admin


async def _until_in_force(admin: Kubectl) -> None:
    until = time.monotonic() + PATIENCE_S
    while "liqo-consumers" not in create(admin, [hostile(TWIN)["external-ips"]], *ROME):
        assert time.monotonic() < until, "the policy is not in force"
        await asyncio.sleep(0.2)


def test_what_a_consumer_may_not_say_is_refused_by_name(provider: Kubectl) -> None:
    said = create(provider, list(hostile(TWIN).values()), *ROME)

    for name, row in ROWS.items():
        lines = [line for line in said.splitlines() if f"{TWIN}/{name}:" in line]
        assert any(row.told in line for line in lines), (name, lines, said[-2000:])


def test_data_of_another_namespace_is_dropped_before_anybody_judges(provider: Kubectl) -> None:
    across = {"spec": {"dataSourceRef": {**OTHERS, "namespace": "theirs"}}}
    asked = json.dumps(changed(claim(TWIN, "clone-across"), across))

    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    made = json.loads(provider.run(*dry, *ROME, stdin=asked))

    assert "dataSourceRef" not in made["spec"]


def test_what_a_virtual_kubelet_makes_of_it_is_taken(provider: Kubectl) -> None:
    """Nothing but names that are the author's to choose is refused of an honest consumer."""
    theirs = {
        name: obj
        for name, obj in hostile(PAIR.local_namespace).items()
        if not (name.startswith("name-") or ROWS[name].told == "it would take all hosts")
        and ROWS[name].told != "gives rights in this cluster"
    }
    twins = [forged(FORGES[ROWS[name].kind], obj) for name, obj in theirs.items()]
    own = external(f"db.{PAIR.local_namespace}.svc.cluster.local").changes
    twins.append(forged(service.FORGE, changed(factories.service("shop", "own"), own)))
    outside = external("db.example.com").changes
    twins.append(forged(service.FORGE, changed(factories.service("shop", "outside"), outside)))

    assert create(provider, twins, *ROME) == ""


def test_classes_that_are_offered_may_be_named_and_others_where_nothing_is_said(
    provider: Kubectl,
) -> None:
    silver = changed(claim(TWIN, "silver"), {"spec": {"storageClassName": "silver"}})
    outer = changed(factories.ingress(TWIN, "outer"), {"spec": {"ingressClassName": "outer"}})

    assert create(provider, [silver, outer], *ROME) == ""
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STORAGE_CLASSES}-")
    gold = changed(claim(TWIN, "gold"), {"spec": {"storageClassName": "gold"}})
    asyncio.run(_until_taken(provider, gold))
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STORAGE_CLASSES}=silver,bronze")


async def _until_taken(provider: Kubectl, obj: Object) -> None:
    until = time.monotonic() + PATIENCE_S  # the API server learns of the change a moment later
    while said := create(provider, [obj], *ROME):
        assert time.monotonic() < until, said
        await asyncio.sleep(0.2)


def test_secrets_that_give_rights_are_not_even_sent() -> None:
    for name in ("account-token", "bootstrap-token"):
        obj = hostile(PAIR.local_namespace)[name]
        assert secret.FORGE.reason_to_stay(obj, Scene(PAIR, Policy.DENY_LIST))


def forged(forge: Forge, original: Object) -> Object:
    return forge.twin(original, Scene(PAIR))


def test_what_an_admin_of_the_provider_adds_stays(provider: Kubectl) -> None:
    made = forged(service.FORGE, factories.service("shop", "kept"))
    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(made))
    where = ("service", "kept", "-n", TWIN)
    added = {
        "spec": {"externalIPs": ["192.0.2.7"]},
        "metadata": {"finalizers": ["a.io/b"], "annotations": {"cloud.google.com/neg": "x"}},
    }
    provider.run("patch", *where, "--type=merge", "-p", json.dumps(added))

    changed_ = {**made, "spec": {**made["spec"], "selector": {"app": "other"}}}
    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(changed_))
    found = provider.get(*where)
    assert found["spec"]["externalIPs"] == ["192.0.2.7"]
    assert found["spec"]["selector"] == {"app": "other"}
    more = json.dumps({"spec": {"externalIPs": ["192.0.2.7", "192.0.2.8"]}})
    with pytest.raises(KubectlError, match=r"spec.externalIPs is the provider's to say"):
        provider.run("patch", *where, "--type=merge", "-p", more, *ROME)
    ended = json.dumps({"metadata": {"finalizers": None}})
    provider.run("patch", *where, "--type=merge", "-p", ended)


SERVICES: Final[dict[str, tuple[Object, Object, str]]] = {
    "headless": ({"clusterIP": "None"}, {"clusterIP": "None", "type": "ClusterIP"}, "nodePort"),
    "cluster-ip": (
        {"internalTrafficPolicy": "Local"}, {"internalTrafficPolicy": "Local"}, "nodePort",
    ),
    "node-port": ({"type": "NodePort"}, {"type": "NodePort"}, "healthCheckNodePort"),
    "load-balancer": (
        {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
        {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}, "loadBalancerIP",
    ),
    "no-node-ports": (
        {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False},
        {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, "nodePort",
    ),
    "own-name": (
        {"type": "ExternalName", "externalName": "db.shop.svc.cluster.local"},
        {"type": "ExternalName", "externalName": f"db.{TWIN}.svc.cluster.local"}, "clusterIP",
    ),
    "outside-name": (
        {"type": "ExternalName", "externalName": "db.example.com"},
        {"type": "ExternalName", "externalName": "db.example.com"}, "clusterIP",
    ),
}  # fmt: skip
"""By name: what the author says, what the twin says, and a field that it has not."""
ALLOCATED: Final = ("clusterIP", "nodePort", "healthCheckNodePort")
"""Fields of which one server gives the same value to no two Services."""


@pytest.mark.parametrize("name", SERVICES)
def test_each_type_of_service_is_taken_and_gets_what_the_provider_allocates(
    provider: Kubectl, name: str
) -> None:
    says, wanted, without = SERVICES[name]
    where = ("service", name, "-n")
    provider.apply([named(keys.NAMESPACE, Key("", PAIR.local_namespace))])
    provider.apply([factories.service(PAIR.local_namespace, name, **says)])
    local = provider.get(*where, PAIR.local_namespace)
    twin = drift.stamped(forged(service.FORGE, local))

    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(twin))

    made = provider.get(*where, TWIN)
    assert wanted.items() <= made["spec"].items()
    assert drift.is_current(twin, service.FORGE.shown(twin), made), "else it is written again"
    assert without not in values(made)
    for field in ALLOCATED:
        if field in values(local) and values(local)[field] != service.HEADLESS:
            assert values(made)[field] != values(local)[field]


def values(found: Object) -> Object:
    """Return the fields of a Service and of its port."""
    return {**found["spec"]["ports"][0], **found["spec"]}


def test_outside_of_its_twins_nobody_is_judged(provider: Kubectl) -> None:
    provider.apply([named(keys.NAMESPACE, Key("", "plain"))])
    kinds = {keys.SERVICE, keys.INGRESS}
    plain = [obj for name, obj in hostile("plain").items() if ROWS[name].kind in kinds]

    assert create(provider, plain) == ""
    assert objects.key_of(plain[0]).namespace == "plain"
    assert create(provider, [hostile(TWIN)["external-ips"]]) == "", "an admin of the provider"
