"""Which annotations and labels a provider takes of a consumer. Pure.

Programs of a cluster obey annotations with rights of their own: names in its DNS, certificates of
its issuers, load balancers of its cloud, networks and devices of its nodes, what its monitoring
stores, copies in other namespaces. So those that pass are listed (``PLAIN``), for all kinds. A
ProviderPolicy opens whole domains besides. Consumers do not send the others, and a provider leaves
them out of the Pods and EndpointSlices that it makes. What a consumer writes itself is refused: an
Ingress for all that is not listed, by key and by the shape of the value; Services and data for the
domains that programs are known to obey, by the same regular expressions (RE2) in policies
(``liqo-consumers``). Labels pass, but for a few: Services select by them.
Source: the documentation of the programs that each group names; CVE-2021-25742, CVE-2023-5044.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from apis import keys
from apis.objects import Kind

_NONE: Final = "^$"


def _below(domains: Iterable[str], end: str = "/") -> str:
    """Return the expression for annotations of ``domains`` and of all domains below these."""
    return "^([^/]*[.])?(" + "|".join(one.replace(".", "[.]") for one in domains) + f"){end}"


def _obeyed(*domains: str) -> str:
    """Likewise, and of names that begin with one of them: ``co.elastic.metrics/raw``."""
    return _below(domains, "[./]")


PLAIN: Final = "^[^/.]*$|" + _below([
    # This project's own, and what kubectl, Helm, Kustomize and Flux write on every object
    "liqo.io", "pyliqo.io", "app.kubernetes.io", "kubectl.kubernetes.io", "helm.sh", "checksum",
    "config.kubernetes.io", "config.k8s.io", "toolkit.fluxcd.io",
    # What controllers of Kubernetes note; AppArmor is judged as the fields of pods are
    "apps.kubernetes.io", "batch.kubernetes.io", "endpoints.kubernetes.io",
    "controller.kubernetes.io", "container.apparmor.security.beta.kubernetes.io",
]) + (
    "|^kubernetes[.]io/(description|change-cause|limit-ranger)$"
    "|^service[.]kubernetes[.]io/topology-(mode|aware-hints)$"
    "|^service[.]alpha[.]kubernetes[.]io/tolerate-unready-endpoints$"
)  # fmt: skip
"""Annotations that pass with every kind: they only tell something, or concern the object alone."""
UNNAMED: Final = frozenset({"kubearmor-policy", "kubearmor-visibility"})
"""Annotations of pods without a domain that programs obey nonetheless."""
SERVICES: Final = _obeyed(
    # Load balancers and DNS of clouds: many have their annotations below kubernetes.io
    "kubernetes.io", "k8s.aws", "amazonaws.com", "cloud.google.com", "networking.gke.io",
    "kubernetes.digitalocean.com", "openstack.org", "hetzner.cloud", "oraclecloud.com",
    "cloud.tencent.com", "ovhcloud.com", "yandex.cloud", "stackit.cloud", "kubernetes.civo.com",
    "scaleway.com",
    # Load balancers and addresses of clusters
    "metallb.universe.tf", "metallb.io", "kube-vip.io", "purelb.io", "cilium.io", "io.cilium",
    "projectcalico.org", "tailscale.com", "ako.vmware.com", "cis.f5.com", "kubesphere.io",
    "loxilb.io", "ncp", "ovn.org", "antrea.io",
    # Certificates, deployment
    "cert-manager.io", "service.beta.openshift.io", "service.alpha.openshift.io",
    "argocd.argoproj.io",
    # Ingress controllers and meshes
    "nginx.org", "nginx.com", "traefik.io", "haproxy.org", "haproxy-ingress.github.io",
    "konghq.com", "projectcontour.io", "getambassador.io", "pomerium.io", "solo.io", "istio.io",
    "linkerd.io", "consul.hashicorp.com", "kuma.io", "skupper.io",
    # Monitoring, which calls what they name and stores what that answers
    "prometheus.io", "datadoghq.com", "co.elastic", "io.opentelemetry.discovery",
    "k8s.grafana.com", "newrelic.io", "dynatrace.com",
)  # fmt: skip
"""Annotations with which no consumer creates a Service, unless they are plain."""
_DATA: Final = (
    # Copies in other namespaces
    "replicator.v1.mittwald.de", "reflector.v1.k8s.emberstack.com", "kubed.appscode.com",
    "secretgen.carvel.dev", "external-secrets.io", "kyverno.io",
    # Certificates, secrets of a vault
    "cert-manager.io", "service.beta.openshift.io", "vault.security.banzaicloud.io",
    "vault.hashicorp.com",
    # Deployment, backups
    "argocd.argoproj.io", "velero.io", "k8up.io",
)  # fmt: skip
DATA: Final = _below(_DATA)
"""Annotations with which no consumer creates a ConfigMap or Secret."""
CLAIMS: Final = _below([
    *_DATA,
    # Binding, provisioning and filling of claims
    "kubernetes.io", "k8s.io", "kubevirt.io", "trident.netapp.io", "nfs.io", "topolvm.io",
    "longhorn.io", "portworx.io", "openebs.io",
])  # fmt: skip
"""Annotations with which no consumer creates a claim, unless they are plain."""
INJECTED: Final = (
    "aadpodidbinding", "admission.datadoghq.com/enabled", "azure.workload.identity/use",
    "istio.io/dataplane-mode", "istio.io/global", "istio.io/rev", "istio.io/use-waypoint",
    "kuma.io/sidecar-injection", "linkerd.io/inject", "mirror.linkerd.io/exported",
    "sidecar.istio.io/inject",
)  # fmt: skip
"""Labels of pods and Services by which injectors and meshes take them in: few, as Services select
pods by labels."""
LABELS: Final = (
    "argocd.argoproj.io/secret-type", "grafana_alert", "grafana_dashboard", "grafana_datasource",
    "grafana_notifier", "istio/multiCluster", "velero.io/plugin-config",
)  # fmt: skip
"""By which programs of a provider find ConfigMaps and Secrets in any namespace."""
INGRESSES: Final = (
    "^nginx[.]ingress[.]kubernetes[.]io/(affinity|backend-protocol|cors-allow-credentials|cors-max-age|"
    "enable-cors|force-ssl-redirect|limit-(connections|rpm|rps)|proxy-body-size|proxy-buffering|"
    "proxy-(connect|read|send)-timeout|proxy-request-buffering|session-cookie-(expires|max-age)|ssl-redirect)$"
)
"""Annotations of Ingresses that concern their own hosts only, where the value has a shape below."""
VALUES: Final = "^(true|false|on|off|cookie|HTTPS?|GRPCS?|[0-9]{1,9}(ms|[smhdkKMgG])?)$"
"""Switches, protocols, numbers, durations and sizes."""
PLACES: Final = (
    "^nginx[.]ingress[.]kubernetes[.]io/"
    "(app-root|permanent-redirect|rewrite-target|temporal-redirect)$"
)
"""Likewise, where the value is a path or a URL without what ends a word, or is a variable."""
PLACE: Final = "^(/|https://)([]!%&(-:<-[^_a-z|~]|[$][1-9])*$"
MOST: Final = 100
"""So many annotations one object may have, or a policy would take too long over them."""
SENT: Final = MOST - 10
"""So many annotations, and labels, of a user's object are sent; ours come on top: ``MOST``."""


