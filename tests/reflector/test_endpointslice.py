"""Which endpoints the provider is told of, and how."""

import ipaddress
from typing import Any

import pytest

from apis import keys, reflectionpolicy
from apis.objects import Key, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube.slim import Packed
from reflector.kinds import networking
from reflector.kinds.contract import ReflectionContext, RemoteObjectOptions
from tests import factories
from tests.reflector.looks import Seen, listed_node
from tests.reflector.pairs import PAIR

NODES = [listed_node("rome-1"), listed_node("milan", "milan"), listed_node("turin", "turin")]
SKIP, ALLOW = {keys.SKIP_REFLECTION: "true"}, {keys.ALLOW_REFLECTION: "true"}


def endpoint(address: str, node_name: str = "", **rest: Any) -> Object:
    made: Object = {"addresses": [address], **rest}
    return {**made, "nodeName": node_name} if node_name else made


def slice_of(*endpoints: Object, service: str = "web", **metadata: Any) -> Object:
    labels = {keys.SERVICE_NAME: service, **metadata.pop("labels", {})}
    return named(
        keys.ENDPOINT_SLICE,
        Key("foo", "web-1"),
        metadata={"labels": labels, **metadata},
        addressType="IPv4",
        endpoints=list(endpoints),
        ports=[{"name": "http", "port": 8080}],
    )


def slices_context(chosen: Policy = Policy.DENY_LIST, **annotations: str) -> ReflectionContext:
    service = factories.service("foo", "web")
    service["metadata"]["annotations"] = annotations
    return ReflectionContext(PAIR, chosen, lister=Seen(nodes=NODES, services=[service]))


def test_endpoints_that_are_not_on_the_provider_are_told() -> None:
    local = slice_of(
        endpoint("10.0.0.1", "rome-1"),
        endpoint("10.0.0.2", "milan"),
        endpoint("10.0.0.3", "turin"),
        endpoint("10.0.0.4", "unknown"),
        endpoint("10.0.0.5"),
    )

    twin = networking.shadow_endpoint_slice(local, slices_context())

    template = twin["spec"]["template"]
    assert twin["kind"] == "ShadowEndpointSlice"
    assert [one["addresses"] for one in template["endpoints"]] == [
        ["10.0.0.1"],
        ["10.0.0.3"],
        ["10.0.0.5"],
    ]
    assert {one["nodeName"] for one in template["endpoints"]} == {"rome"}
    assert template["ports"] == local["ports"]
    assert twin["metadata"]["labels"][keys.ENDPOINT_SLICE_MANAGED_BY] == keys.ENDPOINT_SLICE_MANAGER
    assert twin["metadata"]["labels"][keys.SERVICE_NAME] == "web"


def test_of_an_endpoint_goes_what_means_something_there() -> None:
    told = endpoint(
        "10.0.0.1",
        "rome-1",
        conditions={"ready": False, "serving": True, "terminating": True},
        hostname="web-0",
        zone="a",
        hints={"forZones": [{"name": "a"}]},
        targetRef={"kind": "Pod", "name": "web-0"},
        deprecatedTopology={"x": "y"},
    )

    (made,) = networking.shadow_endpoint_slice(slice_of(told), slices_context())["spec"][
        "template"
    ]["endpoints"]

    assert made == {
        "addresses": ["10.0.0.1"],
        "nodeName": "rome",
        "conditions": {"ready": False},
        "hostname": "web-0",
        "zone": "a",
        "hints": {"forZones": [{"name": "a"}]},
        "targetRef": {"kind": "RemotePod", "name": "web-0"},
    }


@pytest.mark.parametrize(
    ("chosen", "own", "service", "leaves"),
    [
        (Policy.DENY_LIST, {}, {}, True),
        (Policy.DENY_LIST, {}, SKIP, False),
        (Policy.DENY_LIST, SKIP, {}, False),
        (Policy.DENY_LIST, ALLOW, SKIP, True),
        (Policy.ALLOW_LIST, {}, {}, False),
        (Policy.ALLOW_LIST, {}, ALLOW, True),
        (Policy.ALLOW_LIST, SKIP, ALLOW, False),
    ],
)
def test_a_slice_goes_as_its_service_unless_it_says_itself(
    *, chosen: Policy, own: dict[str, str], service: dict[str, str], leaves: bool
) -> None:
    local = slice_of(endpoint("10.0.0.1"), annotations=own)

    stay = networking.slice_stays(local, slices_context(chosen, **service))
    assert (stay is None) is leaves
    assert stay is None or own or not stay.is_told, "its Service has the Event"


def test_a_slice_that_contradicts_itself_is_refused() -> None:
    local = slice_of(endpoint("10.0.0.1"), annotations={**SKIP, **ALLOW})

    with pytest.raises(reflectionpolicy.ContradictionError):
        networking.slice_stays(local, slices_context())


