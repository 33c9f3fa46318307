"""The commands of a page of the docs, as somebody types them who has nothing but the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

from sandbox import binaries


def blocks(page: Path) -> list[str]:
    """Return the blocks in ``sh`` of the page, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def shell(block: str, folder: Path, **env: Path | str) -> str:
    """Run ``block`` in ``folder``; return what it prints."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    if not (programs / "kubectl").exists():
        (programs / "kubectl").symlink_to(binaries.kubectl())
        (programs / "liqoctl").symlink_to(Path(sys.executable).with_name("liqoctl"))
    said = {name: str(value) for name, value in env.items()}
    said = {**os.environ, **said, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/bash", "-euc", block],
        cwd=folder,
        env=said,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
