"""Clusters of one machine never share an address or a name."""

import ipaddress
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import allocation
from sandbox.allocation import NoSlotError, Slot

ONE, OTHER = Path("/src/one"), Path("/src/other")
numbers = st.integers(0, allocation.SLOTS - 1)


def slot(number: int) -> Slot:
    return Slot("0123abcd", "/src", "rome", number)


def networks(one: Slot) -> list[ipaddress.IPv4Network]:
    nodes = ipaddress.ip_network(f"{one.address}/24", strict=False)
    cidrs = [ipaddress.ip_network(cidr) for cidr in (one.pod_cidr, one.service_cidr)]
    return [net for net in (nodes, *cidrs) if isinstance(net, ipaddress.IPv4Network)]


def test_no_two_slots_share_a_network() -> None:
    every = [net for number in range(allocation.SLOTS) for net in networks(slot(number))]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(every, 2))


@given(numbers)
def test_the_addresses_of_a_slot_lie_in_its_networks(number: int) -> None:
    one = slot(number)
    services = ipaddress.ip_network(one.service_cidr)
    assert ipaddress.ip_address(one.service_address) in services
    assert ipaddress.ip_address(one.dns_address) in services
    assert ipaddress.ip_address(one.gateway) != ipaddress.ip_address(one.address)


@given(numbers)
def test_the_kernel_admits_the_name_of_the_cable(number: int) -> None:
    assert len(slot(number).link) <= 15


def test_a_cluster_keeps_its_slot() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    again = allocation.allocate(first, directory=ONE, clusters=["turin", "milan", "rome"])
    assert again[1:] == [first[1], first[0]]


def test_checkouts_do_not_collide() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    second = allocation.allocate(first, directory=OTHER, clusters=["rome", "milan"])
    names = {(one.number, one.namespace, one.link) for one in [*first, *second]}
    assert len({number for number, _, _ in names}) == 4
    assert len({namespace for _, namespace, _ in names}) == 4
    assert len({link for _, _, link in names}) == 4


def test_a_slot_that_was_given_back_is_used_again() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    second = allocation.allocate(first[1:], directory=OTHER, clusters=["turin"])
    assert second[0].number == first[0].number


def test_a_full_machine_says_what_frees_it() -> None:
    full = [Slot("x", "/x", f"c{number}", number) for number in range(allocation.SLOTS)]
    with pytest.raises(NoSlotError, match="down --all"):
        allocation.allocate(full, directory=ONE, clusters=["rome"])


def test_what_was_written_is_read() -> None:
    slots = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    assert allocation.parse(allocation.dump(slots)) == slots
