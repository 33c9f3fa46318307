"""``python3 -m certs``: authority, serving certificate and caBundle of the admission webhook."""

import argparse
import asyncio
import datetime as dt
import functools
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apis import keys
from apis.networks import ListenAddress
from apis.objects import Key, Kind, Object
from certs import metricsserver, rotation
from kube import client, clock, flags, process
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.flags import flag
from kube.informer import Change, Informer
from kube.process import HEALTH_PORT, Process

NOT_RENEWED: Final = "CertificateNotRenewed"


@dataclass(frozen=True, kw_only=True)
class CertsOptions:
    """What the command line says."""

    kubeconfig: Path | None = flag(
        "kubeconfig file (default: the pod's service account)", "--kubeconfig", type=Path
    )
    namespace: str = flag(
        "namespace of the Secrets and of the webhook's Service",
        "--namespace",
        default=keys.LIQO_NAMESPACE,
    )
    health_port: int = flags.health(HEALTH_PORT)
    metrics_address: ListenAddress | None = flags.metrics()
    json_logs: bool | None = flag(
        "write log lines as JSON (default: unless standard error is a terminal)",
        "--json-logs",
        action=flags.ON_OFF,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Keep the certificates until SIGTERM; return the exit status."""
    settings = _options(argv)
    return process.run(
        functools.partial(_serve, settings),
        name="certs",
        health_port=settings.health_port,
        json_logs=settings.json_logs,
    )


async def _serve(settings: CertsOptions, daemon: Process) -> None:
    agent = f"pyliqo-certs/{process.own_version()}"
    async with (
        client.connect(settings.kubeconfig, user_agent=agent) as live,
        metricsserver.served(settings.metrics_address, live),
    ):
        await follow(live, rotation.RotationOptions(namespace=settings.namespace), daemon)


async def follow(
    live: Cluster,
    settings: rotation.RotationOptions,
    daemon: Process,
    *,
    configuration: str = keys.WEBHOOK_CONFIGURATION,
    now: Callable[[], dt.datetime] = clock.now,
) -> None:
    """Keep Secrets and configurations of the cluster ``live`` up to date; cancel to stop."""
    where = Key("", configuration)
    secrets = [_one(keys.SECRET, settings.ca_key), _one(keys.SECRET, settings.certs_key)]
    kinds = (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS)
    hooks = {kind: _one(kind, where) for kind in kinds}
    cluster = CachedCluster(live, [*secrets, *hooks.values()])
    events = EventRecorder(live, "liqo-certs", socket.gethostname())
    known = functools.partial(rotation.trusted_by_api_servers, live, kinds, where)
    certificates = Runner(
        "certificates",
        rotation.RotationReconciler(cluster, now, settings, alarm=_alarm(events), known=known),
        [WatchSource(informer, _always(settings.certs_key)) for informer in secrets],
    )
    certificates.enqueue(settings.certs_key)
    runners = [certificates]
    for kind, informer in hooks.items():
        reconciler = rotation.InjectionReconciler(cluster, kind, settings.certs_key)
        sources = [WatchSource(informer), WatchSource(secrets[1], _always(where))]
        runners.append(Runner(f"injection-{kind.plural}", reconciler, sources))
    for runner in runners:
        daemon.health.ready_when(runner.name, runner.is_synced)
        daemon.health.alive_when(runner.name, runner.is_alive)
    async with asyncio.TaskGroup() as tasks:
        for informer in (*secrets, *hooks.values()):
            tasks.create_task(informer.run(live))
        for runner in runners:
            tasks.create_task(runner.run())
        tasks.create_task(events.run())


def _alarm(events: EventRecorder) -> rotation.Alarm:
    def tell(secret: Object, message: str) -> None:
        events.event(keys.SECRET, secret, "Warning", NOT_RENEWED, message)

    return tell


def _one(kind: Kind, key: Key) -> Informer[Object]:
    fields = f"metadata.name={key.name}"
    return Informer(Selection(kind, Object, namespace=key.namespace, fields=fields))


def _always(key: Key) -> Callable[[Change[Any]], Iterable[Key]]:
    def keys_of(_change: Change[Any]) -> tuple[Key]:
        return (key,)

    return keys_of


def _options(argv: Sequence[str] | None) -> CertsOptions:
    parser = argparse.ArgumentParser(
        prog="python3 -m certs",
        description="Keeps the CA, the serving certificate and the caBundle of the webhook.",
    )
    return flags.parsed(parser, CertsOptions, argv)


if __name__ == "__main__":
    sys.exit(main())
