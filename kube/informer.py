"""What a cluster holds of one selection, by list and watch, and waiting for what it becomes.

Source: docs/parity.md C-1 to C-15; Kubernetes, "API concepts", "Efficient detection of changes".
"""

import asyncio
import contextlib
import itertools
import logging
import math
import random
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from apis.objects import Key, Kind, Object
from kube import errors, memory, metrics
from kube.cluster import Cluster, Event, Listing, Selection, Watched, is_behind
from kube.errors import KubeError

T = TypeVar("T")
logger = logging.getLogger(__name__)

BACKOFF_S: Final = 0.8
MAX_BACKOFF_S: Final = 30.0
SILENT_S: Final = 90.0
"""A watch that told nothing for so long is opened again: servers send a bookmark every minute."""
MUTE_S: Final = 630.0
"""The same where no bookmark ever came: a server sends none of what has never changed. A server
that lives ends each watch sooner (``client.WATCH_S``), and is not asked for its version then."""
AWAY_S: Final = 2.0
"""The longest pause while a server is away: it may be back at any moment, and the client, which
looks for that, lets no request through before (``kube.reachability``)."""
STABLE_S: Final = 120.0
"""A watch that lasted so long was good: the next failure starts from the shortest back-off."""
SHORT_S: Final = 5.0
"""A watch that a server ends sooner counts as a failure, or a broken one would keep us busy."""
SURE: Final = 2
"""So many failures in a row are no accident: rights may come a moment after what they are for."""
NEEDED: Final = "needed"
"""Why a resting informer lists again."""
WITHHELD: Final = "withheld"
"""Why one lists whose right was taken away: a watch that is opened may say nothing for long."""
PIECE: Final = 500
"""So many objects of the first list are told in one turn of the loop: nobody rests on them before
it is synced. What a later list brings is told at once, since others look at what they are told of.
"""
_AHEAD: Final = 504
_SAID: Final = 500
"""Characters of what an answer that cannot be read is told by."""


class Change(NamedTuple, Generic[T]):
    """What happened to one object; ``new`` is None when it is gone, or left the selection.

    ``was_seen`` then tells how that is known: by a DELETED event, whose last state is ``old``, or
    by a namesake that stands there now. What a list only lacks is not seen, and ``old`` may be
    long outdated: anybody who destroys something for that reason reads live before. A DELETED event
    comes of an object that leaves a selection by labels, too; one that was not terminating in its
    last state may have done that. Source: docs/parity.md C-12, C-22.
    """

    key: Key
    old: T | None
    new: T | None
    was_seen: bool = True


Handler = Callable[[Change[T]], None]


