"""What the flags of the controllers say about grants."""

import socket
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

from apis import resources
from apis.offloading import OfferedClass
from controllers import __main__


def test_flags_are_read() -> None:
    assert __main__.resources_flag("cpu=2,memory=1Gi") == resources.parse_resources(
        {"cpu": "2", "memory": "1Gi"}
    )
    assert __main__.labels_flag("region=europe,liqo.io/provider=kubeadm") == {
        "region": "europe",
        "liqo.io/provider": "kubeadm",
    }
    assert __main__.enforcement_flag("hard") == "Hard"
    assert __main__.classes_flag("nginx;default,traefik") == (
        OfferedClass("nginx", is_default=True),
        OfferedClass("traefik"),
    )


def test_a_replica_is_called_like_its_pod_or_else_its_host() -> None:
    found = [__main__.parse([], one).identity for one in ({"POD_NAME": "web-0"}, {})]
    assert found == ["web-0", socket.gethostname()]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (__main__.resources_flag, "cpu", "'cpu' is not key=value"),
        (__main__.resources_flag, "cpu=lots", "resource cpu"),
        (__main__.labels_flag, "a b=c", "a b=c is no label"),
        (__main__.enforcement_flag, "Maybe", "'Maybe' is not one of None, Soft, Hard"),
        (__main__.classes_flag, "nginx;always", "'nginx;always' is not a name"),
    ],
)
def test_what_they_are_not_is_said(read: Callable[[str], Any], text: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        read(text)
