"""Install pyliqo into the clusters from its manifests, as an administrator would."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from apis import keys
from sandbox import images, progress
from sandbox.kubectl import Kubectl

DEPLOYMENTS = ("liqo-certs", "liqo-controller-manager", "liqo-webhook")


def install(kubeconfigs: Mapping[str, Path], state: Path) -> None:
    """Apply ``manifests/`` to each cluster and wait until what it starts is available.

    ``state`` is where the overlay of each cluster is written: its cluster ID and the image.
    """
    for cluster, kubeconfig in kubeconfigs.items():
        with progress.step(f"applying the manifests to {cluster}"):
            apply(cluster, kubeconfig, state)
    for cluster, kubeconfig in kubeconfigs.items():
        with progress.step(f"waiting for pyliqo in {cluster}"):
            wait(kubeconfig)


def apply(cluster: str, kubeconfig: Path, state: Path) -> str:
    """Apply the overlay of ``cluster`` and return what kubectl printed."""
    folder = overlay(cluster, state)
    return Kubectl(kubeconfig).run("apply", "--server-side", "-k", str(folder))


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


def overlay(cluster: str, state: Path) -> Path:
    """Write the kustomization that names the cluster and the image; return its folder."""
    folder = state / cluster / "install"
    folder.mkdir(parents=True, exist_ok=True)
    image, _, tag = images.product_name().rpartition(":")
    manifests = Path("..", "..", "..", "manifests")
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(manifests), "cluster-id.yaml"],
        "images": [{"name": "pyliqo", "newName": image, "newTag": tag}],
    }
    cluster_id = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": keys.CLUSTER_ID_CONFIG_MAP,
            "namespace": keys.LIQO_NAMESPACE,
            "labels": {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP},
        },
        "data": {keys.CLUSTER_ID_KEY: cluster},
    }
    (folder / "cluster-id.yaml").write_text(yaml.safe_dump(cluster_id), encoding="utf-8")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder
