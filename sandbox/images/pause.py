"""The image whose one process holds a pod's namespaces open."""

import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
from pathlib import Path
from typing import Any, Final

from sandbox import programs, progress
from sandbox.errors import MissingError
from sandbox.images import cache

PAUSE: Final = "localhost/pause:1"
_SOURCE = Path(__file__).parent / "pause.go"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def recipe() -> cache.Recipe:
    """Return how the pause image of this machine is made."""
    machine = platform.machine()
    parts = {"pause.go": _SOURCE.read_bytes(), "machine": machine.encode(), "name": PAUSE.encode()}
    return cache.Recipe(PAUSE, cache.key(parts), _build)


def _build(folder: Path) -> None:
    if not shutil.which("go"):
        raise MissingError("Go is missing: install Go 1.25 or newer (https://go.dev/dl)")
    with progress.step("building the pause image") as step:
        program = folder / "pause"
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
        command: list[str | Path] = [
            "go",
            "build",
            "-trimpath",
            "-ldflags",
            "-s -w",
            "-o",
            program,
            _SOURCE,
        ]
        programs.run(command, step=step, env=env)
        architecture = _MACHINES.get(platform.machine(), platform.machine())
        archive = docker_archive(PAUSE, program.read_bytes(), architecture)
        (folder / "image.tar").write_bytes(archive)
        program.unlink()


def docker_archive(name: str, program: bytes, architecture: str) -> bytes:
    """Return an image of one layer with one file, /pause, in the form of ``docker save``."""
    layer = _tar({"pause": program}, mode=0o755)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    described = {"config.json": _json(config), "manifest.json": _json(manifest)}
    return _tar({**described, "layer.tar": layer}, mode=0o644)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()
