"""Work that needs an API server begins again when that refuses: no refusal ends a daemon.

Source: docs/parity.md C-36.4.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from kube.errors import KubeError, UnauthorizedError
from kube.reconcile import TerminalError

FIRST_S: Final = 1.0
MOST_S: Final = 30.0

logger = logging.getLogger(__name__)


async def persist(
    work: Callable[[], Awaitable[None]],
    name: str,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do ``work`` until it returns; what a server, or its content, refused is told in one line.

    Each time it fails the pause doubles, from 1 s to 30 s; anybody who worked for longer than that
    has it short again.

    Raises:
        UnauthorizedError: there is no identity to ask a server with.
        Exception: whatever else ``work`` raises, which trying again would not mend.
    """
    failures = 0
    while True:
        began, refused = clock(), list[BaseException]()
        try:
            await work()
        except* (KubeError, TerminalError) as group:
            refused += _each(group)
        if not refused:
            return
        for error in refused:
            if isinstance(error, UnauthorizedError) and not error.status:
                raise error
        failures = 1 if clock() - began > MOST_S else failures + 1
        pause_s = min(FIRST_S * 2 ** (failures - 1), MOST_S)
        said = "; ".join(dict.fromkeys(map(str, refused)))
        fields = {"program": name, "error": said, "retry_in_s": pause_s}
        logger.error("begins again", extra=fields)
        await sleep(pause_s)


def _each(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, and of groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    else:
        yield error
