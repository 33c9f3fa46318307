"""For each row of the table of what a consumer may write: what passes by it, and what does not."""

from typing import Any, Final, NamedTuple

from apis import allowlist, keys
from apis.allowlist import AllowedValue
from apis.objects import Kind, Object
from tests.manifests import policytable
from tests.manifests.asking import OWNER
from tests.manifests.policytable import Rule

NARROWED: Final = {
    keys.OFFERED_STORAGE_CLASSES: "silver,bronze",
    keys.OFFERED_INGRESS_CLASSES: "outer",
    keys.OFFERED_LOAD_BALANCER_CLASSES: "a.io/b",
    keys.OFFERED_SERVICE_TYPES: "LoadBalancer",
    keys.OFFERED_INGRESS_HOSTS: "[a-z]+[.]example",
}
"""What the provider of the samples offers, as annotations of the twin."""
OPENED: Final = {
    **dict.fromkeys(NARROWED),
    keys.OFFERED_SERVICE_TYPES: "LoadBalancer,NodePort",
    keys.OFFERED_STATIC_VOLUMES: "true",
}
"""The same when its ProviderPolicy opens what may be opened; domains come on top."""


class Sample(NamedTuple):
    """Changes to an object that pass, and others that do not."""

    good: tuple[Object, ...]
    bad: tuple[Object, ...]


def sample_of(row: Rule, kind: Kind) -> Sample | None:
    """Return what is sent of ``kind`` for ``row``; None where the policies do not judge a field."""
    if row.by in {policytable.WEBHOOK, policytable.ORIGINALS}:
        return None
    if row.mark is not None:
        return _marked(row.mark, "labels" if row.field.startswith("label") else "annotations")
    if found := _BY_KIND.get((row.field, kind)) or _BY_FIELD.get(row.field):
        return found
    part, _, name = row.field.removesuffix("`").partition(" `")
    return Sample(({},), (_metadata(f"{part}s", {name: "x"}),))


def domains(sample: Sample) -> str:
    """Return what opens the annotations and labels of ``sample``, as an annotation of the twin."""
    named = {
        name.partition("/")[0]
        for changes in sample.bad
        for part in ("annotations", "labels")
        for name in (changes.get("metadata") or {}).get(part) or {}
        if "/" in name
    }
    return ",".join(sorted(named))


def _metadata(part: str, values: Any) -> Object:
    return {"metadata": {part: values}}


def _marked(mark: allowlist.AllowedKey, part: str) -> Sample:
    good = {
        AllowedValue.TRUE: ["true"],
        AllowedValue.FALSE: ["false"],
        AllowedValue.CONSUMER: ["rome"],
    }
    is_any = mark.says is AllowedValue.ANYTHING
    passes = good.get(mark.says, ["true", "turin"] if is_any else [])
    bad = [] if is_any else [one for one in ("true", "false", "rome", "turin") if one not in passes]
    lacking: list[Object] = [_metadata(part, {mark.key: None})] if mark.is_needed else []
    return Sample(
        tuple(_metadata(part, {mark.key: one}) for one in passes),
        (*(_metadata(part, {mark.key: one}) for one in bad), *lacking),
    )


def _noted(*names: str, good: tuple[str, ...] = ("note", "team.example.org/owner")) -> Sample:
    return Sample(
        tuple(_metadata("annotations", {name: "x"}) for name in good),
        tuple(_metadata("annotations", {name: "x"}) for name in names),
    )


def _many(part: str, most: int) -> Sample:
    counts = ({f"a{n}": "" for n in range(count)} for count in (most - 20, most + 1))
    few, more = (_metadata(part, values) for values in counts)
    return Sample((few,), (more,))


def _spec(good: list[Object], bad: list[Object]) -> Sample:
    return Sample(tuple({"spec": one} for one in good), tuple({"spec": one} for one in bad))


def _rules(*rules: Object) -> Object:
    return {"rules": list(rules)}


def _path(path: str) -> Object:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    one = {"path": path, "pathType": "ImplementationSpecific", "backend": backend}
    return _rules({"host": "shop.example", "http": {"paths": [one]}})


def _endpoints(endpoints: int, ports: int) -> Object:
    template = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}] * endpoints,
        "ports": [{"port": port + 1} for port in range(ports)],
    }
    return {"template": template}


