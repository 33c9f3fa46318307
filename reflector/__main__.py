"""The container ``reflector`` of the pod ``vk-<virtualnode>``: flags, clusters, one leader."""

import argparse
import functools
import ipaddress
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from apis import keys, reflection, reflectionpolicy
from apis.networks import ListenAddress
from apis.objects import Key
from apis.offloading import CustomResource
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ENDPOINT_SLICE, KINDS, ReflectedKind
from apis.reflectionpolicy import MetadataFilter
from certs import metricsserver
from kube import client, flags, peer, process
from kube.cluster import Cluster, LeaderOnlyCluster
from kube.events import EventRecorder
from kube.lease import Election
from kube.process import Process
from kube.reachability import Reachability
from reflector.kinds import configuration
from reflector.kinds.contract import RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, ReflectorIdentity, Rules

NAME: Final = "reflector"
HEALTH_PORT: Final = 8082


@dataclass(frozen=True)
class ReflectorOptions:
    """What the flags say."""

    nodename: str
    identity: ReflectorIdentity
    secret: Key
    instance: str
    """Of this pod; a container that restarts resumes its own lease."""
    kubeconfig: Path | None = None
    health_port: int = HEALTH_PORT
    metrics_address: ListenAddress | None = None
    workers: dict[str, int] = field(default_factory=dict)
    """By the kind's name in ``apis.reflection``, as the policies."""
    policies: dict[str, Policy] = field(default_factory=dict)
    twins: RemoteObjectOptions = field(default_factory=RemoteObjectOptions)
    custom: tuple[ReflectedKind, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Reflect until a signal ends it; return the exit status."""
    given = parse(argv, instance=os.environ.get("POD_NAME", ""))
    shown = {each.name: str(getattr(given, each.name)) for each in fields(given)}
    work = functools.partial(_main, given)
    return process.run(work, name=NAME, health_port=given.health_port, settings=shown)


async def _main(given: ReflectorOptions, process_: Process) -> None:
    agent = f"pyliqo-{NAME}/{process.own_version()}"
    connected: list[Cluster] = []
    process_.health.ready_when("peer", lambda: bool(connected))
    async with (
        client.connect(given.kubeconfig, user_agent=agent) as home,
        metricsserver.served(given.metrics_address, home),
        peer.follow(home, given.secret, user_agent=agent) as foreign,
    ):
        connected.append(foreign)
        lease = Key(given.identity.tenant_namespace, keys.REFLECTOR_LEASE)
        virtual = Key(given.identity.tenant_namespace, given.nodename)
        owner = functools.partial(home.get_live, keys.VIRTUAL_NODE, virtual)
        election = Election(home, lease, given.instance, owner=owner)
        fenced = [LeaderOnlyCluster(each, lambda: election.is_leader) for each in (home, foreign)]
        reaches = (home.reach, foreign.reach)
        await election.lead(
            functools.partial(_reflect, given, process_, reaches, *fenced, election=election)
        )


async def _reflect(  # noqa: PLR0913  # what it reflects, between which clusters, and who leads
    given: ReflectorOptions,
    process_: Process,
    reaches: Sequence[Reachability],
    home: Cluster,
    foreign: Cluster,
    *,
    election: Election,
) -> None:
    """Reflect while we lead: nobody else does for this provider."""
    loops, recorders = _loops(given, home)
    is_first = election.is_first
    namespaces = ReflectedNamespaces(given.identity, loops, home, foreign, is_first=is_first)
    process_.health.ready_when("namespaces", namespaces.maps.synced.is_set)
    process_.health.alive_when("workers", namespaces.is_alive)
    stops = [
        reach.subscribe(loop.runner.server_is_back)
        for reach, loop in itertools.product(reaches, loops)
    ]
    try:
        beside = (recorder.run() for recorder in recorders)
        await namespaces.run(_settled(namespaces, process_), *beside)
    finally:
        for stop in stops:
            stop()
        process_.health.ready_when("namespaces", lambda: True)  # who stands by is ready too
        process_.health.alive_when("workers", lambda: True)


async def _settled(namespaces: ReflectedNamespaces, process_: Process) -> None:
    await namespaces.maps.synced.wait()
    process_.settled()


def _loops(
    given: ReflectorOptions, home: Cluster
) -> tuple[list[KindController], list[EventRecorder]]:
    loops, recorders = [], []
    labels = {keys.REMOTE_CLUSTER_ID: given.identity.foreign_cluster_id}
    kinds = KIND_REFLECTIONS | {row: configuration.custom_resource(row) for row in given.custom}
    for row, of_kind in kinds.items():
        if workers := given.workers.get(row.name, row.workers):
            component = reflectionpolicy.reflector_component(row.name)
            recorder = EventRecorder(home, component, given.instance, labels=labels)
            rules = Rules(given.policies.get(row.like or row.name, row.default), given.twins)
            tell = functools.partial(recorder.event, row.kind) if row.is_outward else _tell_nobody
            warn = functools.partial(recorder.event, keys.NAMESPACE_OFFLOADING)
            loops.append(KindController(of_kind, rules, tell, workers, warn=warn))
            recorders.append(recorder)
    return loops, recorders


def _tell_nobody(*_: object) -> None:
    """What is wrong with what comes home is no matter of its author, who is on the provider."""


# Flags. Source: docs/parity.md § 5.1, those that concern this process -----------------------------


def parse(argv: Sequence[str] | None, *, instance: str) -> ReflectorOptions:
    """Return what the flags ``argv`` say; ``instance`` is the pod, by default the node."""
    given = _parser().parse_args(argv)
    identity = ReflectorIdentity(
        given.home_cluster_id, given.foreign_cluster_id, given.tenant_namespace
    )
    hidden = MetadataFilter(
        frozenset(given.labels_not_reflected), frozenset(given.annotations_not_reflected)
    )
    return ReflectorOptions(
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
        twins=RemoteObjectOptions(
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


if __name__ == "__main__":
    sys.exit(main())
