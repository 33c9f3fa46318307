"""In which networks the pods of a provider are, and which of their addresses are published. Pure.

A provider says the address of each of its pods. Where no IP fabric translates it, the consumer's
EndpointSlices take it over, so it may only be in a network that the consumer's administrator named,
and no address of the consumer itself. Source: docs/parity.md SEC-B1; H7; docs/decisions/0013 (5).
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from apis import keys, objects, own, remap
from apis.objects import Object
from apis.own import Own
from apis.remap import Network, Remap

_WIDENED: Final = {4: 16, 6: 56}
_WIDEST: Final = {4: 8, 6: 32}
"""Of what a provider says of itself: 10.0.0.0/8 is the largest private network."""
MOST: Final = 256
"""Networks; one for each node of a large cluster are joined to few."""


@dataclass(frozen=True)
class PodAddresses:
    """By which addresses the provider's pods are reached from this cluster."""

    remap: Remap = field(default_factory=Remap)
    networks: tuple[Network, ...] = ()
    """Those that are named for the provider; none: without a fabric no address is published."""
    own: Own = field(default_factory=Own)

    @property
    def are_named(self) -> bool:
        """Whether anybody says in which networks the provider's pods are."""
        return bool(self.remap.pairs or self.networks)

    def has(self, address: str) -> bool:
        """Whether ``address``, as it is reached from here, may be that of a pod of the provider."""
        if self.remap.pairs:
            return self.remap.reaches(address)
        if not remap.contains(self.networks, address):
            return False
        return not own.is_closed(ipaddress.ip_address(address), self.own)


def written(networks: Iterable[Network]) -> str:
    """Return ``networks`` as the annotation and the ConfigMap have them: joined, then by comma."""
    return ",".join(str(each) for each in own.collapsed(networks)[:MOST])


def of_nodes(texts: Iterable[str]) -> list[Network]:
    """Return the networks of a cluster's pods by those of its Nodes.

    Each is widened to /16 (IPv6: /56), for Nodes that come later: those are the defaults of
    cluster networks in kubeadm, kind and k3s. A flag of the controllers says it exactly.
    """
    return [
        each.supernet(new_prefix=min(each.prefixlen, _WIDENED[each.version]))
        for each in own.networks(texts)
    ]


def parse(text: str) -> tuple[list[Network], list[str]]:
    """Return the networks of a comma-separated list, and what of it is not one.

    ``0.0.0.0/0`` and ``::/0`` are not: they would let a provider name any address.
    """
    found, wrong = list[Network](), list[str]()
    for part in filter(None, map(str.strip, text.split(",")[:MOST])):
        network = own.network_of(part)
        if network is None or network.prefixlen == 0:
            wrong.append(part)
        else:
            found.append(network)
    return found, wrong


def said(text: str) -> str:
    """Return the networks that a provider says of itself, as :func:`written`.

    What is wider than any cluster's pods is left out: an administrator may name it by the flag.
    """
    found, _ = parse(text)
    return written(each for each in found if each.prefixlen >= _WIDEST[each.version])


def of_identity(identity: Object | None) -> tuple[list[Network], list[str]]:
    """Return the networks that the Identity of a provider's control plane names, and the rest."""
    noted = objects.annotations(identity or {"metadata": {}})
    return parse(noted.get(keys.POD_NETWORKS, ""))
