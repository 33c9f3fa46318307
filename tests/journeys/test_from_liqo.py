"""The guide for users of Liqo holds: two clusters with Liqo's own programs become ours."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sandbox import images, install
from sandbox.allocation import Slot
from sandbox.clusters import Sandbox
from sandbox.errors import ProgramError
from sandbox.kubectl import Kubectl
from tests import gomodules, pages
from tests.helm import helm
from tests.journeys import programs
from tests.journeys.world import BARE
from tests.peering import liqo

GUIDE: Final = Path(__file__).parents[2] / "docs/guides/from-liqo.md"
CONSUMER, PROVIDER = BARE
IMAGE, VERSION = "localhost/liqo", "v1.0.1"
PROGRAMS: Final = (
    "liqo-controller-manager", "crd-replicator", "webhook", "virtual-kubelet", "uninstaller",
)  # fmt: skip
PARTS: Final = ("controllerManager", "webhook", "crdReplicator", "virtualKubelet", "uninstaller")
LEFT_OUT: Final = ("networking", "telemetry", "metricAgent", "proxy")

pytestmark = [
    pytest.mark.journey,
    pytest.mark.skipif(
        not os.environ.get(liqo.VARIABLE), reason=f"{liqo.HOW}; and ./cmd/uninstaller for this one"
    ),
]


@pytest.fixture
def clusters(bare: Mapping[str, Path], tmp_path: Path) -> Mapping[str, Path]:
    """Install Liqo in both by its chart, and peer them."""
    binaries = {f"/usr/bin/{name}": liqo.folder() / name for name in PROGRAMS}
    programs.load(f"{IMAGE}:{VERSION}", binaries, tmp_path)
    for name, kubeconfig in bare.items():
        _install(Sandbox().site(name).slot, kubeconfig)
    _typed(PEERED, bare, tmp_path)
    return bare


def _install(slot: Slot, kubeconfig: Path) -> None:
    off = ",".join(f"{part}.enabled=false" for part in LEFT_OUT)
    networks = f"ipam.podCIDR={slot.pod_cidr},ipam.serviceCIDR={slot.service_cidr}"
    ours = ",".join(f"{part}.image.name={IMAGE}" for part in PARTS)
    helm(
        "install", "liqo", gomodules.fetched(liqo.MODULE) / "deployments/liqo", "--namespace=liqo",
        "--create-namespace", "--wait", "--timeout=5m",
        f"--set=tag={VERSION},pullPolicy=Never,discovery.config.clusterID={slot.cluster}",
        f"--set={off},{ours},{networks}",
        env={"KUBECONFIG": str(kubeconfig)},
    )  # fmt: skip


def _typed(block: str, clusters: Mapping[str, Path], folder: Path) -> str:
    found = {"CONSUMER": clusters[CONSUMER], "PROVIDER": clusters[PROVIDER]}
    return pages.shell(block, folder, answer="", LIQO=liqo.folder() / "liqoctl", **found)


def test_two_clusters_of_liqo_become_ours(clusters: Mapping[str, Path], tmp_path: Path) -> None:
    turin = Kubectl(clusters[CONSUMER])
    _typed(SHOP.replace("IMAGE", images.workload_name()), clusters, tmp_path)
    assert nodes(turin) == {PROVIDER}, "with Liqo"
    with pytest.raises(ProgramError, match="runs Liqo"):
        install.run(clusters[CONSUMER], "install", "--image", images.product_name())

    blocks = [
        block.replace("--cluster-id", f"--image {images.product_name()} --cluster-id")
        for block in pages.blocks(GUIDE)
    ]
    kept, *_, seen = [_typed(block, clusters, tmp_path) for block in blocks]

    assert kept.splitlines()[-2:] == [CONSUMER, PROVIDER]
    assert " Running " in seen
    assert nodes(turin) == {PROVIDER}, "with pyliqo"


PEERED: Final = """
"$LIQO" --kubeconfig "$CONSUMER" peer --remote-kubeconfig "$PROVIDER" --networking-disabled \\
  --cpu=1 --memory=1Gi --pods=20
"""
SHOP: Final = f"""
kubectl --kubeconfig "$CONSUMER" create namespace shop
"$LIQO" --kubeconfig "$CONSUMER" offload namespace shop --pod-offloading-strategy Remote
kubectl --kubeconfig "$CONSUMER" apply -f - <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {{name: web, image: IMAGE, command: [sleep, "86400"]}}
END
kubectl --kubeconfig "$CONSUMER" -n shop rollout status deployment web --timeout=180s
kubectl --kubeconfig "$CONSUMER" wait --for=condition=Ready node/{PROVIDER} --timeout=60s
"""


def nodes(kubectl: Kubectl) -> set[str]:
    """Return where the pods of the application are that are not being deleted."""
    pods = kubectl.items("pods", "-n", "shop", "-l", "app=web")
    return {
        pod["spec"].get("nodeName") for pod in pods if "deletionTimestamp" not in pod["metadata"]
    }
