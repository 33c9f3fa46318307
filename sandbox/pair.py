"""rome and milan with this tree's pyliqo, peered, with a virtual node: what journeys start from."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from apis import keys
from sandbox import cgroups, install, progress
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl

CONSUMER, PROVIDER = "rome", "milan"
STORAGE_CLASS: Final = "disk"
"""Of the provider, which it offers."""
GRANTED: Final = {"cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "100000"}
"""More than these clusters have: what binds is the scheduler, and what a test lowers."""


def ensure() -> Mapping[str, Path]:
    """Return the kubeconfigs; what is up, installed and peered already is left as it is."""
    kubeconfigs = Sandbox().up((CONSUMER, PROVIDER))
    install.install(kubeconfigs)
    with progress.step(f"waiting for the virtual node {PROVIDER}"):
        Kubectl(kubeconfigs[PROVIDER]).apply([storage_class()])
        peer(CONSUMER, PROVIDER, kubeconfigs)
    return kubeconfigs


def peer(consumer: str, provider: str, kubeconfigs: Mapping[str, Path]) -> None:
    """Peer as an administrator would, and ask for more than anybody needs."""
    amounts = [f"--{name}={GRANTED[name]}" for name in ("cpu", "memory", "pods")]
    disk = f"--resource=ephemeral-storage={GRANTED['ephemeral-storage']}"
    remote = f"--remote-kubeconfig={kubeconfigs[provider]}"
    install.run(kubeconfigs[consumer], "peer", remote, *amounts, disk)


def storage_class() -> dict[str, object]:
    """Return the class of volumes that the provider has, and so offers with its slices."""
    metadata = {"name": STORAGE_CLASS, "annotations": {keys.DEFAULT_STORAGE_CLASS: "true"}}
    return {
        "apiVersion": keys.STORAGE_CLASS.api_version,
        "kind": keys.STORAGE_CLASS.kind,
        "metadata": metadata,
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def kill(process: str) -> int:
    """End each process ``python3 -m PROCESS`` of the consumer with SIGKILL; return how many."""
    pids = list(_running(process))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


def files_open(process: str) -> int:
    """Return how many files, sockets among them, processes of the consumer have open."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in _running(process))


def _running(process: str) -> Iterator[int]:
    marker = f"-m\0{process}\0".encode()
    for pid in cgroups.members(Sandbox().site(CONSUMER).cgroup):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker in command:
            yield pid
