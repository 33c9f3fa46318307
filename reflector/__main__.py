"""The container ``reflector`` of the pod ``vk-<virtualnode>``: flags, clusters, one leader."""

import functools
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from apis import keys, reflectionpolicy
from apis.objects import Key
from certs import scraped
from kube import client, peer, process
from kube.cluster import Cluster, LeaderOnlyCluster
from kube.events import EventRecorder
from kube.lease import Election
from kube.process import Process
from kube.reachability import Reachability
from reflector import settings
from reflector.kinds import configuration
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindLoop, Namespaces, Rules
from reflector.settings import Settings

NAME: Final = "reflector"


def main(argv: Sequence[str] | None = None) -> int:
    """Reflect until a signal ends it; return the exit status."""
    given = settings.parse(argv, instance=os.environ.get("POD_NAME", ""))
    shown = {each.name: str(getattr(given, each.name)) for each in fields(given)}
    work = functools.partial(_main, given)
    return process.run(work, name=NAME, health_port=given.health_port, settings=shown)


async def _main(given: Settings, process_: Process) -> None:
    agent = f"pyliqo-{NAME}/{process.own_version()}"
    connected: list[Cluster] = []
    process_.health.ready_when("peer", lambda: bool(connected))
    async with (
        client.connect(given.kubeconfig, user_agent=agent) as home,
        scraped.served(given.metrics_address, home),
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
    given: Settings,
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
    namespaces = Namespaces(given.identity, loops, home, foreign, is_first=is_first)
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


async def _settled(namespaces: Namespaces, process_: Process) -> None:
    await namespaces.maps.synced.wait()
    process_.settled()


def _loops(given: Settings, home: Cluster) -> tuple[list[KindLoop], list[EventRecorder]]:
    loops, recorders = [], []
    labels = {keys.REMOTE_CLUSTER_ID: given.identity.foreign_cluster_id}
    forges = KIND_REFLECTIONS | {row: configuration.custom_resource(row) for row in given.custom}
    for row, of_kind in forges.items():
        if workers := given.workers.get(row.name, row.workers):
            component = reflectionpolicy.reflector_component(row.name)
            recorder = EventRecorder(home, component, given.instance, labels=labels)
            rules = Rules(given.policies.get(row.like or row.name, row.default), given.twins)
            tell = functools.partial(recorder.event, row.kind) if row.is_outward else _tell_nobody
            warn = functools.partial(recorder.event, keys.NAMESPACE_OFFLOADING)
            loops.append(KindLoop(of_kind, rules, tell, workers, warn=warn))
            recorders.append(recorder)
    return loops, recorders


def _tell_nobody(*_: object) -> None:
    """What is wrong with what comes home is no matter of its author, who is on the provider."""


if __name__ == "__main__":
    sys.exit(main())
