"""Objects that a command makes or removes in one of two clusters, each step told.

Every step may be done again: what is there already is left, and what differs is changed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import click

from apis import objects
from apis.objects import Key, Kind, Object
from kube import waiting
from kube.errors import AlreadyExistsError, KubeError
from liqoctl.forge import manifests
from liqoctl.session import Side

_advance: ContextVar[Callable[[], None]] = ContextVar("_advance", default=lambda: None)
"""Begins the time anew in which nothing of a command may change."""


@asynccontextmanager
async def within(timeout_s: float, what: str) -> AsyncIterator[None]:
    """Bound the time in which no step of the command ends, and nothing that goes changes.

    Raises:
        click.ClickException: it took longer; the same command goes on from there.
    """
    try:
        async with asyncio.timeout(timeout_s) as bound:
            time = asyncio.get_running_loop().time
            before = _advance.set(lambda: bound.reschedule(time() + timeout_s))
            try:
                yield
            finally:
                _advance.reset(before)
    except TimeoutError:
        stuck = f"nothing has changed for {timeout_s:g}s"
        message = f"{what}: {stuck}; the same command goes on from here"
        raise click.ClickException(message) from None


async def keep(
    side: Side,
    kind: Kind,
    wanted: Object,
    *,
    new: Object | None = None,
    whole: Collection[str] = (),
) -> Object:
    """Return the object as it is, once it says what is ``wanted``; all else stays as it is.

    Where there is none it is made as ``new``, or else as ``wanted``; ``whole`` is as of
    ``manifests.changes``.
    """
    key = objects.key_of(wanted)
    found = await side.cluster.get_live(kind, key)
    if found is None:
        try:
            made = await side.cluster.create(kind, new or wanted)
        except AlreadyExistsError:
            return await keep(side, kind, wanted, new=new, whole=whole)
        side.info(f"{kind} {key}: created")
        return made
    changes = manifests.changes(found, wanted, whole)
    if not changes:
        side.info(f"{kind} {key}: is as it should be")
        return found
    changed = await side.cluster.patch(kind, key, changes)
    side.info(f"{kind} {key}: updated")
    return changed


async def until(  # noqa: PLR0913  # what to wait for, and how to tell of it
    side: Side,
    kind: Kind,
    key: Key,
    is_done: Callable[[Object | None], bool],
    *,
    what: str,
    why: Callable[[Object | None], str] = lambda _: "",
) -> Object | None:
    """Return the object once ``is_done``; what a time-out interrupted is told, and ``why``."""
    with side.progress.waiting(f"{side.prefix}{what}"):
        try:
            found = await waiting.until(side.cluster, kind, key, is_done)
        except asyncio.CancelledError:
            side.warning(f"still waiting for {what}{await _reason(side, kind, key, why)}")
            raise
    _advance.get()()
    return found


async def _reason(side: Side, kind: Kind, key: Key, why: Callable[[Object | None], str]) -> str:
    try:
        async with asyncio.timeout(2):
            said = why(await side.cluster.get_live(kind, key))
    except (KubeError, TimeoutError):
        return ": the cluster does not answer"
    return f": {said}" if said else ""


async def remove(side: Side, kind: Kind, key: Key, *, why: str = "", waits: bool = True) -> bool:
    """Delete the object if it is there, and wait until it is gone; return whether it was."""
    found = await side.cluster.get_live(kind, key)
    if found is None:
        return False
    uid = objects.uid(found)
    await side.cluster.delete(kind, key, uid=uid)
    if waits:
        await until_gone(side, kind, [key], uids={uid}, why=why)
    side.info(f"{kind} {key}: {'deleted' if waits else 'is being deleted'}")
    return True


async def until_gone(
    side: Side, kind: Kind, keys: Iterable[Key], *, uids: set[str] | None = None, why: str = ""
) -> None:
    """Wait until nothing is under ``keys`` any more, or something else than ``uids`` is."""

    def is_gone(found: Object | None) -> bool:
        _advance.get()()  # it is asked at each change
        return found is None or (uids is not None and objects.uid(found) not in uids)

    for key in keys:
        what = f"{kind} {key} to go"
        await until(side, kind, key, is_gone, what=what, why=lambda _: why)
