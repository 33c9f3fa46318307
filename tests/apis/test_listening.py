"""Addresses as Go programs write them, in flags and in the VkOptionsTemplate."""

import argparse

import pytest

from apis import listening
from apis.listening import Address
from kube import flags


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("0", None),
        (":8082", Address("", 8082)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("localhost:8082", Address("localhost", 8082)),
    ],
)
def test_an_address_is_read_and_written_as_it_is(text: str, address: Address | None) -> None:
    assert flags.address(text) == listening.parse(text) == address
    assert address is None or str(address) == text


@pytest.mark.parametrize("text", ["8082", ":", ":a", ":65536", "::1:80", "[::1]", "[x]:1", " :1"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is no address such as :8082"):
        listening.parse(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is no address such as :8082"):
        flags.address(text)
