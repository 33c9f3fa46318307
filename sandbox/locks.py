"""Locks between processes: files that the kernel unlocks when their holder dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class HeldError(Exception):
    """Another process holds the lock; the message is one sentence that names it."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool, keep: bool = True, what: str = "this") -> Iterator[None]:
    """Hold the lock ``path`` during the block; ``keep=False`` removes the file after it.

    Raises:
        HeldError: with ``wait=False``, somebody else holds it.
    """
    descriptor = _take(path, wait=wait, what=what)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if not keep:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path, *, wait: bool, what: str) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            pid = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
            os.close(descriptor)
            raise HeldError(f"{what} is busy with process {pid}: wait for it, or end it") from None
        if _is_same(path, descriptor):
            return descriptor
        os.close(descriptor)  # its last holder removed the file: take the new one


def _open(path: Path) -> int:
    while True:
        # Somebody may tidy the folder away meanwhile; mkdir then fails either way.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
