"""When an Event about a pod can be judged: once it has waited, and its local pod was read.

No watch follows pods for it: they are many, and Events about them are few or come all at once. So
some are read one by one, and where more are asked for the whole namespace is, seldom.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from apis.objects import Key, Object
from kube.cluster import Cluster, Selection
from kube.ratelimit import Buckets
from reflector.kinds.contract import RateLimitedRead, ReflectionContext

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K")
V = TypeVar("V")

FRESH_S: Final = 5.0
"""What is not urgent goes by an answer that old."""
LISTED_S: Final = 5.0
"""Between two lists of a namespace."""
KEPT_S: Final = 30.0
"""Of a list, unless there is another one."""
MOST: Final = 1024
"""Answers, stories that began, and those of which something has come home, each."""


@dataclass(frozen=True)
class _Answer(Generic[T]):
    at: float
    item: T | None


class RateLimitedReader(Generic[T]):
    """What a server said of the objects of a namespace, in the ``shape`` that is looked at."""

    def __init__(
        self,
        cluster: Cluster,
        of: Selection[T],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._of, self._clock = cluster, of, clock
        self._answers: OrderedDict[Key, _Answer[T]] = OrderedDict()
        self._reads = Buckets(clock)
        self._turn = asyncio.Lock()
        self._listed: float | None = None
        self._all: dict[Key, T] = {}

    def get(self, key: Key) -> T | None:
        """Return the object as it was said last, None if it was not there, or never asked for."""
        answer = self._answer(key)
        return answer.item if answer else None

    async def ask(self, key: Key, since: float) -> float:
        """Ask for ``key``, unless it was after ``since``; return in how many seconds to try again.

        0 if it is known now; else it is not this one's turn.
        """
        async with self._turn:
            answer = self._answer(key)
            return 0.0 if answer and answer.at >= since else await self._ask(key)

    async def _ask(self, key: Key) -> float:
        now = self._clock()
        if self._reads.allows(key.namespace):
            found = await self._cluster.get_live(self._of.kind, key)
            item = msgspec.convert(found, self._of.shape) if found else None
            _note(self._answers, key, _Answer(now, item))
            return 0.0
        if self._listed is not None and (left_s := self._listed + LISTED_S - now) > 0:
            return left_s
        self._all = (await self._cluster.list(self._of)).items
        self._listed = now
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, now)
        return 0.0

    def _forget(self, listed: float) -> None:
        if self._listed == listed:
            self._all, self._listed = {}, None

    def _answer(self, key: Key) -> _Answer[T] | None:
        one = self._answers.get(key)
        if self._listed is None or (one and one.at >= self._listed):
            return one
        return _Answer(self._listed, self._all.get(key))


class Patience:
    """How long the Events of a namespace wait: as ``read`` says, and then for an answer.

    What was told once about an object is a story that one wants to hear to its end: no more of it
    waits.
    """

    def __init__(
        self,
        read: RateLimitedRead,
        context: ReflectionContext,
        reader: RateLimitedReader[Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._context = read, context
        self._reader, self._clock = reader, clock
        self._first: OrderedDict[tuple[str, float], float] = OrderedDict()
        """When something of a story came that waits so long: what comes later waits no longer."""
        self._begun: OrderedDict[str, None] = OrderedDict()
        """Stories of which something came home."""

    async def left_s(self, original: Object) -> float:
        """Return in how many seconds to look at ``original`` again, 0 if it can be judged now."""
        read, now = self._read, self._clock()
        about = read.about(original, self._context)
        if about is None:
            return 0.0
        story = read.story(original)
        hold_s = 0.0 if story in self._begun else read.held_s(original, self._context)
        due = self._first.get((story, hold_s), now) + hold_s
        _note(self._first, (story, hold_s), due - hold_s)
        if due > now:
            return due - now
        known = self._reader.get(about)
        if known is not None and read.suffices(original, known):
            return 0.0
        is_any_good = known is not None and hold_s == 0  # which one it is never changes
        return await self._reader.ask(about, now - FRESH_S if is_any_good else due)

    def came_home(self, original: Object) -> None:
        _note(self._begun, self._read.story(original), None)


def _note(notes: OrderedDict[K, V], name: K, value: V) -> None:
    notes[name] = value
    notes.move_to_end(name)
    while len(notes) > MOST:
        notes.popitem(last=False)
