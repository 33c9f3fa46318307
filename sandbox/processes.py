"""Processes that outlive the command which started them, told apart by id and starting time."""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox import api

_ANYWHERE: Final = Path("/")
_STOP_S: Final = 10.0
_STARTED_FIELD: Final = 19  # of /proc/PID/stat, counted after the name of the program


@dataclass(frozen=True)
class Record:
    """Which process a pid file means, even after the id was given to another."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Whether that very process runs."""
        state = _state(self.pid)
        return state is not None and state[0] not in "ZX" and state[1] == self.started


def read(file: Path) -> Record | None:
    """Return what the pid file says, or None where it says nothing."""
    try:
        pid, started = file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return Record(int(pid), started)


def is_alive(file: Path) -> bool:
    """Whether the process of the pid file runs."""
    record = read(file)
    return record is not None and record.is_alive()


def launch(
    argv: Sequence[str],
    *,
    pid_file: Path,
    log: Path,
    joins: Iterable[Path] = (),
    folder: Path = _ANYWHERE,
) -> None:
    """Start ``argv`` in ``folder`` unless the process of the pid file runs.

    The process itself joins its groups and writes the file before it becomes ``argv``, and holds a
    lock until then: the next caller finds the process of one that was killed at any moment.
    """
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    command = ["setsid", "--fork", "sh", "-c", prologue(pid_file, joins), "sh", *argv]
    with log.open("ab") as output, (pid_file.parent / f".{pid_file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_alive(pid_file):
            return
        pid_file.unlink(missing_ok=True)
        subprocess.run(command, stdin=lock, stdout=output, stderr=output, cwd=folder, check=True)
    api.wait_until(lambda: read(pid_file) is not None, f"start of {argv[0]}", timeout_s=10)


def prologue(pid_file: Path, joins: Iterable[Path]) -> str:
    """Return what the shell does before it becomes the program."""
    join = [f"echo $$ > {shlex.quote(str(file))} &&" for file in joins]
    started = r"$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)"
    record = f'echo "$$ {started}" > {shlex.quote(str(pid_file))} &&'
    return " ".join([*join, record, 'exec "$@" < /dev/null'])


def kill(file: Path) -> None:
    """End the process of the pid file at once, and forget it."""
    _end(file, signal.SIGKILL)
    file.unlink(missing_ok=True)


def stop(file: Path) -> None:
    """Ask the process of the pid file to end, insist after 10 s, and forget it."""
    with contextlib.suppress(api.NotYetError):
        _end(file, signal.SIGTERM)
    kill(file)


def _end(file: Path, how: signal.Signals) -> None:
    record = read(file)
    if record is None or not record.is_alive():
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, how)
    api.wait_until(lambda: not record.is_alive(), f"end of process {record.pid}", timeout_s=_STOP_S)


def _state(pid: int) -> tuple[str, str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(") ")[2].split()
    return fields[0], fields[_STARTED_FIELD]
