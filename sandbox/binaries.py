"""The programs of a cluster: official ones from a folder, built ones from the cache, or a build.

Everything of Kubernetes is one program that is called by several names, because linking it once
costs a fraction of linking it seven times. CoreDNS is another, and for a newer Kubernetes so is a
newer containerd. All are ordinary Go programs whose sources lie beside this module; they are cached
outside the checkout, by the hash of those sources.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sandbox import locks, progress
from sandbox.errors import MissingError

COMPONENTS: Final = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
    "kubectl",
)  # fmt: skip
FOLDER_VARIABLE: Final = "PYLIQO_KUBERNETES_BIN"
VERSION_VARIABLE: Final = "PYLIQO_KUBERNETES"
"""Names another minor version to build, such as "1.32"."""
GO: Final = "go"
HERE: Final = Path(__file__).parent
_BUILD_TIMEOUT_S: Final = 3600
_NEW_KUBELET: Final = (1, 33)
"""Since then the command of the kubelet takes a context."""
_NEW_RUNTIME: Final = (1, 36)
"""Since then the kubelet needs the CRI call RuntimeConfig, which Debian 12's containerd lacks."""


@dataclass(frozen=True)
class Program:
    """A Go program of ours and the names it is called by."""

    name: str
    names: tuple[str, ...]
    expects: str
    packages: tuple[str, ...] = (".",)
    """The package to build, which all names share, or one for each name."""
    modules: str = "go"
    """The name of the files .mod and .sum that say what it is built of."""

    @property
    def source(self) -> Path:
        """The folder that holds its go.mod."""
        return HERE / self.name

    @property
    def go_mod(self) -> Path:
        """The file that names the modules and their versions."""
        return self.source / f"{self.modules}.mod"

    def sources(self) -> dict[str, bytes]:
        """Return all that it is built of, by the names of the files."""
        files = [self.go_mod, self.go_mod.with_suffix(".sum"), *self.source.glob("*.go")]
        return {file.name: file.read_bytes() for file in files}


KUBERNETES: Final = Program("kubernetes", COMPONENTS, "about 5 minutes")
COREDNS: Final = Program("coredns", ("coredns",), "about 1 minute")
METRICS_SERVER: Final = Program("metricsserver", ("metrics-server",), "about 2 minutes")
HELM: Final = Program("helm", ("helm",), "about 2 minutes", ("helm.sh/helm/v3/cmd/helm",))
_RUNTIME_NAMES: Final = ("containerd", "containerd-shim-runc-v2", "ctr")
CONTAINERD: Final = Program(
    "containerd", _RUNTIME_NAMES, "about 3 minutes",
    tuple(f"github.com/containerd/containerd/v2/cmd/{name}" for name in _RUNTIME_NAMES),
)  # fmt: skip
_BY_NAME: Final = {
    name: one for one in (KUBERNETES, COREDNS, METRICS_SERVER, HELM) for name in one.names
}


def program(name: str) -> Path:
    """Return the path of ``kube-apiserver``, ``etcd``, ``coredns`` and the like.

    Raises:
        MissingError: there is none, and none can be built; the message says what to install.
    """
    return folder(_BY_NAME[name]) / name


def kubectl() -> Path:
    """Return the path of a kubectl of the clusters' own version."""
    return program("kubectl")


def runtime(name: str) -> Path:
    """Return the path of ``containerd``, of its shim or of ``ctr``: the system's, or a built one.

    Raises:
        MissingError: the program is not on this machine; the message says what to install.
    """
    if _needs_runtime():
        return folder(CONTAINERD) / name
    found = shutil.which(name)
    if found is None:
        raise MissingError(f"there is no {name}: install the package containerd")
    return Path(found)


def ensure() -> None:
    """Find or build every program, and say on standard error where each came from."""
    for one in (KUBERNETES, COREDNS, *([CONTAINERD] if _needs_runtime() else [])):
        with progress.step(f"programs: {one.name}") as step:
            step.update(str(folder(one)))


def folder(wanted: Program) -> Path:
    """Return the folder that holds each name of ``wanted``: the user's, the cache's, or a new one.

    Raises:
        MissingError: there is none, and none can be built.
    """
    given = os.environ.get(FOLDER_VARIABLE, "")
    if given and holds(Path(given), wanted.names):
        return Path(given).absolute()
    if given and wanted is KUBERNETES:
        names = ", ".join(wanted.names)
        raise MissingError(f"{FOLDER_VARIABLE}={given} does not hold all of {names}: add them")
    return _built(_of_version(wanted) if wanted is KUBERNETES else wanted)


