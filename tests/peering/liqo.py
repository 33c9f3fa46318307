"""A cluster on which Liqo's own programs run, as plain processes, instead of ours.

Nothing of Liqo is part of this project: the programs are built from its Go module, in some
minutes, and the module has the CRDs and the roles.
"""

import base64
import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import keys, naming
from apis.objects import Object
from certs import pki
from kube import clock
from sandbox.controlplane import free_ports
from sandbox.kubectl import KubectlError
from tests import gomodules
from tests.peering import world
from tests.peering.world import Member

MODULE: Final = "github.com/liqotech/liqo@v1.0.1"
VARIABLE: Final = "PYLIQO_TEST_LIQO_BIN"
SOURCE: Final = "PYLIQO_TEST_LIQO_SOURCE"
"""A folder with the sources that the programs were built from, if not those of the module."""
PROGRAMS: Final = (
    "liqo-controller-manager", "crd-replicator", "webhook", "virtual-kubelet", "liqoctl"
)  # fmt: skip
HOW: Final = (
    f"set {VARIABLE} to a folder with Liqo's programs ({', '.join(PROGRAMS)}): `go mod download "
    f"{MODULE}`, and in the module's folder, for each, `CGO_ENABLED=0 go build -o FOLDER/ ./cmd/"
    "NAME` (5 minutes for all, and 2 GB)"
)
_TEMPLATE: Final = "virtual-kubelet-default"
_MUTATING: Final = (
    ("/mutate/virtualnodes", keys.VIRTUAL_NODE),
    ("/mutate/foreign-cluster", keys.FOREIGN_CLUSTER),
    ("/mutate/tenants", keys.TENANT),
    ("/mutate/shadowpods", keys.SHADOW_POD),
)
_VALIDATING: Final = (
    ("/validate/namespace-offloading", keys.NAMESPACE_OFFLOADING),
    ("/validate/shadowpods", keys.SHADOW_POD),
    ("/validate/resourceslices", keys.RESOURCE_SLICE),
    ("/validate/tenants", keys.TENANT),
)
"""What its chart registers for the parts that run here."""


def folder() -> Path:
    """Return the folder of Liqo's programs; without one the test is skipped."""
    found = os.environ.get(VARIABLE)
    if not found:
        pytest.skip(HOW)
    lacking = [name for name in PROGRAMS if not (Path(found) / name).exists()]
    assert not lacking, f"{VARIABLE}={found} has no {', '.join(lacking)}: {HOW}"
    return Path(found)


def _source() -> Path:
    found = os.environ.get(SOURCE)
    return Path(found) if found else gomodules.fetched(MODULE)


def renews_slices() -> bool:
    """Whether its consumers ask for new certificates, of slices too, and then take that back.

    Later versions keep one Renew of each control plane, which the provider brings up to date.
    """
    return not os.environ.get(SOURCE)


def _of_release() -> list[str]:
    """Return the flags that later versions have no more."""
    return ["--enable-api-server-ip-remapping=false"] if renews_slices() else []


