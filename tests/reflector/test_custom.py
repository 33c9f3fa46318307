"""Custom resources: all but metadata and status goes, the status comes back."""

from typing import Any

import pytest

from apis import keys, reflection
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from reflector.kinds import configuration
from reflector.kinds.contract import ReflectionContext

ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
FORGE = configuration.custom_resource(reflection.custom(ROUTE))
SCENE = ReflectionContext(MappedNamespace("rome", "milan", "foo", "foo-rome"))
HERE = Key("foo", "shop")


def route(generation: int = 3, **rest: object) -> Object:
    metadata = {"uid": "1", "generation": generation}
    return named(ROUTE, HERE, metadata=metadata, **rest)


def test_the_twin_has_all_fields_of_the_kind() -> None:
    twin = FORGE.twin(route(spec={"hostnames": ["a"]}, odd={"b": 1}, status={"c": 1}), SCENE)

    assert (twin["spec"], twin["odd"]) == ({"hostnames": ["a"]}, {"b": 1})
    assert "status" not in twin
    assert twin["kind"] == "HTTPRoute"


def test_the_status_comes_back_as_of_the_generation_here() -> None:
    observed = {"conditions": [{"type": "Accepted", "observedGeneration": 8}]}
    older = {"conditions": [{"type": "Accepted", "observedGeneration": 7}]}
    original = route(status={"gone": 1})

    (write,) = FORGE.back(HERE, original, route(8, status={"parents": [observed, older]}), SCENE)

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

    assert list(FORGE.back(HERE, route(status=same), route(status=same), SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), route(), SCENE)) == []
    assert list(FORGE.back(HERE, route(status=same), None, SCENE)) == []
    assert list(FORGE.back(HERE, None, None, SCENE)) == []


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

    stay = forged.reason_to_stay(original, SCENE)

    assert (reason in stay.reason and stay.is_told) if stay else not reason
    twin = forged.twin(original, SCENE)
    assert twin["spec"] == spec
    assert "status" not in twin
    there = {**twin, "status": {"currentHealthy": 1}}
    assert list(forged.back(HERE, original, there, SCENE)) == []


def test_the_right_to_write_a_status_back_is_asked_where_one_comes_back() -> None:
    budgets = reflection.custom(keys.POD_DISRUPTION_BUDGET)

    assert budgets.rights_here() == {("policy", "poddisruptionbudgets"): reflection.READ}
    assert ("gateway.networking.k8s.io", "httproutes/status") in FORGE.row.rights_here()
