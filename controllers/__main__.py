"""Runs all cluster-wide loops: ``python3 -m controllers``."""

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key
from controllers import clusterid, vkoptions, wiring
from controllers.replication import peers
from controllers.wiring import Caches, Limits
from kube import client, clock, process
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.events import Recorder
from kube.lease import Election
from kube.process import Process
from kube.runner import Runner

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
    shadow_pod_workers: int
    workers: int
    max_twins: int
    is_enforced: bool


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
        "--max-twin-namespaces",
        dest="max_twins",
        type=_count,
        default=Limits().max_twins,
        help="namespaces that one consumer may have here (default: %(default)s)",
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        dest="is_enforced",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="create Pods only for what the Quota of a ShadowPod's user has booked (%(default)s)",
    )
    given = vars(parser.parse_args(argv))
    return Settings(identity=environment.get("POD_NAME") or socket.gethostname(), **given)


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
        caches = Caches.of(settings.namespace)
        events = Recorder(cluster, NAME, settings.identity)
        place = wiring.Place(
            live=cluster,
            cached=CachedCluster(cluster, caches.whole()),
            cluster_id=cluster_id,
            namespace=settings.namespace,
            events=events,
            clock=clock.now,
            user_agent=user_agent,
            accounts=caches.accounts() if settings.is_enforced else None,
        )
        limits = Limits(settings.shadow_pod_workers, settings.workers, settings.max_twins)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for informer in caches.all():
                tasks.create_task(informer.run(cluster))
            daemon.health.ready_when("caches", caches.is_synced)
            await caches.wait()
            daemon.settled()
            work = _Work(place, caches, limits, daemon)
            daemon.before_stop(work.drain)
            await _lead(settings, cluster, work)


@dataclass(frozen=True)
class _Work:
    """What only the leader does; everything is made anew each time it is elected."""

    place: wiring.Place
    caches: Caches
    limits: Limits
    daemon: Process
    _running: list[Runner] = field(default_factory=list)

    async def __call__(self) -> None:
        self._running[:] = wiring.runners(self.place, self.caches, self.limits)
        replication = peers.Peers(wiring.replication_home(self.place, self.caches))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(replication.run())
                for runner in self._running:
                    self.daemon.health.alive_when(runner.name, runner.is_alive)
                    tasks.create_task(runner.run())
        finally:
            self._running.clear()

    async def drain(self) -> None:
        """Finish what waits, before the process ends."""
        await asyncio.gather(*(runner.drain() for runner in self._running))


async def _lead(settings: Settings, cluster: ClusterClient, work: _Work) -> None:
    if not settings.leader_elect:
        await work()
        return
    election = Election(cluster, Key(settings.namespace, LEASE), settings.identity)
    await election.lead(work)


if __name__ == "__main__":
    sys.exit(main())
