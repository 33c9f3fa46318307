"""Runs all cluster-wide loops: ``python3 -m controllers``."""

import argparse
import asyncio
import functools
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from apis import keys, naming, texts
from apis import resources as resources_
from apis.networks import ListenAddress
from apis.objects import Key
from apis.offloading import OfferedClass
from apis.providerpolicy import GrantDefaults
from apis.resources import Resources
from certs import metricsserver
from controllers import clusterid, vkoptions
from controllers.authentication.identity.reconciler import (
    IdentityReconciler,
    SliceIdentityReconciler,
)
from controllers.authentication.nonce import NonceReconciler
from controllers.authentication.renewal import LocalRenewReconciler, RemoteRenewReconciler
from controllers.authentication.tenant.reconciler import TenantReconciler
from controllers.authentication.tenantrights.reconciler import TenantRightsReconciler
from controllers.clusterid import PodNetworksReconciler
from controllers.granting.grants.reconciler import GrantsReconciler
from controllers.granting.metricsapi.reconciler import MetricsApiReconciler
from controllers.granting.resourceslice.reconciler import LocalSliceReconciler, ReplicaReconciler
from controllers.manager import (
    AdvertisedEndpoint,
    ControllerSetup,
    Informers,
    Limits,
    Manager,
    Setup,
)
from controllers.objectquotas import ObjectQuotaReconciler
from controllers.offloading.csrapproval.reconciler import CsrApprovalReconciler
from controllers.offloading.namespacemap.reconciler import NamespaceMapReconciler
from controllers.offloading.namespaceoffloading.reconciler import NamespaceOffloadingReconciler
from controllers.offloading.nodefailure.reconciler import NodeFailureReconciler
from controllers.offloading.placement.reconciler import PlacementReconciler
from controllers.offloading.shadowendpointslice.reconciler import ShadowEndpointSliceReconciler
from controllers.offloading.shadowpod import reconciler as shadowpod
from controllers.offloading.storage.reconciler import (
    LeftClaimReconciler,
    LeftVolumeReconciler,
    PlaceholderReconciler,
    StorageReconciler,
)
from controllers.offloading.virtualnode.reconciler import VirtualNodeReconciler
from controllers.peers.clusterprofile.reconciler import ClusterProfileReconciler
from controllers.peers.foreigncluster.reconciler import (
    ForeignClusterReconciler,
    SliceVersionReconciler,
)
from controllers.peers.replication.peers import ReplicatedPeers
from kube import client, clock, flags, process
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.cluster import LeaderOnlyCluster
from kube.events import EventRecorder
from kube.flags import ON_OFF, flag
from kube.lease import Election
from kube.process import Process

