"""Waiting for what a cluster becomes, by a watch, and for as long as it moves towards it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.errors import KubeError
from kube.informer import Informer

_LOOKS: Final = 4
"""So often it is looked whether something has moved before that is given up."""
_PAUSE_S: Final = 2.0


@dataclass(frozen=True)
class Left:
    """What is left to do: ``said`` to the user, and ``parts``, of which any change is progress."""

    said: str
    parts: Hashable


@contextlib.asynccontextmanager
async def while_moving(
    timeout_s: float, look: Callable[[], Awaitable[Left]], say: Callable[[str], object]
) -> AsyncIterator[None]:
    """Bound the time in which nothing of what ``look`` finds changes, and ``say`` what is left.

    Raises:
        TimeoutError: nothing has changed for ``timeout_s``.
    """
    async with asyncio.timeout(timeout_s) as bound:
        following = asyncio.create_task(_follow(bound, timeout_s, look, say))
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


async def _follow(
    bound: asyncio.Timeout,
    timeout_s: float,
    look: Callable[[], Awaitable[Left]],
    say: Callable[[str], object],
) -> None:
    before: Left | None = None
    while True:
        with contextlib.suppress(KubeError):  # a server that does not answer is no progress
            found = await look()
            if before is not None and found.parts != before.parts and not bound.expired():
                bound.reschedule(asyncio.get_running_loop().time() + timeout_s)
            if found.said and (before is None or found.said != before.said):
                say(found.said)
            before = found
        await asyncio.sleep(min(_PAUSE_S, timeout_s / _LOOKS))


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
