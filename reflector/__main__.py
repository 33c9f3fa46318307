"""The container ``reflector`` of the pod ``vk-<virtualnode>``: flags, clusters, one leader."""

import argparse
import functools
import ipaddress
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from apis import keys, reflection, reflectionpolicy
from apis.networks import Network
from apis.objects import Key
from apis.offloading import CustomResource
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ENDPOINT_SLICE, KINDS, ReflectedKind
from apis.reflectionpolicy import MetadataFilter
from certs import metricsserver
from kube import client, flags, peer, process
from kube.cluster import Cluster, LeaderOnlyCluster
from kube.events import EventRecorder
from kube.flags import SWITCH, flag
from kube.lease import Election
from kube.process import Process
from kube.reachability import Reachability
from reflector.kinds import configuration
from reflector.kinds.contract import RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, ReflectorIdentity, Rules

NAME: Final = "reflector"


def custom_kind(text: str) -> ReflectedKind:
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


@dataclass(frozen=True, kw_only=True)
class ReflectorOptions(flags.VirtualNodeFlags):
    """What the flags say. Source: docs/parity.md § 5.1, those that concern this process."""

    health_port: int = flags.health(8082)
    enable_load_balancer: bool = flag(
        "set the class of remote Services of type LoadBalancer",
        "--enable-load-balancer",
        **SWITCH,
        default=False,
    )
    load_balancer_class: str = flag(
        "load balancer class on the provider",
        "--remote-real-load-balancer-class-name",
        default="",
    )
    enable_ingress: bool = flag(
        "set the class of remote Ingresses", "--enable-ingress", **SWITCH, default=False
    )
    ingress_class: str = flag(
        "ingress class on the provider", "--remote-real-ingress-class-name", default=""
    )
    enable_storage: bool = flag(
        "reflect claims of the virtual storage class for VirtualNodes that do not set it",
        "--enable-storage",
        **SWITCH,
        default=False,
    )
    storage_class: str = flag(
        "storage class of their remote claims", "--remote-real-storage-class-name", default=""
    )
    virtual_storage_class: str = flag(
        "virtual storage class in the consumer",
        "--virtual-storage-class-name",
        default=keys.VIRTUAL_STORAGE_CLASS,
    )
    custom: tuple[ReflectedKind, ...] = flag(
        "reflect this kind, and its status back; rights for it are granted apart; may be repeated",
        "--custom-resource",
        action="append",
        type=custom_kind,
        metavar="PLURAL.GROUP/VERSION/KIND[/TYPE]",
    )
    local_pods: tuple[Network, ...] = flag(
        "pod network of the consumer in an IP fabric, in which other addresses are those of IP "
        "objects (ipam.liqo.io); may be repeated",
        "--local-podcidr",
        action="append",
        type=ipaddress.ip_network,
        metavar="CIDR",
    )
    instance: str
    """Of this pod; a container that restarts resumes its own lease."""
    workers: dict[str, int]
    """By the kind's name in ``apis.reflection``, as the policies."""
    policies: dict[str, Policy]

    @property
    def identity(self) -> ReflectorIdentity:
        return ReflectorIdentity(
            self.home_cluster_id, self.foreign_cluster_id, self.tenant_namespace
        )

    @property
    def remote_objects(self) -> RemoteObjectOptions:
        return RemoteObjectOptions(
            MetadataFilter(frozenset(self.hidden_labels), frozenset(self.hidden_annotations)),
            enable_load_balancer=self.enable_load_balancer,
            load_balancer_class=self.load_balancer_class,
            enable_ingress=self.enable_ingress,
            ingress_class=self.ingress_class,
            enable_storage=self.enable_storage,
            storage_class=self.storage_class,
            virtual_storage_class=self.virtual_storage_class,
            local_pods=self.local_pods,
        )


