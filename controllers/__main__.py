"""Runs all cluster-wide loops: ``python3 -m controllers``."""

import asyncio
import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from apis import keys
from apis.objects import Key
from certs import scraped
from controllers import clusterid, settings, vkoptions
from controllers.authentication.issuing.issuer import Entrance, Issuer
from controllers.manager import Informers, Manager, Term
from controllers.settings import Settings
from controllers.wiring import CONTROLLERS
from kube import client, clock, process, version
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.events import Recorder
from kube.fence import FencedCluster
from kube.lease import Election
from kube.process import Process

LEASE: Final = "66cf253f.ctrlmgr.liqo.io"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal; return the exit code."""
    given = settings.parse(argv, os.environ)
    shown = {name: str(value) for name, value in asdict(given).items()}
    work = functools.partial(_run, given)
    return process.run(
        work, name=keys.CONTROLLER_MANAGER, health_port=given.health_port, settings=shown
    )


async def _run(given: Settings, daemon: Process) -> None:
    user_agent = f"pyliqo-controllers/{version.own()}"
    async with (
        client.connect(given.kubeconfig, user_agent=user_agent) as cluster,
        scraped.served(given.metrics_address, cluster),
    ):
        cluster_id = await clusterid.ensure(cluster, given.namespace)
        await vkoptions.ensure(cluster, given.namespace, given.identity)
        election = _election(given, cluster)
        live = FencedCluster(cluster, lambda: election is None or election.is_leader)
        cached = CachedCluster(live)
        events = Recorder(cluster, keys.CONTROLLER_MANAGER, given.identity)
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
            issuer=Issuer(live, _entrance(given, cluster), clock.now),
            private_key=await clusterid.ensure_key(cluster, given.namespace),
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


def _entrance(given: Settings, cluster: ClusterClient) -> Entrance:
    if given.is_trusted:
        return Entrance(bytes, given.address)
    file = given.ca
    return Entrance(file.read_bytes if file else lambda: cluster.access.ca, given.address)


def _election(given: Settings, cluster: ClusterClient) -> Election | None:
    if not given.leader_elect:
        return None
    return Election(cluster, Key(given.namespace, LEASE), given.identity)


async def _work(terms: Sequence[Term], daemon: Process) -> None:
    """Do what only the leader does; all loops are made again each time it is elected."""
    loops = [loop for term in terms for loop in term()]
    with daemon.works(loops):
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run())


if __name__ == "__main__":
    sys.exit(main())
