"""Memory that is given back to the system, and the file descriptors of this process."""

import ctypes
import errno
import gc
import itertools
import resource
import socket
from collections.abc import Iterator
from typing import Final

GIVE_BACK_S: Final = 10.0
"""Between two times that free memory goes back to the system."""

LARGE: Final = 2**17
_MMAP_THRESHOLD: Final = -3
_LIBC: Final = ctypes.CDLL(None)
_ended: Final[list[bool]] = []
CONNECTIONS: Final = 128
"""After so many new ones what is left of older ones is collected."""
_arrivals: Final = itertools.count(1)


def keep_large_apart() -> None:
    """Have memory of more than ``LARGE`` bytes go back to the system once it is free.

    glibc raises that bound by itself, up to 32 MiB, with the first large answers that are freed:
    later ones lie between small things, and stay. Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    if (mallopt := getattr(_LIBC, "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, LARGE)


def has_ended() -> None:
    """Take note that something ended that worked for a while, such as a watch.

    Its tasks, their errors and all they held refer to each other in circles (a TaskGroup that is
    cancelled makes some), and the collector looks after so many new objects only that hundreds of
    namespaces may have come and gone.
    """
    _ended[:] = [True]


def has_arrived() -> None:
    """Take note of one more connection of a client.

    A request that is no HTTP leaves its error, connection and buffers, 70 KiB by TLS, in a circle.
    """
    if next(_arrivals) % CONNECTIONS == 0:
        gc.collect(1)


def owes() -> bool:
    """Whether something ended whose remains were not collected yet."""
    return bool(_ended)


def settle() -> None:
    """Collect what is gone, and let the collector skip what is there: most of that will stay.

    What was said to stay before, and is gone by now, is collected. It takes 10 to 30 ms.
    """
    _ended.clear()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    give_back()


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
    import asyncio  # noqa: PLC0415  # the process that forks the webhook's worker has no loop

    while True:
        await asyncio.sleep(GIVE_BACK_S)
        if _ended:
            settle()
        else:
            give_back()


# File descriptors ---------------------------------------------------------------------------------

_USED_UP = frozenset({errno.EMFILE, errno.ENFILE})


def take_all_descriptors() -> None:
    """Raise the limit of this process to the most that it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def are_descriptors_used_up(error: BaseException) -> bool:
    """Whether ``error`` is for want of a file descriptor, which looking up a name does not say."""
    causes = list(_causes(error))
    if any(getattr(cause, "errno", None) in _USED_UP for cause in causes):
        return True
    return any(isinstance(cause, socket.gaierror) for cause in causes) and not _is_one_left()


def descriptors_in_words() -> str:
    """Return what to log, and what to do about it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"this process has no file descriptor left (its limit is {limit}): raise that (nofile)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _causes(one)
    yield error
    for cause in (error.__cause__, getattr(error, "os_error", None)):
        if isinstance(cause, BaseException):
            yield from _causes(cause)


def _is_one_left() -> bool:
    try:
        socket.socket().close()
    except OSError:
        return False
    return True
