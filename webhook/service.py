"""What is served, wired: the app with its caches. Imported in the worker, after the fork."""

import functools
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from apis import keys, ownership
from apis.objects import Kind, Object
from kube import authz, client, process
from kube.authz import Authorizer
from kube.client import ClusterClient
from kube.cluster import Selection
from webhook import app, handlers, serving, worker
from webhook.reader import CachedReader
from webhook.serving import WebhookOptions
from webhook.worker import Service


def load(settings: WebhookOptions) -> Service:
    """Return what a worker serves: the app, and the informers it looks things up in."""
    connect = functools.partial(_connect, settings.kubeconfig)
    reader = CachedReader(connect, _cached(settings), on_failure=_give_up)
    callers = functools.partial(worker.is_one_of, frozenset(settings.client_names))
    access = app.AppAccess(
        is_ready=lambda: reader.is_ready() and not settings.drain.has_begun,
        may_scrape=_scraper_check(reader),
        is_caller=callers if settings.client_ca else None,
        secret_path=functools.partial(handlers.secret_path, settings.tls / keys.LABELLING_DOOR),
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


def _scraper_check(reader: CachedReader) -> Callable[[str], None]:
    """Return what checks, in the reader's loop, who sends a header ``Authorization``.

    It raises UnauthenticatedError for who is not known, NotAuthorizedError for who may not read
    the metrics, and KubeError where no API server can be asked.
    """
    authorizer = functools.lru_cache(maxsize=1)(Authorizer)

    def check(authorization: str) -> None:
        def ask(cluster: Any) -> Coroutine[Any, Any, None]:
            return authz.check_scraper(authorizer(cluster), authorization)

        reader.call(ask)

    return check
