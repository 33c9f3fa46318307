"""liqoctl as one file runs where no Python packages are."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from sandbox.controlplane import Plane

pytestmark = pytest.mark.cluster

ROOT: Final = Path(__file__).parent.parent
BARE: Final = Path(sys.base_prefix) / "bin"
"""Where the Python is that this one was made of, without our packages."""


@pytest.fixture(scope="module")
def liqoctl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as a maintainer does."""
    made = tmp_path_factory.mktemp("dist") / "liqoctl"
    subprocess.run(
        ["/usr/bin/env", "make", "--old-file=.venv/ready", "one-file", f"ONE_FILE={made}"],
        cwd=ROOT,
        check=True,
    )
    return made


def run(liqoctl: Path, home: Path, *args: str) -> str:
    env = {"PATH": f"{BARE}{os.pathsep}/usr/bin:/bin", "HOME": str(home)}
    return subprocess.check_output([liqoctl, *args], env=env, text=True)


@pytest.mark.usefixtures("crds")
def test_it_needs_no_packages_and_reaches_a_cluster(
    liqoctl: Path, plane: Plane, tmp_path: Path
) -> None:
    bare = [str(BARE / "python3"), "-I", "-c", "import aiohttp"]
    assert subprocess.run(bare, capture_output=True, check=False).returncode
    assert run(liqoctl, tmp_path, "--version").startswith("liqoctl ")
    assert "kind: CustomResourceDefinition" in run(liqoctl, tmp_path, "install", "-o", "yaml")
    where = f"--kubeconfig={plane.kubeconfig}"
    assert "NAME" in run(liqoctl, tmp_path, where, "get", "virtualnode", "-o", "wide")
