"""Which annotations and labels of reflected objects a provider takes of a consumer. Pure.

Controllers of a cluster obey annotations with rights of their own: names in its DNS, certificates
of its issuers, addresses and load balancers of its cloud, lines in the configuration of its ingress
controllers, copies in other namespaces, clones of volumes. For all kinds but Ingresses the domains
of those controllers are listed, and all else passes. For Ingresses what passes is listed, by key
and by the shape of the value. A ProviderPolicy opens whole domains (``spec.annotationDomains``).
One table for both sides: reflectors do not send the others, policies of the provider
(``liqo-consumers``) refuse them, by the same regular expressions (RE2).
Source: the documentation of the programs that each group names; CVE-2021-25742, CVE-2023-5044.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from apis import keys
from apis.objects import Kind

_NONE: Final = "^$"


def _below(domains: Iterable[str]) -> str:
    """Return the expression for annotations of ``domains`` and of all domains below these."""
    return "^([^/]*[.])?(" + "|".join(one.replace(".", "[.]") for one in domains) + ")/"


SERVICES: Final = _below([
    # Load balancers of clouds
    "service.beta.kubernetes.io", "cloud.google.com", "networking.gke.io",
    "kubernetes.digitalocean.com",
    "loadbalancer.openstack.org", "load-balancer.hetzner.cloud", "oraclecloud.com", "k8s.aws",
    # Load balancers and addresses of clusters
    "metallb.universe.tf", "metallb.io", "kube-vip.io", "purelb.io", "cilium.io", "io.cilium",
    "projectcalico.org", "tailscale.com",
    # Names, certificates
    "external-dns.alpha.kubernetes.io", "external-dns.kubernetes.io", "cert-manager.io",
    "service.beta.openshift.io", "service.alpha.openshift.io",
    # Ingress controllers and meshes
    "ingress.kubernetes.io", "nginx.org", "nginx.com", "traefik.io", "haproxy.org",
    "haproxy-ingress.github.io", "konghq.com", "projectcontour.io", "getambassador.io", "istio.io",
    "linkerd.io", "consul.hashicorp.com", "kuma.io",
])  # fmt: skip
"""Annotations of Services that no consumer sends."""
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
"""Annotations of ConfigMaps and Secrets that no consumer sends."""
CLAIMS: Final = _below([
    *_DATA,
    # Binding, provisioning and filling of claims
    "kubernetes.io", "k8s.io", "kubevirt.io", "trident.netapp.io", "nfs.io", "topolvm.io",
    "longhorn.io", "portworx.io", "openebs.io",
])  # fmt: skip
"""Annotations of claims that no consumer sends, unless they only tell something."""
TOLD: Final = "^(app|kubectl)[.]kubernetes[.]io/"
"""Annotations of claims that only tell something."""
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
PLAIN: Final = (
    "^([^/]*$|(([^/]*[.])?(liqo[.]io|pyliqo[.]io)|app[.]kubernetes[.]io|meta[.]helm[.]sh)/)"
)
"""Annotations of Ingresses that no controller of a provider obeys."""
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


def refused(
    kind: Kind, annotations: Mapping[str, str], opened: Iterable[str] = ()
) -> frozenset[str]:
    """Return the names of ``annotations`` that a provider does not take with ``kind``."""
    given = _closed(annotations, opened)
    noted = frozenset(NOTED.get(kind, ())) & annotations.keys()
    if kind == keys.INGRESS:
        return noted | {name for name in given if not _is_plain(name, annotations[name])}
    listed = OF_KIND.get(kind, _NONE)
    told = TOLD if kind == keys.PERSISTENT_VOLUME_CLAIM else _NONE
    return noted | frozenset(
        name for name in given if re.search(listed, name) and not re.search(told, name)
    )


def refused_labels(kind: Kind, labels: Iterable[str], opened: Iterable[str] = ()) -> frozenset[str]:
    """Return those of ``labels`` that a consumer does not send: also those too many."""
    given = frozenset(labels)
    orders = frozenset(_closed(given, opened)) & {*LABELS} if kind in LABELLED else frozenset()
    return orders | {*sorted(given - orders)[SENT:]}


LABELLED: Final = frozenset({keys.CONFIG_MAP, keys.SECRET, keys.PERSISTENT_VOLUME_CLAIM})
"""Kinds that nothing selects by their labels, but programs that look for just these."""


def unsent(
    kind: Kind, annotations: Mapping[str, str], opened: Iterable[str] = ()
) -> frozenset[str]:
    """Return the names of ``annotations`` that a consumer does not send: also those too many."""
    orders = refused(kind, annotations, opened)
    return orders | {*sorted(annotations.keys() - orders)[SENT:]}


def _closed(names: Iterable[str], opened: Iterable[str]) -> list[str]:
    known = [*opened]
    open_ = re.compile(_below(known) if known else _NONE)
    return [name for name in names if not open_.search(name)]


def _is_plain(name: str, value: str) -> bool:
    shaped = ((INGRESSES, VALUES), (PLACES, PLACE))
    return bool(re.search(PLAIN, name)) or any(
        re.search(names, name) and re.fullmatch(values.strip("^$"), value)
        for names, values in shaped
    )
