"""The flags of the kubelet, validated once.

Source: docs/parity.md § 5.1, those that concern this process.
"""

import argparse
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apis import keys, networks, reflection
from apis.networks import Network, Remap
from apis.offloading import ReflectionPolicy
from apis.reflection import AWAITED, ReflectedKind
from kube import flags
from kube.flags import SWITCH, flag
from kubelet.pods.apiserver import ApiServer


def address(text: str) -> str:
    """Return ``text`` if it is an IP address, or empty."""
    try:
        return text and str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IP address") from None


def network(text: str) -> Network:
    (found, wrong) = networks.parse_pod_networks(text)
    if wrong or len(found) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no network such as 10.1.0.0/16")
    return found[0]


def _on_the_node(name: str) -> Any:
    return flag("key=value,... on the Node", name, type=flags.pairs, default={})


def _remote(kind: str, what: str, text: str) -> Any:
    about = f"{kind} network of the provider, {text}; several, in the same order"
    return flag(about, f"--remote-{kind}-cidr{what}", action="append", metavar="CIDR")


@dataclass(frozen=True, kw_only=True)
class KubeletOptions(flags.VirtualNodeFlags):
    """What the flags say."""

    health_port: int = flags.health(8081)
    create_node: bool = flag("make a Node", "--create-node", **SWITCH, default=True)
    node_ip: str = flag(
        "InternalIP of the Node: this pod's IP", "--node-ip", type=address, default=""
    )
    listen_port: int = flag(
        "port of the kubelet API", "--listen-port", type=int, default=keys.KUBELET_PORT
    )
    lease_duration_s: float = flag(
        "renewed four times in it", "--node-lease-duration", type=flags.duration, default=40.0
    )
    ping_interval_s: float = flag(
        "0 never pings it", "--node-ping-interval", type=flags.duration, default=10.0
    )
    ping_timeout_s: float = flag(
        "of one ping", "--node-ping-timeout", type=flags.duration, default=1.0
    )
    ping_failures: int = flag(
        "in a row, before the Node is NotReady", "--node-ping-failures", type=int, default=3
    )
    ping_successes: int = flag(
        "in a row, before it is Ready again", "--node-ping-successes", type=int, default=2
    )
    checks_network: bool = flag(
        "accepted, and without effect: pyliqo makes no network between clusters",
        "--node-check-network",
        **SWITCH,
        default=True,
    )
    extra_labels: dict[str, str] = _on_the_node("--node-extra-labels")
    extra_annotations: dict[str, str] = _on_the_node("--node-extra-annotations")
    supports_api_server: bool = flag(
        "give offloaded pods the tokens of their service accounts here",
        "--enable-apiserver-support",
        **SWITCH,
        default=False,
    )
    api_server_host: str = flag(
        "where those pods reach our API server", "--home-api-server-host", default=""
    )
    api_server_port: int = flag("its port there", "--home-api-server-port", type=int, default=443)
    api_server_ips: tuple[str, ...] = flag(
        "where an IP fabric shows it, several; used without --home-api-server-host",
        "--home-api-server-ip",
        action="append",
        type=address,
        metavar="IP",
    )
    has_fabric: bool = flag(
        "pods are reached as the Configuration of networking.liqo.io in the tenant namespace "
        "says; while there is none, as the flags below say, and without them nobody is told",
        "--ip-fabric",
        **SWITCH,
        default=False,
    )
    pod_networks: tuple[Network, ...] = flag(
        "of the provider's pods, several; without a fabric no address outside is published",
        "--pod-network",
        action="append",
        type=network,
        metavar="CIDR",
    )
    own_networks: tuple[str, ...] = flag(
        "of this cluster's pods or Services, several: no address in one is published",
        "--own-network",
        action="append",
        metavar="CIDR",
    )
    remote_pod_cidrs: tuple[str, ...] = _remote("pod", "", "as the provider calls it")
    remote_pod_remaps: tuple[str, ...] = _remote("pod", "-remap", "as it is reached here")
    remote_external_cidrs: tuple[str, ...] = _remote("external", "", "as the provider calls it")
    remote_external_remaps: tuple[str, ...] = _remote("external", "-remap", "as it is reached here")
    workers: int = flag(
        "pods looked at together",
        "--pod-reflection-workers",
        type=int,
        default=reflection.POD_WORKERS,
    )
    policies: Mapping[str, ReflectionPolicy | None]
    """Of what pods read, by the kind's name in ``apis.reflection``; None where it stays here."""

    @property
    def lease_s(self) -> int:
        return max(4, round(self.lease_duration_s))

    @property
    def api_server(self) -> ApiServer:
        return ApiServer(
            self.supports_api_server,
            self.api_server_host,
            self.api_server_port,
            self.api_server_ips,
        )

    @property
    def remap(self) -> Remap:
        """Return by which addresses pods there are reached: pod networks before external ones.

        Raises:
            ValueError: the networks and what they are reached by do not fit each other.
        """
        pods = networks.remap_of_networks(self.remote_pod_cidrs, self.remote_pod_remaps)
        others = networks.remap_of_networks(self.remote_external_cidrs, self.remote_external_remaps)
        return Remap((*pods.pairs, *others.pairs))


def parse(argv: Sequence[str] | None) -> KubeletOptions:
    """Return what ``argv`` says; it ends the process with 2 if that makes no sense."""
    parser = argparse.ArgumentParser(
        prog="kubelet",
        description="One virtual node: its Node, its pods on the provider, and the kubelet API.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    flags.add(parser, KubeletOptions, os.environ)
    flags.add_kinds(parser, AWAITED)
    given = vars(parser.parse_args(argv))
    chosen = flags.taken(KubeletOptions, given)
    options = KubeletOptions(**chosen, policies={row.name: _policy(given, row) for row in AWAITED})
    try:
        options.remap  # noqa: B018  # whether it can be had
    except ValueError as error:
        parser.error(f"--remote-*-cidr and --remote-*-cidr-remap: {error}")
    return options


def _policy(given: Mapping[str, Any], row: ReflectedKind) -> ReflectionPolicy | None:
    has_workers = given[f"{row.name}_reflection_workers"] > 0
    found: ReflectionPolicy = given[f"{row.name}_reflection_type"]
    return found if has_workers else None
