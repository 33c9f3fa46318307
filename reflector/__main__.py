"""The container ``reflector`` of the pod ``vk-<virtualnode>``: flags, clusters, one leader."""

import argparse
import functools
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from apis import keys, reflection
from apis.leaving import Filter
from apis.objects import Key, Kind
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ENDPOINT_SLICE, KINDS, Reflected
from kube import client, peer, process
from kube.cluster import Cluster
from kube.events import Recorder
from kube.fence import FencedCluster
from kube.lease import Election
from kube.process import Process
from reflector.forge import custom
from reflector.forge.contract import Settings as TwinSettings
from reflector.kinds import FORGES
from reflector.namespaces import Identity, KindLoop, Namespaces, Rules

NAME: Final = "reflector"
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
    workers: dict[str, int] = field(default_factory=dict)
    """By the kind's name in ``apis.reflection``, as the policies."""
    policies: dict[str, Policy] = field(default_factory=dict)
    twins: TwinSettings = field(default_factory=TwinSettings)
    custom: tuple[Reflected, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Reflect until a signal ends it; return the exit status."""
    given = settings(argv, instance=os.environ.get("POD_NAME", ""))
    shown = {field.name: str(getattr(given, field.name)) for field in fields(given)}
    work = functools.partial(_main, given)
    return process.run(work, name=NAME, health_port=given.health_port, settings=shown)


async def _main(settings: Settings, process_: Process) -> None:
    agent = f"pyliqo-{NAME}/{importlib.metadata.version('pyliqo')}"
    connected: list[Cluster] = []
    process_.health.ready_when("peer", lambda: bool(connected))
    async with (
        client.connect(settings.kubeconfig, user_agent=agent) as home,
        peer.follow(home, settings.secret, user_agent=agent) as foreign,
    ):
        connected.append(foreign)
        lease = Key(settings.identity.tenant_namespace, keys.REFLECTOR_LEASE)
        election = Election(home, lease, settings.instance)
        fenced = [FencedCluster(each, lambda: election.is_leader) for each in (home, foreign)]
        await election.lead(functools.partial(_reflect, settings, process_, *fenced))


async def _reflect(settings: Settings, process_: Process, home: Cluster, foreign: Cluster) -> None:
    """Reflect while we lead: nobody else does for this provider."""
    loops, recorders = _loops(settings, home)
    namespaces = Namespaces(settings.identity, loops, home, foreign)
    process_.health.ready_when("namespaces", namespaces.maps.synced.is_set)
    process_.health.alive_when("workers", namespaces.is_alive)
    try:
        await namespaces.run(*(recorder.run() for recorder in recorders))
    finally:
        process_.health.ready_when("namespaces", lambda: True)  # who stands by is ready too
        process_.health.alive_when("workers", lambda: True)


def _loops(settings: Settings, home: Cluster) -> tuple[list[KindLoop], list[Recorder]]:
    loops, recorders = [], []
    forges = FORGES | {row: custom.forge(row) for row in settings.custom}
    for row, forge in forges.items():
        if workers := settings.workers.get(row.name, row.workers):
            recorder = Recorder(home, f"liqo-{row.name}-reflection", settings.instance)
            rules = Rules(settings.policies.get(row.like or row.name, row.default), settings.twins)
            tell = functools.partial(recorder.event, row.kind) if row.is_outward else _tell_nobody
            loops.append(KindLoop(forge, rules, tell, workers))
            recorders.append(recorder)
    return loops, recorders


def _tell_nobody(*_: object) -> None:
    """What is wrong with what comes home is no matter of its author, who is on the provider."""


def settings(argv: Sequence[str] | None, *, instance: str) -> Settings:
    """Return what the flags ``argv`` say; ``instance`` is the pod, by default the node."""
    given = _parser().parse_args(argv)
    identity = Identity(given.home_cluster_id, given.foreign_cluster_id, given.tenant_namespace)
    hidden = Filter(_items(given.labels_not_reflected), _items(given.annotations_not_reflected))
    return Settings(
        nodename=given.nodename,
        identity=identity,
        secret=Key(given.tenant_namespace, given.foreign_kubeconfig_secret_name),
        instance=instance or given.nodename,
        kubeconfig=given.kubeconfig,
        health_port=given.health_port,
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
        ),
        custom=tuple(given.custom_resource),
    )


def _workers(given: argparse.Namespace) -> dict[str, int]:
    workers = {row.name: getattr(given, f"{row.name}_reflection_workers") for row in KINDS}
    return workers | ({ENDPOINT_SLICE.name: 0} if given.disable_ip_reflection else {})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        description="Keep what the pods of offloaded namespaces need on a provider as it is "
        "here. Of all virtual nodes of a provider one does, by Lease.",
    )
    add = parser.add_argument
    add("--nodename", required=True, help="name of the virtual node")
    add("--tenant-namespace", required=True, help="where the VirtualNode and its Secret are")
    add("--liqo-namespace", default=keys.LIQO_NAMESPACE, help="where pyliqo is installed")
    add("--home-cluster-id", required=True, help="cluster ID of this cluster")
    add("--foreign-cluster-id", required=True, help="cluster ID of the provider")
    add(
        "--foreign-kubeconfig-secret-name",
        required=True,
        help="Secret in the tenant namespace with the kubeconfig for the provider",
    )
    add(
        "--kubeconfig",
        "--home-kubeconfig",
        type=Path,
        default=os.environ.get("KUBECONFIG"),
        help="kubeconfig of this cluster; in a pod its service account",
    )
    add("--health-port", type=int, default=HEALTH_PORT, help="of /healthz /readyz /metrics")
    _add_kinds(parser)
    _add_twins(parser)
    return parser


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    for row in KINDS:
        parser.add_argument(
            f"--{row.name}-reflection-workers",
            type=_count,
            default=row.workers,
            help=f"how many {row.name}s at once, 0 for none at all (default {row.workers})",
        )
        if row.is_configurable:
            names = ", ".join(policy.value for policy in row.policies)
            parser.add_argument(
                f"--{row.name}-reflection-type",
                type=functools.partial(_policy, row),
                default=row.default,
                help=f"which {row.name}s: {names} (default {row.default.value})",
            )


def _add_twins(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    switch: dict[str, Any] = {"type": _switch, "nargs": "?", "const": True, "default": False}
    add("--enable-load-balancer", **switch, help="set the class of load balancers")
    add("--remote-real-load-balancer-class-name", default="", help="their class on the provider")
    add("--enable-ingress", **switch, help="set the class of Ingresses")
    add("--remote-real-ingress-class-name", default="", help="their class on the provider")
    add("--enable-storage", **switch, help="let claims of the virtual class be fulfilled there")
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
    add("--disable-ip-reflection", **switch, help="reflect no EndpointSlices")
    several: dict[str, Any] = {"action": "append", "default": [], "metavar": "KEY,..."}
    add("--labels-not-reflected", **several, help="labels that stay here")
    add("--annotations-not-reflected", **several, help="annotations that stay here")


def _policy(row: Reflected, text: str) -> Policy:
    names = [policy.value for policy in row.policies]
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
    return Policy(text)


def _custom(text: str) -> Reflected:
    resource, version, kind, *policy = f"{text}//".split("/")[:4]
    plural, _, group = resource.partition(".")
    if not (plural and group and version and kind):
        raise argparse.ArgumentTypeError(f"{text!r} is not PLURAL.GROUP/VERSION/KIND[/TYPE]")
    row = reflection.custom(Kind(group, version, kind, plural))
    chosen = next(filter(None, policy), "")
    return reflection.custom(row.kind, _policy(row, chosen)) if chosen else row


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)


def _items(texts: Sequence[str]) -> frozenset[str]:
    return frozenset(part.strip() for text in texts for part in text.split(",") if part.strip())


if __name__ == "__main__":
    sys.exit(main())
