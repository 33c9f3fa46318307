"""The flags of the reflector, validated once.

Source: docs/parity.md § 5.1, those that concern this process.
"""

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from apis import keys, reflection
from apis.networks import ListenAddress
from apis.objects import Key
from apis.offloading import CustomResource
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ENDPOINT_SLICE, KINDS, ReflectedKind
from apis.reflectionpolicy import MetadataFilter
from kube import flags
from reflector.kinds.contract import RemoteObjectOptions as TwinSettings
from reflector.namespaces import Identity

HEALTH_PORT: Final = 8082


@dataclass(frozen=True)
class Settings:
    """What the flags say."""

    nodename: str
    identity: Identity
    secret: Key
    instance: str
    """Of this pod; a container that restarts resumes its own lease."""
    kubeconfig: Path | None = None
    health_port: int = HEALTH_PORT
    metrics_address: ListenAddress | None = None
    workers: dict[str, int] = field(default_factory=dict)
    """By the kind's name in ``apis.reflection``, as the policies."""
    policies: dict[str, Policy] = field(default_factory=dict)
    twins: TwinSettings = field(default_factory=TwinSettings)
    custom: tuple[ReflectedKind, ...] = ()


def parse(argv: Sequence[str] | None, *, instance: str) -> Settings:
    """Return what the flags ``argv`` say; ``instance`` is the pod, by default the node."""
    given = _parser().parse_args(argv)
    identity = Identity(given.home_cluster_id, given.foreign_cluster_id, given.tenant_namespace)
    hidden = MetadataFilter(
        frozenset(given.labels_not_reflected), frozenset(given.annotations_not_reflected)
    )
    return Settings(
        nodename=given.nodename,
        identity=identity,
        secret=Key(given.tenant_namespace, given.foreign_kubeconfig_secret_name),
        instance=instance or given.nodename,
        kubeconfig=given.kubeconfig,
        health_port=given.health_port,
        metrics_address=given.metrics_address,
        workers=_workers(given),
        policies={
            row.name: getattr(given, f"{row.name}_reflection_type", row.default) for row in KINDS
        },
        twins=TwinSettings(
            hidden,
            enable_load_balancer=given.enable_load_balancer,
            load_balancer_class=given.remote_real_load_balancer_class_name,
            enable_ingress=given.enable_ingress,
            ingress_class=given.remote_real_ingress_class_name,
            enable_storage=given.enable_storage,
            storage_class=given.remote_real_storage_class_name,
            virtual_storage_class=given.virtual_storage_class_name,
            local_pods=tuple(given.local_podcidr),
        ),
        custom=tuple(given.custom_resource),
    )


def _workers(given: argparse.Namespace) -> dict[str, int]:
    workers = {row.name: getattr(given, f"{row.name}_reflection_workers") for row in KINDS}
    return workers | ({ENDPOINT_SLICE.name: 0} if given.disable_ip_reflection else {})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reflector",
        description="Keep what the pods of offloaded namespaces need on a provider as it is "
        "here. Of all virtual nodes of a provider one does, by Lease.",
    )
    flags.add_virtual_node(parser, health_port=HEALTH_PORT)
    flags.add_kinds(parser, KINDS)
    _add_twins(parser)
    return parser


def _add_twins(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    switch: dict[str, Any] = {**flags.SWITCH, "default": False}
    add("--enable-load-balancer", **switch, help="set the class of load balancers")
    add("--remote-real-load-balancer-class-name", default="", help="their class on the provider")
    add("--enable-ingress", **switch, help="set the class of Ingresses")
    add("--remote-real-ingress-class-name", default="", help="their class on the provider")
    add("--enable-storage", **switch, help="where a virtual node does not say itself")
    add("--remote-real-storage-class-name", default="", help="their class on the provider")
    add("--virtual-storage-class-name", default=keys.VIRTUAL_STORAGE_CLASS, help="here")
    add(
        "--custom-resource",
        action="append",
        default=[],
        type=_custom,
        metavar="PLURAL.GROUP/VERSION/KIND[/TYPE]",
        help="reflect these too, their status back; rights for them are granted separately",
    )
    add(
        "--local-podcidr",
        action="append",
        default=[],
        type=ipaddress.ip_network,
        metavar="CIDR",
        help="network of pods here, several: an IP fabric joins the clusters, and other "
        "addresses are reached as the IP objects of ipam.liqo.io say",
    )


def _custom(text: str) -> ReflectedKind:
    resource, version, kind, *policy = f"{text}//".split("/")[:4]
    plural, _, group = resource.partition(".")
    if not (plural and version and kind):
        raise argparse.ArgumentTypeError(f"{text!r} is not PLURAL.GROUP/VERSION/KIND[/TYPE]")
    try:
        row = reflection.opted_in(CustomResource(group, version, kind, plural))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    chosen = next(filter(None, policy), "")
    return reflection.custom(row.kind, flags.policy(row, chosen)) if chosen else row
