"""The real Helm, as somebody types it."""

import os
import subprocess
from pathlib import Path

from sandbox import binaries


def helm(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """Return what it prints."""
    command = [binaries.program("helm"), *words]
    told = {**os.environ, **(env or {})}
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
