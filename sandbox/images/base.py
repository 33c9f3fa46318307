"""The base of the other images: a small Debian with Python, made from Debian packages."""

import os
import platform
from pathlib import Path
from typing import Final

from sandbox import programs, progress
from sandbox.images import buildah, cache

PYTHON: Final = "3.11"  # what SUITE has; wheels are taken for it
SUITE: Final = "bookworm"
REPOSITORY: Final = "localhost/python-base"

_PACKAGES = "python3,ca-certificates,python3-pip-whl"
_LEFT_OUT = ("doc/*", "man/*", "locale/*", "info/*")
_KEPT = "doc/*/copyright"
# usr-is-merged fulfils the same dependency as usrmerge, which needs all of Perl: 48 MB.
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
_PREFERENCES = "etc/apt/preferences.d/merged"
_NO_USRMERGE = r"Package: usrmerge\nPin: release *\nPin-Priority: -1\n"
_HOOKS = (
    f"--hook-dir={_MERGED}",
    f"--setup-hook=printf '{_NO_USRMERGE}' >\"$1/{_PREFERENCES}\"",
    f'--customize-hook=rm "$1/{_PREFERENCES}"',
    # As in the images named python: `python` is there, and `python -m pip`.
    '--customize-hook=ln -s python3 "$1/usr/bin/python"',
    (
        r"""--customize-hook=cd "$1" && printf '/%s\n' usr/share/python-wheels/pip-*.whl """
        ">usr/lib/python3/dist-packages/pip.pth"
    ),
)
# Those of Debian, or mmdebstrap would take helpers written in Python from elsewhere.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_CONTAINERFILE = """\
FROM scratch
ADD root.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
"""


def key() -> str:
    """Return the key of the base on this machine."""
    return cache.key(
        {
            "machine": platform.machine().encode(),
            "command": "\n".join(_command(Path("root.tar"), Path("debs"))).encode(),
            "containerfile": _CONTAINERFILE.encode(),
        }
    )


def name() -> str:
    """Return the name of the base in our storage."""
    return f"{REPOSITORY}:{key()}"


def debs() -> Path:
    """Return the folder with the Debian packages that were put by for the workload image."""
    return cache.built(cache.root() / "base" / key(), _build) / "debs"


def ensure() -> str:
    """Return the name of the base, after building it if our storage lacks it."""
    folder = debs().parent
    if not buildah.has(name()):
        with progress.step("importing the base image") as step:
            buildah.build(folder / "Containerfile", folder, name(), {}, step)
    return name()


def _build(folder: Path) -> None:
    (folder / "Containerfile").write_text(_CONTAINERFILE)
    (folder / "debs").mkdir()
    with progress.step(f"building the base image (Debian {SUITE} with Python {PYTHON})") as step:
        command = _command(folder / "root.tar", folder / "debs")
        programs.run(command, step=step, cwd=folder, env={**os.environ, **_ENVIRONMENT})


def _command(archive: Path, debs: Path) -> list[str]:
    share = "/usr/share"
    left_out = [f"--dpkgopt=path-exclude={share}/{pattern}" for pattern in _LEFT_OUT]
    download = f'cd "{debs}" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download busybox'
    return [
        *("mmdebstrap", "--mode=root", "--variant=essential", f"--include={_PACKAGES}"),
        *left_out,
        f"--dpkgopt=path-include={share}/{_KEPT}",
        *_HOOKS,
        f"--customize-hook={download}",
        *(SUITE, str(archive)),
    ]
