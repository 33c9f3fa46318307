"""The Debian packages that real clusters and their images need."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sandbox import programs, progress
from sandbox.errors import MissingError, ProgramError

NEEDED: Final = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "iproute2",
    "conntrack",
    "socat",
    "busybox",
    "mmdebstrap",
    "buildah",
    "debian-archive-keyring",
)
TESTED: Final = ("prometheus", "chromium")
"""What some tests run besides: without them they are skipped."""
_DPKG_QUERY = Path("/usr/bin/dpkg-query")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NONINTERACTIVE_SEEN": "true"}


def ensure(names: Sequence[str] = NEEDED) -> None:
    """Install the packages ``names`` that are missing, after saying so.

    Raises:
        MissingError: they cannot be installed here; the message names them.
    """
    lacking = missing(_dpkg_says(names), names) if _DPKG_QUERY.exists() else tuple(names)
    if not lacking:
        return
    reason = hindrance(_os_release(), os.geteuid())
    if reason:
        raise MissingError(
            f"{reason}, so install these Debian packages (or what your system calls them) "
            f"and try again: {' '.join(lacking)}"
        )
    _install(lacking)


def missing(answer: str, names: Sequence[str] = NEEDED) -> tuple[str, ...]:
    """Return those of the packages ``names`` that ``answer`` does not call installed.

    Shape: lines of ``dpkg-query -W -f '${Package} ${db:Status-Status}'``.
    """
    installed = {
        line.split()[0] for line in answer.splitlines() if line.split()[1:] == ["installed"]
    }
    return tuple(name for name in names if name not in installed)


def hindrance(system: Mapping[str, str], uid: int) -> str:
    """Return why packages cannot be installed here, or an empty string.

    Shape: ``system`` is /etc/os-release, e.g. {"ID": "ubuntu", "ID_LIKE": "debian"}.
    """
    family = {system.get("ID", ""), *system.get("ID_LIKE", "").split()}
    if not family & {"debian", "ubuntu"}:
        return f"{system.get('PRETTY_NAME') or 'this system'} is not Debian or Ubuntu"
    return "" if uid == 0 else "installing packages needs root"


def _dpkg_says(names: Sequence[str]) -> str:
    form = "${Package} ${db:Status-Status}\n"
    asked = subprocess.run(
        [_DPKG_QUERY, "-W", "-f", form, *names], check=False, capture_output=True, text=True
    )
    return asked.stdout  # exit status 1 only says that some are unknown


def _os_release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _install(names: Iterable[str]) -> None:
    names = list(names)
    with progress.step(f"installing Debian packages: {' '.join(names)}") as step:
        env = {**os.environ, **_QUIET}
        with contextlib.suppress(ProgramError):  # an unrelated source may fail: installing decides
            programs.run(["apt-get", "update", "-q"], step=step, env=env)
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *names]
        programs.run(command, step=step, env=env)
