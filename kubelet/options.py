"""The flags of the kubelet, validated once.

Source: docs/parity.md § 5.1, those that concern this process.
"""

import argparse
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apis import keys, networks, reflection
from apis.networks import ListenAddress, Network, Remap
from apis.offloading import ReflectionPolicy
from apis.reflection import AWAITED, ReflectedKind
from kube import flags
from kubelet.pods.apiserver import ApiServer


@dataclass(frozen=True)
class KubeletOptions:
    """What the process was told; ``pod_name`` is its identity in elections."""

    node_name: str
    tenant_namespace: str
    home_cluster_id: str
    foreign_cluster_id: str
    kubeconfig_secret: str
    node_ip: str
    listen_port: int
    create_node: bool
    lease_s: int
    ping_interval_s: float
    ping_timeout_s: float
    ping_failures: int
    ping_successes: int
    extra_labels: dict[str, str]
    extra_annotations: dict[str, str]
    hidden_labels: tuple[str, ...]
    hidden_annotations: tuple[str, ...]
    api_server: ApiServer
    remap: Remap
    pod_networks: tuple[Network, ...]
    """In which the provider's pods are, where no IP fabric translates their addresses."""
    own_networks: tuple[str, ...]
    has_fabric: bool
    hides_ips: bool
    workers: int
    policies: Mapping[str, ReflectionPolicy | None]
    """Of what pods read, by the kind's name in ``apis.reflection``; None where it stays here."""
    health_port: int
    metrics_address: ListenAddress | None
    kubeconfig: Path | None


def parse(argv: Sequence[str] | None) -> KubeletOptions:
    """Return the settings that ``argv`` gives; it ends the process with 2 if they make no sense."""
    parser = _parser()
    options = parser.parse_args(argv)
    return KubeletOptions(
        node_name=options.nodename,
        tenant_namespace=options.tenant_namespace,
        home_cluster_id=options.home_cluster_id,
        foreign_cluster_id=options.foreign_cluster_id,
        kubeconfig_secret=options.foreign_kubeconfig_secret_name,
        node_ip=options.node_ip,
        listen_port=options.listen_port,
        create_node=options.create_node,
        lease_s=max(4, round(options.node_lease_duration)),
        ping_interval_s=options.node_ping_interval,
        ping_timeout_s=options.node_ping_timeout,
        ping_failures=options.node_ping_failures,
        ping_successes=options.node_ping_successes,
        extra_labels=options.node_extra_labels,
        extra_annotations=options.node_extra_annotations,
        hidden_labels=tuple(options.labels_not_reflected),
        hidden_annotations=tuple(options.annotations_not_reflected),
        api_server=ApiServer(
            options.enable_apiserver_support,
            options.home_api_server_host,
            options.home_api_server_port,
            tuple(options.home_api_server_ip),
        ),
        remap=_remap(parser, options),
        pod_networks=tuple(options.pod_network),
        own_networks=tuple(options.own_network),
        has_fabric=options.ip_fabric,
        hides_ips=options.disable_ip_reflection,
        workers=options.pod_reflection_workers,
        policies={row.name: _policy(options, row) for row in AWAITED},
        health_port=options.health_port,
        metrics_address=options.metrics_address,
        kubeconfig=options.kubeconfig,
    )


def _policy(options: argparse.Namespace, row: ReflectedKind) -> ReflectionPolicy | None:
    has_workers = getattr(options, f"{row.name}_reflection_workers") > 0
    found: ReflectionPolicy = getattr(options, f"{row.name}_reflection_type")
    return found if has_workers else None


def _remap(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Remap:
    """Return by which addresses pods there are reached: pod networks first, then external ones."""
    try:
        return Remap(
            (
                *networks.remap_of_networks(
                    options.remote_pod_cidr, options.remote_pod_cidr_remap
                ).pairs,
                *networks.remap_of_networks(
                    options.remote_external_cidr, options.remote_external_cidr_remap
                ).pairs,
            )
        )
    except ValueError as error:
        parser.error(f"--remote-*-cidr and --remote-*-cidr-remap: {error}")


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubelet",
        description="One virtual node: its Node, its pods on the provider, and the kubelet API.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    flags.add_virtual_node(parser, health_port=8081)
    _add_node(parser)
    _add_api_server(parser)
    _add_addresses(parser)
    flags.add_kinds(parser, AWAITED)
    parser.add_argument(
        "--pod-reflection-workers",
        type=int,
        default=reflection.POD_WORKERS,
        help="pods looked at together",
    )
    return parser


def _add_api_server(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--enable-apiserver-support",
        **flags.SWITCH,
        default=False,
        help="give offloaded pods the tokens of their service accounts here",
    )
    add("--home-api-server-host", default="", help="where those pods reach our API server")
    add("--home-api-server-port", type=int, default=443, help="its port there")
    add(
        "--home-api-server-ip",
        action="append",
        default=[],
        type=address,
        metavar="IP",
        help="where an IP fabric shows it, several; used without --home-api-server-host",
    )


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ip-fabric",
        **flags.SWITCH,
        default=False,
        help="pods are reached as the Configuration of networking.liqo.io in the tenant namespace "
        "says; while there is none, as the flags below say, and without them nobody is told",
    )
    parser.add_argument(
        "--pod-network",
        action="append",
        default=[],
        type=network,
        metavar="CIDR",
        help="of the provider's pods, several; without a fabric no address outside is published",
    )
    parser.add_argument(
        "--own-network",
        action="append",
        default=[],
        metavar="CIDR",
        help="of this cluster's pods or Services, several: no address in one is published",
    )
    for kind in ("pod", "external"):
        for what, text in (("", "as the provider calls it"), ("-remap", "as it is reached here")):
            parser.add_argument(
                f"--remote-{kind}-cidr{what}",
                action="append",
                default=[],
                metavar="CIDR",
                help=f"{kind} network of the provider, {text}; several, in the same order",
            )


def _add_node(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--create-node", **flags.SWITCH, default=True, help="make a Node")
    add("--node-ip", type=address, default="", help="InternalIP of the Node: this pod's IP")
    add("--listen-port", type=int, default=keys.KUBELET_PORT, help="port of the kubelet API")
    add("--node-lease-duration", type=flags.duration, default=40.0, help="renewed four times in it")
    add("--node-ping-interval", type=flags.duration, default=10.0, help="0 never pings it")
    add("--node-ping-timeout", type=flags.duration, default=1.0, help="of one ping")
    add("--node-ping-failures", type=int, default=3, help="in a row, before the Node is NotReady")
    add("--node-ping-successes", type=int, default=2, help="in a row, before it is Ready again")
    add(
        "--node-check-network",
        **flags.SWITCH,
        default=True,
        help="accepted, and without effect: pyliqo makes no network between clusters",
    )
    add("--node-extra-labels", type=flags.pairs, default={}, help="key=value,... on the Node")
    add("--node-extra-annotations", type=flags.pairs, default={}, help="key=value,... on the Node")
