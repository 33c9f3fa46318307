"""Images of programs that somebody built, for the nodes of the clusters that run."""

from collections.abc import Mapping
from pathlib import Path

from sandbox.clusters import Sandbox
from sandbox.images import buildah, cache


def load(name: str, programs: Mapping[str, Path], folder: Path, *, entrypoint: str = "") -> None:
    """Load the image ``name`` into every node: ``programs`` by their paths in it, nothing else.

    ``folder`` has room for the archive, which goes again.
    """
    archive = folder / "image.tar"
    with cache.locked(cache.root()):
        container = buildah.run("from", "scratch").strip()
        for path, program in programs.items():
            buildah.run("copy", container, program, path)
        starts = [f'--entrypoint=["{entrypoint}"]'] if entrypoint else []
        buildah.run("config", *starts, "--user=65532:65532", container)
        buildah.run("commit", "--rm", container, name)
        buildah.run("push", name, f"docker-archive:{archive}:{name}")
        buildah.run("rmi", name)
    Sandbox().load_image(archive)
    archive.unlink()
