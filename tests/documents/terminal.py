"""What a reader types, and what he then sees."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox import binaries
from tests.journeys import world

OBJECTS = Path(__file__).parent / "objects"
"""The objects that documents print, a file each; the folder in which commands are typed."""
_AGE = re.compile(r"(\d+[smhd])+")


@dataclass(frozen=True)
class Terminal:
    """A shell of one cluster's administrator."""

    kubeconfig: Path

    async def types(self, line: str, stdin: str = "", *, fails: bool = False) -> str:
        """Return what a command prints, which has to end well, or not if it ``fails``."""
        code, out, err = await self._run(line, stdin)
        assert bool(code) is fails, f"$ {line}\n{out}{err}"
        return out + err

    async def prints(self, line: str) -> str:
        """Return what a command prints on standard output alone."""
        code, out, err = await self._run(line, "")
        assert not code, f"$ {line}\n{err}"
        return out

    async def sees(self, line: str, heading: str, *rows: str) -> None:
        """Type a command until it shows ``rows``, regular expressions, below ``heading``.

        Cells have one space between them, ages are called AGE; rows of others may stand there too.
        """
        said: Sequence[str] = ()
        try:
            async with asyncio.timeout(world.PATIENCE_S):
                while not said or not _shows(said, heading, rows):
                    said = lines((await self._run(line, ""))[1])
        except TimeoutError as error:
            raise AssertionError(f"$ {line}\n{said}\nnot: {heading}, {rows}") from error

    async def sees_no_more(self, line: str, name: str) -> None:
        """Type a command until no row begins with ``name``, or a namespace and it."""
        async with asyncio.timeout(world.PATIENCE_S):
            while any(name in row.split()[:2] for row in await self.rows(line)):
                pass

    async def rows(self, line: str) -> list[str]:
        """Return the lines of a table below its heading; none of one that is empty."""
        return lines(await self.prints(line))[1:]

    async def _run(self, line: str, stdin: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *_program(line), cwd=OBJECTS, env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode(), err.decode()


def _program(line: str) -> list[str]:
    name, *args = shlex.split(line)
    programs = {"kubectl": [str(binaries.kubectl())], "liqoctl": [sys.executable, "-m", "liqoctl"]}
    return [*programs[name], *args]


def _shows(said: Sequence[str], heading: str, rows: Sequence[str]) -> bool:
    return said[0] == heading and all(
        any(re.fullmatch(row, line) for line in said[1:]) for row in rows
    )


def lines(said: str) -> list[str]:
    """Return what was printed, with one space between cells and AGE for ages."""
    return [
        " ".join("AGE" if _AGE.fullmatch(word) else word for word in line.split())
        for line in said.splitlines()
    ]
