"""The wheel's top-level names are ours alone, and each list in pyproject.toml knows them all."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "apis", "kube", "certs", "webhook", "controllers", "kubelet", "reflector", "liqoctl", "sandbox",
    "manifests",
)  # fmt: skip
SHIPPED = tuple(name for name in PACKAGES if name != "sandbox")
"""The sandbox runs clusters for tests and the demo, from a checkout."""
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_list_of_packages_is_the_same() -> None:
    tool = PROJECT["tool"]

    assert tool["setuptools"]["packages"]["find"]["include"] == [f"{name}*" for name in SHIPPED]
    assert tool["importlinter"]["root_packages"] == [*PACKAGES, "bench"]
    assert tool["mypy"]["packages"] == [*PACKAGES, "bench", "tests"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_says_what_it_is_and_is_typed(name: str) -> None:
    text = (ROOT / name / "__init__.py").read_text(encoding="utf-8")

    assert text.startswith('"""')
    assert (ROOT / name / "py.typed").exists()


def test_no_dependency_owns_one_of_our_names() -> None:
    owners = metadata.packages_distributions()
    foreign = {name: set(owners.get(name, [])) - {"pyliqo"} for name in PACKAGES}

    assert not any(foreign.values()), foreign


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_pin_by_hash_and_name_no_index(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if "==" in line]

    assert pinned
    assert all(line.endswith("\\") for line in pinned)
    assert not [line for line in lines if "://" in line or line.startswith("--")]


def test_the_manifests_come_with_the_wheel(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")

    flags = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        f"--wheel-dir={tmp_path}",
    ]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *flags, str(tmp_path)], check=True)

    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".yaml")}
    assert packed == {str(path.relative_to(ROOT)) for path in ROOT.glob("manifests/**/*.yaml")}