@pytest.mark.parametrize(
    "local",
    [
        slice_of(endpoint("10.0.0.2", "milan")),
        slice_of(),
        slice_of(
            endpoint("10.0.0.1"),
            labels={keys.ENDPOINT_SLICE_MANAGED_BY: keys.ENDPOINT_SLICE_MANAGER},
        ),
        {
            **slice_of(endpoint("10.0.0.1"), service="kubernetes"),
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {keys.SERVICE_NAME: "kubernetes"},
            },
        },
    ],
    ids=["all on the provider", "empty", "reflected here", "API server"],
)
def test_slices_that_tell_the_provider_nothing_stay(local: Object) -> None:
    stay = networking.slice_stays(local, slices_context())

    assert stay
    assert not stay.is_told


def test_slices_are_looked_at_when_their_service_or_a_node_changes() -> None:
    local = slice_of(endpoint("10.0.0.1", "rome-1"))
    look = Seen(endpointslices=[local], nodes=NODES)
    by_service, by_node, _ = (each.touched for each in networking.ENDPOINT_SLICE_REFLECTION.inputs)
    here = ReflectionContext(PAIR, lister=look)
    service = factories.service("foo", "web")
    skipped = {**service, "metadata": {**service["metadata"], "annotations": SKIP}}

    assert list(by_service(service, skipped, here)) == [Key("foo", "web-1")]
    assert list(by_service(service, service, here)) == []
    assert list(by_node(None, listed_node("rome-1"), here)) == [Key("foo", "web-1")]
    assert list(by_node(listed_node("rome-1"), listed_node("rome-1"), here)) == []
    assert list(by_node(None, listed_node("other"), here)) == []


def test_a_slice_too_large_for_the_cache_is_looked_at_whatever_changes() -> None:
    many = [endpoint(f"10.0.0.{number}", "rome-1", zone="z" * 300) for number in range(130)]
    cached = Packed.cached(slice_of(*many)).whole()
    here = ReflectionContext(PAIR, lister=Seen(endpointslices=[cached], nodes=NODES))
    by_service, by_node, by_ip = (
        each.touched for each in networking.ENDPOINT_SLICE_REFLECTION.inputs
    )

    assert "endpoints" not in cached
    assert list(by_node(None, listed_node("rome-1"), here)) == [Key("foo", "web-1")]
    assert list(by_ip(None, ip("10.0.0.1"), here)) == [Key("foo", "web-1")]
    assert list(by_service(None, factories.service("foo", "web"), here)) == [Key("foo", "web-1")]


def fabric(*ips: Object) -> ReflectionContext:
    pods = (ipaddress.ip_network("10.0.0.0/16"),)
    look = Seen(nodes=NODES, services=[], ips=ips, endpointslices=[slice_of(endpoint("192.0.2.1"))])
    return ReflectionContext(PAIR, settings=RemoteObjectOptions(local_pods=pods), lister=look)


def ip(address: str, **status: str) -> Object:
    return named(keys.IP, Key("foo", "db"), spec={"ip": address}, status=status)


def test_with_an_ip_fabric_what_is_no_pod_here_goes_by_its_ip_object() -> None:
    local = slice_of(endpoint("10.0.0.1", "rome-1"), endpoint("192.0.2.1"))

    twin = networking.shadow_endpoint_slice(local, fabric(ip("192.0.2.1", ip="10.70.0.4")))

    told = [one["addresses"] for one in twin["spec"]["template"]["endpoints"]]
    assert told == [["10.0.0.1"], ["10.70.0.4"]]


@pytest.mark.parametrize("known", [[], [ip("192.0.2.1")], [ip("192.0.2.2", ip="10.70.0.4")]])
def test_an_address_that_nothing_remaps_is_told_and_waited_for(known: list[Object]) -> None:
    with pytest.raises(reflectionpolicy.NotYetError, match=r"create one with spec.ip 192.0.2.1"):
        networking.shadow_endpoint_slice(slice_of(endpoint("192.0.2.1")), fabric(*known))


def test_a_change_of_an_ip_object_lets_its_slices_be_looked_at() -> None:
    (input_,) = (one for one in networking.ENDPOINT_SLICE_REFLECTION.inputs if one.kind == keys.IP)
    was, is_ = ip("192.0.2.1"), ip("192.0.2.1", ip="10.70.0.4")

    assert list(input_.touched(was, is_, fabric())) == [Key("foo", "web-1")]
    assert list(input_.touched(None, ip("192.0.2.9"), fabric())) == []
    assert input_.is_needed(fabric().settings)
    assert not input_.is_needed(RemoteObjectOptions())
