"""The images on a cluster's node."""

import contextlib
import hashlib
import json
import socket
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sandbox import binaries
from sandbox.errors import ProgramError
from sandbox.images import Image
from sandbox.layout import Site

_KEPT: Final = 4
_REF_NAME: Final = "org.opencontainers.image.ref.name"


def answers(site: Site) -> bool:
    """Whether containerd listens; after a crash its socket is there, and nobody behind it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(site.socket))
        return True
    return False


def images(site: Site) -> list[str]:
    """Return the names of the images on the node."""
    return _ctr(site, "images", "list", "--quiet").split()


def load(site: Site, wanted: Iterable[Image]) -> list[str]:
    """Import those of ``wanted`` that the node has not, and return their names.

    Of each repository the node keeps the last few, as a tree under work makes many.
    """
    there = images(site)
    lacking = [image for image in wanted if not (image.name in there and _is_noted(site, image))]
    for image in lacking:
        import_archive(site, image.archive)
        _note(site, image.name).write_text(json.dumps({"name": image.name, "key": image.key}))
        _prune(site, image.name.rpartition(":")[0])
    return [image.name for image in lacking]


def import_archive(site: Site, archive: Path) -> None:
    """Import a docker or OCI archive into the node under the names that it carries."""
    bases = sorted({name.rpartition(":")[0] for name in oci_names(archive)})
    for options in [["--base-name", base] for base in bases] or [[]]:
        _ctr(site, "images", "import", *options, str(archive))


def oci_names(archive: Path) -> list[str]:
    """Return the names in an OCI archive; none for a docker archive, which needs no help."""
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
        index = tar.extractfile("index.json") if "index.json" in names else None
        if index is None or "manifest.json" in names:
            return []
        entries = json.load(index)["manifests"]
    found = [entry.get("annotations", {}).get(_REF_NAME, "") for entry in entries]
    return [name for name in found if ":" in name]


def outdated(names: Sequence[str], repository: str) -> Sequence[str]:
    """Return those of ``names``, oldest first, that are too many of their repository."""
    same = [name for name in names if name.rpartition(":")[0] == repository]
    return same[:-_KEPT]


def references(listing: str, name: str) -> list[str]:
    """Return every name under which the image ``name`` is kept, as all of them hold it.

    Shape: ``listing`` is what ``ctr images list`` prints; the third column is the digest.
    """
    rows = [line.split()[:3] for line in listing.splitlines()[1:]]
    digests = [digest for reference, _, digest in rows if reference == name]
    return [reference for reference, _, digest in rows if digest in digests]


def _prune(site: Site, repository: str) -> None:
    notes = sorted((site.disk / "images").iterdir(), key=lambda note: note.stat().st_mtime)
    for name in outdated([json.loads(note.read_text())["name"] for note in notes], repository):
        _ctr(site, "images", "remove", *references(_ctr(site, "images", "list"), name))
        _note(site, name).unlink()


def _is_noted(site: Site, image: Image) -> bool:
    note = _note(site, image.name)
    return note.exists() and json.loads(note.read_text())["key"] == image.key


def _note(site: Site, name: str) -> Path:
    folder = site.disk / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _ctr(site: Site, *args: str) -> str:
    ctr = str(binaries.runtime("ctr"))
    command = [ctr, "--address", str(site.socket), "--namespace", "k8s.io", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"{' '.join(command)} ended with: {done.stderr.strip()}")
    return done.stdout
