"""What is released: liqoctl as one file, the image, and the list of what both are made of."""

import contextlib
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
from sandbox.errors import ProgramError
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


def output_of(liqoctl: Path, home: Path, *args: str) -> str:
    env = {"PATH": f"{BARE}{os.pathsep}/usr/bin:/bin", "HOME": str(home)}
    return subprocess.check_output([liqoctl, *args], env=env, text=True)


@pytest.mark.usefixtures("crds")
def test_it_needs_no_packages_and_reaches_a_cluster(
    liqoctl: Path, plane: Plane, tmp_path: Path
) -> None:
    bare = [str(BARE / "python3"), "-I", "-c", "import aiohttp"]
    assert subprocess.run(bare, capture_output=True, check=False).returncode
    assert output_of(liqoctl, tmp_path, "--version").startswith("liqoctl ")
    assert "kind: CustomResourceDefinition" in output_of(liqoctl, tmp_path, "install", "-o", "yaml")
    where = f"--kubeconfig={plane.kubeconfig}"
    assert "NAME" in output_of(liqoctl, tmp_path, where, "get", "virtualnode", "-o", "wide")


@pytest.mark.skipif(os.geteuid() != 0, reason="images are built by root")
def test_the_image_is_one_whenever_it_is_built_has_each_platform_and_runs() -> None:
    """On the sandbox's base, which stands for that of arm64, too: others are in a registry."""
    with cache.locked(cache.root()):
        parent = base.ensure()
        _both_platforms("localhost/release-base:1", parent)
        _image("localhost/release:both", "localhost/release-base:1", "linux/amd64,linux/arm64")
        _image("localhost/release:one", "localhost/release-base:1", "linux/amd64")
        both = {
            each["platform"]["architecture"]: each["digest"]
            for each in json.loads(_buildah("manifest", "inspect", "localhost/release:both"))[
                "manifests"
            ]
        }
        one = _buildah("images", "--format={{.Digest}}", "localhost/release:one").strip()
        machines = {arch: _machines(f"localhost/release@{digest}") for arch, digest in both.items()}
        container = _from("localhost/release:one")
        said = _buildah("run", "--isolation=chroot", container, "python3", "-m", "webhook", "-h")
        _buildah("rm", container)
        _buildah("rmi", "localhost/release:one")
        _buildah("manifest", "rm", "localhost/release:both", "localhost/release-base:1")

    assert both["amd64"] == one, "two builds of it are one"
    assert machines == {"amd64": {"x86_64"}, "arm64": {"aarch64"}}
    assert said.startswith("usage: python3 -m webhook")


def _image(name: str, parent: str, platforms: str) -> None:
    make(
        "image", f"BUILDER={shlex.join(buildah.command())}", f"PYTHON_OF_IMAGE={base.PYTHON}",
        f"IMAGE={name}", f"PLATFORMS={platforms}", f"BASE={parent}",
    )  # fmt: skip


def _buildah(*words: str) -> str:
    return buildah.run(*words)


def _from(image: str) -> str:
    """Return the name of a container of ``image``; before it a warning of its platform may come."""
    return _buildah("from", image).splitlines()[-1].strip()


def _both_platforms(name: str, parent: str) -> None:
    """Call ``parent`` the base of both platforms: the builder of Debian 12 runs its Python."""
    with contextlib.suppress(ProgramError):  # of a run that was broken off
        _buildah("manifest", "rm", name)
    for arch in ("amd64", "arm64"):
        container = _from(parent)
        _buildah("config", f"--arch={arch}", container)
        _buildah("commit", "--rm", "--timestamp=0", f"--manifest={name}", container)


def _machines(image: str) -> set[str]:
    """Return for which machines the compiled modules of ``image`` are, as their names say."""
    container = _from(image)
    try:
        place = Path(_buildah("mount", container).strip())
        modules = (place / "opt/dependencies").rglob("*-linux-gnu.so")
        return {each.name.split(".")[-2].split("-")[-3] for each in modules}
    finally:
        _buildah("rm", container)


def test_the_bill_of_materials_names_each_pinned_package() -> None:
    make("sbom")

    found = json.loads((ROOT / "dist/sbom.cdx.json").read_text(encoding="utf-8"))
    pinned = re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    assert [(one["name"], one["version"]) for one in found["components"]] == pinned
    assert found["metadata"]["component"]["name"] == "pyliqo"
