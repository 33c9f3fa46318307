"""The control groups of a cluster: one folder for all its processes, below it one for its pods.

They are also the list of what must end: a process that we start joins before it becomes itself,
and what it starts, the shims and containers among them, is born inside.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_SETTLE_S: Final = 20.0
_WEIGHTS: Final = {"cpu.shares": 2048, "cpu.weight": 200}
"""Twice what a group has: its pods share this, while other processes may be a group each."""
_V2_CONTROLLERS: Final = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Return the top of each hierarchy: one on a version 2 machine, several on version 1."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(
        top for top in root.iterdir()
        if not top.is_symlink() and (top / "cgroup.procs").exists()
    )  # fmt: skip


def create(name: str) -> None:
    """Make the folders ``name/system`` and ``name/pods`` in every hierarchy."""
    for top in hierarchies():
        group = top / name.strip("/")
        for folder in (group, group / "system", group / "pods"):
            _enable(folder.parent, top)
            folder.mkdir(exist_ok=True)
            _inherit(folder)
        for file, weight in _WEIGHTS.items():
            if (group / file).exists():
                (group / file).write_text(str(weight))


def joins(name: str) -> list[Path]:
    """Return the files into which a process of the cluster ``name`` writes itself."""
    return [top / name.strip("/") / "system" / "cgroup.procs" for top in hierarchies()]


def remove(name: str) -> None:
    """End every process of the cluster ``name``, then remove its folders.

    Raises:
        OSError: a folder is still in use after 20 s.
    """
    tops = [top / name.strip("/") for top in hierarchies()]
    end = time.monotonic() + _SETTLE_S
    while True:
        for pid in _members(tops):  # again each time: a process that is just started joins late
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            for top in tops:
                _remove(top)
        except OSError:  # its last process is still on its way out
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def members(name: str) -> set[int]:
    """Return the ids of the processes of the cluster ``name``."""
    return _members([top / name.strip("/") for top in hierarchies()])


def _enable(parent: Path, top: Path) -> None:
    control = parent / "cgroup.subtree_control"
    if not (top / "cgroup.controllers").exists() or not control.exists():
        return
    for controller in _V2_CONTROLLERS:
        with contextlib.suppress(OSError):
            control.write_text(f"+{controller}")


def _inherit(folder: Path) -> None:
    for name in (
        "cpuset.cpus",
        "cpuset.mems",
    ):  # version 1 starts them empty, and then nobody may join
        mine, parents = folder / name, folder.parent / name
        if mine.exists() and parents.exists() and not mine.read_text().strip():
            with contextlib.suppress(OSError):
                mine.write_text(parents.read_text())


def _members(tops: Iterable[Path]) -> set[int]:
    found: set[int] = set()
    for group in (folder for top in tops for folder, _, _ in os.walk(top)):
        with contextlib.suppress(OSError):  # it ended while we looked
            found |= {int(line) for line in Path(group, "cgroup.procs").read_text().split()}
    return found


def _remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(FileNotFoundError):
            Path(folder).rmdir()