def minor_versions() -> list[str]:
    """Return the minor versions of Kubernetes that can be built besides the usual one."""
    return sorted(file.stem for file in KUBERNETES.source.glob("1.*.mod"))


def _of_version(wanted: Program) -> Program:
    asked = os.environ.get(VERSION_VARIABLE, "")
    usual = kubernetes_version(wanted.go_mod.read_text()).removeprefix("v").rpartition(".")[0]
    if asked in ("", usual):
        return wanted
    if asked not in minor_versions():
        known = ", ".join(sorted([*minor_versions(), usual]))
        raise MissingError(f"{VERSION_VARIABLE}={asked} cannot be built: choose one of {known}")
    return replace(wanted, modules=asked)


def _needs_runtime() -> bool:
    given = os.environ.get(FOLDER_VARIABLE, "")
    if given:  # official binaries tell no version here
        return holds(Path(given), CONTAINERD.names)
    return _release(_of_version(KUBERNETES)) >= _NEW_RUNTIME


def _release(kubernetes: Program) -> tuple[int, int]:
    major, minor, _ = kubernetes_version(kubernetes.go_mod.read_text()).removeprefix("v").split(".")
    return int(major), int(minor)


def holds(directory: Path, names: tuple[str, ...]) -> bool:
    """Whether ``directory`` has an executable of each name."""
    return all(os.access(directory / name, os.X_OK) for name in names)


def cache() -> Path:
    """Return the folder, outside of any checkout, where costly things are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "pyliqo")


def key(sources: Mapping[str, bytes]) -> str:
    """Return the name under which what is built from ``sources`` is cached."""
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def kubernetes_version(go_mod: str) -> str:
    """Return the version of Kubernetes that ``go_mod`` requires, such as "v1.35.4".

    Raises:
        ValueError: it requires none.
    """
    found = re.search(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)$", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod requires no release of k8s.io/kubernetes")
    return found[1]


def link_flags(version: str) -> str:
    """Return the linker flags that stamp ``version``; without, clients are told v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version"
    return (
        f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major}"
        f" -X {stamp}.gitMinor={minor}"
    )


@functools.cache
def _built(wanted: Program) -> Path:
    target = cache() / wanted.name / key(wanted.sources())
    if not holds(target, wanted.names):
        with locks.held(cache() / f"{wanted.name}.lock", wait=True):
            if not holds(target, wanted.names):
                _build(wanted, target)
    return target


def _build(wanted: Program, target: Path) -> None:
    go = shutil.which(GO)
    if go is None:
        raise MissingError(
            f"the programs of {wanted.name} are neither in {FOLDER_VARIABLE} nor in the cache, and "
            "there is no Go to build them: install Go 1.25 or later (https://go.dev/dl), or set "
            f"{FOLDER_VARIABLE} to a folder with official binaries"
        )
    with (
        progress.step(f"building {wanted.name} (once for this machine, {wanted.expects})") as step,
        _emerging(target) as new,
    ):
        if len(wanted.packages) > 1:
            _compile(wanted, go, new, step)
            return
        _compile(wanted, go, new / wanted.names[0], step)
        for name in wanted.names[1:]:
            (new / name).symlink_to(wanted.names[0])


def _compile(wanted: Program, go: str, output: Path, step: progress.Step) -> None:
    command = [go, "build", "-trimpath", "-mod=readonly", f"-modfile={wanted.go_mod.name}", "-v"]
    command += _stamped(wanted) if wanted.name == KUBERNETES.name else ["-ldflags", "-s -w"]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    building = subprocess.Popen(
        [*command, "-o", str(output), *wanted.packages],
        cwd=wanted.source, env=environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    said: list[str] = []
    with building:
        for count, line in enumerate(building.stderr or (), 1):
            said = [*said[-4:], line.strip()]
            step.update(f"{count} packages: {line.strip()}")
    if building.returncode:
        raise MissingError(f"go build of {wanted.name} ended with: {' | '.join(said)}")


def _stamped(wanted: Program) -> list[str]:
    tags = [] if _release(wanted) >= _NEW_KUBELET else ["-tags", "before1.33"]
    return [*tags, "-ldflags", link_flags(kubernetes_version(wanted.go_mod.read_text()))]


@contextlib.contextmanager
def _emerging(target: Path) -> Iterator[Path]:
    """Yield a new folder that takes the name ``target`` only when the block ended well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        yield new
        new.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
