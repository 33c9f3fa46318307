"""What the allocator keeps, given back to the system."""

import asyncio
import ctypes
import gc
from typing import Final

GIVE_BACK_S: Final = 10.0
"""Between two times that free memory goes back to the system."""

MUCH: Final = 1000
"""So many containers more than at the last collection are worth another."""

_LIBC: Final = ctypes.CDLL(None)


def give_back() -> None:
    """Return to the system what the allocator keeps.

    After many clients at once, or a start, small things stay above the gaps that larger ones leave,
    and glibc gives back by itself only what is above all. It takes some milliseconds then, 0.2
    otherwise.
    """
    if (trim := getattr(_LIBC, "malloc_trim", None)) is not None:
        trim(0)


async def give_back_for_ever(*, collects: bool = False) -> None:
    """Give back again and again: there may have been a list, or many clients, since.

    With ``collects`` what refers to itself goes first: at rest after a burst the collector's own
    threshold (``kube.process``) is not reached any more. It takes some milliseconds where what is
    there for good is frozen.
    """
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        if collects and gc.get_count()[0] > MUCH:
            gc.collect()
        give_back()
