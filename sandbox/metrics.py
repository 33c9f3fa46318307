"""The real metrics-server in a cluster, for the tests that need it: a process beside the others."""

import base64
import datetime as dt
from typing import Any, Final

import yaml

from certs import pki
from sandbox import api, binaries, cgroups, components, network, processes
from sandbox.components import Component
from sandbox.kubectl import Kubectl, KubectlError
from sandbox.layout import Site

NAME: Final = "metrics-server"
PORT: Final = 4443
_SERVICE: Final = f"{NAME}.kube-system.svc"
_LIFETIME: Final = dt.timedelta(days=30)
_RIGHTS_TIMEOUT_S: Final = 30.0
_RBAC: Final = "rbac.authorization.k8s.io"


def start(site: Site) -> None:
    """Start it unless it runs, and have the API server pass ``metrics.k8s.io`` on to it."""
    part, kubectl = Component(site, NAME), Kubectl(site.files.kubeconfig)
    kubectl.apply(_rights())
    api.wait_until(
        lambda: _is_admitted(kubectl), "metrics-server has its rights", timeout_s=_RIGHTS_TIMEOUT_S
    )  # it ends at once without them
    if not part.is_alive():
        argv = [str(binaries.program(NAME)), *_arguments(site)]
        processes.launch(
            network.inside(site.slot, argv),
            pid_file=part.pid_file, log=part.log, joins=cgroups.joins(site.cgroup),
        )  # fmt: skip
    kubectl.apply(_service(site))


def _is_admitted(kubectl: Kubectl) -> bool:
    read = ("get", "configmaps/extension-apiserver-authentication", "-n", "kube-system")
    try:
        return kubectl.run("auth", "can-i", *read, "--as", NAME).strip() == "yes"
    except KubectlError:
        return False


def stop(site: Site) -> None:
    """End it, and take back what made it known."""
    components.Component(site, NAME).stop()
    kubectl = Kubectl(site.files.kubeconfig)
    kubectl.run("delete", "apiservice", "v1beta1.metrics.k8s.io", "--ignore-not-found")


def _arguments(site: Site) -> list[str]:
    files = site.files
    authority = pki.Keypair(
        (files.pki / "ca.crt").read_bytes(), (files.pki / "ca.key").read_bytes()
    )
    now = dt.datetime.now(dt.UTC)
    made = {
        "client": pki.issue(authority, common_name=NAME, client=True, now=now, lifetime=_LIFETIME),
        "server": pki.issue(
            authority, common_name=_SERVICE, dns=[_SERVICE], server=True,
            now=now, lifetime=_LIFETIME,
        ),
    }  # fmt: skip
    for name, pair in made.items():
        for suffix, content in ((".crt", pair.certificate), (".key", pair.key)):
            path = files.pki / f"{NAME}-{name}{suffix}"
            path.touch(mode=0o600)
            path.write_bytes(content)
    kubeconfig = files.identity(NAME)
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(site, authority, made["client"])))
    identities = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [
        *(f"--{option}={kubeconfig}" for option in identities),
        f"--bind-address={site.slot.address}",
        f"--secure-port={PORT}",
        f"--tls-cert-file={files.pki / f'{NAME}-server.crt'}",
        f"--tls-private-key-file={files.pki / f'{NAME}-server.key'}",
        f"--kubelet-certificate-authority={files.pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        "--metric-resolution=10s",
        "--kubelet-request-timeout=8s",
    ]


def _kubeconfig(site: Site, authority: pki.Keypair, client: pki.Keypair) -> dict[str, Any]:
    def encoded(content: bytes) -> str:
        return base64.b64encode(content).decode()

    cluster = {
        "server": site.listening.server,
        "certificate-authority-data": encoded(authority.certificate),
    }
    user = {
        "client-certificate-data": encoded(client.certificate),
        "client-key-data": encoded(client.key),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }


def _rights() -> list[dict[str, Any]]:
    """Return the rights of the manifest that metrics-server comes with."""
    subject = {"apiGroup": _RBAC, "kind": "User", "name": NAME}
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": f"system:{NAME}"}}

    def bound(name: str, role: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }

    reader = bound(f"{NAME}-reader", "extension-apiserver-authentication-reader")
    reader |= {"kind": "RoleBinding", "metadata": {"name": NAME, "namespace": "kube-system"}}
    reader["roleRef"] = {**reader["roleRef"], "kind": "Role"}
    return [
        {**head, "kind": "ClusterRole", "rules": rules},
        bound(f"system:{NAME}", f"system:{NAME}"),
        bound(f"{NAME}:system:auth-delegator", "system:auth-delegator"),
        reader,
    ]


def _service(site: Site) -> list[dict[str, Any]]:
    where = {"name": NAME, "namespace": "kube-system"}
    ports = [{"name": "https", "port": PORT, "protocol": "TCP"}]
    ca = base64.b64encode((site.files.pki / "ca.crt").read_bytes()).decode()
    subset = {"addresses": [{"ip": site.slot.address}], "ports": ports}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": where,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
        },
        # API servers before 1.33 look for Endpoints; the EndpointSlice is made of them.
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": where, "subsets": [subset]},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": ca,
                "service": {**where, "port": 443},
            },
        },
    ]