@dataclass
class Liqo(Member):
    """One cluster of Liqo's, without its network module."""

    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)
    webhook_port: int = 0

    def prepare(self) -> None:
        """Install Liqo's kinds, roles and webhooks, without what needs a pod."""
        chart = _source() / "deployments" / "liqo"
        names = ("liqo", "kube-node-lease")
        self.kubectl.apply([_object("v1", "Namespace", name) for name in names])
        crds = chart / "charts" / "liqo-crds" / "crds"
        self.kubectl.run("apply", "--server-side", "-f", str(crds))
        self.kubectl.wait("--for=condition=Established", "crd", "--all")
        self.kubectl.apply(
            [
                *_roles(chart / "files"),
                _object(
                    "v1", "ConfigMap", "clusterid-configmap", namespace="liqo",
                    labels={"app.kubernetes.io/name": "clusterid-configmap"},
                    data={"CLUSTER_ID": self.name},
                ),
                _options(),
            ]
        )  # fmt: skip
        (self.webhook_port,) = free_ports(1)

    def start(self, *flags: str) -> None:
        """Start controllers, replicator and webhook, and have the webhook asked."""
        own, url = f"--cluster-id={self.name}", self.plane.server
        off = "--metrics-address=0"
        (probes,) = free_ports(1)
        self.run(
            "liqo-controller-manager", own, off, "--liqo-namespace=liqo",
            "--networking-enabled=false", "--default-limits-enforcement=None", *_of_release(),
            f"--api-server-address-override={url}", f"--health-probe-address=127.0.0.1:{self.port}",
            "--default-node-resources=cpu=4,memory=8Gi,pods=110", *flags,
        )  # fmt: skip
        self.run("crd-replicator", own, off)
        ca = self._serve()
        self.run(
            "webhook", own, off, "--liqo-namespace=liqo", f"--webhook-port={self.webhook_port}",
            f"--vk-options-default-template=liqo/{_TEMPLATE}", "--podcidr=10.200.0.0/16",
            f"--health-probe-address=127.0.0.1:{probes}",
        )  # fmt: skip
        for kind, hooks in (("Mutating", _MUTATING), ("Validating", _VALIDATING)):
            self.kubectl.apply([self._configuration(f"{kind}WebhookConfiguration", hooks, ca)])

    def run(self, program: str, *arguments: str, **environment: str) -> None:
        command = [str(folder() / program), *arguments]
        known = {"KUBECONFIG": str(self.plane.kubeconfig), "TMPDIR": str(self.directory)}
        with (self.directory / f"{program}.log").open("ab") as log:
            self.processes[program] = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **known, **environment}
            )

    def is_ready(self) -> bool:
        """Whether the controllers say so, and the webhook is asked."""
        made = _trial_virtual_node()
        asked = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        try:
            found = json.loads(self.kubectl.run(*asked, stdin=json.dumps(made)))
        except KubectlError:
            return False
        return super().is_ready() and "template" in found["spec"]

    def start_kubelet(self, node: str) -> None:
        """Start the virtual kubelet as the Deployment of the virtual node ``node`` says."""
        space = naming.tenant_namespace(node)
        deployment = ("deployment", f"vk-{node}", "-n", space)
        world.wait(lambda: not world.refusal(self.kubectl, "get", *deployment), "the deployment")
        (container,) = self.kubectl.get(*deployment)["spec"]["template"]["spec"]["containers"]
        said = [one.replace("$(POD_IP)", "127.0.0.1") for one in container["args"]]
        more = ("--certificate-type=self-signed", f"--home-kubeconfig={self.plane.kubeconfig}")
        (port,) = free_ports(1)
        self.run(
            "virtual-kubelet", *said, *more, f"--listen-port={port}",
            POD_NAME=f"vk-{node}-0", POD_NAMESPACE=space, VIRTUALNODE_NAME=node,
        )  # fmt: skip

    def liqoctl(self, *arguments: str) -> str:
        """Return what Liqo's ``liqoctl`` says as the administrator of this cluster."""
        command = [str(folder() / "liqoctl"), *arguments, f"--kubeconfig={self.plane.kubeconfig}"]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=world.PATIENCE_S
        )
        assert not done.returncode, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def kill(self) -> None:
        """End all of them as a crash would."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()

    def stop(self) -> None:
        self.kill()
        sys.stdout.write(self.log())

    def log(self) -> str:
        return "".join(
            f"-- {path.name}\n{path.read_text()}" for path in sorted(self.directory.glob("*.log"))
        )

    def _serve(self) -> bytes:
        """Write a certificate to where the webhook looks for one; return its authority."""
        now = clock.now()
        lifetime = dt.timedelta(days=1)
        ca = pki.new_ca("tests", now=now, lifetime=lifetime)
        pair = pki.issue(
            ca, common_name="webhook", ips=["127.0.0.1"], server=True, now=now, lifetime=lifetime
        )
        place = self.directory / "k8s-webhook-server" / "serving-certs"
        place.mkdir(parents=True)
        (place / "tls.crt").write_bytes(pair.certificate)
        (place / "tls.key").touch(mode=0o600)
        (place / "tls.key").write_bytes(pair.key)
        return ca.certificate

    def _configuration(self, kind: str, hooks: Any, ca: bytes) -> Object:
        return _object(
            "admissionregistration.k8s.io/v1", kind, "liqo",
            webhooks=[self._hook(path, of, ca) for path, of in hooks],
        )  # fmt: skip

    def _hook(self, path: str, kind: Any, ca: bytes) -> Object:
        rule = {
            "operations": ["CREATE", "UPDATE"], "apiGroups": [kind.group],
            "apiVersions": [kind.version], "resources": [kind.plural],
        }  # fmt: skip
        return {
            "name": f"{path.strip('/').replace('/', '.')}.liqo.io",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.webhook_port}{path}",
                "caBundle": base64.b64encode(ca).decode(),
            },
            "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }  # fmt: skip


def _trial_virtual_node() -> Object:
    """Return one to try the webhook with."""
    spec = {"clusterID": "none", "kubeconfigSecretRef": {"name": "none"}}
    api = f"{keys.VIRTUAL_NODE.group}/{keys.VIRTUAL_NODE.version}"
    return _object(api, "VirtualNode", "try", namespace="default", spec=spec)


def _object(api: str, kind: str, name: str, *, namespace: str = "", **rest: Any) -> Object:
    labels = rest.pop("labels", {})
    metadata = {"name": name, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _roles(files: Path) -> list[Object]:
    """Return the chart's ClusterRoles; it finds those of peers by a label."""
    made = []
    for path in sorted(files.glob("*-ClusterRole.yaml")):
        name = path.name.removesuffix("-ClusterRole.yaml")
        labels = {"app.kubernetes.io/name": name.removeprefix("liqo-")}
        api = f"{keys.RBAC_GROUP}/v1"
        rules = yaml.safe_load(path.read_text())
        made.append(_object(api, "ClusterRole", name, labels=labels, **rules))
    return made


def _options() -> Object:
    spec = {
        "createNode": True, "disableNetworkCheck": True, "metricsEnabled": False,
        "containerImage": "nobody/runs-it", "replicas": 1,
    }  # fmt: skip
    api = f"{keys.VK_OPTIONS_TEMPLATE.group}/{keys.VK_OPTIONS_TEMPLATE.version}"
    return _object(api, "VkOptionsTemplate", _TEMPLATE, namespace="liqo", spec=spec)
