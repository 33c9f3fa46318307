"""A cache that fell behind: it holds what was there once."""

import asyncio

from apis.objects import Kind, Object
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.informer import Informer


async def from_now_on(cluster: Cluster, kind: Kind, namespace: str) -> CachedCluster:
    """Return ``cluster`` through a cache that learns of no change any more."""
    informer: Informer[Object] = Informer(Selection(kind, Object, namespace))
    running = asyncio.create_task(informer.run(cluster))
    await informer.synced.wait()
    running.cancel()
    await asyncio.wait([running])
    return CachedCluster(cluster, [informer])
