"""``python3 -m webhook``: the admission webhook of one cluster."""

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from apis import keys
from apis.objects import Kind, Object
from kube import client, logs
from kube.client import ClusterClient
from kube.cluster import Selection
from webhook import app, serving, worker
from webhook.reader import CachedReader
from webhook.scrapers import Scrapers


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    serving: serving.Settings
    client_names: frozenset[str]
    kubeconfig: Path | None
    runtime_class: str
    is_enforced: bool
    json_logs: bool | None
    cache_lag_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; return the exit status."""
    settings = _settings(argv)
    logs.setup(json=settings.json_logs)
    server = serving.Server(functools.partial(_load, settings), settings.serving)
    try:
        server.run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _load(settings: Settings) -> worker.Service:
    connect = functools.partial(_connect, settings.kubeconfig)
    reader = CachedReader(
        connect, _cached(settings), on_failure=_give_up, lag_s=settings.cache_lag_s
    )
    served = settings.serving
    callers = functools.partial(serving.is_one_of, settings.client_names)
    doors = app.Doors(
        is_ready=lambda: reader.is_ready() and not served.drain.has_begun,
        may_scrape=Scrapers(reader).check,
        is_caller=callers if served.client_ca else None,
    )
    made = app.create_app(
        reader,
        runtime_class=settings.runtime_class,
        is_enforced=settings.is_enforced,
        doors=doors,
    )
    return worker.Service(made, reader.follow)


def _cached(settings: Settings) -> list[Kind | Selection[Object]]:
    """Return what is kept in memory; everything else is asked of the server when it is needed."""
    virtual = f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}"
    return [
        keys.NAMESPACE_OFFLOADING,
        keys.PROVIDER_POLICY,
        Selection(keys.NODE, Object, labels=virtual),
        Selection(keys.NAMESPACE, Object, labels=keys.REMOTE_CLUSTER_ID),
        *([keys.QUOTA] if settings.is_enforced else []),
    ]


def _connect(kubeconfig: Path | None) -> AbstractAsyncContextManager[ClusterClient]:
    return client.connect(kubeconfig, user_agent=f"pyliqo-webhook/{version('pyliqo')}")


def _give_up(_error: Exception) -> None:
    """End the process, which cannot judge any more: whoever runs it starts it again, slower."""
    os._exit(serving.FAILED)


def _settings(argv: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python3 -m webhook", description=__doc__)
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path("/etc/liqo/tls"),
        help="directory with tls.crt and tls.key; read anew when they change (%(default)s)",
    )
    parser.add_argument(
        "--host",
        default="0.0.0.0",  # noqa: S104  # a pod has one address, which it learns late
        help="address to listen on (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=keys.WEBHOOK_PORT, help="port to listen on (%(default)s)"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig file; without it this pod's own identity"
    )
    parser.add_argument(
        "--runtime-class",
        default=keys.RUNTIME_CLASS,
        help="pods of this RuntimeClass go to virtual nodes whatever the strategy (%(default)s)",
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="judge ShadowPods by the Quota of whoever creates them (%(default)s)",
    )
    parser.add_argument(
        "--client-ca",
        type=Path,
        help="answer reviews only to clients with a certificate that this PEM file vouches for",
    )
    parser.add_argument(
        "--client-name",
        action="append",
        default=[],
        help="with --client-ca: only to certificates of this common name; may be repeated",
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=worker.DRAIN_S,
        help="serve on for so long after SIGTERM, not ready any more (%(default)s)",
    )
    parser.add_argument(
        "--json-logs",
        action=argparse.BooleanOptionalAction,
        help="JSON log lines; by default unless standard error is a terminal",
    )
    parser.add_argument(
        "--test-cache-lag",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="for tests: let what watches tell reach the cache so much later (%(default)s)",
    )
    given = parser.parse_args(argv)
    return Settings(
        serving=serving.Settings(
            bind=serving.address(given.host, given.port),
            tls=given.tls_dir,
            drain=worker.Drain(given.drain_seconds),
            client_ca=given.client_ca,
        ),
        client_names=frozenset(given.client_name),
        kubeconfig=given.kubeconfig,
        runtime_class=given.runtime_class,
        is_enforced=given.enable_resource_enforcement,
        json_logs=given.json_logs,
        cache_lag_s=given.test_cache_lag,
    )


if __name__ == "__main__":
    sys.exit(main())
