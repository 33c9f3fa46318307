"""Where one control plane, and the node that may go with it, keeps its files and listens."""

from dataclasses import dataclass
from pathlib import Path

from sandbox import registry
from sandbox.allocation import Slot


@dataclass(frozen=True)
class Listening:
    """The addresses and ports of etcd and kube-apiserver, and what a certificate must name."""

    address: str
    port: int
    etcd_port: int
    etcd_peer_port: int
    service_cidr: str
    service_address: str

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:{self.port}"

    @property
    def etcd(self) -> str:
        """The URL of etcd, on the loopback of its network namespace."""
        return f"http://127.0.0.1:{self.etcd_port}"


@dataclass(frozen=True)
class Files:
    """The files of a control plane."""

    state: Path
    data: Path
    kubeconfig: Path

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        """One file a component."""
        return self.state / "logs"

    @property
    def config(self) -> Path:
        """The configuration documents of the components."""
        return self.state / "config"

    @property
    def audit(self) -> Path:
        """What every request did, one JSON line each."""
        return self.state / "audit.log"

    def identity(self, name: str) -> Path:
        """Return the kubeconfig of a component."""
        return self.state / "identities" / f"{name}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log file of ``component``."""
        return self.logs / f"{component}.log"


@dataclass(frozen=True)
class Site:
    """Everything that the files of one cluster's components mention."""

    slot: Slot
    files: Files
    run: Path
    disk: Path
    cgroup: str

    @property
    def pids(self) -> Path:
        """One file a component: its process id and when the process started."""
        return self.run / "pids"

    @property
    def socket(self) -> Path:
        """The socket of containerd; the kernel admits 107 characters."""
        return self.run / "containerd.sock"

    @property
    def listening(self) -> Listening:
        """Where its control plane listens."""
        slot = self.slot
        return Listening(slot.address, 6443, 2379, 2380, slot.service_cidr, slot.service_address)


def site(slot: Slot, state: Path) -> Site:
    """Return the places of the cluster ``slot`` of the checkout whose state folder is given."""
    run, disk = registry.RUN / slot.id / slot.cluster, registry.DISK / slot.id / slot.cluster
    files = Files(state / slot.cluster, disk / "etcd", state / f"{slot.cluster}.kubeconfig")
    return Site(slot, files, run, disk, f"/{slot.namespace}")
