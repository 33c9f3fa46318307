"""Addresses as another cluster reaches them."""

import pytest

from apis import networks
from apis.networks import Remap
from apis.objects import Object

PODS = ("10.244.0.0/16", "10.71.0.0/16")


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("10.244.3.7", "10.71.3.7"),
        ("10.70.0.9", "10.72.0.9"),
        ("10.9.0.1", "10.9.0.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("fd00::7", "fd00::7"),
        ("web.example.com", "web.example.com"),
    ],
    ids=["a pod", "an external one", "one that keeps its name", "elsewhere", "IPv6", "a name"],
)
def test_the_first_network_that_has_an_address_says_how_it_is_reached(
    address: str, reached: str
) -> None:
    known = networks.remap_of_networks(
        [PODS[0], "10.9.0.0/24", "10.70.0.0/16"], [PODS[1], "10.9.0.0/24", "10.72.0.0/16"]
    )

    assert known.of(address) == reached
    assert Remap().of(address) == address


@pytest.mark.parametrize(
    ("originals", "remapped", "why"),
    [
        ([PODS[0]], [], "as many"),
        ([PODS[0]], ["10.71.0.0/24"], "differ in size"),
        ([PODS[0]], ["fd00::/16"], "differ in size"),
        (["10.244.0.7/16"], [PODS[1]], "host bits"),
        (["pods"], ["pods"], "does not appear to be"),
    ],
)
def test_what_makes_no_pairs_is_refused(
    originals: list[str], remapped: list[str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        networks.remap_of_networks(originals, remapped)


def configuration(*, pods: object, status: object) -> Object:
    there = {"cidr": {"pod": pods, "external": ["10.70.0.0/16"]}}
    return {"spec": {"remote": there}, "status": status}


def test_a_configuration_says_it_once_its_networks_are_set() -> None:
    here = {"remote": {"cidr": {"pod": [PODS[1]], "external": ["10.72.0.0/16"]}}}
    known = networks.remap_of_configuration(configuration(pods=[PODS[0]], status=here))

    assert known.of("10.244.3.7") == "10.71.3.7"
    assert known.of("10.70.0.1") == "10.72.0.1"
    assert known.reaches("10.71.3.7")
    assert not known.reaches("10.244.3.7")
    assert networks.remap_of_configuration(configuration(pods=[PODS[0]], status=None)) == Remap()
    with pytest.raises(ValueError, match="as many"):
        networks.remap_of_configuration(configuration(pods=[], status=here))
