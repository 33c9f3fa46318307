"""Live looks at single objects, each shared by all who asked for it before it began."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from apis.objects import Key, Kind, Object
from kube.errors import NotReachableError

LATE: Final = "no answer in time"
PATIENCE_S: Final = 0.05
"""What the next look at an object waits for the one before it: none hangs because another does."""

Question: TypeAlias = tuple[Kind, Key]
"""Which object is looked at."""

looked: ContextVar[dict[Question, asyncio.Task[Object | None]] | None] = ContextVar(
    "looked", default=None
)
"""The looks of whoever is in the loop and may not wait; None for who is in a thread and may."""


@dataclass(frozen=True)
class Look:
    """A look that goes on, and until when somebody waits for it."""

    question: Question
    task: asyncio.Task[Object | None]
    until: float


class WouldWait(BaseException):
    """No cache has it, and whoever asks may not wait; no failure, so nobody handles it as one.

    Ask again with ``look`` among ``looked``, when it has ended or its time is over; where there is
    no look, ask again from a thread.
    """

    def __init__(self, look: Look | None = None) -> None:
        super().__init__()
        self.look = look


class Looks:
    """At most one look at an object at a time, while looks are as fast as usual.

    A look that has begun may miss what was written since. So who comes then has a part in the next
    one, which begins when that one ends: as fresh as a look of its own, and a burst of questions
    costs few requests. Lives in one loop; times are those of its clock.
    """

    def __init__(self, look: Callable[[Kind, Key], Awaitable[Object | None]]) -> None:
        self._look = look
        self._next: dict[Question, Look] = {}
        self._last: dict[Question, asyncio.Task[Object | None]] = {}

    async def at(self, kind: Kind, key: Key, until: float) -> Object | None:
        """Return the object as it is at the server now, or later; raise KubeError."""
        task = self.begin(kind, key, until).task
        await asyncio.wait([task])  # who gives up leaves it to the others
        return task.result()

    def begin(self, kind: Kind, key: Key, until: float) -> Look:
        """Return the look that tells what ``at`` does; others may wait for it too."""
        question = (kind, key)
        shared = self._next.get(question)
        if shared is None:
            task = asyncio.create_task(self._after_last(kind, key))
            task.add_done_callback(_seen)
            shared = Look(question, task, until)
        self._next[question] = replace(shared, until=max(shared.until, until))
        return replace(shared, until=until)

    async def _after_last(self, kind: Kind, key: Key) -> Object | None:
        question = (kind, key)
        if (last := self._last.get(question)) is not None:
            await asyncio.wait([last], timeout=PATIENCE_S)
        shared = self._next.pop(question)
        self._last[question] = shared.task
        try:
            async with asyncio.timeout_at(shared.until):  # nobody waits any more
                return await self._look(kind, key)
        except TimeoutError as error:
            raise NotReachableError(LATE) from error
        finally:
            if self._last.get(question) is shared.task:
                del self._last[question]


def _seen(task: asyncio.Task[Object | None]) -> None:
    """Take the exception of a look that nobody waits for any more, which is no news."""
    if not task.cancelled():
        task.exception()
