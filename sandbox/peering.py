"""Peering by hand: what two administrators exchange so that one cluster may offload to the other.

The provider makes a namespace for the consumer, signs two certificates, binds rights to them and
grants a Quota; the consumer stores both as kubeconfig Secrets. ``docs/peering-by-hand.md`` says the
same in commands. Source: behaviour.md 2.5 (names), 8.1 (rights).
"""

import base64
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from apis import keys, naming
from apis.objects import Key, named
from certs import pki
from sandbox.kubectl import Kubectl

GRANTED = {"cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "100000"}
"""More than these clusters have: what binds is the scheduler, and what a test lowers."""
KUBELET_SECRET = "kubeconfig-{provider}"  # noqa: S105  # a name, not a secret


def peer(consumer: str, provider: str, *, kubeconfigs: Mapping[str, Path]) -> str:
    """Let ``consumer`` offload to ``provider``; return the Secret's name for its VirtualNodes.

    Doing it again renews the two certificates and changes nothing else.
    """
    theirs, ours = Kubectl(kubeconfigs[provider]), Kubectl(kubeconfigs[consumer])
    remote_namespace = naming.tenant_namespace(consumer)
    quota = quota_key(consumer)
    theirs.apply(
        [
            _tenant_namespace(consumer),
            _binding(consumer, remote_namespace),
            _metrics_binding(consumer),
            _quota(quota),
        ]
    )
    server = _cluster_entry(kubeconfigs[provider])
    user = quota.name
    controlplane = _kubeconfig(theirs, server, consumer, "liqo.io", remote_namespace)
    kubelet = _kubeconfig(theirs, server, user, consumer, remote_namespace)
    secret = KUBELET_SECRET.format(provider=provider)
    annotations = {keys.REMOTE_TENANT_NAMESPACE: remote_namespace}
    ours.apply(
        [
            _tenant_namespace(provider),
            _secret(provider, f"kubeconfig-controlplane-{provider}", controlplane, annotations),
            _secret(provider, secret, kubelet, {}),
        ]
    )
    return secret


def quota_key(consumer: str) -> Key:
    """Return the Quota of ``consumer`` on its provider; its name is the virtual kubelets' user."""
    return Key(naming.tenant_namespace(consumer), naming.quota_name("by-hand", consumer))


def _quota(key: Key) -> dict[str, Any]:
    return named(keys.QUOTA, key, spec={"user": key.name, "resources": GRANTED})


def _tenant_namespace(remote: str) -> dict[str, Any]:
    levels = (keys.POD_SECURITY_ENFORCE, keys.POD_SECURITY_AUDIT, keys.POD_SECURITY_WARN)
    labels = {
        keys.TENANT_NAMESPACE: "true",
        keys.REMOTE_CLUSTER_ID: remote,
        **dict.fromkeys(levels, "privileged"),
    }
    metadata = {"name": naming.tenant_namespace(remote), "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _binding(consumer: str, namespace: str) -> dict[str, Any]:
    role = keys.REMOTE_CONTROLPLANE_ROLE
    return {
        "apiVersion": keys.ROLE_BINDING.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": f"liqo-binding-{role}", "namespace": namespace},
        "roleRef": {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": keys.RBAC_GROUP, "kind": "User", "name": consumer}],
    }


def _metrics_binding(consumer: str) -> dict[str, Any]:
    """Let the consumer ask what its pods use; of others' it is told nothing."""
    role = keys.VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE
    return {
        "apiVersion": keys.CLUSTER_ROLE_BINDING.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"liqo-binding-{role}-{consumer}"},
        "roleRef": {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": keys.RBAC_GROUP, "kind": "Group", "name": consumer}],
    }


def _secret(
    provider: str, name: str, kubeconfig: str, annotations: Mapping[str, str]
) -> dict[str, Any]:
    labels = {keys.REMOTE_CLUSTER_ID: provider}
    if annotations:
        labels[keys.IDENTITY_TYPE] = keys.CONTROL_PLANE_IDENTITY
    metadata = {
        "name": name,
        "namespace": naming.tenant_namespace(provider),
        "labels": labels,
        "annotations": dict(annotations),
    }
    data = {keys.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _cluster_entry(kubeconfig: Path) -> dict[str, Any]:
    entry = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    return {name: entry[name] for name in ("server", "certificate-authority-data")}


def _kubeconfig(
    provider: Kubectl, server: Mapping[str, Any], user: str, group: str, namespace: str
) -> str:
    key = pki.new_key()
    certificate = _sign(provider, user, pki.new_csr(key, common_name=user, organizations=[group]))
    identity = {
        "client-certificate-data": certificate,
        "client-key-data": base64.b64encode(key).decode(),
    }
    context = {"cluster": "provider", "user": user, "namespace": namespace}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "provider", "cluster": dict(server)}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": "default-context", "context": context}],
            "current-context": "default-context",
        }
    )


def _sign(provider: Kubectl, user: str, request: bytes) -> str:
    """Return the certificate (base64 of PEM) that the provider's own signer gives for it."""
    stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%d%H%M%S%f")
    name = f"by-hand-{user}-{stamp}"
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["digital signature", "key encipherment", "client auth"],
    }
    csr = {
        "apiVersion": keys.CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    provider.apply([csr])
    provider.run("certificate", "approve", name)
    provider.wait("--for=jsonpath={.status.certificate}", "csr", name, timeout_s=30)
    certificate = str(provider.get("csr", name)["status"]["certificate"])
    provider.run("delete", "csr", name)
    return certificate
