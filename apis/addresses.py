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
    """Return the addresses at which packets to ``one`` may arrive: its own, and one inside it.

    Source: RFC 3056 (6to4), RFC 6052 (NAT64).
    """
    if isinstance(one, ipaddress.IPv4Address):
        return (one,)
    if one in _NAT64:
        return one, ipaddress.IPv4Address(int(one) & 0xFFFFFFFF)
    return (one, one.sixtofour) if one.sixtofour else (one,)


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
    """Whether no endpoint is at ``one``: no API server takes it, or it is a cloud's metadata."""
    is_local = one.is_loopback or one.is_link_local or one.is_multicast or one.is_unspecified
    return is_local or one in _METADATA
