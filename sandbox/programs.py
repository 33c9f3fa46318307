"""Programs that are run to their end, with what they say told as progress."""

import collections
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.errors import MissingError, ProgramError
from sandbox.progress import Step

_TAIL = 25


def run(
    command: Sequence[str | Path],
    *,
    step: Step | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run ``command`` and return what it wrote; each line updates ``step``.

    Raises:
        MissingError: there is no such program.
        ProgramError: its exit status was not 0.
    """
    words = [str(word) for word in command]
    said: list[str] = []
    with _start(words, cwd, env) as process:
        for line in process.stdout or ():
            said.append(line)
            if step and line.strip():
                step.update(line.strip()[:80])
    if process.returncode:
        tail = "".join(collections.deque(said, _TAIL))
        raise ProgramError(f"{shlex.join(words)} ended with {process.returncode}:\n{tail}")
    return "".join(said)


def _start(
    words: list[str], cwd: Path | None, env: Mapping[str, str] | None
) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise MissingError(f"there is no program {words[0]}: install it first") from error
