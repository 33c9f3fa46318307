"""Addresses as Go programs write them, in flags and in the VkOptionsTemplate."""

import argparse

import pytest

from apis import networks
from apis.networks import ListenAddress
from kube import flags


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
