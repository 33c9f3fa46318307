"""File descriptors: as many as the system gives, and told as themselves when they run out.

Each connection takes one. A process without any cannot connect to a server that is well: that says
nothing of the server. Source: docs/parity.md F-35.
"""

import errno
import resource
import socket
from collections.abc import Iterator

_USED_UP = frozenset({errno.EMFILE, errno.ENFILE})


def take_all() -> None:
    """Raise the limit of this process to the most that it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def are_used_up(error: BaseException) -> bool:
    """Whether ``error`` is for want of a file descriptor, which looking up a name does not say."""
    causes = list(_causes(error))
    if any(getattr(cause, "errno", None) in _USED_UP for cause in causes):
        return True
    return any(isinstance(cause, socket.gaierror) for cause in causes) and not _is_one_left()


def in_words() -> str:
    """Return what to tell, and what to do about it."""
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
