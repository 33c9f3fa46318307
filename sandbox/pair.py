"""rome and milan with this tree's pyliqo, peered, with a virtual node: what journeys start from."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from apis import keys, naming
from sandbox import cgroups, install, peering, progress
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl

CONSUMER, PROVIDER = "rome", "milan"
STORAGE_CLASS: Final = "disk"
"""Of the provider, which it offers; a test that wants volumes makes it."""


def ensure() -> Mapping[str, Path]:
    """Return the kubeconfigs; what is up, installed and peered already is left as it is."""
    kubeconfigs = Sandbox().up((CONSUMER, PROVIDER))
    install.install(kubeconfigs)
    with progress.step(f"waiting for the virtual node {PROVIDER}"):
        rome = Kubectl(kubeconfigs[CONSUMER])
        if is_peered_by_command(rome):
            peer(CONSUMER, PROVIDER, kubeconfigs)
        else:
            secret = peering.peer(CONSUMER, PROVIDER, kubeconfigs=kubeconfigs)
            rome.apply([virtual_node(secret)])
        rome.run("wait", "--for=create", f"node/{PROVIDER}", "--timeout=120s")
        rome.wait("--for=condition=Ready", f"node/{PROVIDER}")
    return kubeconfigs


def is_peered_by_command(rome: Kubectl) -> bool:
    """Whether ``liqoctl peer`` was here before, as the demo leaves it."""
    where = ("-n", naming.tenant_namespace(PROVIDER), "--ignore-not-found", "-o", "name")
    return bool(rome.run("get", keys.RESOURCE_SLICE.resource, PROVIDER, *where))


def peer(consumer: str, provider: str, kubeconfigs: Mapping[str, Path]) -> None:
    """Peer as an administrator would, and ask for more than anybody needs."""
    amounts = [f"--{name}={peering.GRANTED[name]}" for name in ("cpu", "memory", "pods")]
    disk = f"--resource=ephemeral-storage={peering.GRANTED['ephemeral-storage']}"
    remote = f"--remote-kubeconfig={kubeconfigs[provider]}"
    install.run(kubeconfigs[consumer], "peer", remote, *amounts, disk)


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


def virtual_node(secret: str) -> dict[str, object]:
    """Return the VirtualNode by which rome offloads to milan."""
    hard = {"cpu": "8", "memory": "16Gi", "pods": "200"}
    return {
        "apiVersion": keys.VIRTUAL_NODE.api_version,
        "kind": keys.VIRTUAL_NODE.kind,
        "metadata": {"name": PROVIDER, "namespace": naming.tenant_namespace(PROVIDER)},
        "spec": {
            "clusterID": PROVIDER,
            "kubeconfigSecretRef": {"name": secret},
            "resourceQuota": {"hard": hard},
            "labels": {"topology.kubernetes.io/region": "lombardy"},
            "storageClasses": [{"storageClassName": STORAGE_CLASS, "default": True}],
        },
    }
