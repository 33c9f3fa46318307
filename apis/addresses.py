"""IP addresses that another cluster names: each in one spelling only. Pure.

Two readers of another spelling may see two addresses: ``010.0.0.1`` is 10.0.0.1 for an API server
and kube-proxy, 8.0.0.1 for many a C library, and none for Python. Source: RFC 5952, RFC 6943.
"""

import ipaddress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_TYPES: Final = {"IPv4": 4, "IPv6": 6}
_LOW: Final = ipaddress.ip_network("::/96")
"""Of IPv4-compatible addresses, which are deprecated, and of ``::1``."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")
"""Translated to what no other cluster knows, by a prefix of it that only its own network knows."""
_TRANSLATED: Final = ipaddress.ip_network("::ffff:0:0:0/96")
_THIS_NETWORK: Final = ipaddress.ip_network("0.0.0.0/8")
_ISATAP: Final = 0x5EFE
_ISATAP_MASK: Final = 0xFDFFFFFF
_LAST_32: Final = 0xFFFFFFFF


def read(text: str, type_: str) -> Address | None:
    """Return the address ``text`` of an EndpointSlice's address type, None if it has another.

    None is also what is not in its one spelling (leading zeros, upper case, a zone), an IPv4
    address in IPv6 (``::ffff:10.0.0.1``), and every name: nothing is an address of type FQDN.
    """
    try:
        one = ipaddress.ip_address(text)
    except ValueError:
        return None
    if one.version != _TYPES.get(type_) or str(one) != text:
        return None
    if isinstance(one, ipaddress.IPv6Address):
        is_odd = one.scope_id is not None or one.ipv4_mapped is not None or one in _LOW
        return None if is_odd else one
    return one


def reached(one: Address) -> tuple[Address, ...]:
    """Return the addresses at which packets to ``one`` may arrive: its own, and those inside it.

    Source: RFC 3056 (6to4), RFC 4380 (Teredo: its server, and who is behind it), RFC 5214 (ISATAP),
    RFC 6052 (NAT64), RFC 7915 (SIIT).
    """
    if isinstance(one, ipaddress.IPv4Address):
        return (one,)
    inside = list[Address](one.teredo or ())
    if one.sixtofour:
        inside.append(one.sixtofour)
    number = int(one)
    is_isatap = (number >> 32) & _ISATAP_MASK == _ISATAP
    if one in _NAT64 or one in _TRANSLATED or is_isatap:
        inside.append(ipaddress.IPv4Address(number & _LAST_32))
    return (one, *inside)


_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"),
    )
)
"""Where clouds keep what their machines may know, besides link-local addresses.

Source: Alibaba Cloud, Azure, AWS, Google Cloud, instance metadata.
"""


def is_special(one: Address) -> bool:
    """Whether no endpoint is at ``one``: nobody has it, no API server takes it, or a cloud does.

    Source: IANA special-purpose address registries. Of IPv6 no network is reserved as a whole:
    Python counts NAT64 to those.
    """
    if one.is_loopback or one.is_link_local or one.is_multicast or one.is_unspecified:
        return True
    if isinstance(one, ipaddress.IPv4Address):
        return one.is_reserved or one in _THIS_NETWORK or one in _METADATA
    return one in _NAT64_LOCAL or one in _METADATA


_BRIDGES: Final = frozenset(map(ipaddress.ip_address, ("172.17.0.1", "10.88.0.1", "192.168.122.1")))


def is_bridge(one: Address) -> bool:
    """Whether each node may have ``one`` for itself: that of its bridge for containers or machines.

    A pod may have it where its cluster's networks say so. Source: the defaults of Docker, Podman
    and libvirt.
    """
    return one in _BRIDGES
