"""IP addresses of one cluster as another reaches them, where an IP fabric joins the two.

Without one, addresses are the same on both sides. Source: docs/parity.md § 1.14.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from apis import objects, ownership
from apis.objects import Object

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Remap:
    """Pairs of networks: as they are called there, and by which addresses they are reached."""

    pairs: tuple[tuple[Network, Network], ...] = ()

    def of(self, address: str) -> str:
        """Return ``address`` as it is reached: its host bits in the network of the first pair.

        What is in no pair, or no address, is returned as it is.
        """
        try:
            one = ipaddress.ip_address(address)
        except ValueError:
            return address
        for original, remapped in self.pairs:
            if one in original:
                return str(remapped[int(one) - int(original.network_address)])
        return address

    def reaches(self, address: str) -> bool:
        """Whether ``address`` is one by which something there is reached."""
        return contains((remapped for _, remapped in self.pairs), address)


def paired(originals: Sequence[str], remapped: Sequence[str]) -> Remap:
    """Return the remap of networks that are paired by their place.

    Raises:
        ValueError: no networks, not as many, or not as large; the message names them.
    """
    if len(originals) != len(remapped):
        both = (", ".join(each) or "none" for each in (originals, remapped))
        raise ValueError(f"{' and '.join(both)} are not as many: each network needs its remap")
    return Remap(tuple(_pair(*both) for both in zip(originals, remapped, strict=True)))


def configured(configuration: Object) -> Remap:
    """Return what a Configuration of ``networking.liqo.io`` says of its peer, pods first.

    Raises:
        ValueError: the message names what cannot be read.
    """
    there, here = (
        (((configuration.get(part) or {}).get("remote") or {}).get("cidr") or {})
        for part in ("spec", "status")
    )
    pairs = [
        pair
        for kind in ("pod", "external")
        if _listed(here.get(kind))
        for pair in paired(_listed(there.get(kind)), _listed(here.get(kind))).pairs
    ]
    return Remap(tuple(pairs))


def of_peer(configurations: Iterable[Object], peer: str) -> Remap:
    """Return how the cluster ``peer`` is reached; no pairs where no Configuration says it yet.

    Raises:
        ValueError: its Configuration cannot be read; the message names it.
    """
    for each in configurations:
        if ownership.cluster_named_by(each) == peer:
            try:
                return configured(each)
            except ValueError as error:
                message = f"configuration {objects.key_of(each)}: {error}: correct it"
                raise ValueError(message) from error
    return Remap()


def contains(networks: Iterable[Network], address: str) -> bool:
    """Whether ``address`` is one, and in one of ``networks``."""
    try:
        one = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(one in network for network in networks)


def _pair(original: str, remapped: str) -> tuple[Network, Network]:
    both = ipaddress.ip_network(original), ipaddress.ip_network(remapped)
    if (both[0].version, both[0].prefixlen) != (both[1].version, both[1].prefixlen):
        raise ValueError(f"{original} and {remapped} differ in size or family")
    return both


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())
