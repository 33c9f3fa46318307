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
from dataclasses import dataclass
from enum import Enum
from typing import Final

from apis import keys, objects
from apis.objects import Kind, Object

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
    # What controllers of Kubernetes note; AppArmor is checked as the fields of pods are
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
MOST_ANNOTATIONS: Final = 100
"""So many annotations one object may have, or a policy would take too long over them."""
SENT: Final = MOST_ANNOTATIONS - 10
"""So many annotations, and labels, of a user's object are sent; ours come on top."""


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


# What a consumer may write into the metadata of this project's kinds ------------------------------


class AllowedValue(Enum):
    """What the value of a mark has to be; the text is that of the page."""

    TRUE = "`true`"
    FALSE = "`false`"
    CONSUMER = "the cluster ID that the namespace names"
    ANYTHING = "anything"
    NOTHING = "is the provider's to set: absent, or as it was"


@dataclass(frozen=True)
class AllowedKey:
    """One label or annotation, and what it may say."""

    key: str
    says: AllowedValue
    is_needed: bool = False
    """Whether nothing is created without it."""


REPLICAS: Final[tuple[Kind, ...]] = (keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW)
"""What the control plane of a consumer puts into its tenant namespace."""
SHADOWS: Final[tuple[Kind, ...]] = (keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE)
"""What its virtual kubelets put into its twins."""

REPLICA_LABELS: Final = (
    AllowedKey(keys.REPLICATED, AllowedValue.TRUE, is_needed=True),
    AllowedKey(keys.ORIGIN_ID, AllowedValue.CONSUMER, is_needed=True),
    AllowedKey(keys.REMOTE_CLUSTER_ID, AllowedValue.CONSUMER),
    AllowedKey(keys.REPLICATION, AllowedValue.FALSE),
    AllowedKey(keys.REMOTE_ID, AllowedValue.ANYTHING),
    AllowedKey(keys.LIQO_MANAGED, AllowedValue.ANYTHING),
    AllowedKey(keys.RESOURCE_SLICE_NAME, AllowedValue.ANYTHING),
    AllowedKey(keys.IDENTITY_TYPE, AllowedValue.ANYTHING),
)
"""Any other label of the domains below is refused."""
REPLICA_ANNOTATIONS: Final = (
    AllowedKey(keys.CREATE_VIRTUAL_NODE, AllowedValue.ANYTHING),
    AllowedKey(keys.CONSUMER_VERSION, AllowedValue.ANYTHING),
    AllowedKey(keys.CORDON, AllowedValue.NOTHING),
    AllowedKey(keys.CORDON_TENANT, AllowedValue.NOTHING),
    AllowedKey(keys.DRAIN, AllowedValue.NOTHING),
    AllowedKey(keys.PROVIDER_VERSION, AllowedValue.NOTHING),
)
"""Any other annotation of the domains below is refused."""
SHADOW_LABELS: Final = (
    AllowedKey(keys.ORIGIN, AllowedValue.CONSUMER),
    AllowedKey(keys.REMOTE_CLUSTER_ID, AllowedValue.CONSUMER),
    AllowedKey(keys.ORIGIN_ID, AllowedValue.CONSUMER),
    AllowedKey(keys.REPLICATED, AllowedValue.NOTHING),
    AllowedKey(keys.REPLICATION, AllowedValue.NOTHING),
    AllowedKey(keys.REMOTE_ID, AllowedValue.NOTHING),
)
"""Any other label or annotation passes: users write them on pods and Services, and nobody here
takes them for a mark."""

MOST_CHARACTERS: Final = 16384
"""Characters of all annotations of a replica, names included: its provider adds some of its own."""

MOST_LABELS: Final = 90
"""A provider takes 100 labels; this project adds its own."""

_OURS: Final = re.compile(r"([^/]+[.])?(py)?liqo[.]io/")
_NEVER: Final = frozenset({AllowedValue.NOTHING})


def is_ours(name: str) -> bool:
    """Whether a label or annotation is of the domains in which names mean something to us."""
    return _OURS.match(name) is not None


def labels_of_replica(found: Mapping[str, str]) -> dict[str, str]:
    """Return those labels of a local object that a provider takes on its replica."""
    return _few(_taken(found, REPLICA_LABELS))


def annotations_of_replica(found: Mapping[str, str]) -> dict[str, str]:
    """Return those annotations of a local object that a provider takes on its replica.

    ``last-applied-configuration`` is left out. Of more than ``MOST_CHARACTERS`` in all, ours go
    first, then the shortest.
    """
    kept, left = dict[str, str](), MOST_CHARACTERS
    taken = _taken(found, REPLICA_ANNOTATIONS)
    taken.pop(keys.LAST_APPLIED, None)
    for name, value in sorted(
        taken.items(), key=lambda one: (not is_ours(one[0]), len("".join(one)))
    ):
        left -= len(name) + len(value)
        if left >= 0:
            kept[name] = value
    return {name: value for name, value in taken.items() if name in kept}


def labels_of_shadow(found: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a user's object that may follow it: none that says whose a shadow is."""
    marks = {mark.key for mark in SHADOW_LABELS}
    return _few({name: value for name, value in found.items() if name not in marks})


def _few(labels: dict[str, str]) -> dict[str, str]:
    """Return as many of ``labels`` as a provider takes, ours first."""
    first = sorted(labels, key=lambda name: (not is_ours(name), name))[:MOST_LABELS]
    return labels if len(first) == len(labels) else {name: labels[name] for name in first}


def _taken(found: Mapping[str, str], table: tuple[AllowedKey, ...]) -> dict[str, str]:
    known = {mark.key for mark in table if mark.says not in _NEVER}
    return {name: value for name, value in found.items() if name in known or not is_ours(name)}


KEPT: Final = frozenset(
    {mark.key for mark in (*REPLICA_LABELS, *SHADOW_LABELS, *REPLICA_ANNOTATIONS)}
    | {keys.APP_MANAGED_BY, keys.COMPONENT}
)
SMALL: Final = 1024
"""Characters of what stays: a label, an annotation, a field of a spec."""


def emptied(obj: Object) -> Object:
    """Return the merge patch that takes out of an object what may fill it.

    Marks, finalizers and status stay. For what has no room for its own deletion any more.
    """
    metadata: Object = {"uid": objects.uid(obj), **objects.UNTRACKED}
    found = {"labels": objects.labels(obj), "annotations": objects.annotations(obj)}
    for part, notes in found.items():
        fills = [key for key, said in notes.items() if key not in KEPT or len(said) > SMALL]
        metadata |= {part: dict.fromkeys(fills)} if fills else {}
    spec = objects.spec(obj)
    large = [name for name, said in spec.items() if len(objects.canonical(said)) > SMALL]
    return {"metadata": metadata, **({"spec": dict.fromkeys(large)} if large else {})}
