"""What the allocator keeps, given back to the system."""

import ctypes
from typing import Final

_LIBC: Final = ctypes.CDLL(None)


def give_back() -> None:
    """Return to the system what the allocator keeps.

    After many clients at once, or a start, small things stay above the gaps that larger ones leave,
    and glibc gives back by itself only what is above all. It takes some milliseconds then, 0.2
    otherwise.
    """
    if (trim := getattr(_LIBC, "malloc_trim", None)) is not None:
        trim(0)
