"""IP addresses and networks: a cluster's own, those of its peers' pods, remapped ones. Pure.

Another cluster names an address in one spelling only: ``010.0.0.1`` is 10.0.0.1 for an API server
and kube-proxy, 8.0.0.1 for many a C library, and none for Python. It may not stand in for this
cluster. A provider says the address of each of its pods. Where no IP fabric translates it, the
consumer's EndpointSlices take it over, so it may only be in a network that the consumer's
administrator named, and no address of the consumer itself. Source: RFC 5952, RFC 6943;
docs/parity.md § 1.14, SEC-A16, SEC-B1; H7; docs/decisions/0013 (5).
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from apis import keys, objects, ownership
from apis.objects import Meta, Object

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


def read_address(text: str, type_: str) -> Address | None:
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


def reached_addresses(one: Address) -> tuple[Address, ...]:
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


def is_special_address(one: Address) -> bool:
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


def is_bridge_address(one: Address) -> bool:
    """Whether each node may have ``one`` for itself: that of its bridge for containers or machines.

    A pod may have it where its cluster's networks say so. Source: the defaults of Docker, Podman
    and libvirt.
    """
    return one in _BRIDGES


# IP addresses of one cluster as another reaches them ----------------------------------------------

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


def remap_of_networks(originals: Sequence[str], remapped: Sequence[str]) -> Remap:
    """Return the remap of networks that are paired by their place.

    Raises:
        ValueError: no networks, not as many, or not as large; the message names them.
    """
    if len(originals) != len(remapped):
        both = (", ".join(each) or "none" for each in (originals, remapped))
        raise ValueError(f"{' and '.join(both)} are not as many: each network needs its remap")
    return Remap(tuple(_pair(*both) for both in zip(originals, remapped, strict=True)))


def remap_of_configuration(configuration: Object) -> Remap:
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
        for pair in remap_of_networks(_listed(there.get(kind)), _listed(here.get(kind))).pairs
    ]
    return Remap(tuple(pairs))


def remap_of_peer(configurations: Iterable[Object], peer: str) -> Remap:
    """Return how the cluster ``peer`` is reached; no pairs where no Configuration says it yet.

    Raises:
        ValueError: its Configuration cannot be read; the message names it.
    """
    for each in configurations:
        if ownership.cluster_named_by(each) == peer:
            try:
                return remap_of_configuration(each)
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


# The addresses of this cluster --------------------------------------------------------------------

CONTROL_PLANES: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
)
"""Labels of nodes where API servers are, those of today first."""
_V4, _V6 = ipaddress.IPv4Network, ipaddress.IPv6Network
_HOST: Final = {4: 32, 6: 128}


class _Spec(
    msgspec.Struct, gc=False, frozen=True, rename={"pod_cidr": "podCIDR", "pod_cidrs": "podCIDRs"}
):
    pod_cidr: str = ""
    pod_cidrs: tuple[str, ...] = ()


class _NodeMeta(Meta, gc=False, frozen=True):
    labels: dict[str, str] | None = None


class _Address(msgspec.Struct, gc=False, frozen=True):
    address: str = ""
    type: str = ""


class _Status(msgspec.Struct, gc=False, frozen=True):
    addresses: tuple[_Address, ...] = ()
    conditions: tuple[dict[str, Any], ...] = ()


class NodeAddresses(msgspec.Struct, gc=False, frozen=True):
    """The addresses of a node: caches keep nothing else of it.

    Of a node of the control plane, where peers may connect, labels and conditions are there, too.
    """

    metadata: _NodeMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def __post_init__(self) -> None:
        if not self.is_control_plane():
            metadata = msgspec.structs.replace(self.metadata, labels=None)
            msgspec.structs.force_setattr(self, "metadata", metadata)
            msgspec.structs.force_setattr(self, "status", _Status(self.status.addresses))

    def is_control_plane(self) -> bool:
        return not (self.metadata.labels or {}).keys().isdisjoint(CONTROL_PLANES)

    def pod_networks(self) -> list[str]:
        return [text for text in dict.fromkeys((*self.spec.pod_cidrs, self.spec.pod_cidr)) if text]

    def texts(self) -> list[str]:
        """Return its own addresses and the networks of its pods."""
        return [*(each.address for each in self.status.addresses), *self.pod_networks()]


@dataclass(frozen=True)
class ClusterAddresses:
    """Networks, and single addresses, which are many more."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[Address] = frozenset()

    def has(self, address: Address) -> bool:
        return address in self.hosts or any(address in network for network in self.networks)