LEASE: Final = "66cf253f.ctrlmgr.liqo.io"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal; return the exit code."""
    given = parse(argv, os.environ)
    shown = {name: str(value) for name, value in asdict(given).items()}
    work = functools.partial(_run, given)
    return process.run(
        work, name=keys.CONTROLLER_MANAGER, health_port=given.health_port, settings=shown
    )


async def _run(given: "ControllerOptions", daemon: Process) -> None:
    user_agent = f"pyliqo-controllers/{process.own_version()}"
    async with (
        client.connect(given.kubeconfig, user_agent=user_agent) as cluster,
        metricsserver.served(given.metrics_address, cluster),
    ):
        cluster_id = await clusterid.ensure(cluster, given.namespace)
        await vkoptions.ensure(cluster, given.namespace, given.identity)
        election = _election(given, cluster)
        live = LeaderOnlyCluster(cluster, lambda: election is None or election.is_leader)
        cached = CachedCluster(live)
        events = EventRecorder(cluster, keys.CONTROLLER_MANAGER, given.identity)
        manager = Manager(
            live=live,
            cached=cached,
            informers=Informers(cached),
            cluster_id=cluster_id,
            namespace=given.namespace,
            events=events,
            clock=clock.now,
            user_agent=user_agent,
            limits=given.limits,
            standard=given.standard,
            may_write=live.may_write,
            endpoint=_endpoint(given, cluster),
            private_key=await clusterid.ensure_key(cluster, given.namespace),
        )
        setups = [controller(manager) for controller in CONTROLLERS]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for informer in manager.informers.all():
                tasks.create_task(informer.run(cluster))
            daemon.health.ready_when("caches", manager.informers.is_synced)
            await manager.informers.wait()
            daemon.settled()
            work = functools.partial(_work, setups, daemon)
            await (work() if election is None else election.lead(work))


def _endpoint(given: "ControllerOptions", cluster: ClusterClient) -> AdvertisedEndpoint:
    if given.is_trusted:
        return AdvertisedEndpoint(bytes, given.address)
    file = given.ca
    return AdvertisedEndpoint(file.read_bytes if file else lambda: cluster.access.ca, given.address)


def _election(given: "ControllerOptions", cluster: ClusterClient) -> Election | None:
    if not given.leader_elect:
        return None
    return Election(cluster, Key(given.namespace, LEASE), given.identity)


async def _work(setups: Sequence[Setup], daemon: Process) -> None:
    """Do what only the leader does; all loops are made again each time it is elected."""
    loops = [loop for setup in setups for loop in setup()]
    with daemon.works(loops):
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run())


# Which controllers there are: a new one is a class, and its ``setup`` is a row here ---------------

CONTROLLERS: Final[tuple[ControllerSetup, ...]] = (
    NamespaceOffloadingReconciler.setup,
    PlacementReconciler.setup,
    NamespaceMapReconciler.setup,
    VirtualNodeReconciler.setup,
    shadowpod.controller,
    NodeFailureReconciler.setup,
    ShadowEndpointSliceReconciler.setup,
    StorageReconciler.setup,
    PlaceholderReconciler.setup,
    LeftVolumeReconciler.setup,
    LeftClaimReconciler.setup,
    CsrApprovalReconciler.setup,
    TenantRightsReconciler.setup,
    ObjectQuotaReconciler.setup,
    TenantReconciler.setup,
    NonceReconciler.setup,
    IdentityReconciler.setup,
    SliceIdentityReconciler.setup,
    LocalRenewReconciler.setup,
    RemoteRenewReconciler.setup,
    ReplicatedPeers.setup,
    ForeignClusterReconciler.setup,
    SliceVersionReconciler.setup,
    ClusterProfileReconciler.setup,
    PodNetworksReconciler.setup,
    LocalSliceReconciler.setup,
    ReplicaReconciler.setup,
    GrantsReconciler.setup,
    MetricsApiReconciler.setup,
)


# The flags, validated once ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """What the flags and the environment say."""

    kubeconfig: Path | None = flag(
        "kubeconfig file (default: $KUBECONFIG, else the pod's service account)",
        "--kubeconfig",
        env="KUBECONFIG",
        type=Path,
    )
    namespace: str = flag(
        "namespace of the cluster ID, the default template and the Lease",
        "--liqo-namespace",
        env="POD_NAMESPACE",
        default=keys.LIQO_NAMESPACE,
    )
    health_port: int = flags.health(process.HEALTH_PORT)
    metrics_address: ListenAddress | None = flags.metrics()
    leader_elect: bool = flag(
        "elect the replica that reconciles by a Lease",
        "--leader-elect",
        action=ON_OFF,
        default=True,
    )
    limits: Limits
    address: str = flag(
        "address by which peers reach this cluster's API server (default: a control-plane node, "
        "6443)",
        "--api-server-address-override",
        default="",
    )
    ca: Path | None = flag(
        "file with the CA by which peers verify that API server (default: that of this process)",
        "--ca-override",
        type=Path,
    )
    is_trusted: bool = flag(
        "give peers no CA, since the API server's certificate is publicly trusted",
        "--trusted-ca",
        action="store_true",
        default=False,
    )
    standard: GrantDefaults
    identity: str


def parse(argv: Sequence[str] | None, environment: Mapping[str, str]) -> ControllerOptions:
    """Return what ``argv`` and the environment say; end the process with 2 if it is nonsense."""
    parser = argparse.ArgumentParser(
        prog="python3 -m controllers", description="Runs the controllers of one cluster."
    )
    flags.add(parser, ControllerOptions, environment)
    flags.add(parser, Limits)
    _add_grants(parser)
    given = vars(parser.parse_args(argv))
    return ControllerOptions(
        **flags.taken(ControllerOptions, given),
        limits=Limits(**flags.taken(Limits, given)),
        standard=GrantDefaults(**given),
        identity=environment.get("POD_NAME") or socket.gethostname(),
    )


def _add_grants(parser: argparse.ArgumentParser) -> None:
    """Add what consumers are granted where no ProviderPolicy says otherwise."""
    parser.add_argument(
        "--default-node-resources",
        dest="resources",
        type=resources_flag,
        default=GrantDefaults().resources,
        metavar="NAME=AMOUNT,...",
        help="resources of a ResourceSlice of the class default that requests none (default: "
        "4 CPUs, 8Gi, 110 pods, ...)",
    )
    parser.add_argument(
        "--default-resource-slice-class-enabled",
        dest="is_default_class_enabled",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="serve ResourceSlices of the class default (default: true)",
    )
    parser.add_argument(
        "--default-limits-enforcement",
        dest="limits_enforcement",
        type=enforcement_flag,
        default="None",
        help="which limits Quotas require of containers: None, Soft or Hard (default: %(default)s)",
    )
    parser.add_argument(
        "--cluster-labels",
        type=labels_flag,
        default={},
        metavar="KEY=VALUE,...",
        help="labels that are suggested for virtual nodes of consumers",
    )
    for kind in ("ingress", "load-balancer"):
        parser.add_argument(
            f"--{kind}-classes",
            type=classes_flag,
            default=(),
            metavar="NAME[;default],...",
            help=f"{kind} classes that consumers may use",
        )


# What the flags say about grants ------------------------------------------------------------------
# Each raises argparse's own error, which names the value. Source: docs/parity.md § 4.

_ENFORCEMENTS: Final = {name.lower(): name for name in ("None", "Soft", "Hard")}
_DEFAULT: Final = "default"


@flags.typed
def resources_flag(text: str) -> Resources:
    """Return the amounts of ``cpu=4,memory=8Gi``."""
    return resources_.parse_resources(texts.pairs(text))


@flags.typed
def labels_flag(text: str) -> dict[str, str]:
    """Return the labels of ``region=europe,liqo.io/provider=kubeadm``."""
    pairs = texts.pairs(text)
    for name, value in pairs.items():
        if not naming.is_qualified_name(name) or not naming.is_label_value(value):
            raise ValueError(f"{name}={value} is no label")
    return pairs


@flags.typed
def enforcement_flag(text: str) -> str:
    """Return None, Soft or Hard, however it is written."""
    if text.lower() not in _ENFORCEMENTS:
        raise ValueError(f"{text!r} is not one of {', '.join(_ENFORCEMENTS.values())}")
    return _ENFORCEMENTS[text.lower()]


def classes_flag(text: str) -> tuple[OfferedClass, ...]:
    """Return the classes of ``nginx;default,traefik``."""
    return tuple(_class_flag(part) for part in text.split(",") if part)


def _class_flag(part: str) -> OfferedClass:
    name, _, mark = part.partition(";")
    if not naming.is_dns_subdomain(name) or mark not in {"", _DEFAULT}:
        raise argparse.ArgumentTypeError(f"{part!r} is not a name, or a name and ';{_DEFAULT}'")
    return OfferedClass(name, is_default=bool(mark))


if __name__ == "__main__":
    sys.exit(main())
