"""buildah with a storage of its own, so that nothing shows up among the machine's containers."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sandbox import programs
from sandbox.errors import ProgramError
from sandbox.images import cache
from sandbox.progress import Step

_MOST_IMAGES = {"overlay": 60, "vfs": 20}  # with vfs each is a whole copy


def tidy() -> None:
    """Remove what a build that was killed left; hold the lock, so that none is under way."""
    shutil.rmtree(cache.root() / "run", ignore_errors=True)
    run("rm", "--all")


def build(
    containerfile: Path, context: Path, name: str, arguments: Mapping[str, str], step: Step
) -> None:
    """Build ``name`` in our storage, where layers that did not change are taken from."""
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    flags = ["--isolation=chroot", "--layers", "--pull-never", f"--tag={name}"]
    run("build", *flags, *given, f"--file={containerfile}", context, step=step)


def save(name: str, archive: Path, step: Step) -> None:
    """Write the image ``name`` to ``archive``, in which it keeps that name."""
    run("push", name, f"docker-archive:{archive}:{name}", step=step)


def has(name: str) -> bool:
    """Whether our storage holds the image ``name``."""
    return name in run("images", "--format={{.Name}}:{{.Tag}}").splitlines()


def forget(repository: str, keep: str) -> None:
    """Remove all images of ``repository`` but the one named ``keep``.

    Their layers stay for the next build to take, until there are too many.
    """
    for name in run("images", "--format={{.Name}}:{{.Tag}}").splitlines():
        if name.startswith(f"{repository}:") and name != keep:
            run("rmi", name)
    if len(run("images", "--all", "--quiet").splitlines()) > _MOST_IMAGES[_driver()]:
        run("rmi", "--prune")


def run(*words: str | Path, step: Step | None = None) -> str:
    """Return what buildah says; ProgramError when it failed."""
    return programs.run([*command(), *words], step=step)


def command() -> list[str]:
    """Return how buildah is called, with our storage."""
    home = [f"--root={cache.root() / 'storage'}", f"--runroot={cache.root() / 'run'}"]
    return ["buildah", f"--storage-driver={_driver()}", *home]


def _driver() -> str:
    """Return overlay where it works, else vfs; asked once, for storage keeps one driver."""
    chosen = cache.root() / "storage-driver"
    if not chosen.exists():
        chosen.write_text("overlay" if _overlay_works() else "vfs")
    return chosen.read_text()


def _overlay_works() -> bool:
    with tempfile.TemporaryDirectory(dir=cache.root()) as root:
        try:
            flags = ["--storage-driver=overlay", f"--root={root}/root", f"--runroot={root}/run"]
            programs.run(["buildah", *flags, "images"])
        except ProgramError:
            return False
        return True