def parse(argv: Sequence[str] | None, *, instance: str) -> ReflectorOptions:
    """Return what the flags ``argv`` say; ``instance`` is the pod, by default the node."""
    parser = argparse.ArgumentParser(
        prog="python3 -m reflector",
        description="Reflects to a provider what pods of offloaded namespaces need. A Lease "
        "elects one reflector among the virtual nodes of a provider.",
    )
    flags.add(parser, ReflectorOptions, os.environ)
    flags.add_kinds(parser, KINDS)
    given = vars(parser.parse_args(argv))
    chosen = flags.taken(ReflectorOptions, given)
    workers = {row.name: given[f"{row.name}_reflection_workers"] for row in KINDS}
    return ReflectorOptions(
        **chosen,
        instance=instance or chosen["node_name"],
        workers=workers | ({ENDPOINT_SLICE.name: 0} if chosen["hides_ips"] else {}),
        policies={row.name: given.get(f"{row.name}_reflection_type", row.default) for row in KINDS},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Reflect until a signal ends it; return the exit status."""
    given = parse(argv, instance=os.environ.get("POD_NAME", ""))
    shown = {each.name: str(getattr(given, each.name)) for each in fields(given)}
    work = functools.partial(_main, given)
    return process.run(work, name=NAME, health_port=given.health_port, settings=shown)


async def _main(given: ReflectorOptions, process_: Process) -> None:
    agent = f"pyliqo-{NAME}/{process.own_version()}"
    connected: list[Cluster] = []
    secret = Key(given.tenant_namespace, given.kubeconfig_secret)
    process_.health.ready_when("peer", lambda: bool(connected))
    async with (
        client.connect(given.kubeconfig, user_agent=agent) as home,
        metricsserver.served(given.metrics_address, home),
        peer.follow(home, secret, user_agent=agent) as foreign,
    ):
        connected.append(foreign)
        lease = Key(given.identity.tenant_namespace, keys.REFLECTOR_LEASE)
        virtual = Key(given.identity.tenant_namespace, given.node_name)
        owner = functools.partial(home.get_live, keys.VIRTUAL_NODE, virtual)
        election = Election(home, lease, given.instance, owner=owner)
        clients = [LeaderOnlyCluster(each, lambda: election.is_leader) for each in (home, foreign)]
        reaches = (home.reach, foreign.reach)
        await election.lead(
            functools.partial(_reflect, given, process_, reaches, *clients, election=election)
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
    controllers, recorders = _controllers(given, home)
    is_first = election.is_first
    namespaces = ReflectedNamespaces(given.identity, controllers, home, foreign, is_first=is_first)
    process_.health.ready_when("namespaces", namespaces.maps.synced.is_set)
    process_.health.alive_when("workers", namespaces.is_alive)
    stops = [
        reach.subscribe(controller.runner.server_is_back)
        for reach, controller in itertools.product(reaches, controllers)
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


def _controllers(
    given: ReflectorOptions, home: Cluster
) -> tuple[list[KindController], list[EventRecorder]]:
    controllers, recorders = [], []
    labels = {keys.REMOTE_CLUSTER_ID: given.identity.foreign_cluster_id}
    kinds = KIND_REFLECTIONS | {row: configuration.custom_resource(row) for row in given.custom}
    for row, of_kind in kinds.items():
        if workers := given.workers.get(row.name, row.workers):
            component = reflectionpolicy.reflector_component(row.name)
            recorder = EventRecorder(home, component, given.instance, labels=labels)
            rules = Rules(
                given.policies.get(row.like or row.name, row.default), given.remote_objects
            )
            record = functools.partial(recorder.event, row.kind) if row.is_outward else _no_event
            warn = functools.partial(recorder.event, keys.NAMESPACE_OFFLOADING)
            controllers.append(KindController(of_kind, rules, record, workers, warn=warn))
            recorders.append(recorder)
    return controllers, recorders


def _no_event(*_: object) -> None:
    """What is wrong with what comes home is no matter of its author, who is on the provider."""


if __name__ == "__main__":
    sys.exit(main())
