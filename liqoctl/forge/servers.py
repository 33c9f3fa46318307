"""Whether the API server and the proxy that a provider announces may be used. Pure.

What is stored at peering, the consumer's controllers connect to from inside its network, with its
certificate. Source: docs/parity.md SEC-B4; H19; docs/decisions/0013 (12).
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from apis import addresses
from apis.addresses import Address

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

SERVER_FLAG: Final = "--provider-server"
PROXY_FLAG: Final = "--proxy-url"
_PORTS: Final = {"https": 443, "http": 80}


class Verdict(Enum):
    """What is to be done about what a provider announces."""

    OK = "ok"
    ASK = "ask"
    REFUSE = "refuse"


class Judged(NamedTuple):
    """A verdict; where it is not OK, why, and the flag that would name what is announced."""

    verdict: Verdict
    why: str = ""
    flag: str = ""


@dataclass(frozen=True)
class Entrance:
    """Where one gets in: URLs, the proxy's empty for none."""

    server: str
    proxy: str = ""


@dataclass(frozen=True)
class Consumer:
    """What the consumer knows: its administrator's word, and its own addresses."""

    kubeconfig: Entrance
    """Of the provider, in the administrator's hand."""
    named: Entrance
    """By flags; empty without one."""
    own: frozenset[str] = frozenset()
    """Addresses of its nodes and API servers."""
    networks: tuple[str, ...] = ()
    """Of its pods and Services."""
    resolved: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """The addresses of the names that are announced, as this machine resolves them."""


def judge(announced: Entrance, consumer: Consumer) -> Judged:
    """Return whether the consumer's controllers may connect to what is ``announced``."""
    found = [
        _one(SERVER_FLAG, "API server", announced.server, consumer),
        _one(PROXY_FLAG, "proxy", announced.proxy, consumer),
    ]
    order = [Verdict.REFUSE, Verdict.ASK, Verdict.OK]
    return min(found, key=lambda each: order.index(each.verdict))


def host(url: str) -> str:
    """Return the host of ``url``; empty where it has none, or cannot be read."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _one(flag: str, what: str, url: str, consumer: Consumer) -> Judged:
    known, named = (
        each.server if flag == SERVER_FLAG else each.proxy
        for each in (consumer.kubeconfig, consumer.named)
    )
    if (not url and flag == PROXY_FLAG) or (known and _place(url) == _place(known)):
        return Judged(Verdict.OK)
    said = f"the {what} that the provider announces is {url or 'none'!r}"
    if not host(url):
        return Judged(Verdict.REFUSE, f"{said}, which names no host", flag)
    is_named = bool(named) and _place(url) == _place(named)
    if reason := _refusal(url, consumer, () if is_named else consumer.networks):
        return Judged(Verdict.REFUSE, f"{said}, {reason}", flag)
    if is_named:
        return Judged(Verdict.OK)
    return Judged(Verdict.ASK, f"{said}, that of the kubeconfig is {known or 'none'!r}", flag)


def _place(url: str) -> tuple[str, str, int | None, str]:
    """Return what two URLs of one server have in common."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return (url, "", None, "")
    return parts.scheme, (parts.hostname or "").rstrip("."), port, parts.path.rstrip("/")


def _refusal(url: str, consumer: Consumer, networks: Iterable[str]) -> str:
    """Return why no consumer should connect there; empty if it may."""
    name = host(url)
    found = [*consumer.resolved.get(name, ()), name]
    if name == "localhost" or name.endswith(".localhost"):
        return "the machine itself"
    own = {_address(each) for each in consumer.own} - {None}
    closed = list(_networks(networks))
    named = [parsed for each in found if (parsed := _address(each))]
    for address in [end for each in named for end in addresses.reached(each)]:
        if reason := _special(address):
            return reason
        if address in own:
            return "a node or an API server of the consumer"
        if any(address in network for network in closed):
            return "inside the consumer's pod or Service networks"
    return ""


def _special(address: Address) -> str:
    if address.is_loopback or address.is_unspecified:
        return "the machine itself"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    return "an address that no server has" if addresses.is_special(address) else ""


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _networks(texts: Iterable[str]) -> Iterable[Network]:
    for text in texts:
        try:
            yield ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue
