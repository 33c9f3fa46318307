"""The wheel's top-level names are ours alone, and each list in pyproject.toml knows them all."""

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "apis", "kube", "certs", "webhook", "controllers", "kubelet", "reflector", "liqoctl", "sandbox",
)  # fmt: skip
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_list_of_packages_is_the_same() -> None:
    tool = PROJECT["tool"]

    assert tool["setuptools"]["packages"]["find"]["include"] == [f"{name}*" for name in PACKAGES]
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
