"""The namespaces that nobody may offload, and the names that no tenant may ask for."""

from typing import Final

from apis import keys

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
