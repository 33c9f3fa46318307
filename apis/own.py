"""The addresses of this cluster: another cluster may not stand in for them. Pure.

Source: docs/parity.md SEC-A16, SEC-B1.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from apis import addresses, objects
from apis.addresses import Address
from apis.objects import Meta, Object
from apis.remap import Network

_V4, _V6 = ipaddress.IPv4Network, ipaddress.IPv6Network
_HOST: Final = {4: 32, 6: 128}


class _Spec(
    msgspec.Struct, gc=False, frozen=True, rename={"pod_cidr": "podCIDR", "pod_cidrs": "podCIDRs"}
):
    pod_cidr: str = ""
    pod_cidrs: tuple[str, ...] = ()


class _Address(msgspec.Struct, gc=False, frozen=True):
    address: str = ""


class _Status(msgspec.Struct, gc=False, frozen=True):
    addresses: tuple[_Address, ...] = ()


class Addressed(msgspec.Struct, gc=False, frozen=True):
    """The addresses of a node: caches keep nothing else of it."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def pod_networks(self) -> list[str]:
        """Return the networks of its pods."""
        return [text for text in dict.fromkeys((*self.spec.pod_cidrs, self.spec.pod_cidr)) if text]

    def texts(self) -> list[str]:
        """Return its own addresses and the networks of its pods."""
        return [*(each.address for each in self.status.addresses), *self.pod_networks()]


@dataclass(frozen=True)
class Own:
    """Networks, and single addresses, which are many more."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[Address] = frozenset()

    def has(self, address: Address) -> bool:
        """Whether ``address`` is of this cluster."""
        return address in self.hosts or any(address in network for network in self.networks)


def own(
    nodes: Iterable[Addressed], api_servers: Iterable[Object], services: Iterable[str] = ()
) -> Own:
    """Return the addresses of ``nodes``, of their pods, and those in the slices of API servers.

    ``services``: the networks of Services, and others that a flag names.
    """
    texts = [*services, *(text for node in nodes for text in node.texts())]
    texts += [
        address
        for each in api_servers
        for endpoint in each.get("endpoints") or []
        for address in endpoint["addresses"]
    ]
    found = networks(texts)
    hosts = [each for each in found if each.prefixlen == _HOST[each.version]]
    return Own(
        collapsed(each for each in found if each.prefixlen < _HOST[each.version]),
        frozenset(each.network_address for each in hosts),
    )


def networks(texts: Iterable[str]) -> list[Network]:
    """Return the networks and addresses among ``texts``: names of nodes are not."""
    return [network for text in texts if (network := network_of(text))]


def network_of(text: str) -> Network | None:
    """Return the network ``text``, in CIDR notation or one address; None if it is not one."""
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def collapsed(found: Iterable[Network]) -> tuple[Network, ...]:
    """Return as few networks as have the addresses of ``found``."""
    listed = list(found)
    four = ipaddress.collapse_addresses(each for each in listed if isinstance(each, _V4))
    six = ipaddress.collapse_addresses(each for each in listed if isinstance(each, _V6))
    return (*four, *six)


def service_networks(service_cidr: Object) -> list[str]:
    """Return the networks that a ServiceCIDR says."""
    return list(objects.spec(service_cidr).get("cidrs") or [])


def is_closed(address: Address, known: Own) -> bool:
    """Whether packets to ``address`` may arrive at this cluster, or where no endpoint is."""
    ends = addresses.reached(address)
    return any(known.has(end) or addresses.is_special(end) for end in ends)
