"""The product image, built from the project's own Containerfile."""

import functools
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sandbox import programs, progress
from sandbox.images import base, buildah, cache

REPOSITORY: Final = "localhost/pyliqo"
PACKAGES: Final = (
    *("apis", "kube", "certs"),
    *("webhook", "controllers", "kubelet", "reflector", "liqoctl", "manifests"),
)
PROJECT: Final = Path(__file__).parents[2]
_LOCK, _CONTAINERFILE, _PYPROJECT = "requirements.lock", "Containerfile", "pyproject.toml"


def recipe(project: Path = PROJECT) -> cache.Recipe:
    """Return how the image of ``project`` is made, from its files as they are at this moment."""
    source = cache.files(project, *PACKAGES, _LOCK, _CONTAINERFILE, _PYPROJECT)
    key = cache.key({**source, "base": base.key().encode()})
    name = f"{REPOSITORY}:{key}"
    return cache.Recipe(name, key, functools.partial(_build, name, source))


def _build(name: str, source: Mapping[str, bytes], folder: Path) -> None:
    parent, context = base.ensure(), folder / "context"
    here = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    shutil.copytree(_dependencies(source[_LOCK]), context / "wheels" / "dependencies" / here)
    with progress.step(f"building the product image {name}") as step:
        _write(source, folder / "source")
        _wheel(folder / "source", context / "wheels" / "pyliqo", step)
        containerfile = folder / "source" / _CONTAINERFILE
        buildah.build(containerfile, context, name, {"BASE": parent}, step)
        step.update("writing the archive")
        buildah.save(name, folder / "image.tar", step)
        shutil.rmtree(context)
        shutil.rmtree(folder / "source")
    buildah.forget(REPOSITORY, keep=name)


def _dependencies(lock: bytes) -> Path:
    """Return the folder with the wheels of the lock file, fetched when it changed."""
    target = f"{base.PYTHON} {platform.machine()}"
    key = cache.key({"lock": lock, "target": target.encode()})
    return cache.built(cache.root() / "wheels" / key, functools.partial(_fetch, lock)) / "wheels"


def _fetch(lock: bytes, folder: Path) -> None:
    pinned, wheels = folder / _LOCK, folder / "wheels"
    pinned.write_bytes(lock)
    with progress.step("fetching the wheels that the product image needs") as step:
        kind = ["--no-deps", "--only-binary=:all:", f"--python-version={base.PYTHON}"]
        files = ["--require-hashes", f"--requirement={pinned}", f"--dest={wheels}"]
        programs.run([*_pip("download"), *kind, *files], step=step)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for named in ("README.md", "LICENSE"):  # by pyproject.toml; a new one is no new image
        (folder / named).write_text("")


def _wheel(source: Path, target: Path, step: progress.Step) -> None:
    flags = ["--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={target}"]
    programs.run([*_pip("wheel"), *flags, source], step=step)


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", command, "--progress-bar=off"]
