"""Images and their parts on disk, kept by the hash of what went into them."""

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import locks, progress

_KEY_LENGTH = 12
_KEPT = 3


@dataclass(frozen=True)
class Image:
    """An image in a docker archive, which ``ctr -n k8s.io images import`` loads by its name."""

    name: str
    archive: Path
    key: str


@dataclass(frozen=True)
class Recipe:
    """How one image is made: ``build`` leaves it in a folder as image.tar."""

    name: str
    key: str
    build: Callable[[Path], None]

    def image(self) -> Image:
        """Return the image that this recipe gives, built or not."""
        repository = self.name.rpartition("/")[2].partition(":")[0]
        return Image(self.name, root() / repository / self.key / "image.tar", self.key)


def root() -> Path:
    """Return the folder that all checkouts of this user share."""
    return Path.home() / ".cache" / "pyliqo" / "images"


def key(parts: Mapping[str, bytes]) -> str:
    """Return the hash of named parts: another name, content or number of them is another key."""
    digest = hashlib.sha256()
    for name, content in sorted(parts.items()):
        for piece in (name.encode(), content):
            digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()[:_KEY_LENGTH]


def files(base: Path, *names: str) -> dict[str, bytes]:
    """Return what the files ``names`` hold, and the files in the folders among them."""
    found = (path for name in names for path in _below(base / name))
    return {str(path.relative_to(base)): path.read_bytes() for path in found}


def _below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (
            file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )


def built(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return ``folder``, filled by ``build`` when it is not there yet.

    A build that is stopped leaves nothing that looks finished: it works in a folder of another
    name. Hold the lock around this.
    """
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        build(unfinished)
        unfinished.rename(folder)
        _prune(folder)
    return folder


def _prune(newest: Path) -> None:
    others = [path for path in newest.parent.iterdir() if path != newest]
    others.sort(key=lambda path: (path.suffix != ".unfinished", path.stat().st_mtime))
    unfinished = sum(path.suffix == ".unfinished" for path in others)
    for old in others[: max(len(others) - _KEPT, unfinished)]:
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def locked(base: Path) -> Iterator[None]:
    """Keep other processes from building below ``base``, after waiting for one that is at it."""
    take = functools.partial(locks.held, base / "lock", what="the images")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(take(wait=False))
        except locks.HeldError:
            with progress.step("waiting for another run that builds images"):
                stack.enter_context(take(wait=True))
        yield
