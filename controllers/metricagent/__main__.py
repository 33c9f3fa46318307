"""``python3 -m controllers.metricagent``: serves metrics.liqo.io to clusters that offload here."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apis import keys, ownership
from apis.networks import ListenAddress
from apis.objects import Key, Kind, Object
from certs import metricsserver
from certs.listener import Server
from controllers.metricagent.forge import KubeletNode
from controllers.metricagent.server import (
    Agent,
    AgentCertificateReconciler,
    FrontProxy,
    Kubelets,
    application,
)
from kube import client, clock, credentials, flags, process
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.controller import Runner, WatchSource
from kube.flags import flag
from kube.informer import Informer
from kube.process import HEALTH_PORT, Process
from kube.slim import Partial

FRONT_PROXY: Final = Key("kube-system", "extension-apiserver-authentication")


@dataclass(frozen=True, kw_only=True)
class MetricAgentOptions:
    """What the command line says."""

    kubeconfig: Path | None = flag(
        "kubeconfig file (default: the pod's service account)", "--kubeconfig", type=Path
    )
    namespace: str = flag("namespace of its Service", "--namespace", default=keys.LIQO_NAMESPACE)
    port: int = flag("port of the aggregated API", "--port", type=int, default=8443)
    health_port: int = flags.health(HEALTH_PORT)
    metrics_address: ListenAddress | None = flags.metrics()
    kubelet_ca: Path | None = flag(
        "file with the CA of the kubelets' certificates (default: that of the API server)",
        "--kubelet-certificate-authority",
        type=Path,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit code."""
    settings = _options(argv)

    async def work(daemon: Process) -> None:
        agent = f"pyliqo-metricagent/{process.own_version()}"
        async with (
            client.connect(settings.kubeconfig, user_agent=agent) as cluster,
            metricsserver.served(settings.metrics_address, cluster),
        ):
            await MetricAgent(settings, cluster).run(daemon)

    return process.run(work, name=keys.METRIC_AGENT, health_port=settings.health_port)


class MetricAgent:
    """What runs in the process, wired."""

    def __init__(self, settings: MetricAgentOptions, cluster: ClusterClient) -> None:
        self._settings, self._cluster = settings, cluster
        of_shadows = f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}"
        self._pods = Informer(Selection(keys.POD, Partial, labels=of_shadows))
        self._namespaces = _informer(keys.NAMESPACE, labels=ownership.PEERS)
        physical = f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}"
        self._nodes = Informer(Selection(keys.NODE, KubeletNode, labels=physical))
        self._services = _informer(
            keys.API_SERVICE, fields=f"metadata.name={keys.METRICS_API.name}"
        )
        self._proxies = _informer(
            keys.CONFIG_MAP,
            namespace=FRONT_PROXY.namespace,
            fields=f"metadata.name={FRONT_PROXY.name}",
        )
        ca = settings.kubelet_ca
        tls = credentials.trusting(ca.read_bytes()) if ca else None

        def namespaces() -> list[Object]:
            return list(self._namespaces.items().values())

        kubelets = Kubelets(cluster, lambda: list(self._nodes.items().values()), namespaces, tls)
        agent = Agent(
            self._front_proxy, namespaces, lambda: self._pods.items().keys(), kubelets.say
        )
        self._server = Server(application(agent), settings.port)

    async def run(self, daemon: Process) -> None:
        informers: list[Informer[Any]] = [
            self._pods, self._namespaces, self._nodes, self._services, self._proxies,
        ]  # fmt: skip
        runners = [self._certificates(), self._trust()]
        daemon.health.ready_when("listens", lambda: self._server.is_listening)
        for informer in informers:
            daemon.health.ready_when(informer.selection.kind.plural, informer.synced.is_set)
        try:
            with daemon.works(runners):
                async with asyncio.TaskGroup() as tasks:
                    for informer in informers:
                        tasks.create_task(informer.run(self._cluster))
                    for runner in runners:
                        tasks.create_task(runner.run())
        finally:
            await self._server.close()

    def _front_proxy(self) -> FrontProxy:
        return FrontProxy.parse(self._proxies.get(FRONT_PROXY) or {})

    def _certificates(self) -> Runner:
        service = Key(self._settings.namespace, keys.METRIC_AGENT)
        reconciler = AgentCertificateReconciler(
            self._cluster, service=service, install=self._server.certify, clock=clock.now
        )
        runner = Runner("certificate", reconciler, [WatchSource(self._services)])
        runner.enqueue(keys.METRICS_API)
        return runner

    def _trust(self) -> Runner:
        return Runner("front-proxy", _Trust(self._server, self._front_proxy), [
            WatchSource(self._proxies)
        ])  # fmt: skip


class _Trust:
    """Lets the listener trust whom the API server names as its front proxy."""

    def __init__(self, server: Server, front_proxy: Callable[[], FrontProxy]) -> None:
        self._server, self._front_proxy = server, front_proxy

    async def reconcile(self, _key: Key) -> float | None:
        await self._server.trust(self._front_proxy().ca)
        return None


def _informer(kind: Kind, **selected: Any) -> Informer[Object]:
    return Informer(Selection(kind, Object, **selected))


def _options(argv: Sequence[str] | None) -> MetricAgentOptions:
    parser = argparse.ArgumentParser(
        prog="python3 -m controllers.metricagent",
        description="Serves metrics.liqo.io to clusters that offload to this one.",
    )
    return flags.parsed(parser, MetricAgentOptions, argv)


if __name__ == "__main__":
    sys.exit(main())
