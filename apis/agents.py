"""Which annotations and labels of a pod are orders to programs of the cluster that it runs in.

Agents of nodes, injectors and schedulers obey them with rights of their own: a network of the host,
a role of the cloud, a device, a node that may not be removed. A consumer gives no such orders at a
provider, unless its ProviderPolicy opens their domain. One list for both sides: consumers do not
send them, providers leave them out. What only tells something (``prometheus.io/scrape``) passes.
Source: the documentation of the programs that each group names.
"""

from collections.abc import Iterable, Mapping
from typing import Final

ANNOTATIONS: Final = frozenset([
    # Networks: Multus, OVN, Kube-OVN, Calico, Cilium, SR-IOV, GKE, AWS
    "k8s.v1.cni.cncf.io", "v1.multus-cni.io", "k8s.ovn.org", "ovn.kubernetes.io",
    "cni.projectcalico.org", "cilium.io", "networking.gke.io", "vpc.amazonaws.com",
    "k8s.amazonaws.com", "external-dns.alpha.kubernetes.io",
    # Roles of the cloud: kube2iam, kiam, Azure, Google
    "iam.amazonaws.com", "eks.amazonaws.com", "azure.workload.identity", "iam.gke.io",
    # Container runtimes: CRI-O, containerd, Kata, CDI, NRI, crun
    "io.kubernetes.cri-o", "io.containerd", "io.kubernetes.cri", "io.katacontainers", "cdi.k8s.io",
    "nri.io", "run.oci",
    # Who moves pods and nodes
    "cluster-autoscaler.kubernetes.io", "descheduler.alpha.kubernetes.io", "karpenter.sh",
    "scheduler.alpha.kubernetes.io", "scheduling.volcano.sh", "velero.io",
    # Injectors: Vault, Consul, Istio, Linkerd, Kuma, Dapr, OpenTelemetry, Jaeger, Datadog
    "vault.hashicorp.com", "consul.hashicorp.com", "inject.istio.io", "sidecar.istio.io/inject",
    "linkerd.io/inject", "kuma.io/sidecar-injection", "dapr.io", "instrumentation.opentelemetry.io",
    "sidecar.opentelemetry.io", "sidecar.jaegertracing.io", "admission.datadoghq.com",
    "ad.datadoghq.com", "appmesh.k8s.aws",
    # Pod security policies
    "kubernetes.io/psp",
])  # fmt: skip
"""Domains, with all below them, and whole names."""
LABELS: Final = frozenset([
    "aadpodidbinding", "admission.datadoghq.com/enabled", "azure.workload.identity/use",
    "istio.io/dataplane-mode", "istio.io/rev", "kuma.io/sidecar-injection", "linkerd.io/inject",
    "sidecar.istio.io/inject",
])  # fmt: skip
"""Few: Services select pods by labels."""


def ordering(
    annotations: Iterable[str], labels: Iterable[str], opened: Iterable[str] = ()
) -> frozenset[str]:
    """Return those of the names that are orders, and of no domain that is ``opened``."""
    orders = {name for name in annotations if _is_of(name, ANNOTATIONS)} | (LABELS & {*labels})
    known = frozenset(opened)
    return frozenset(name for name in orders if not _is_of(name, known))


def without(
    metadata: Mapping[str, Mapping[str, str]], opened: Iterable[str] = ()
) -> dict[str, dict[str, str]]:
    """Return ``annotations`` and ``labels`` of ``metadata`` without orders."""
    annotations, labels = metadata["annotations"], metadata["labels"]
    known = frozenset(opened)
    given = ordering(annotations, (), known), ordering((), labels, known)
    return {
        field: {name: value for name, value in have.items() if name not in orders}
        for field, have, orders in zip(
            ("annotations", "labels"), (annotations, labels), given, strict=True
        )
    }


def _is_of(name: str, domains: frozenset[str]) -> bool:
    """Whether ``name`` is listed, or of a domain that is, or of one below.

    Some programs put dots for the slash: ``io.kubernetes.cri-o.Devices``.
    """
    if name in domains:
        return True
    prefix, slash, _ = name.partition("/")
    parts = prefix.split(".")
    below = (".".join(parts[index:]) for index in range(len(parts)))
    if any(one in domains for one in below):
        return True
    above = (".".join(parts[:index]) for index in range(1, len(parts)))
    return not slash and any(one in domains for one in above)
