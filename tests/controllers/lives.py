"""Daemons under a census, and how many lives they see."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sandbox import controlplane
from tests.census import Census
from tests.conftest import size_of

LIVES: Final = size_of("PYLIQO_TEST_LIVES", 10, 50)
"""What stays is one of each, by ten as by fifty."""
FIRST: Final = 10
"""So many lives fill what is remembered with a bound, and load what is loaded once."""
AT_ONCE: Final = 10
WITHIN_S: Final = 300.0
LOGGED: Final = 50_000
"""Characters of the end of each log that are shown if the test fails."""


@contextlib.asynccontextmanager
async def census_running(census: Census, log: Path, *args: str) -> AsyncIterator[Census]:
    """Run one of the processes while inside."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *census.command(*args, f"--health-port={controlplane.free_ports(1)[0]}"),
            stdout=file, stderr=file, env={**os.environ, "POD_NAME": f"{census.module}-0"},
        )  # fmt: skip
    census.pid = process.pid
    try:
        yield census
    finally:
        process.kill()
        await process.wait()
        _show(log)


def _show(log: Path) -> None:
    """Print the end of a log, which pytest shows if the test fails."""
    print(log.read_text()[-LOGGED:])  # noqa: T201