class Informer(Generic[T]):
    """The objects of one selection. They are shared: read only.

    ``shape`` is ``Object`` or a struct with a ``metadata`` as in ``kube.slim``. Of a kind that the
    server may not know, or a right that may be missing, nothing is there: where the list is refused
    twice by an error of ``may_lack``, it counts as synced, and goes on trying.
    """

    def __init__(  # noqa: PLR0913  # what tests choose, by name
        self,
        selection: Selection[T],
        *,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        silent_s: tuple[float, float] = (SILENT_S, MUTE_S),
        may_lack: tuple[type[errors.KubeError], ...] = (),
    ) -> None:
        self.selection = selection
        self.synced = asyncio.Event()
        self.is_lacking = False
        """Whether the list is refused for a reason that counts as nothing there."""
        self.on_withheld: Callable[[str], None] = _tell_nobody
        """Told of a right that is missing, in the server's words, and "" once it is there."""
        self._withheld = ""
        self.on_excess: Callable[[str], None] = _tell_nobody
        """Told why more is said than is kept of it, and "" once it is not."""
        self.went_back = False
        """Whether a list was older than what was known: the server's store was restored."""
        self._may_lack = may_lack
        self._items: dict[Key, T] = {}
        self._sizes: dict[Key, int] = {}
        self.too_much = ""
        """Why what the server says is more than is kept of it; empty while it is not."""
        self._handlers: list[Handler[T]] = []
        self._untold: deque[Change[T]] = deque()
        """What is in the store already."""
        self._clock, self._dice, self._sleep = clock, dice, sleep
        self._seen = clock()
        self._silent_s, self._mute_s = silent_s
        self._has_bookmarks = False
        self._version = ""
        self._resource = selection.kind.resource

    def get(self, key: Key) -> T | None:
        """Return the object at ``key``, None when it is not in the cache."""
        return self._items.get(key)

    def may_have(self, key: Key) -> bool:
        """Whether that object is there, as far as is known: before the first list any may be."""
        return not self.synced.is_set() or key in self._items

    def items(self) -> Mapping[Key, T]:
        """Return a read-only view of all there is; it changes as the cluster does."""
        return MappingProxyType(self._items)

    def age_s(self) -> float:
        """Return the seconds since the API server last gave a sign of life."""
        return self._clock() - self._seen

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Tell ``handler`` each change, beginning with what is there; return how to stop that.

        A handler is called in the loop and must not block. One that raises, since it can make
        nothing of an object, is logged and has missed that change; the others have not.
        """
        self._tell_untold()
        self._handlers.append(handler)
        for key, item in list(self._items.items()):
            _call(handler, Change(key, None, item))

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._handlers.remove(handler)

        return unsubscribe

    def resync(self) -> None:
        """Tell all handlers everything there is once more, as if each object had changed."""
        self._tell_untold()
        for key, item in list(self._items.items()):
            self._tell(Change(key, item, item))

    async def run(self, cluster: Watched) -> None:
        """Follow ``cluster`` for ever; cancel to stop. What is cached stays."""
        metrics.WATCHES.labels(self._resource).inc()
        metrics.CACHED.labels(self._resource).inc(len(self._items))
        try:
            await self._follow(cluster)
        finally:
            metrics.WATCHES.labels(self._resource).dec()
            metrics.CACHED.labels(self._resource).dec(len(self._items))
            self._give_back(*list(self._sizes))
            memory.has_ended()

    async def _follow(self, cluster: Watched) -> None:
        cause, failures = "start", 0
        while True:
            error: errors.KubeError | None = None
            began = self._clock()
            try:
                if cause:
                    await self._list(cluster, cause)
                    cause, began = await self._rested(), self._clock()
                if not cause:
                    await self._watch(cluster)
            except Exception as raised:  # noqa: BLE001  # whatever an answer does to who reads it
                error = errors.alone(self._as_refusal(raised))
                self._exceed(str(error) if isinstance(error, errors.TooMuchError) else "")
                cause = cause or _cause_to_list(error)
                self._go_without(error, failures)
                cause = cause or (WITHHELD if self._withheld else "")
            if error is None and cause == NEEDED:
                continue
            lasted_s = self._clock() - began
            if lasted_s >= STABLE_S:
                failures = 0
            if error or lasted_s < SHORT_S:
                failures += 1
                await self._back_off(failures, error)

    def _as_refusal(self, raised: Exception) -> errors.KubeError:
        """Return what an answer that nobody can read means: to list again, and not at once."""
        if isinstance(raised, errors.KubeError):
            return raised
        logger.error("cannot read it", extra={"resource": self._resource}, exc_info=raised)
        return errors.ExpiredError(f"unreadable answer about {self._resource}: {raised!r}"[:_SAID])

    async def _rested(self) -> str:
        """Return why to list again after a rest; empty to follow at once."""
        return ""

    def _go_without(self, error: errors.KubeError, failures: int) -> None:
        """Take a kind that is unknown, twice in a row, for one of which there is nothing.

        A right that is missing tells nothing about what there is, and is told itself.
        """
        if failures >= SURE and isinstance(error, errors.ForbiddenError):
            self._withhold(str(error))
        if not failures or not isinstance(error, self._may_lack):
            return
        if not self.is_lacking:
            logger.info("goes on without it", extra={"resource": self._resource, "why": str(error)})
        if isinstance(error, errors.NotFoundError):
            self._store(self._gone({}))
        self.is_lacking = True
        self.synced.set()
        self._tell_untold()

    def _withhold(self, said: str) -> None:
        if said != self._withheld:
            self._withheld = said
            self.on_withheld(said)

    def _exceed(self, said: str) -> None:
        if said != self.too_much:
            self.too_much = said
            self.on_excess(said)

    async def _back_off(self, failures: int, error: errors.KubeError | None) -> None:
        asked_s = error.retry_after_s if isinstance(error, errors.BusyError) else 0.0
        most_s = AWAY_S if error and errors.is_away(error) else MAX_BACKOFF_S
        limit_s = min(BACKOFF_S * 2.0 ** min(failures - 1, 16), most_s)
        pause_s = max(asked_s, self._dice() * limit_s)
        metrics.WATCH_FAILURES.labels(self._resource).inc()
        said = "the watch ended at once" if error is None else str(error)
        fields = {"resource": self._resource, "error": said, "retry_in_s": round(pause_s, 2)}
        is_news = error is not None and not self.is_lacking
        logger.log(logging.WARNING if is_news else logging.DEBUG, "watching again", extra=fields)
        await self._sleep(pause_s)

    async def _list(self, cluster: Watched, cause: str) -> None:
        metrics.RELISTS.labels(self._resource, cause).inc()
        listing = await cluster.list(self.selection)
        self._heard()
        self._weigh_all(listing.sizes)
        self.went_back = self.went_back or is_behind(listing.version, self._version)
        self._version, self.is_lacking = listing.version, False
        self._exceed("")
        # First the whole store, then the news: a handler that looks around sees one state.
        try:
            self._store(itertools.chain(self._gone(listing.items), self._there(listing)))
            while not self.synced.is_set() and len(self._untold) > PIECE:
                self._tell_untold(PIECE)
                await asyncio.sleep(0)
        finally:  # also where it is cancelled: what is in the store is told once
            self._tell_untold()
        self.synced.set()

    def _gone(self, listed: Mapping[Key, T]) -> Iterator[Change[T]]:
        for key in [key for key in self._items if key not in listed]:
            yield from self._drop(key, self._items[key], was_seen=False)

    def _there(self, listing: Listing[T]) -> Iterator[Change[T]]:
        for key, item in listing.items.items():
            yield from self._put(key, item)

    def _weigh_all(self, sizes: Mapping[Key, int]) -> None:
        """Count the bytes of a list before any of it is kept: it is taken as a whole, or not."""
        if (kept := self.selection.kept) is not None:
            before = sum(self._sizes.values())
            kept.take(f"the list of {self._resource}", sum(sizes.values()), before)
            self._sizes = dict(sizes)

    def _weigh(self, key: Key, size: int) -> None:
        """Count the bytes of ``key`` before it is kept; those of what is gone count no longer."""
        if (kept := self.selection.kept) is not None:
            kept.take(f"the watch of {self._resource}", size, self._sizes.get(key, 0))
            self._sizes[key] = size

    async def _watch(self, cluster: Watched) -> None:
        """Follow until the watch ends, or says nothing for longer than a living one would."""
        now = asyncio.get_running_loop().time
        async with contextlib.aclosing(cluster.watch(self.selection, self._version)) as events:
            try:
                async with asyncio.timeout(self._patience_s()) as silence:
                    async for event in events:
                        self._take(event)
                        del event  # it may be large, and the next one may take minutes
                        silence.reschedule(now() + self._patience_s())
            except TimeoutError:
                metrics.WATCHES_SILENT.labels(self._resource).inc()
                fields = {"resource": self._resource, "silent_s": self._patience_s()}
                logger.info("the watch is silent: opening another", extra=fields)

    def _patience_s(self) -> float:
        return self._silent_s if self._has_bookmarks else self._mute_s

    def _take(self, event: Event[T]) -> None:
        self._heard()
        self._has_bookmarks = self._has_bookmarks or event.type == "BOOKMARK"
        self._version = event.version or self._version
        self._store(self._changes(event))
        self._tell_untold()

    def _changes(self, event: Event[T]) -> Iterator[Change[T]]:
        if event.type == "DELETED":
            yield from self._drop(event.key, event.object)
        elif event.type in {"ADDED", "MODIFIED"}:
            self._weigh(event.key, event.size)
            yield from self._put(event.key, event.object)

    def _put(self, key: Key, item: T) -> Iterator[Change[T]]:
        old = self._items.get(key)
        if old is None:
            self._items[key] = item
            self._make_room()
            yield Change(key, None, item)
            return
        (old_uid, old_version), (uid, version) = _identity(old), _identity(item)
        self._items[key] = item
        if old_uid != uid:
            yield Change(key, old, None)
            yield Change(key, None, item)
        elif old_version != version:
            yield Change(key, old, item)

    def _make_room(self) -> None:
        """Forget the oldest of too many; no handler is notified, since they did not go."""
        if self.selection.most and len(self._items) > self.selection.most:
            oldest = next(iter(self._items))
            del self._items[oldest]
            self._give_back(oldest)

    def _drop(self, key: Key, last: T, *, was_seen: bool = True) -> Iterator[Change[T]]:
        self._give_back(key)
        if self._items.pop(key, None) is not None:
            yield Change(key, last, None, was_seen)

    def _give_back(self, *keys: Key) -> None:
        size = sum(self._sizes.pop(key, 0) for key in keys)
        if self.selection.kept is not None:
            self.selection.kept.give_back(size)

    def _store(self, changes: Iterable[Change[T]]) -> None:
        """Let ``changes`` be made, which brings them to the store; they are still to tell."""
        before = len(self._items)
        try:
            self._untold.extend(changes)
        finally:
            if len(self._items) != before:
                metrics.CACHED.labels(self._resource).inc(len(self._items) - before)

    def _tell_untold(self, most: float = math.inf) -> None:
        while self._untold and most > 0:
            most -= 1
            self._tell(self._untold.popleft())

    def _tell(self, change: Change[T]) -> None:
        for handler in list(self._handlers):
            _call(handler, change)

    def _heard(self) -> None:
        self._withhold("")
        self._seen = self._clock()
        metrics.WATCH_SEEN.labels(self._resource).set_to_current_time()


class Index(Generic[T]):
    """The keys of an informer by what ``of`` says of each object; each change keeps it."""

    def __init__(self, informer: Informer[T], of: "Indexed[T]") -> None:
        self._of = of
        self._keys: dict[Hashable, dict[Key, None]] = {}
        self._said: dict[Key, tuple[Hashable, ...]] = {}
        informer.subscribe(self._on_change)

    def keys(self, said: Hashable) -> list[Key]:
        return list(self._keys.get(said, ()))

    def _on_change(self, change: Change[T]) -> None:
        said = {} if change.new is None else dict.fromkeys(self._of(change.key, change.new))
        before = dict.fromkeys(self._said.pop(change.key, ()))
        if said:
            self._said[change.key] = tuple(said)
        for each in said.keys() - before:
            self._keys.setdefault(each, {})[change.key] = None
        for each in before.keys() - said:
            del self._keys[each][change.key]
            if not self._keys[each]:
                del self._keys[each]


Indexed: TypeAlias = Callable[[Key, T], Iterable[Hashable]]
"""What an object is found by."""


def by_namespace(key: Key, _: Any) -> Iterable[Hashable]:
    return (key.namespace,)


def _call(handler: Handler[T], change: Change[T]) -> None:
    try:
        handler(change)
    except Exception:
        logger.exception("could make nothing of a change", extra={"object": str(change.key)})


def _tell_nobody(_: str) -> None:
    """Who follows what nobody can withhold has nobody to tell."""


def _cause_to_list(error: errors.KubeError) -> str:
    """Return why the version is of no use any more; empty when the watch can go on from it."""
    if isinstance(error, errors.TooMuchError):
        return "too much"
    if isinstance(error, errors.ExpiredError):
        return "expired" if error.status else "unreadable"
    if isinstance(error, errors.NotFoundError):  # its CRD went, and all objects with it
        return "unknown"
    if error.status == _AHEAD:  # the server is behind us: restored, or another replica
        return "ahead"
    return "refused" if isinstance(error, errors.InvalidError) else ""


def _identity(item: Any) -> tuple[str, str]:
    if isinstance(item, dict):
        metadata = item["metadata"]
        return metadata.get("uid", ""), metadata.get("resourceVersion", "")
    return item.metadata.uid, item.metadata.resource_version


# Waiting for what a cluster becomes ---------------------------------------------------------------

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
