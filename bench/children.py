"""Processes of a run: each in a session of its own, so that Ctrl-C ends them after the cleanup."""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_START_S: Final = 60.0
_STOP_S: Final = 5.0
_MORTAL: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""The kernel ends what runs under it when its parent has ended."""


async def line(process: Process) -> str:
    """Return the next line that ``process`` writes: how it says that it is ready.

    Raises:
        RuntimeError: it ended instead.
    """
    stream = process.stdout
    if stream is None:
        raise RuntimeError("the process has no standard output to read from")
    async with asyncio.timeout(_START_S):
        text = await stream.readline()
    if not text:
        raise RuntimeError(f"process {process.pid} ended before it was ready")
    return text.decode().strip()


async def stop(process: Process) -> None:
    """End ``process``; insist after a while."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def running(*argv: str) -> AsyncIterator[Process]:
    """Run ``argv`` in the repository's folder with its output readable; end it at the end."""
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        await stop(process)


@contextlib.asynccontextmanager
async def logging(
    argv: Sequence[str], *, environment: Mapping[str, str], log: Path
) -> AsyncIterator[Process]:
    """Run ``argv`` with its output added to ``log``; end it at the end, also if we are killed."""
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *_MORTAL, *argv, cwd=ROOT, env={**os.environ, **environment},
            stdin=DEVNULL, stdout=file, stderr=STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        await stop(process)