_SHADOW_OWNER: Final = {
    "apiVersion": keys.SHADOW_POD.api_version, "kind": keys.SHADOW_POD.kind, "name": "x",
    "uid": "1",
}  # fmt: skip
_POD_OWNER: Final = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}
_DATA: Final = _noted(
    "replicator.v1.mittwald.de/replicate-to", "vault.security.banzaicloud.io/vault-role",
    "cert-manager.io/allow-direct-injection",
)  # fmt: skip
_LOAD_BALANCER: Final = {"type": "LoadBalancer"}
_BY_KIND: Final[dict[tuple[str, Kind], Sample]] = {
    **{
        ("annotations", kind): _many("annotations", policytable.MOST_NOTES)
        for kind in policytable.OWN
    },
    **{
        ("annotations", kind): _many("annotations", allowlist.MOST_ANNOTATIONS)
        for kind in policytable.REFLECTED
    },
    ("finalizers", keys.PERSISTENT_VOLUME_CLAIM): Sample(
        ({}, _metadata("finalizers", ["kubernetes.io/pvc-protection"])),
        (_metadata("finalizers", ["a.io/b"]),),
    ),
    ("ownerReferences", keys.SECRET): Sample(
        (_metadata("ownerReferences", [_SHADOW_OWNER]), _metadata("ownerReferences", [_POD_OWNER])),
        (
            _metadata("ownerReferences", [OWNER]),
            _metadata("ownerReferences", [{**_SHADOW_OWNER, "blockOwnerDeletion": True}]),
            _metadata("ownerReferences", [{**_POD_OWNER, "blockOwnerDeletion": True}]),
        ),
    ),
}
_BY_FIELD: Final[dict[str, Sample]] = {
    "finalizers": Sample(({},), (_metadata("finalizers", ["a.io/b"]),)),
    "ownerReferences": Sample(({},), (_metadata("ownerReferences", [OWNER]),)),
    "any other label of `liqo.io`, `pyliqo.io`": Sample(
        (_metadata("labels", {"a": "b"}),),
        (_metadata("labels", {"a.pyliqo.io/b": "c"}), _metadata("labels", {"liqo.io/b": "c"})),
    ),
    "any other annotation of `liqo.io`, `pyliqo.io`": _noted("a.pyliqo.io/b", "liqo.io/b"),
    "labels": _many("labels", policytable.MOST_LABELS),
    "annotations together": Sample(
        (_metadata("annotations", {"a": "x" * (allowlist.MOST_CHARACTERS - 500)}),),
        (_metadata("annotations", {"a": "x" * allowlist.MOST_CHARACTERS}),),
    ),
    "annotations of programs that copy, inject, deploy or back up": _DATA,
    "annotations of Kubernetes and storage systems": _noted(
        "k8s.io/CloneRequest",
        "cdi.kubevirt.io/storage.import.endpoint",
        "kubernetes.io/a",
        "trident.netapp.io/cloneFromPVC",
        good=("kubectl.kubernetes.io/restartedAt", "app.kubernetes.io/part-of", "note"),
    ),
    "annotations of load balancers, clouds, DNS, certificates, meshes, monitoring": _noted(
        "external-dns.alpha.kubernetes.io/hostname",
        "service.cilium.io/global",
        "kubernetes.io/elb.id",
        "prometheus.io/scrape",
        good=("note", "team.example.org/owner", "meta.helm.sh/release-name"),
    ),
    "annotations of ingress controllers": Sample(
        (_metadata("annotations", {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}),),
        (
            _metadata("annotations", {"cert-manager.io/cluster-issuer": "x"}),
            _metadata("annotations", {"nginx.ingress.kubernetes.io/server-snippet": "x"}),
            _metadata("annotations", {"nginx.ingress.kubernetes.io/proxy-body-size": "8m; a"}),
        ),
    ),
    "spec.template": _spec([_endpoints(1000, 100)], [_endpoints(1001, 1), _endpoints(1, 101)]),
    "spec.type": _spec(
        [{"type": "ClusterIP"}, {**_LOAD_BALANCER, "loadBalancerClass": "a.io/b"}],
        [{"type": "NodePort"}],
    ),
    "spec.loadBalancerClass": _spec(
        [{**_LOAD_BALANCER, "loadBalancerClass": "a.io/b"}],
        [{**_LOAD_BALANCER, "loadBalancerClass": "a.io/c"}, _LOAD_BALANCER],
    ),
    "spec.externalIPs": _spec([{}], [{"externalIPs": ["192.0.2.1"]}]),
    "spec.loadBalancerIP": _spec(
        [{}], [{**_LOAD_BALANCER, "loadBalancerClass": "a.io/b", "loadBalancerIP": "192.0.2.1"}]
    ),
    "spec.externalName": _spec(
        [{"type": "ExternalName", "externalName": "db.example.com"}],
        [
            {"type": "ExternalName", "externalName": name}
            for name in ("kubernetes.default.svc", "169.254.169.254", "localhost")
        ],
    ),
    "spec.ingressClassName": _spec(
        [{"ingressClassName": "outer"}], [{"ingressClassName": "inner"}]
    ),
    "spec.defaultBackend": _spec(
        [{}], [{"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}]
    ),
    "spec.rules, spec.tls": _spec(
        [_rules({"host": "shop.example"})],
        [_rules({"host": "*.example"}), _rules({}), {"tls": [{"hosts": ["*.example"]}]}],
    ),
    "spec.rules, spec.tls: size": _spec(
        [_rules(*[{"host": "shop.example"}] * 100)],
        [_rules(*[{"host": "shop.example"}] * 101), {"tls": [{"hosts": ["shop.example"] * 101}]}],
    ),
    "spec.rules: paths": _spec(
        [_path("/"), _path("/shop(/|$)(.*)")],
        [_path("/a b"), _path("/a;b"), _path("/$request_uri"), _path("/" + "a" * 1024)],
    ),
    "spec.rules, spec.tls: hosts": _spec(
        [_rules({"host": "shop.example"})],
        [_rules({"host": "console.milan"}), {"tls": [{"hosts": ["console.milan"]}]}],
    ),
    "spec.storageClassName": _spec(
        [{"storageClassName": "silver"}, {}], [{"storageClassName": "gold"}]
    ),
    "spec.storageClassName: empty": _spec([{}], [{"storageClassName": ""}]),
    "any field of spec but accessModes, resources, storageClassName, volumeMode": _spec(
        [{"volumeMode": "Block"}],
        [{"volumeName": "a"}, {"selector": {}}, {"volumeAttributesClassName": "a"}],
    ),
    "type": Sample(
        ({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}},),
        (
            {"type": "bootstrap.kubernetes.io/token"},
            {
                "type": "kubernetes.io/service-account-token",
                "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
            },
        ),
    ),
}
