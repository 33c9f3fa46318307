"""The contract of a reconciler, and the runner that calls it for the keys of what changed."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from apis.objects import Key
from kube import errors, logs, metrics
from kube.informer import Change, Informer
from kube.queue import MAX_S, WITHHELD_MAX_S, Queue, QueueClosedError


class Reconciler(Protocol):
    """Brings one object's world to its desired state, from any state, any number of times."""

    async def reconcile(self, key: Key) -> float | None:
        """Return the seconds until the next look, or None to wait for an event.

        Raises:
            TerminalError: retrying cannot help; the loop records it, and waits for an event, or
                long.
            Exception: anything else is retried with backoff.
        """
        ...


class TerminalError(Exception):
    """``reason`` is a CamelCase word for conditions and events; the message is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# Runs a reconciler --------------------------------------------------------------------------------

T = TypeVar("T")
logger = logging.getLogger(__name__)

DRAIN_S: Final = 10.0
_TOLD: Final = 13
"""So often a back-off doubles before it is the longest of what a server does not let."""
GIVEN_UP_S: Final = 600.0
"""Until what was given up is looked at again: what it rests on may not have been seen to change."""
RECONCILE_S: Final = 300.0
"""A reconcile that takes longer is cut off and retried: each of its calls has a deadline."""


def own_key(change: Change[Any]) -> Iterable[Key]:
    return (change.key,)


def _by_namespace(key: Key) -> Hashable:
    return key.namespace


@dataclass(frozen=True, eq=False)
class WatchSource(Generic[T]):
    """Whose changes matter, and which keys each of them asks to look at."""

    informer: Informer[T]
    keys: Callable[[Change[T]], Iterable[Key]] = own_key


class Runner:
    """Calls ``reconciler`` for each key of ``sources``, ``workers`` keys at a time.

    A key that failed again and again waits no longer than ``back_off_s``; one that no retry can
    help is looked at after ``given_up_s``, if nothing changes before. Keys of different ``line``
    take turns, by default those of different namespaces.
    """

    def __init__(  # noqa: PLR0913  # the knobs of a loop, all with defaults
        self,
        name: str,
        reconciler: Reconciler,
        sources: Sequence[WatchSource[Any]],
        *,
        workers: int = 1,
        wait_for: Sequence[Informer[Any]] = (),
        queue: Queue[Key] | None = None,
        line: Callable[[Key], Hashable] = _by_namespace,
        deadline_s: float = RECONCILE_S,
        back_off_s: float = MAX_S,
        given_up_s: float = GIVEN_UP_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._reconciler = reconciler
        self._sources = list(sources)
        self._workers = workers
        self._wait_for = list(wait_for)
        self._queue: Queue[Key] = queue if queue is not None else Queue(line=line)
        self._deadline_s = deadline_s
        self._back_off_s = back_off_s
        self._given_up_s = given_up_s
        self._given_up: dict[Key, str] = {}
        self._clock = clock
        self._since: dict[Key, float] = {}
        self._ids = itertools.count(1)
        self._attached: dict[WatchSource[Any], _Attachment] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_draining = False
        self._outcomes = {
            outcome: metrics.RECONCILES.labels(name, outcome)
            for outcome in ("done", "again", "conflict", "busy", "terminal", "error")
        }
        self._retries = metrics.QUEUE_RETRIES.labels(name)
        self._seconds = metrics.RECONCILE_SECONDS.labels(name)
        metrics.QUEUE_DEPTH.labels(name).set_function(self._queue.__len__)  # which keeps no runner
        metrics.QUEUE_OLDEST.labels(name).set_function(self._queue.oldest_age_s)

    def enqueue(self, key: Key, after_s: float = 0) -> None:
        """Ask for a look at ``key``, now or in ``after_s``."""
        self._queue.add_after(key, after_s)

    def server_is_back(self) -> None:
        """Try those keys now that a server did not answer or let; subscribe it to a ``Reach``."""
        self._queue.server_is_back()

    def is_synced(self) -> bool:
        """Whether every informer that a reconcile may look into has its first list."""
        return all(informer.synced.is_set() for informer in self._needed())

    def stuck_s(self) -> float:
        """Return for how long the slowest reconcile has been running, 0 without one."""
        begun = [*self._since.values()]  # at once: another thread may ask
        return max((self._clock() - since for since in begun), default=0.0)

    def is_alive(self) -> bool:
        return self.stuck_s() < 2 * self._deadline_s

    async def run(self) -> None:
        """Wait until all informers have synced, then reconcile for ever; cancel to stop."""
        for informer in self._needed():
            await informer.synced.wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for source in self._sources:
                    self._attached[source] = _Attachment(self._subscribed(source))
                for attachment in self._attached.values():
                    attachment.start(tasks)
                for _ in range(self._workers):
                    tasks.create_task(self._work())
        finally:
            self._tasks = None
            for attachment in self._attached.values():
                attachment.end()

    def attach(self, source: WatchSource[Any], *, wait_for: Sequence[Informer[Any]] = ()) -> None:
        """Add a source that comes later, such as a namespace's.

        Its keys are looked at once its informer and ``wait_for`` have synced.
        """
        needed = [source.informer, *wait_for]
        attachment = _Attachment(self._subscribed(source), needed)
        self._attached[source] = attachment
        if self._tasks is not None:
            attachment.start(self._tasks)

    def detach(self, source: WatchSource[Any]) -> None:
        attachment = self._attached.pop(source, None)
        if attachment is not None:
            attachment.end()

    async def drain(self, within_s: float = DRAIN_S) -> None:
        """Take no more keys and finish those that wait, before a process ends."""
        self._is_draining = True
        for attachment in self._attached.values():
            attachment.end()
        self._queue.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._queue.idle()

    def _needed(self) -> list[Informer[Any]]:
        return [*(source.informer for source in self._sources), *self._wait_for]

    def _subscribed(self, source: WatchSource[Any]) -> Callable[[], Callable[[], None]]:
        def on_change(change: Change[Any]) -> None:
            try:
                for key in source.keys(change):
                    self._queue.add(key)
            except Exception:
                # A handler of an informer must not raise: the others would miss the change.
                fields = {"controller": self.name, "changed": str(change.key)}
                logger.exception("could not tell whom a change concerns", extra=fields)

        return lambda: source.informer.subscribe(on_change)

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosedError:
                # Drained: the process ends and cancels us.
                await asyncio.get_running_loop().create_future()
                return
            self._since[key] = self._clock()
            try:
                with logs.bound(controller=self.name, key=str(key), reconcile=next(self._ids)):
                    await self._reconcile(key)
            finally:
                self._seconds.observe(self._clock() - self._since.pop(key))
                self._queue.done(key)
            await asyncio.sleep(0)  # a reconcile that asks nobody does not let others run

    async def _reconcile(self, key: Key) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                again_s = await self._reconciler.reconcile(key)
        except TerminalError as error:
            self._give_up(key, error)
        except Exception as error:  # noqa: BLE001  # any failure parks its key, none stops the loop
            self._put_off(key, error)
        else:
            self._queue.forget(key)
            self._given_up.pop(key, None)
            self._outcomes["done" if again_s is None else "again"].inc()
            if again_s is not None:
                self._queue.add_after(key, again_s)

    def _give_up(self, key: Key, error: TerminalError) -> None:
        self._outcomes["terminal"].inc()
        self._queue.forget(key)
        self._queue.add_after(key, self._given_up_s)
        is_news = self._given_up.get(key) != str(error)
        self._given_up[key] = str(error)
        fields = {"reason": error.reason, "error": str(error), "retry_in_s": self._given_up_s}
        level = logging.WARNING if is_news else logging.DEBUG
        logger.log(level, "gave up until something changes", extra=fields)

    def _put_off(self, key: Key, error: Exception) -> None:
        self._retries.inc()
        retry_s = self._retry_s(key, error)
        self._outcomes[_outcome(error)].inc()
        fields = {"error": str(error) or repr(error), "retry_in_s": round(retry_s, 3)}
        if isinstance(error, errors.ConflictError):
            logger.debug("somebody else was faster", extra=fields)
        elif isinstance(error, errors.KubeError) or errors.is_away(error):
            is_news = not errors.is_withheld(error) or _is_news(self._queue.failures(key))
            logger.log(logging.WARNING if is_news else logging.DEBUG, "tries again", extra=fields)
        else:
            logger.error("tries again", extra=fields, exc_info=error)

    def _retry_s(self, key: Key, error: Exception) -> float:
        if errors.is_away(error):
            return self._queue.await_server(key)
        asked_s = _asked_s(error)
        if errors.is_withheld(error):
            most_s = min(WITHHELD_MAX_S, self._back_off_s)
            return self._queue.hold(key, at_least_s=asked_s, at_most_s=most_s)
        return self._queue.retry(key, at_least_s=asked_s, at_most_s=self._back_off_s)


class _Attachment:
    """A subscription that begins when all it needs has synced."""

    def __init__(
        self, subscribe: Callable[[], Callable[[], None]], needed: Sequence[Informer[Any]] = ()
    ) -> None:
        self._subscribe = subscribe
        self._needed = needed
        self._unsubscribe: Callable[[], None] | None = None
        self._waiting: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Subscribe as soon as possible."""
        if all(informer.synced.is_set() for informer in self._needed):
            self._unsubscribe = self._subscribe()
        else:
            self._waiting = tasks.create_task(self._start_later())

    def end(self) -> None:
        """Unsubscribe, or do not wait any more."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._waiting = self._unsubscribe = None

    async def _start_later(self) -> None:
        for informer in self._needed:
            await informer.synced.wait()
        self._unsubscribe = self._subscribe()


def _asked_s(error: Exception) -> float:
    return error.retry_after_s if isinstance(error, errors.BusyError) else 0.0


def _is_news(failures: int) -> bool:
    """Whether to log a failure: each while back-offs grow, then ever less often."""
    return failures <= _TOLD or not failures & (failures - 1)


def _outcome(error: Exception) -> str:
    if isinstance(error, errors.ConflictError):
        return "conflict"
    return "busy" if isinstance(error, errors.BusyError) else "error"
