"""Which annotations of reflected objects a provider takes of a consumer. Pure.

Controllers of a cluster obey annotations with rights of their own: names in its DNS, certificates
of its issuers, addresses and load balancers of its cloud, lines in the configuration of its ingress
controllers, copies of Secrets and volumes. For all kinds but Ingresses the domains of those
controllers are listed, and all else passes. For Ingresses what passes is listed, by key and by the
shape of the value. A ProviderPolicy opens whole domains (``spec.annotationDomains``). One table for
both sides: reflectors do not send the others, policies of the provider (``liqo-consumers``) refuse
them, by the same regular expressions (RE2).
Source: the documentation of the controllers that each group names; CVE-2021-25742, CVE-2023-5044.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from apis import keys
from apis.objects import Kind


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
CLAIMS: Final = _below([
    # Provisioning, binding, cloning and import
    "pv.kubernetes.io", "volume.kubernetes.io", "volume.beta.kubernetes.io",
    "storage.kubernetes.io", "k8s.io", "cdi.kubevirt.io", "trident.netapp.io", "portworx.io",
    "openebs.io",
])  # fmt: skip
"""Annotations of claims that no consumer sends."""
DATA: Final = _below([
    # Copies of what is in other namespaces, or into these
    "mittwald.de", "emberstack.com", "appscode.com", "kyverno.io", "cdi.kubevirt.io",
])  # fmt: skip
"""Annotations of ConfigMaps and Secrets that no consumer sends."""
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


def refused(
    kind: Kind, annotations: Mapping[str, str], opened: Iterable[str] = ()
) -> frozenset[str]:
    """Return the names of ``annotations`` that a provider does not take with ``kind``."""
    known = [*opened]
    given = [name for name in annotations if not (known and re.search(_below(known), name))]
    if kind == keys.INGRESS:
        return frozenset(name for name in given if not _is_plain(name, annotations[name]))
    listed = _LISTED.get(kind)
    return frozenset(name for name in given if listed and re.search(listed, name))


_LISTED: Final[Mapping[Kind, str]] = {
    keys.SERVICE: SERVICES,
    keys.PERSISTENT_VOLUME_CLAIM: CLAIMS,
    keys.CONFIG_MAP: DATA,
    keys.SECRET: DATA,
}


def _is_plain(name: str, value: str) -> bool:
    shaped = ((INGRESSES, VALUES), (PLACES, PLACE))
    return bool(re.search(PLAIN, name)) or any(
        re.search(names, name) and re.fullmatch(values.strip("^$"), value)
        for names, values in shaped
    )
