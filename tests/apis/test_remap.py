"""Addresses as another cluster reaches them."""

import argparse

import pytest

from apis import keys, networks
from apis.networks import (
    ListenAddress,
    Remap,
    announced_networks,
    joined_networks,
    parse_networks,
    parse_pod_networks,
    pod_networks_of_identity,
    pod_networks_of_nodes,
)
from apis.objects import Key, Object, named
from kube import flags
from tests import factories

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


@factories.cases("originals, remapped, why")
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


# In which networks the pods of a provider are.


@factories.cases("text, found, wrong")
def test_what_a_list_names(text: str, found: list[str], wrong: list[str]) -> None:
    networks, rest = parse_pod_networks(text)
    assert ([str(each) for each in networks], rest) == (found, wrong)


def test_networks_of_many_nodes_are_joined() -> None:
    nodes = parse_networks(f"10.1.{n}.0/24" for n in range(256))
    assert joined_networks([*nodes, *parse_networks(["fd00::/64"])]) == "10.1.0.0/16,fd00::/64"


def test_an_identity_names_them() -> None:
    noted = {"annotations": {keys.POD_NETWORKS: "10.1.0.0/16,x"}}
    found = named(keys.IDENTITY, Key("t", "i"), metadata=noted)
    assert pod_networks_of_identity(found) == (parse_networks(["10.1.0.0/16"]), ["x"])
    assert pod_networks_of_identity(None) == ([], [])


def test_a_cluster_says_networks_that_nodes_which_come_later_are_in() -> None:
    said = pod_networks_of_nodes(["10.244.3.0/24", "10.244.0.0/24", "10.0.0.0/8", "fd00:1::/64"])
    assert joined_networks(said) == "10.0.0.0/8,fd00:1::/56"


def test_a_provider_may_not_say_that_its_pods_are_anywhere() -> None:
    said = "0.0.0.0/1,128.0.0.0/1,::/1,10.0.0.0/8,172.16.0.0/12,fd00::/48,lots"
    assert announced_networks(said) == "10.0.0.0/8,172.16.0.0/12,fd00::/48"


# Addresses as Go programs write them, in flags and in the VkOptionsTemplate.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("0", None),
        (":8082", ListenAddress("", 8082)),
        ("127.0.0.1:1", ListenAddress("127.0.0.1", 1)),
        ("[::1]:65535", ListenAddress("::1", 65535)),
        ("localhost:8082", ListenAddress("localhost", 8082)),
    ],
)
def test_an_address_is_read_and_written_as_it_is(text: str, address: ListenAddress | None) -> None:
    assert flags.address(text) == networks.listen_address(text) == address
    assert address is None or str(address) == text


@pytest.mark.parametrize("text", ["8082", ":", ":a", ":65536", "::1:80", "[::1]", "[x]:1", " :1"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is no address such as :8082"):
        networks.listen_address(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is no address such as :8082"):
        flags.address(text)
