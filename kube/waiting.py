"""Waiting for what a cluster becomes, by a watch."""

import asyncio
from collections.abc import Callable

from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.informer import Informer


async def until(
    cluster: Cluster, kind: Kind, key: Key, is_done: Callable[[Object | None], bool]
) -> Object | None:
    """Return the object at ``key`` once ``is_done`` says so of it, or of its absence.

    The caller bounds the time (``asyncio.timeout``).

    Raises:
        KubeError: it may not be read at all.
    """
    found = await cluster.get_live(kind, key)
    if is_done(found):
        return found
    selection = Selection(kind, Object, key.namespace, fields=f"metadata.name={key.name}")
    informer: Informer[Object] = Informer(selection)
    changed = asyncio.Event()
    informer.subscribe(lambda _: changed.set())
    watching = asyncio.create_task(informer.run(cluster))
    try:
        await informer.synced.wait()
        while True:
            changed.clear()
            if is_done(informer.get(key)):  # perhaps of what was: only a live look is believed
                found = await cluster.get_live(kind, key)
                if is_done(found):
                    return found
            await changed.wait()
    finally:
        watching.cancel()
        await asyncio.wait([watching])