NOTED: Final[Mapping[Kind, tuple[str, ...]]] = {
    keys.SERVICE: (
        "cloud.google.com/neg", "cloud.google.com/neg-status",
        "kubernetes.digitalocean.com/load-balancer-id", "metallb.universe.tf/address-pool",
        "metallb.universe.tf/ip-allocated-from-pool", "metallb.universe.tf/loadBalancerIPs",
        "loadbalancer.openstack.org/load-balancer-id",
    ),
    keys.INGRESS: (
        "ingress.kubernetes.io/backends", "ingress.kubernetes.io/forwarding-rule",
        "ingress.kubernetes.io/target-proxy", "ingress.kubernetes.io/url-map", keys.INGRESS_CLASS,
    ),
    keys.PERSISTENT_VOLUME_CLAIM: keys.ANNOTATIONS_OF_CLAIMS,
}  # fmt: skip
"""Annotations that controllers of a cluster write for itself: no ProviderPolicy opens them."""
OF_KIND: Final[Mapping[Kind, str]] = {
    keys.SERVICE: SERVICES,
    keys.CONFIG_MAP: DATA,
    keys.SECRET: DATA,
    keys.PERSISTENT_VOLUME_CLAIM: CLAIMS,
}
"""What is refused of each kind; of Ingresses it is all but what is listed."""


