"""The image that test pods run: sh, busybox and Python, nothing of ours."""

import functools
import shutil
from pathlib import Path
from typing import Final

from sandbox import progress
from sandbox.images import base, buildah, cache

REPOSITORY: Final = "localhost/workload"

# The dynamic busybox: wget of the static one crashes when it resolves a name.
_CONTAINERFILE = """\
ARG BASE
FROM ${BASE}
COPY debs /debs
RUN dpkg --install /debs/busybox_*.deb && rm -r /debs && \\
    for applet in $(busybox --list); do \\
      command -v "$applet" >/dev/null || ln -s /bin/busybox "/usr/local/bin/$applet"; \\
    done
CMD ["sleep", "infinity"]
"""


def recipe() -> cache.Recipe:
    """Return how the workload image of this machine is made."""
    parts = {"base": base.key().encode(), "containerfile": _CONTAINERFILE.encode()}
    key = cache.key(parts)
    name = f"{REPOSITORY}:{key}"
    return cache.Recipe(name, key, functools.partial(_build, name))


def _build(name: str, folder: Path) -> None:
    parent = base.ensure()
    with progress.step("building the workload image") as step:
        context = folder / "context"
        shutil.copytree(base.debs(), context / "debs")
        (context / "Containerfile").write_text(_CONTAINERFILE)
        buildah.build(context / "Containerfile", context, name, {"BASE": parent}, step)
        buildah.save(name, folder / "image.tar", step)
        shutil.rmtree(context)
    buildah.forget(REPOSITORY, keep=name)
