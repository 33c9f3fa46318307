"""The programs of one cluster: which there are, how each is started, and whether it runs."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox import binaries, cgroups, documents, flags, network, processes
from sandbox.errors import MissingError
from sandbox.layout import Site

_ARGUMENTS: Final[dict[str, Callable[[Site], list[str]]]] = {
    "etcd": lambda site: flags.etcd(site.files, site.listening),
    "kube-apiserver": lambda site: flags.apiserver(site.files, site.listening),
    "containerd": flags.containerd,
    "kube-controller-manager": flags.controller_manager,
    "kube-scheduler": flags.scheduler,
    "kubelet": flags.kubelet,
    "kube-proxy": flags.proxy,
    "coredns": flags.coredns,
}
NAMES: Final = tuple(_ARGUMENTS)


@dataclass(frozen=True)
class Component:
    """One program of one cluster, which a test may kill and start again."""

    site: Site
    name: str

    @property
    def pid_file(self) -> Path:
        """Where its process is recorded."""
        return self.site.pids / self.name

    @property
    def log(self) -> Path:
        """What it says."""
        return self.site.files.log(self.name)

    @property
    def pid(self) -> int | None:
        """The id of its process, or None when it does not run."""
        record = processes.read(self.pid_file)
        return record.pid if record and record.is_alive() else None

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.pid is not None

    def start(self) -> None:
        """Start it unless it runs."""
        if not self.is_alive():
            argv = [str(_path(self.name)), *_ARGUMENTS[self.name](self.site)]
            processes.launch(
                network.inside(self.site.slot, argv),
                pid_file=self.pid_file, log=self.log, joins=cgroups.joins(self.site.cgroup),
            )  # fmt: skip

    def kill(self) -> None:
        """End it as a crash would: at once."""
        processes.kill(self.pid_file)

    def stop(self) -> None:
        """Ask it to end, and wait until it did."""
        processes.stop(self.pid_file)


def of(site: Site) -> dict[str, Component]:
    """Return the components of a cluster, in the order in which they start."""
    return {name: Component(site, name) for name in NAMES}


def simulate(site: Site, nodes: int) -> None:
    """Keep that many simulated nodes in the cluster, in place of those it may have had."""
    part = Component(site, "simulated")
    part.stop()
    argv = [sys.executable, "-m", "sandbox.simulated", f"--nodes={nodes}"]
    processes.launch(
        network.inside(site.slot, [*argv, f"--kubeconfig={site.files.kubeconfig}"]),
        pid_file=part.pid_file, log=part.log, joins=cgroups.joins(site.cgroup),
        folder=Path(__file__).parents[1],
    )  # fmt: skip


def check() -> None:
    """Find every program before anything is started.

    Raises:
        MissingError: one is not there; the message says which package has it.
    """
    for name in NAMES:
        _path(name)
    if not Path(documents.CNI_BINARIES, "ptp").exists():
        raise MissingError(
            f"there are no network plugins in {documents.CNI_BINARIES}: "
            "install the package containernetworking-plugins"
        )


def configure(site: Site, pause: str) -> None:
    """Write the configuration documents of every component; one that is the same is not touched.

    Why not: kube-proxy ends when its document is written, be it the same.
    """
    jsons = {  # JSON is YAML
        "audit.yaml": documents.audit_policy(),
        "kubelet.yaml": documents.kubelet(site),
        "kube-proxy.yaml": documents.proxy(site),
        "cni/10-pods.conflist": documents.cni(site),
    }
    texts = {name: json.dumps(document, indent=1) for name, document in jsons.items()}
    shim = binaries.runtime("containerd-shim-runc-v2")
    texts["containerd.toml"] = documents.containerd(site, pause, shim)
    texts["Corefile"] = documents.corefile(site)
    (site.files.config / "cni").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = site.files.config / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _path(name: str) -> Path:
    return binaries.runtime(name) if name == "containerd" else binaries.program(name)