def unsent(
    kind: Kind, annotations: Mapping[str, str], opened: Iterable[str] = ()
) -> frozenset[str]:
    """Return the names of ``annotations`` that a consumer does not send: also those too many."""
    left_out = _unlisted(kind, annotations, opened) | _noted(kind, annotations)
    return left_out | {*sorted(annotations.keys() - left_out)[SENT:]}


def refused(
    kind: Kind, annotations: Mapping[str, str], had: Mapping[str, str], opened: Iterable[str]
) -> frozenset[str]:
    """Return the names of ``annotations`` that a consumer does not write beside those it ``had``.

    They are those that policy ``liqo-consumers`` refuses of a kind in ``OF_KIND``.
    """
    obeyed = {name for name in _unlisted(kind, annotations, opened) if _obeys(kind, name)}
    changed = {name for name, value in annotations.items() if had.get(name) != value}
    return frozenset(changed & (obeyed | _noted(kind, annotations)))


def refused_labels(kind: Kind, labels: Iterable[str], opened: Iterable[str] = ()) -> frozenset[str]:
    """Return those of ``labels`` that a consumer does not send: also those too many."""
    given = frozenset(labels)
    orders = frozenset(_closed(given, opened)).intersection(LABELLED.get(kind, ()))
    return orders | {*sorted(given - orders)[SENT:]}


LABELLED: Final[Mapping[Kind, tuple[str, ...]]] = {
    keys.CONFIG_MAP: LABELS,
    keys.SECRET: LABELS,
    keys.PERSISTENT_VOLUME_CLAIM: LABELS,
    keys.SERVICE: INJECTED,
}
"""Labels by which programs of a provider find or take in objects of a kind."""


def of_pods(
    annotations: Iterable[str], labels: Iterable[str], opened: Iterable[str] | None = ()
) -> frozenset[str]:
    """Return those of the names that are left out of pods.

    ``opened`` are domains and whole names; None: of a provider that says nothing, and sees to it.
    """
    if opened is None:
        return frozenset()
    known = frozenset(opened)
    unlisted = {name for name in annotations if name in UNNAMED or not re.search(PLAIN, name)}
    injected = frozenset(INJECTED).intersection(labels)
    return frozenset(name for name in unlisted | injected if not _is_of(name, known))


def for_pods(
    metadata: Mapping[str, Mapping[str, str]], opened: Iterable[str] | None = ()
) -> dict[str, dict[str, str]]:
    """Return ``annotations`` and ``labels`` of ``metadata`` without what is left out of pods."""
    left_out = of_pods(metadata["annotations"], metadata["labels"], opened)
    return {
        field: {name: value for name, value in metadata[field].items() if name not in left_out}
        for field in ("annotations", "labels")
    }


def plain(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``annotations`` that pass with every kind."""
    return {name: value for name, value in annotations.items() if re.search(PLAIN, name)}


def _unlisted(kind: Kind, annotations: Mapping[str, str], opened: Iterable[str]) -> frozenset[str]:
    return frozenset(
        name
        for name in _closed(annotations, opened)
        if not re.search(PLAIN, name)
        and not (kind == keys.INGRESS and _is_shaped(name, annotations[name]))
    )


def _obeys(kind: Kind, name: str) -> bool:
    return bool(re.search(OF_KIND[kind], name))


def _noted(kind: Kind, annotations: Mapping[str, str]) -> frozenset[str]:
    return frozenset(NOTED.get(kind, ())) & annotations.keys()


def _closed(names: Iterable[str], opened: Iterable[str]) -> list[str]:
    known = [*opened]
    open_ = re.compile(_below(known) if known else _NONE)
    return [name for name in names if not open_.search(name)]


def _is_shaped(name: str, value: str) -> bool:
    shaped = ((INGRESSES, VALUES), (PLACES, PLACE))
    return any(
        re.search(names, name) and re.fullmatch(values.strip("^$"), value)
        for names, values in shaped
    )


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
