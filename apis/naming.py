"""Names that follow from other names, and what Kubernetes allows in a name.

Source: docs/parity.md § 2.5, with the test vectors of 11.3.
"""

import hashlib
import re
from typing import Final

from apis import keys

LABEL_LIMIT: Final = 63
SUBDOMAIN_LIMIT: Final = 253
_HASH_LENGTH: Final = 8
_TWIN_HASH_LENGTH: Final = 10
_CONSUMER_HASH_LENGTH: Final = 12
_TOKEN_HASH_LENGTH: Final = 6
_ROOT_CA_PREFIX: Final = 5
_COMMON_NAME_LIMIT: Final = 64
"""Characters of the CN of a certificate (RFC 5280, ub-common-name)."""
_PEERING_USER: Final = "liqo-peer-user-"
_DEPLOYMENT_LIMIT: Final = SUBDOMAIN_LIMIT - 11
"""A ReplicaSet appends a dash and ten characters."""

_TWIN_HASH: Final = re.compile(rf"-[0-9a-f]{{{_TWIN_HASH_LENGTH}}}$", re.ASCII)
_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def tenant_namespace(cluster_id: str) -> str:
    return shorten(f"liqo-tenant-{cluster_id}")


def controlplane_identity(provider: str) -> str:
    """Return the Identity by which this cluster replicates to ``provider``."""
    return f"controlplane-{provider}"


def resourceslice_identity(resource_slice: str) -> str:
    """Return the Identity of the virtual kubelets of a slice."""
    return f"resourceslice-{resource_slice}"


def kubeconfig_secret(identity: str) -> str:
    return f"kubeconfig-{identity}"


def remote_certificate(resource_slice: str = "") -> str:
    """Return the Secret with the certificate that a provider gave to a consumer.

    Without a slice that of the consumer's control plane.
    """
    suffix = f"-{resource_slice}" if resource_slice else ""
    return f"{keys.REMOTE_CERTIFICATE_SECRET}{suffix}"


def vk_deployment(virtual_node: str) -> str:
    return shorten(f"vk-{virtual_node}", _DEPLOYMENT_LIMIT)


def default_remote_namespace(namespace: str, cluster_id: str) -> str:
    """Return the twin's name under DefaultName; the same for ever, since it is where its pods are.

    One that is too long for a namespace is its first 52 characters and a hash of the whole.
    """
    return shorten(f"{namespace}-{cluster_id}", length=_TWIN_HASH_LENGTH)


def may_be_default(name: str, cluster_id: str) -> bool:
    """Whether ``name`` has the form of a twin's under DefaultName, of whatever namespace."""
    is_short = _TWIN_HASH.search(name) is not None
    return bool(cluster_id) and (name.endswith(f"-{cluster_id}") or is_short)


def root_ca_config_map(cluster_id: str) -> str:
    """Return the name that ``kube-root-ca.crt`` of the consumer ``cluster_id`` has remotely."""
    prefix = cluster_id[:_ROOT_CA_PREFIX]
    padding = "" if prefix[-1:].isalnum() else "a"
    return f"{keys.ROOT_CA_CONFIG_MAP}.{prefix}{padding}"


def quota_name(resource_slice: str, consumer: str) -> str:
    """Return the Quota of a slice, which is also its user and the CN of its certificate.

    It is the value of a label too. Only the slice's name is shortened for that: the hash of the
    consumer stays whole, so no slice is called like one of another consumer.
    """
    slice_ = shorten(resource_slice, LABEL_LIMIT - _CONSUMER_HASH_LENGTH - 1)
    return f"{slice_}-{_hash(consumer, _CONSUMER_HASH_LENGTH)}"


def peering_user(consumer: str, unique: str) -> str:
    """Return the user by which ``consumer`` peers, also the CN of its certificate.

    ``unique`` stays whole, whatever the length of the consumer's name.
    """
    rest = _COMMON_NAME_LIMIT - len(_PEERING_USER) - len(unique) - 1
    return f"{_PEERING_USER}{shorten(consumer, rest)}-{unique}"


def serving_name(node: str) -> str:
    """Return the CN of the certificate with which the kubelet of ``node`` serves."""
    return shorten(f"system:node:{node}", _COMMON_NAME_LIMIT)


