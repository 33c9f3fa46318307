"""What is served, wired: the app with its caches. Imported in the worker, after the fork."""

import functools
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from apis import keys, ownership
from apis.objects import Kind, Object
from kube import client, process
from kube.client import ClusterClient
from kube.cluster import Selection
from webhook import app, labelling, serving, tls
from webhook.reader import CachedReader
from webhook.scrapers import Scrapers
from webhook.settings import Settings
from webhook.worker import Service


def load(settings: Settings) -> Service:
    """Return what a worker serves: the app, and the informers it looks things up in."""
    connect = functools.partial(_connect, settings.kubeconfig)
    reader = CachedReader(connect, _cached(settings), on_failure=_give_up)
    served = settings.serving
    callers = functools.partial(tls.is_one_of, settings.client_names)
    doors = app.Doors(
        is_ready=lambda: reader.is_ready() and not served.drain.has_begun,
        may_scrape=Scrapers(reader).check,
        is_caller=callers if served.client_ca else None,
        door=labelling.SecretPath(served.tls / keys.LABELLING_DOOR),
    )
    table = app.judges(
        reader,
        labelling.through(reader),
        is_enforced=settings.is_enforced,
    )
    made = app.create_app(table, doors=doors)
    return Service(made, functools.partial(app.waits, table), reader.follow)


def _cached(settings: Settings) -> list[Kind | Selection[Object]]:
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