def cluster_addresses(
    nodes: Iterable[NodeAddresses], api_servers: Iterable[Object], services: Iterable[str] = ()
) -> ClusterAddresses:
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
    found = parse_networks(texts)
    hosts = [each for each in found if each.prefixlen == _HOST[each.version]]
    return ClusterAddresses(
        collapsed(each for each in found if each.prefixlen < _HOST[each.version]),
        frozenset(each.network_address for each in hosts),
    )


def parse_networks(texts: Iterable[str]) -> list[Network]:
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
    return list(objects.spec(service_cidr).get("cidrs") or [])


def is_closed(address: Address, known: ClusterAddresses) -> bool:
    """Whether packets to ``address`` may arrive at this cluster, or where no endpoint is."""
    ends = reached_addresses(address)
    return any(known.has(end) or is_special_address(end) for end in ends)


# Networks of pods ---------------------------------------------------------------------------------

_WIDENED: Final = {4: 16, 6: 56}
_WIDEST: Final = {4: 8, 6: 32}
"""Of what a provider says of itself: 10.0.0.0/8 is the largest private network."""
MOST_NETWORKS: Final = 256
"""Networks; one for each node of a large cluster are joined to few."""


@dataclass(frozen=True)
class PodNetworks:
    """By which addresses the provider's pods are reached from this cluster."""

    remap: Remap = field(default_factory=Remap)
    networks: tuple[Network, ...] = ()
    """Those that are named for the provider; none: without a fabric no address is published."""
    own: ClusterAddresses = field(default_factory=ClusterAddresses)

    @property
    def are_named(self) -> bool:
        """Whether anybody says in which networks the provider's pods are."""
        return bool(self.remap.pairs or self.networks)

    def has(self, address: str) -> bool:
        """Whether ``address``, as it is reached from here, may be that of a pod of the provider."""
        if self.remap.pairs:
            return self.remap.reaches(address)
        if not contains(self.networks, address):
            return False
        return not is_closed(ipaddress.ip_address(address), self.own)


def joined_networks(networks: Iterable[Network]) -> str:
    """Return ``networks`` as the annotation and the ConfigMap have them: joined, then by comma."""
    return ",".join(str(each) for each in collapsed(networks)[:MOST_NETWORKS])


def pod_networks_of_nodes(texts: Iterable[str]) -> list[Network]:
    """Return the networks of a cluster's pods by those of its Nodes.

    Each is widened to /16 (IPv6: /56), for Nodes that come later: those are the defaults of
    cluster networks in kubeadm, kind and k3s. A flag of the controllers says it exactly.
    """
    return [
        each.supernet(new_prefix=min(each.prefixlen, _WIDENED[each.version]))
        for each in parse_networks(texts)
    ]


def parse_pod_networks(text: str) -> tuple[list[Network], list[str]]:
    """Return the networks of a comma-separated list, and what of it is not one.

    ``0.0.0.0/0`` and ``::/0`` are not: they would let a provider name any address.
    """
    found, wrong = list[Network](), list[str]()
    for part in filter(None, map(str.strip, text.split(",")[:MOST_NETWORKS])):
        network = network_of(part)
        if network is None or network.prefixlen == 0:
            wrong.append(part)
        else:
            found.append(network)
    return found, wrong


def announced_networks(text: str) -> str:
    """Return the networks that a provider says of itself, as :func:`written`.

    What is wider than any cluster's pods is left out: an administrator may name it by the flag.
    """
    found, _ = parse_pod_networks(text)
    return joined_networks(each for each in found if each.prefixlen >= _WIDEST[each.version])


def pod_networks_of_identity(identity: Object | None) -> tuple[list[Network], list[str]]:
    """Return the networks that the Identity of a provider's control plane names, and the rest."""
    noted = objects.annotations(identity or {"metadata": {}})
    return parse_pod_networks(noted.get(keys.POD_NETWORKS, ""))


# Where a process listens --------------------------------------------------------------------------

MOST_PORT: Final = 65535
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")


class ListenAddress(NamedTuple):
    """A host (empty: all interfaces) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def listen_address(text: str) -> ListenAddress | None:
    """Return the address that ``text`` means; None for an empty text or ``0``, which is nowhere.

    Raises:
        ValueError: it is no address.
    """
    if text in {"", "0"}:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > MOST_PORT:
        raise ValueError(
            f"{text!r:.80} is no address such as :8082 or 127.0.0.1:8082 (0 serves nothing)"
        )
    return ListenAddress(found[1] or found[2], int(found[3]))