def token_secret(pod: str) -> str:
    """Return the Secret on the provider that holds the tokens of ``pod``."""
    return shorten(f"{pod}-token", SUBDOMAIN_LIMIT)


def token_key(volume: str, path: str) -> str:
    return f"{volume}-{_hash(path, _TOKEN_HASH_LENGTH)}"


def shorten(name: str, limit: int = LABEL_LIMIT, *, length: int = _HASH_LENGTH) -> str:
    """Return ``name``, or its beginning and a hash of the whole where it is beyond ``limit``.

    ``length`` is that of the hash, in characters.
    """
    if len(name) <= limit:
        return name
    kept = name[: limit - length - 1].rstrip("-.")
    return f"{kept}-{_hash(name, length)}"


def is_dns_label(name: str) -> bool:
    """Whether ``name`` is a legal name of a namespace or Service."""
    return len(name) <= LABEL_LIMIT and _DNS_LABEL.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether ``name`` is a legal name of most other objects."""
    parts = name.split(".")
    return len(name) <= SUBDOMAIN_LIMIT and all(_DNS_LABEL.fullmatch(part) for part in parts)


def is_label_value(value: str) -> bool:
    """Whether ``value`` is a legal value of a label; the empty one is."""
    return value == "" or _is_name_part(value)


def is_qualified_name(key: str) -> bool:
    """Whether ``key`` is a legal key of a label or annotation: ``zone``, ``example.org/zone``."""
    prefix, slash, name = key.rpartition("/")
    return _is_name_part(name) and (not slash or is_dns_subdomain(prefix))


def _is_name_part(text: str) -> bool:
    return len(text) <= LABEL_LIMIT and _NAME_PART.fullmatch(text) is not None


def _hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


# Names of namespaces that are reserved ------------------------------------------------------------

SYSTEM_PREFIXES: Final = ("kube-", "liqo-tenant-")
SYSTEM: Final = frozenset({keys.LIQO_NAMESPACE, keys.STORAGE_NAMESPACE})
INSTALLED: Final = frozenset([
    "actions-runner-system", "amazon-cloudwatch", "amazon-guardduty", "arc-systems", "argo",
    "argo-rollouts", "argocd", "azure-arc", "calico-apiserver", "calico-system", "capi-system",
    "cattle-fleet-local-system", "cattle-fleet-system", "cattle-monitoring-system",
    "cattle-system", "cdi", "cert-manager", "cnpg-system", "config-management-system", "consul",
    "crossplane-system", "datadog", "dynatrace", "elastic-system", "external-dns",
    "external-secrets", "falco", "flux-system", "gatekeeper-system", "gke-gmp-system",
    "gke-managed-system", "gmp-public", "gmp-system", "gpu-operator", "ingress-nginx",
    "istio-ingress", "istio-system", "karmada-system", "karpenter", "keda", "knative-eventing",
    "knative-serving", "kubernetes-dashboard", "kubevirt", "kyverno", "linkerd", "linkerd-viz",
    "local-path-storage", "longhorn-system", "metallb-system", "minio-operator", "monitoring",
    "newrelic", "nvidia-gpu-operator", "olm", "opentelemetry-operator-system", "projectcontour",
    "prometheus", "rook-ceph", "sealed-secrets", "tekton-pipelines", "tigera-operator",
    "traefik", "trivy-system", "vault", "vault-secrets-operator-system", "velero",
])  # fmt: skip
"""Where installers put software: in a twin of that name its consumer would read its Secrets."""

_PREFIXES: Final = (*SYSTEM_PREFIXES, "openshift-")
_NAMES: Final = SYSTEM | {"default", "openshift"}


def is_system(namespace: str) -> bool:
    """Whether a namespace holds the cluster's own parts or ours, which stay at the consumer.

    Source: docs/parity.md § 9, row 43.
    """
    return namespace in SYSTEM or namespace.startswith(SYSTEM_PREFIXES)


def is_reserved(name: str) -> bool:
    """Whether a provider refuses ``name`` for a twin namespace, no matter who asks.

    Source: docs/parity.md SEC-A4, SEC-A5.
    """
    return name in _NAMES or name.startswith(_PREFIXES)
