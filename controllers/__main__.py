"""Runs all cluster-wide loops: ``python3 -m controllers``."""

import argparse
import asyncio
import functools
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key
from controllers import clusterid, keypair, vkoptions
from controllers.grants.forge import flags
from controllers.grants.forge.applications import Standard
from controllers.issuing.issuer import Entrance, Issuer
from controllers.manager import Informers, Limits, Manager, Term
from controllers.wiring import CONTROLLERS
from kube import client, clock, process
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.events import Recorder
from kube.fence import FencedCluster
from kube.lease import Election
from kube.process import Process

NAME: Final = "liqo-controller-manager"
LEASE: Final = "66cf253f.ctrlmgr.liqo.io"


@dataclass(frozen=True)
class Settings:
    """What the flags and the environment say."""

    kubeconfig: Path | None
    namespace: str
    identity: str
    health_port: int
    leader_elect: bool
    address: str
    ca: Path | None
    is_trusted: bool
    limits: Limits
    standard: Standard


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal; return the exit code."""
    settings = _settings(argv)

    async def work(daemon: Process) -> None:
        await _run(settings, daemon)

    shown = {name: str(value) for name, value in asdict(settings).items()}
    return process.run(work, name=NAME, health_port=settings.health_port, settings=shown)


def _settings(argv: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python3 -m controllers", description=__doc__)
    environment = os.environ
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
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only one of several replicas works at a time",
    )
    parser.add_argument(
        "--shadow-pod-ctrl-workers", dest="shadow_pod_workers", type=_count, default=10
    )
    parser.add_argument(
        "--workers", type=_count, default=2, help="of every other loop (default: %(default)s)"
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        dest="is_enforced",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="create Pods only for what the Quota of a ShadowPod's user has booked (%(default)s)",
    )
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
    parser.add_argument(
        "--real-storage-class-name",
        dest="real_storage_class",
        default="",
        help="of claims of the class liqo on this cluster's nodes (default: the default class)",
    )
    _add_grants(parser)
    given = vars(parser.parse_args(argv))
    limits = Limits(**{each.name: given.pop(each.name) for each in fields(Limits)})
    standard = Standard(**{each.name: given.pop(each.name) for each in fields(Standard)})
    identity = environment.get("POD_NAME") or socket.gethostname()
    return Settings(identity=identity, limits=limits, standard=standard, **given)


def _add_grants(parser: argparse.ArgumentParser) -> None:
    """Add what consumers are granted where no ProviderPolicy says otherwise."""
    parser.add_argument(
        "--default-node-resources",
        dest="resources",
        type=flags.resources,
        default=Standard().resources,
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


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


async def _run(settings: Settings, daemon: Process) -> None:
    user_agent = f"pyliqo-controllers/{metadata.version('pyliqo')}"
    async with client.connect(settings.kubeconfig, user_agent=user_agent) as cluster:
        cluster_id = await clusterid.ensure(cluster, settings.namespace)
        await vkoptions.ensure(cluster, settings.namespace, settings.identity)
        election = _election(settings, cluster)
        live = FencedCluster(cluster, lambda: election is None or election.is_leader)
        cached = CachedCluster(live)
        events = Recorder(cluster, NAME, settings.identity)
        manager = Manager(
            live=live,
            cached=cached,
            informers=Informers(cached),
            cluster_id=cluster_id,
            namespace=settings.namespace,
            events=events,
            clock=clock.now,
            user_agent=user_agent,
            limits=settings.limits,
            standard=settings.standard,
            may_write=live.may_write,
            issuer=Issuer(live, _entrance(settings, cluster), clock.now),
            private_key=await keypair.ensure(cluster, settings.namespace),
        )
        terms = [controller(manager) for controller in CONTROLLERS]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for informer in manager.informers.all():
                tasks.create_task(informer.run(cluster))
            daemon.health.ready_when("caches", manager.informers.is_synced)
            await manager.informers.wait()
            daemon.settled()
            work = functools.partial(_work, terms, daemon)
            await (work() if election is None else election.lead(work))


def _entrance(settings: Settings, cluster: ClusterClient) -> Entrance:
    if settings.is_trusted:
        return Entrance(b"", settings.address)
    ca = settings.ca.read_bytes() if settings.ca else cluster.access.ca
    return Entrance(ca, settings.address)


def _election(settings: Settings, cluster: ClusterClient) -> Election | None:
    if not settings.leader_elect:
        return None
    return Election(cluster, Key(settings.namespace, LEASE), settings.identity)


async def _work(terms: Sequence[Term], daemon: Process) -> None:
    """Do what only the leader does; all loops are made anew each time it is elected."""
    loops = [loop for term in terms for loop in term()]
    with daemon.works(loops):
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run())


if __name__ == "__main__":
    sys.exit(main())
