"""The wheel's top-level names are ours alone, and each list in pyproject.toml knows them all."""

import re
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


IMPORTS = (
    "import sys, {}\nfor name, module in sys.modules.items():"
    " getattr(module, '__file__', None) and print(name.partition('.')[0])"
)
BACKPORTED = {"typing_extensions"}
"""Python's own, in the versions that some package is written for."""


def rows_of(page: str, first_column: str) -> list[list[str]]:
    """Return the rows of the table of ``docs/<page>`` whose header begins with a column."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition(f"| {first_column} |")[2].partition("\n\n")[0]
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]
    ]


def test_each_process_imports_the_packages_of_which_a_page_says_for_what() -> None:
    brings = {
        package: {package, *more.split(", ")}
        for package, _, more in rows_of("performance.md", "package")
    }
    own = {*sys.stdlib_module_names, *PACKAGES, *BACKPORTED}
    said, found = {}, {}
    for modules, _, _, packages in rows_of("performance.md", "modules"):
        ran = subprocess.run(
            [sys.executable, "-c", IMPORTS.format(modules)],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        said[modules] = set[str]().union(*(brings[one] for one in packages.split(", "))) - {"-"}
        found[modules] = {one for one in ran.stdout.split() if one[0] != "_"} - own
    assert found == said


PACKED = ("manifests/**/*.yaml", "liqoctl/page/*")


def test_what_is_no_program_comes_with_the_wheel(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("manifests", "liqoctl"):
        shutil.copytree(ROOT / name, tmp_path / name)

    flags = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        f"--wheel-dir={tmp_path}",
    ]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *flags, str(tmp_path)], check=True)

    [wheel] = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = {path for where in PACKED for path in ROOT.glob(where)}
    assert files
    assert {str(path.relative_to(ROOT)) for path in files} <= packed


def test_the_license_is_the_text_of_the_one_that_is_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability." in text
    assert PROJECT["project"]["license-files"] == ["LICENSE"]


def test_what_the_metadata_says_is_public() -> None:
    project = PROJECT["project"]

    assert project["authors"] == [{"name": "pyliqo maintainers"}]
    assert all(url.startswith("https://") for url in project["urls"].values())
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in project["classifiers"]


def test_the_image_is_made_of_wheels_that_make_fetches_first() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (wheels/\S+)", container, re.MULTILINE)
    rules = dict(re.findall(r"^(image|wheels): (.*?)\n\n", makefile, re.DOTALL | re.MULTILINE))

    assert rules["image"].startswith("wheels ")
    assert copied == ["wheels/dependencies/${TARGETARCH}", "wheels/pyliqo"]
    filled = rules["wheels"].replace("$(arch)", "${TARGETARCH}")
    assert all(folder in filled for folder in copied)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1:] == ["*", "!wheels"]
    [python] = re.findall(r"python:([0-9.]+)-slim", container)
    assert f"PYTHON_OF_IMAGE := {python}\n" in makefile
