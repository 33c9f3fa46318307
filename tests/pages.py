"""The commands of a page of the docs, as somebody types them who has nothing but the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

from sandbox import binaries


def blocks(page: Path) -> list[str]:
    """Return the blocks in ``sh`` of the page, in their order."""
    return re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def shell(block: str, folder: Path, *, answer: str = "", **env: Path | str) -> str:
    """Run ``block`` in ``folder``; return what it prints. ``answer`` is typed if it asks back."""
    programs = (Path(sys.executable).parent, binaries.kubectl().parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    said = {name: str(value) for name, value in env.items()}
    done = subprocess.run(
        ["/bin/bash", "-euc", block], cwd=folder, env={**os.environ, **said, "PATH": path},
        input=answer, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
