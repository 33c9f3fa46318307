"""Waits for what is only to be asked for, again and again, and for many things at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
PATIENCE_S: Final = 180.0
AT_ONCE: Final = 200
"""More than a client lets through, and so few that no call waits in its queue up to a deadline."""
_LOOK_S: Final = 0.1


async def together(works: Iterable[Awaitable[object]]) -> None:
    """Do all of ``works``, a couple of hundred at once."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def do(work: Awaitable[object]) -> None:
        async with turn:
            await work

    await asyncio.gather(*map(do, works))


async def until(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool],
    *,
    what: str,
    within_s: float = PATIENCE_S,
) -> T:
    """Return what ``look`` finds once it ``holds``.

    Raises:
        RuntimeError: it never did.
    """
    try:
        async with asyncio.timeout(within_s):
            while not holds(found := await look()):  # noqa: ASYNC110  # a server sets no Event
                await asyncio.sleep(_LOOK_S)
            return found
    except TimeoutError as error:
        raise RuntimeError(f"not so within {within_s:.0f} s: {what}") from error
