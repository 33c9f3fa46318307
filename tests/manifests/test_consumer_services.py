"""Which Services a consumer has in its twins. Source: docs/parity.md SEC-A16."""

import json
from typing import Any, Final

import pytest

from apis import apply as apply_
from apis import keys
from apis.objects import Key, Object, named
from reflector.kinds import networking
from sandbox.kubectl import Kubectl
from tests import factories
from tests.manifests.twins import CLASSED, OPEN, PAIR, ROME, dry_create, forged_twin, merged

pytestmark = pytest.mark.cluster

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
        {"type": "ExternalName", "externalName": f"db.{OPEN.remote_namespace}.svc.cluster.local"},
        "clusterIP",
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
    there = OPEN.remote_namespace
    provider.apply([named(keys.NAMESPACE, Key("", PAIR.local_namespace))])
    provider.apply([factories.service(PAIR.local_namespace, name, **says)])
    local = provider.get(*where, PAIR.local_namespace)
    twin = apply_.stamped(forged_twin(networking.SERVICE_REFLECTION, local, OPEN))

    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(twin))

    made = provider.get(*where, there)
    assert wanted.items() <= made["spec"].items()
    assert apply_.is_current(twin, networking.SERVICE_REFLECTION.shown(twin), made), (
        "else it is written again"
    )
    assert without not in values(made)
    for field in ALLOCATED:
        if field in values(local) and values(local)[field] != networking.HEADLESS:
            assert values(made)[field] != values(local)[field]


@pytest.mark.parametrize("name", ["node-port", "load-balancer", "no-node-ports"])
def test_a_type_that_is_not_offered_becomes_one_that_is_also_when_it_was_there(
    provider: Kubectl, name: str
) -> None:
    original = factories.service(PAIR.local_namespace, f"less-{name}", **SERVICES[name][0])
    provider.apply([named(keys.NAMESPACE, Key("", PAIR.local_namespace)), original])
    local = provider.get("service", f"less-{name}", "-n", PAIR.local_namespace)
    less = apply_.stamped(forged_twin(networking.SERVICE_REFLECTION, local))
    narrowed = merged(less, {"metadata": {"namespace": OPEN.remote_namespace}})
    apply = ("apply", "--server-side", "-f", "-", *ROME)

    provider.run(*apply, stdin=json.dumps(less))
    provider.run(*apply, stdin=json.dumps(forged_twin(networking.SERVICE_REFLECTION, local, OPEN)))
    provider.run(*apply, stdin=json.dumps(narrowed))

    for wanted in (less, narrowed):
        namespace = wanted["metadata"]["namespace"]
        made = provider.get("service", f"less-{name}", "-n", namespace)
        assert made["spec"]["type"] == "ClusterIP"
        assert "nodePort" not in values(made)
        assert apply_.is_current(wanted, networking.SERVICE_REFLECTION.shown(wanted), made), (
            "else it is sent again"
        )


def test_where_classes_of_load_balancers_are_offered_one_of_them_is_named(
    provider: Kubectl,
) -> None:
    def balancer(name: str, **spec: Any) -> Object:
        return factories.service(CLASSED, name, type="LoadBalancer", **spec)

    nameless, other = balancer("nameless"), balancer("other", loadBalancerClass="c.io/d")
    honest = [
        balancer("offered", loadBalancerClass="a.io/b"),
        factories.service(CLASSED, "port", type="NodePort"),
    ]

    said = dry_create(provider, [nameless, other], *ROME)
    assert f"{CLASSED}/nameless: a load balancer without a class is not offered" in said
    assert (
        f"{CLASSED}/other: class c.io/d is not offered to cluster rome: name one of a.io/b" in said
    )
    assert dry_create(provider, honest, *ROME) == ""


def values(found: Object) -> Object:
    """Return the fields of a Service and of its port."""
    return {**found["spec"]["ports"][0], **found["spec"]}
