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
    what = name.removeprefix("--node-extra-")
    return flag(f"{what} of the Node: key=value,...", name, type=flags.pairs, default={})


def _remote(kind: str, what: str, text: str) -> Any:
    about = f"{kind} network of the provider, {text}; may be repeated, both in the same order"
    return flag(about, f"--remote-{kind}-cidr{what}", action="append", metavar="CIDR")


@dataclass(frozen=True, kw_only=True)
class KubeletOptions(flags.VirtualNodeFlags):
    """What the flags say."""

    health_port: int = flags.health(8081)
    create_node: bool = flag("create the Node", "--create-node", **SWITCH, default=True)
    node_ip: str = flag(
        "InternalIP of the Node: the IP of this pod", "--node-ip", type=address, default=""
    )
    listen_port: int = flag(
        "port of the kubelet API", "--listen-port", type=int, default=keys.KUBELET_PORT
    )
    lease_duration_s: float = flag(
        "validity of the node's Lease, which is renewed four times in it",
        "--node-lease-duration",
        type=flags.duration,
        default=40.0,
    )
    ping_interval_s: float = flag(
        "time between two pings of the provider's API server; 0 never pings it",
        "--node-ping-interval",
        type=flags.duration,
        default=10.0,
    )
    ping_timeout_s: float = flag(
        "time limit of one ping", "--node-ping-timeout", type=flags.duration, default=1.0
    )
    ping_failures: int = flag(
        "consecutive failed pings after which the Node is NotReady",
        "--node-ping-failures",
        type=int,
        default=3,
    )
    ping_successes: int = flag(
        "consecutive successful pings after which the Node is Ready again",
        "--node-ping-successes",
        type=int,
        default=2,
    )
    checks_network: bool = flag(
        "accepted without effect: pyliqo creates no network between clusters",
        "--node-check-network",
        **SWITCH,
        default=True,
    )
    extra_labels: dict[str, str] = _on_the_node("--node-extra-labels")
    extra_annotations: dict[str, str] = _on_the_node("--node-extra-annotations")
    supports_api_server: bool = flag(
        "give offloaded pods tokens of their service accounts in the consumer",
        "--enable-apiserver-support",
        **SWITCH,
        default=False,
    )
    api_server_host: str = flag(
        "host by which those pods reach the consumer's API server",
        "--home-api-server-host",
        default="",
    )
    api_server_port: int = flag(
        "port by which those pods reach it", "--home-api-server-port", type=int, default=443
    )
    api_server_ips: tuple[str, ...] = flag(
        "address of it in an IP fabric, used without --home-api-server-host; may be repeated",
        "--home-api-server-ip",
        action="append",
        type=address,
        metavar="IP",
    )
    has_fabric: bool = flag(
        "remap addresses of pods by the Configuration (networking.liqo.io) of the tenant "
        "namespace, or by the flags below without it; with neither no address is published",
        "--ip-fabric",
        **SWITCH,
        default=False,
    )
    pod_networks: tuple[Network, ...] = flag(
        "pod network of the provider; without a fabric no other address is published; may be "
        "repeated",
        "--pod-network",
        action="append",
        type=network,
        metavar="CIDR",
    )
    own_networks: tuple[str, ...] = flag(
        "network of the consumer's pods or Services, none of whose addresses is published; may be "
        "repeated",
        "--own-network",
        action="append",
        metavar="CIDR",
    )
    remote_pod_cidrs: tuple[str, ...] = _remote("pod", "", "as the provider calls it")
    remote_pod_remaps: tuple[str, ...] = _remote("pod", "-remap", "as the consumer reaches it")
    remote_external_cidrs: tuple[str, ...] = _remote("external", "", "as the provider calls it")
    remote_external_remaps: tuple[str, ...] = _remote(
        "external", "-remap", "as the consumer reaches it"
    )
    workers: int = flag(
        "workers that reconcile pods",
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
        prog="python3 -m kubelet",
        description="Runs one virtual node: its Node, its pods on the provider, the kubelet API.",
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
