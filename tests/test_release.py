"""What is released: liqoctl as one file, the image, and the list of what both are made of."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from sandbox.controlplane import Plane
from sandbox.images import base, buildah, cache

pytestmark = pytest.mark.cluster

ROOT: Final = Path(__file__).parent.parent
BARE: Final = Path(sys.base_prefix) / "bin"
"""Where the Python is that this one was made of, without our packages."""


@pytest.fixture(scope="module")
def liqoctl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as a maintainer does."""
    made = tmp_path_factory.mktemp("dist") / "liqoctl"
    make("one-file", f"ONE_FILE={made}")
    return made


def make(target: str, *variables: str) -> None:
    command = ["/usr/bin/env", "make", "--old-file=.venv/ready", target, *variables]
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    subprocess.run(command, cwd=ROOT, env=env, check=True)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="images are built by root")
def test_two_builds_of_the_image_are_one_and_it_runs() -> None:
    """On the sandbox's base: the usual one is in a registry, which no test reaches."""
    with cache.locked(cache.root()):
        parent = base.ensure()
        for name in ("localhost/release:1", "localhost/release:2"):
            make(
                "image", f"BUILDER={shlex.join(buildah.command())}", f"BASE={parent}",
                f"PYTHON_OF_IMAGE={base.PYTHON}", f"IMAGE={name}",
            )  # fmt: skip
        listed = buildah.run("images", "--format={{.Name}}:{{.Tag}} {{.Digest}}").splitlines()
        digests = {line.split()[1] for line in listed if line.startswith("localhost/release:")}
        container = buildah.run("from", "localhost/release:1").strip()
        said = buildah.run("run", "--isolation=chroot", container, "python3", "-m", "webhook", "-h")
        buildah.run("rm", container)
        buildah.run("rmi", "localhost/release:1", "localhost/release:2")
    assert len(digests) == 1
    assert said.startswith("usage: python3 -m webhook")


def test_the_bill_of_materials_names_each_pinned_package() -> None:
    make("sbom")

    found = json.loads((ROOT / "dist/sbom.cdx.json").read_text(encoding="utf-8"))
    pinned = re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    assert [(one["name"], one["version"]) for one in found["components"]] == pinned
    assert found["metadata"]["component"]["name"] == "pyliqo"
