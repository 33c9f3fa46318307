"""Argo CD's own programs, as processes of this machine, which keep clusters of the sandbox."""

import base64
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from apis.objects import Kind
from sandbox import binaries
from sandbox.controlplane import free_ports
from sandbox.kubectl import Kubectl

VARIABLE: Final = "PYLIQO_TEST_ARGOCD"
FOLDER: Final = os.environ.get(VARIABLE, "")
HOW: Final = (
    f"set {VARIABLE} to a copy of the module github.com/argoproj/argo-cd/v3@v3.2.6 in which "
    "`CGO_ENABLED=0 go build -o argocd ./cmd` and `GOBIN=$PWD go install "
    "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1` were run; it needs redis-server and git"
)
NAMESPACE: Final = "argocd"
CONFIGURED: Final = (
    "argocd-cm", "argocd-rbac-cm", "argocd-secret", "argocd-gpg-keys-cm", "argocd-tls-certs-cm",
    "argocd-ssh-known-hosts-cm",
)  # fmt: skip


APPLICATION: Final = Kind("argoproj.io", "v1alpha1", "Application", "applications")
COMMIT_AND_SYNC: Final = """
in_argo() { kubectl --kubeconfig "$CONSUMER" --namespace argocd "$@"; }
commit_and_sync() {
  git -C fleet add --all
  git -C fleet -c user.name=platform -c user.email=platform@example.com \\
    commit --quiet --allow-empty -m "Change $1"
  in_argo apply --server-side -f "$APPLICATIONS"
  in_argo annotate --overwrite "application/fleet-$1" argocd.argoproj.io/refresh=normal
  for said in "sync.revision}=$(git -C fleet rev-parse HEAD)" "sync.status}=Synced" \\
    "health.status}=Healthy"; do
    in_argo wait --timeout=300s --for=jsonpath="{.status.$said" "application/fleet-$1" >&2
  done
  in_argo get "application/fleet-$1" \\
    -o jsonpath='{range .status.resources[*]}{.kind} {.health.status}{"\\n"}{end}'
}
"""
"""A function of the shell: it commits the folder fleet, and returns when Argo CD is done with $1.

CONSUMER is the kubeconfig of the cluster of the Applications, which are in the file APPLICATIONS.
"""


@dataclass(frozen=True)
class ArgoCD:
    """One that runs, and the cluster that has its Applications."""

    kubectl: Kubectl

    def knows(self, name: str, kubeconfig: Path) -> None:
        """Tell it of a cluster, which Applications may name."""
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        access = {
            "tlsClientConfig": {
                "caData": cluster["certificate-authority-data"],
                "certData": user["client-certificate-data"],
                "keyData": user["client-key-data"],
            }
        }
        labels = {"argocd.argoproj.io/secret-type": "cluster"}
        secret = {
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": f"cluster-{name}", "namespace": NAMESPACE, "labels": labels},
            "stringData": {
                "name": name, "server": cluster["server"], "config": json.dumps(access)
            },
        }  # fmt: skip
        self.kubectl.apply([secret])


def _configure(kubectl: Kubectl) -> None:
    source = Path(FOLDER) / "manifests"
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    kubectl.run("apply", "--server-side", "-k", str(source / "crds"))
    for name in CONFIGURED:
        file = source / "base/config" / f"{name}.yaml"
        kubectl.run("-n", NAMESPACE, "apply", "--server-side", "-f", str(file))
    kubectl.wait("--for=condition=Established", "crd", "--all")
    key = base64.b64encode(os.urandom(32)).decode()
    said = json.dumps({"data": {"server.secretkey": key}})
    kubectl.run("-n", NAMESPACE, "patch", "secret", "argocd-secret", "-p", said)
    anything = {"group": "*", "kind": "*"}
    spec = {
        "sourceRepos": ["*"],
        "destinations": [{"namespace": "*", "server": "*"}],
        "clusterResourceWhitelist": [anything],
    }
    metadata = {"name": "default", "namespace": NAMESPACE}
    project = {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject"}
    kubectl.apply([{**project, "metadata": metadata, "spec": spec}])


@contextlib.contextmanager
def running(kubeconfig: Path, folder: Path) -> Iterator[ArgoCD]:
    """Yield one whose Applications are in the cluster of ``kubeconfig``."""
    _configure(Kubectl(kubeconfig))
    redis, repo, *metrics = free_ports(4)
    path = os.pathsep.join([FOLDER, str(binaries.program("helm").parent), os.environ["PATH"]])
    environment = {
        **os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder),
        "ARGOCD_FAKE_IN_CLUSTER": "true", "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_TLS_DATA_PATH": str(folder), "ARGOCD_SSH_DATA_PATH": str(folder),
        "ARGOCD_GPG_DATA_PATH": str(folder), "ARGOCD_GNUPGHOME": str(folder),
    }  # fmt: skip
    at = f"--redis=127.0.0.1:{redis}"
    commands = {
        "redis": ["redis-server", "--port", str(redis), "--save", "", "--appendonly", "no"],
        "argocd-repo-server": [
            f"--port={repo}", f"--metrics-port={metrics[0]}", at, "--disable-tls",
        ],
        "argocd-application-controller": [
            f"--repo-server=127.0.0.1:{repo}", f"--metrics-port={metrics[1]}", at,
            "--repo-server-plaintext", f"--namespace={NAMESPACE}", "--app-resync=5",
            "--app-resync-jitter=0", "--persist-resource-health",
        ],
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, words in commands.items():
            command = words if name == "redis" else [str(Path(FOLDER) / "argocd"), *words]
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            said = {**environment, "ARGOCD_BINARY_NAME": name}
            process = subprocess.Popen(command, env=said, cwd=folder, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield ArgoCD(Kubectl(kubeconfig))
