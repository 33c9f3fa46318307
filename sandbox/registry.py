"""The machine's list of sandboxes, and the kernel settings to restore after the last one."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sandbox import allocation, locks
from sandbox.allocation import Slot

RUN: Final = Path("/run/pyliqo-sandbox")
DISK: Final = Path("/var/lib/pyliqo-sandbox")
_ENOUGH_WATCHERS: Final = 1024
"""A cluster's programs watch some 25 files; the kernel's default is enough for five clusters."""
_PATIENCE: Final = 1000
_FILE: Final = DISK / "slots.json"  # /run is empty after a boot, the disk is not
_LOCKS: Final = RUN / "locks"
# The first two are ours, the others are what every kubelet sets.
_WATCHERS: Final = "fs/inotify/max_user_instances"
_SETTINGS: Final = (
    "net/ipv4/ip_forward", _WATCHERS, "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic",
    "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
)  # fmt: skip
# What programs make that know no other place; the innermost first.
_FOLDERS: Final = (
    "/run/netns", "/run/containerd/s", "/run/containerd", "/var/log/containers",
    "/var/lib/cni/results", "/var/lib/cni", "/opt/containerd",
)  # fmt: skip


def slots() -> list[Slot]:
    """Return every cluster that is known on this machine, running or not."""
    return allocation.parse(_read().get("slots", []))


def take(directory: Path, clusters: Sequence[str]) -> list[Slot]:
    """Return the slots of ``clusters`` of this checkout, new ones where there were none."""
    with _locked():
        document = _read()
        taken = allocation.parse(document.get("slots", []))
        mine = allocation.allocate(taken, directory=directory, clusters=clusters)
        all_slots = {(slot.id, slot.cluster): slot for slot in [*taken, *mine]}
        before = document.get("before") or _before()
        _write({"slots": allocation.dump(list(all_slots.values())), "before": before})
        _allow_watchers(Path("/proc/sys", _WATCHERS))
        return mine


def give_back(slot: Slot) -> None:
    """Forget ``slot``; after the last one the machine is as it was before the first."""
    with _locked():
        document = _read()
        rest = [one for one in allocation.parse(document.get("slots", [])) if one != slot]
        if rest:
            _write({**document, "slots": allocation.dump(rest)})
        else:
            _restore(document.get("before", {}))
            _FILE.unlink(missing_ok=True)


def tidy() -> None:
    """Remove our folders when no sandbox is left in them."""
    with _locked():  # anybody who writes the list counts on its folder
        remove_empty(DISK)
    for folder in (_LOCKS, RUN):
        remove_empty(folder)


@contextlib.contextmanager
def working_on(identity: str) -> Iterator[None]:
    """Keep every other command from changing the sandbox ``identity``.

    Raises:
        HeldError: one is changing it.
    """
    what = "the sandbox of this checkout"
    with locks.held(_LOCKS / identity, wait=False, keep=False, what=what):
        yield
    tidy()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with locks.held(_LOCKS / "slots", wait=True, keep=False):
        yield


def _read() -> dict[str, Any]:
    try:
        return dict(json.loads(_FILE.read_text()))
    except FileNotFoundError:
        return {}


def _write(document: dict[str, Any]) -> None:
    new = _FILE.with_suffix(".new")
    make_folder(new.parent)
    new.write_text(json.dumps(document, indent=1))
    new.rename(_FILE)


def _before() -> dict[str, Any]:
    files = {name: Path("/proc/sys", name) for name in _SETTINGS}
    return {
        "kernel": {name: file.read_text().strip() for name, file in files.items() if file.exists()},
        "folders": [folder for folder in _FOLDERS if Path(folder).exists()],
    }


def _allow_watchers(file: Path) -> None:
    if file.exists() and int(file.read_text()) < _ENOUGH_WATCHERS:
        file.write_text(str(_ENOUGH_WATCHERS))


def _restore(before: dict[str, Any]) -> None:
    for name, value in before.get("kernel", {}).items():
        with contextlib.suppress(OSError):
            Path("/proc/sys", name).write_text(value)
    for folder in _FOLDERS:
        if folder not in before.get("folders", _FOLDERS):
            remove_empty(Path(folder))


def remove_empty(folder: Path) -> None:
    """Remove ``folder``, mounted or not, unless something is in it."""
    with contextlib.suppress(OSError):
        if folder.is_mount() and not any(folder.iterdir()):
            command = ["umount", str(folder)]
            subprocess.run(command, check=False, capture_output=True)
        folder.rmdir()


def make_folder(folder: Path) -> None:
    """Make ``folder`` below ``RUN`` or ``DISK``, also if its parents are tidied away meanwhile."""
    for _ in range(_PATIENCE):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return folder.mkdir(parents=True, exist_ok=True)
    return folder.mkdir(parents=True, exist_ok=True)


def remove_folders(slot: Slot) -> None:
    """Remove what is kept for ``slot`` outside of the checkout."""
    for base in (RUN, DISK):
        shutil.rmtree(base / slot.id / slot.cluster, ignore_errors=True)
        remove_empty(base / slot.id)
