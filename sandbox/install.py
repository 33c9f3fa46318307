"""Install pyliqo into the clusters as an administrator would: with ``liqoctl install``."""

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apis import keys
from sandbox import images, programs, progress
from sandbox.kubectl import Kubectl

DEPLOYMENTS = ("liqo-certs", "liqo-controller-manager", "liqo-metric-agent", "liqo-webhook")
REGIONS = {"rome": "lazio", "milan": "lombardy", "cool-firefly": "piedmont"}
"""The region that a cluster suggests for the nodes that stand for it."""


def install(kubeconfigs: Mapping[str, Path]) -> None:
    """Install this tree in each cluster, called by its name; return once it is available."""
    with (
        progress.step(f"installing pyliqo in {', '.join(kubeconfigs)}"),
        ThreadPoolExecutor() as pool,
    ):
        list(pool.map(_install, kubeconfigs.items()))


def _install(cluster: tuple[str, Path]) -> None:
    name, kubeconfig = cluster
    run(kubeconfig, *command(name))


def command(cluster: str) -> list[str]:
    """Return the arguments of liqoctl that install this tree in ``cluster``."""
    region = f"topology.kubernetes.io/region={REGIONS.get(cluster, cluster)}"
    flags = ["--cluster-id", cluster, "--cluster-labels", region]
    return ["install", *flags, "--image", images.product_name()]


def liqoctl(kubeconfig: Path, *args: str | Path) -> list[str | Path]:
    """Return the command line of this tree's liqoctl towards one cluster."""
    return [sys.executable, "-m", "liqoctl", f"--kubeconfig={kubeconfig}", *args]


def run(kubeconfig: Path, *args: str | Path) -> str:
    """Return what ``liqoctl ARGS`` said; ProgramError when it failed."""
    return programs.run(liqoctl(kubeconfig, *args))


def wait(kubeconfig: Path) -> None:
    """Return once every Deployment of pyliqo is rolled out."""
    kubectl = Kubectl(kubeconfig)
    for name in DEPLOYMENTS:
        kubectl.run(
            "rollout", "status", f"deployment/{name}", "-n", keys.LIQO_NAMESPACE, "--timeout=150s",
            timeout_s=160,
        )  # fmt: skip


def wait_for_leaving(kubeconfig: Path) -> None:
    """Return once no pod of pyliqo that was told to end is there any more, however it drains."""
    kubectl, space = Kubectl(kubeconfig), ("-n", keys.LIQO_NAMESPACE)
    told = "jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}"
    if leaving := kubectl.run("get", "pods", *space, "-o", told).split():
        kubectl.wait("--for=delete", *space, "pod", *leaving)
