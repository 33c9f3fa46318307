"""The flags of the controllers, validated once."""

import argparse
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from apis import keys
from apis.listening import Address
from controllers.granting.grants.forge import flags
from controllers.granting.grants.forge.grants import GrantDefaults
from controllers.manager import Limits
from kube import flags as shared
from kube import process


@dataclass(frozen=True)
class Settings:
    """What the flags and the environment say."""

    kubeconfig: Path | None
    namespace: str
    identity: str
    health_port: int
    metrics_address: Address | None
    leader_elect: bool
    address: str
    ca: Path | None
    is_trusted: bool
    limits: Limits
    standard: GrantDefaults


def parse(argv: Sequence[str] | None, environment: Mapping[str, str]) -> Settings:
    """Return what ``argv`` and the environment say; end the process with 2 if it is nonsense."""
    given = vars(_parser(environment).parse_args(argv))
    limits = Limits(**{each.name: given.pop(each.name) for each in fields(Limits)})
    standard = GrantDefaults(**{each.name: given.pop(each.name) for each in fields(GrantDefaults)})
    identity = environment.get("POD_NAME") or socket.gethostname()
    return Settings(identity=identity, limits=limits, standard=standard, **given)


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m controllers", description="All cluster-wide loops of one cluster."
    )
    _add_surroundings(parser, environment)
    _add_loops(parser)
    _add_entrance(parser)
    _add_grants(parser)
    return parser


def _add_surroundings(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Add where this process is, and how it shows that it works."""
    kubeconfig = environment.get("KUBECONFIG")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=Path(kubeconfig) if kubeconfig else None,
        help="default: $KUBECONFIG, else the service account of this pod",
    )
    parser.add_argument(
        "--liqo-namespace",
        dest="namespace",
        default=environment.get("POD_NAMESPACE", keys.LIQO_NAMESPACE),
        help="where the cluster ID, the default template and the lease are (default: %(default)s)",
    )
    parser.add_argument("--health-port", type=int, default=process.HEALTH_PORT)
    shared.add_metrics(parser)
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only one of several replicas works at a time",
    )


def _add_loops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shadow-pod-ctrl-workers", dest="shadow_pod_workers", type=_count, default=10
    )
    parser.add_argument(
        "--workers",
        type=_count,
        default=2,
        help="of every other loop; of NamespaceOffloadings 16 or more (default: %(default)s)",
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        dest="is_enforced",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="create Pods only for what the Quota of a ShadowPod's user has booked (%(default)s)",
    )
    parser.add_argument(
        "--enable-node-failure-controller",
        dest="is_node_failure_handled",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="delete Pods by force that end on a node that is not Ready (%(default)s)",
    )
    parser.add_argument(
        "--cluster-profiles",
        dest="makes_profiles",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="keep a ClusterProfile (multicluster.x-k8s.io) for each peer (%(default)s)",
    )
    parser.add_argument(
        "--real-storage-class-name",
        dest="real_storage_class",
        default="",
        help="of claims of the class liqo on this cluster's nodes (default: the default class)",
    )
    parser.add_argument(
        "--service-cidr",
        dest="service_cidrs",
        type=_networks,
        default=(),
        metavar="NETWORK,...",
        help="of this cluster's Services, which no consumer's endpoint may be in; ServiceCIDRs, "
        "which Kubernetes 1.33 and later have, need no flag",
    )
    parser.add_argument(
        "--pod-cidr",
        dest="pod_cidrs",
        type=_networks,
        default=(),
        metavar="NETWORK,...",
        help="of this cluster's pods, for peers (default: the podCIDRs of its Nodes)",
    )
    parser.add_argument(
        "--ip-fabric",
        dest="has_fabric",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="consumers' endpoints are reached as the Configurations of networking.liqo.io say",
    )


def _add_entrance(parser: argparse.ArgumentParser) -> None:
    """Add where peers find this cluster's API server, and what they verify it by."""
    parser.add_argument(
        "--api-server-address-override",
        dest="address",
        default="",
        help="where peers reach this cluster's API server (default: a control-plane node, 6443)",
    )
    parser.add_argument(
        "--ca-override",
        dest="ca",
        type=Path,
        help="file with the CA that peers verify it by (default: that of this process)",
    )
    parser.add_argument(
        "--trusted-ca",
        dest="is_trusted",
        action="store_true",
        help="its certificate is publicly trusted: peers are given no CA",
    )


def _add_grants(parser: argparse.ArgumentParser) -> None:
    """Add what consumers are granted where no ProviderPolicy says otherwise."""
    parser.add_argument(
        "--default-node-resources",
        dest="resources",
        type=flags.resources,
        default=GrantDefaults().resources,
        metavar="NAME=AMOUNT,...",
        help="what a slice of class default gets that names nothing (4 CPUs, 8Gi, 110 pods, ...)",
    )
    parser.add_argument(
        "--default-resource-slice-class-enabled",
        dest="is_default_class_enabled",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="serve the class default (%(default)s)",
    )
    parser.add_argument(
        "--default-limits-enforcement",
        dest="limits_enforcement",
        type=flags.enforcement,
        default="None",
        help="what Quotas ask of containers: None, Soft or Hard (default: %(default)s)",
    )
    parser.add_argument(
        "--cluster-labels",
        type=flags.labels,
        default={},
        metavar="KEY=VALUE,...",
        help="labels suggested for the consumers' nodes",
    )
    for kind in ("ingress", "load-balancer"):
        parser.add_argument(
            f"--{kind}-classes",
            type=flags.classes,
            default=(),
            metavar="NAME[;default],...",
            help=f"{kind} classes offered to consumers",
        )


def _networks(text: str) -> tuple[str, ...]:
    parts = tuple(part for part in text.split(",") if part)
    for part in parts:
        try:
            ipaddress.ip_network(part)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{part!r} is no network: {error}") from error
    return parts


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number
