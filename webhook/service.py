"""What is served, wired: the app with its caches. Imported in the worker, after the fork."""

import functools
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from apis import keys, ownership
from apis.objects import Kind, Object
from kube import authz, client, process
from kube.authz import Authorizer
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from webhook import app, handlers, serving, worker
from webhook.reader import CachedReader
from webhook.serving import WebhookOptions
from webhook.worker import Service


def load(settings: WebhookOptions) -> Service:
    """Return what a worker serves: the app, and the informers it looks things up in."""
    connect = functools.partial(_connect, settings.kubeconfig)
    reader = CachedReader(connect, _cached(settings), on_failure=_give_up)
    callers = functools.partial(worker.is_one_of, settings.client_names)
    access = app.AppAccess(
        is_ready=lambda: reader.is_ready() and not settings.drain.has_begun,
        may_scrape=MetricsReaders(reader).check,
        is_caller=callers if settings.client_ca else None,
        secret_path=handlers.SecretPath(settings.tls / keys.LABELLING_DOOR),
    )
    table = app.webhook_handlers(
        reader,
        handlers.labels_through(reader),
        is_enforced=settings.is_enforced,
    )
    made = app.create_app(table, access=access)
    return Service(made, functools.partial(app.waits, table), reader.follow)


def _cached(settings: WebhookOptions) -> list[Kind | Selection[Object]]:
    """Return what is kept in memory; everything else is asked of the server when it is needed."""
    virtual = f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}"
    return [
        keys.NAMESPACE_OFFLOADING,
        keys.PROVIDER_POLICY,
        Selection(keys.NODE, Object, labels=virtual),
        Selection(keys.NAMESPACE, Object, labels=ownership.PEERS),
        *([keys.QUOTA] if settings.is_enforced else []),
    ]


def _connect(kubeconfig: Path | None) -> AbstractAsyncContextManager[ClusterClient]:
    return client.connect(kubeconfig, user_agent=f"pyliqo-webhook/{process.own_version()}")


def _give_up(_error: Exception) -> None:
    """End the process, which cannot judge any longer: kubelet starts it again, after a back-off."""
    os._exit(serving.FAILED)


# Who may read the metrics -------------------------------------------------------------------------


class MetricsReaders:
    """Asks, in the reader's loop, by the token that a scraper sends."""

    def __init__(self, reader: CachedReader) -> None:
        self._reader = reader
        self._authorizer: Authorizer | None = None

    def check(self, authorization: str) -> None:
        """Return if who sends the header ``authorization`` may read the metrics.

        Raises:
            UnauthenticatedError: nobody we know: answer 401.
            DeniedError: somebody who may not: answer 403.
            KubeError: no API server to ask.
        """

        async def asked(cluster: Cluster) -> None:
            self._authorizer = self._authorizer or Authorizer(cluster)
            await authz.check_scraper(self._authorizer, authorization)

        self._reader.call(asked)
