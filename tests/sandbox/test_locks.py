"""A lock is held by one process, and freed by whatever ends it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import locks

HOLD = """
import sys
from pathlib import Path
from sandbox import locks
with locks.held(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_told_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(locks.HeldError, match=f"the sandbox is busy with process {other.pid}"),
            locks.held(path, wait=False, what="the sandbox"),
        ):
            pass
        other.kill()
    with locks.held(path, wait=False):
        assert path.read_text().strip() == str(os.getpid())


def test_a_lock_leaves_no_file_when_told_so(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for _ in range(2):
        with locks.held(path, wait=True, keep=False):
            assert path.exists()
        assert not path.exists()
