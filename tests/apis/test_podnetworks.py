"""In which networks the pods of a provider are."""

import pytest

from apis import keys
from apis.networks import (
    announced_networks,
    joined_networks,
    parse_networks,
    parse_pod_networks,
    pod_networks_of_identity,
    pod_networks_of_nodes,
)
from apis.objects import Key, named


@pytest.mark.parametrize(
    ("text", "found", "wrong"),
    [
        ("", [], []),
        ("10.1.0.0/16", ["10.1.0.0/16"], []),
        (" 10.1.0.0/16 , fd00::/64,", ["10.1.0.0/16", "fd00::/64"], []),
        ("10.1.0.7/16", ["10.1.0.0/16"], []),
        ("0.0.0.0/0,::/0,pods,10.1.0.0/33", [], ["0.0.0.0/0", "::/0", "pods", "10.1.0.0/33"]),
    ],
)
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
