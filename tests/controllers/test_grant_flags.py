"""What the flags of the controllers say about grants."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

from apis import resources
from apis.offloading import OfferedClass
from controllers.granting.grants.forge import flags


def test_flags_are_read() -> None:
    assert flags.resources("cpu=2,memory=1Gi") == resources.parse({"cpu": "2", "memory": "1Gi"})
    assert flags.labels("region=europe,liqo.io/provider=kubeadm") == {
        "region": "europe",
        "liqo.io/provider": "kubeadm",
    }
    assert flags.enforcement("hard") == "Hard"
    assert flags.classes("nginx;default,traefik") == (
        OfferedClass("nginx", is_default=True),
        OfferedClass("traefik"),
    )


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (flags.resources, "cpu", "'cpu' is not key=value"),
        (flags.resources, "cpu=lots", "resource cpu"),
        (flags.labels, "a b=c", "a b=c is no label"),
        (flags.enforcement, "Maybe", "'Maybe' is not one of None, Soft, Hard"),
        (flags.classes, "nginx;always", "'nginx;always' is not a name"),
    ],
)
def test_what_they_are_not_is_said(read: Callable[[str], Any], text: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        read(text)
