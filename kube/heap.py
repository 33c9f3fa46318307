"""What the allocator keeps, given back to the system."""

import asyncio
import ctypes
from typing import Final

GIVE_BACK_S: Final = 10.0
"""Between two times that free memory goes back to the system."""

_LIBC: Final = ctypes.CDLL(None)


def give_back() -> None:
    """Return to the system what the allocator keeps.

    After many clients at once, or a start, small things stay above the gaps that larger ones leave,
    and glibc gives back by itself only what is above all. It takes some milliseconds then, 0.2
    otherwise.
    """
    if (trim := getattr(_LIBC, "malloc_trim", None)) is not None:
        trim(0)


async def give_back_for_ever() -> None:
    """Give back again and again: there may have been a list, or many clients, since."""
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        give_back()
