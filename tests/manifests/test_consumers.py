"""What a hostile consumer may not write in its twins. Source: docs/parity.md SEC-A16, SEC-A17."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from apis import allowlist, keys, objects
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from reflector.kinds import configuration, networking, storage
from reflector.kinds.contract import ReflectionContext
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories
from tests.manifests import documents, policies
from tests.manifests.twins import (
    PAIR,
    ROME,
    TWIN,
    claim,
    dry_create,
    forged_twin,
    merged,
    silver,
    until_refused,
    until_taken,
)

pytestmark = pytest.mark.cluster

FORGES: Final = {
    forge.row.kind: forge
    for forge in (
        configuration.CONFIG_MAP_REFLECTION, networking.INGRESS_REFLECTION,
        storage.CLAIM_REFLECTION, configuration.SECRET_REFLECTION, networking.SERVICE_REFLECTION,
    )
}  # fmt: skip


class Row(NamedTuple):
    """One thing that a consumer says, and what it is told."""

    kind: Kind
    changes: Object
    told: str


HONEST: Final[dict[Kind, Callable[[str, str], Object]]] = {
    keys.CONFIG_MAP: factories.config_map,
    keys.SECRET: factories.secret,
    keys.SERVICE: factories.service,
    keys.INGRESS: factories.ingress,
    keys.PERSISTENT_VOLUME_CLAIM: claim,
}


def external(name: str) -> Row:
    spec = {"type": "ExternalName", "externalName": name, "selector": None}
    return Row(keys.SERVICE, {"spec": spec}, f"spec.externalName {name}")


def annotation_row(kind: Kind, name: str) -> Row:
    return Row(kind, {"metadata": {"annotations": {name: "x"}}}, f"annotation {name}")


def labelled(kind: Kind, name: str) -> Row:
    return Row(kind, {"metadata": {"labels": {name: "x"}}}, f"label {name}")


def ordering(kind: Kind, name: str, value: str = "x") -> Row:
    return Row(kind, {"metadata": {"annotations": {name: value}}}, f"annotation {name}")


def routed(**spec: Any) -> Row:
    return Row(keys.INGRESS, {"spec": spec}, "it would take all hosts")


def outward(type_: str, **rest: Any) -> Row:
    changes = {"spec": {"type": type_, **rest}}
    return Row(keys.SERVICE, changes, f"spec.type {type_} is not offered to cluster rome: use")


def pathed(path: str) -> Row:
    one = {"path": path, "pathType": "ImplementationSpecific", "backend": BACKEND}
    rules = [{"host": "shop.example", "http": {"paths": [one]}}]
    return Row(keys.INGRESS, {"spec": {"rules": rules}}, "a path of spec.rules is longer")


BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
HTTP: Final = {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}
SNAPSHOT: Final = {
    "apiGroup": "snapshot.storage.k8s.io",
    "kind": "VolumeSnapshot",
    "name": "theirs",
}
OTHERS: Final = {"kind": "PersistentVolumeClaim", "name": "theirs"}
PROTECTION: Final = "kubernetes.io/pvc-protection"
OWNER: Final = {"apiVersion": "v1", "kind": "Namespace", "name": TWIN, "uid": "1"}
CLAIM: Final = keys.PERSISTENT_VOLUME_CLAIM

OBEYED_OF_SERVICES: Final = (
    # Monitoring
    "prometheus.io/scrape", "prometheus.io/probe", "ad.datadoghq.com/service.checks",
    "co.elastic.metrics/raw", "io.opentelemetry.discovery.metrics/enabled",
    # Load balancers and DNS of clouds
    "kubernetes.io/elb.id", "service.cloud.tencent.com/direct-access",
    "service.kubernetes.io/tke-existed-lbid",
    "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type",
    "loadbalancer.ovhcloud.com/flavor", "yandex.cloud/load-balancer-type",
    "dns.alpha.kubernetes.io/external",
    # Load balancers of clusters
    "ako.vmware.com/load-balancer-ip", "cis.f5.com/ip", "lb.kubesphere.io/v1alpha1",
    "loxilb.io/lbmode",
    # Deployment and meshes
    "argocd.argoproj.io/tracking-id", "skupper.io/proxy",
)  # fmt: skip
ROWS: Final[dict[str, Row]] = {
    "external-ips": Row(keys.SERVICE, {"spec": {"externalIPs": ["192.0.2.1"]}}, "spec.externalIPs"),
    "load-balancer-ip": Row(
        keys.SERVICE, {"spec": {"loadBalancerIP": "192.0.2.1"}},
        "spec.loadBalancerIP",
    ),
    "name-metadata": external("169.254.169.254"),
    "name-google": external("metadata.google.internal"),
    "name-amazon": external("instance-data.ec2.internal"),
    "name-loopback": external("127.0.0.1"),
    "name-localhost": external("localhost"),
    "name-api-server": external("kubernetes.default.svc"),
    "name-other-tenant": external("db.consumed-by-turin.svc.cluster.local"),
    "name-behind-own": external(f"a.{TWIN}.svc.kube-dns.kube-system.svc.cluster.local"),
    "name-like-own": external(f"a.{TWIN}.svcx.kube-system.svc.cluster.local"),
    "name-before-own": external(f"kubernetes.default.svc.{TWIN}.svc.cluster.local"),
    "name-twice-own": external(f"a.{TWIN}.svc.{TWIN}.svc.kube-system.svc"),
    "name-node": external("10.89.4.2"),
    "name-pod-record": external("169-254-169-254.default.pod.cluster.local"),
    "name-own-pod-record": external(f"10-89-4-2.{TWIN}.pod"),
    "snippet": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/configuration-snippet"),
    "server-snippet": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/server-snippet"),
    "auth-url": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/auth-url", "https://a.example"),
    "shape": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/proxy-body-size", "1m; include /"),
    "directive": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/rewrite-target", "/;deny all"),
    "variable": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/app-root", "/$request_uri"),
    "regex": ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/use-regex", "true"),
    "middlewares": ordering(
        keys.INGRESS, "traefik.ingress.kubernetes.io/router.middlewares", "kube-system-x@crd"
    ),
    "issuer": ordering(keys.INGRESS, "cert-manager.io/cluster-issuer"),
    "dns": ordering(keys.INGRESS, "external-dns.alpha.kubernetes.io/hostname"),
    "dns-of-service": ordering(keys.SERVICE, "external-dns.alpha.kubernetes.io/hostname"),
    "cloud": ordering(keys.SERVICE, "service.beta.kubernetes.io/load-balancer-type", "nlb"),
    "certificate": ordering(keys.SERVICE, "service.beta.openshift.io/serving-cert-secret-name"),
    "mesh": ordering(keys.SERVICE, "service.cilium.io/global", "true"),
    "labels": Row(
        CLAIM, {"metadata": {"labels": dict.fromkeys(map("a{}".format, range(101)), "x")}},
        "more than 100 labels",
    ),
    **{
        f"service-{number}": ordering(keys.SERVICE, name)
        for number, name in enumerate(OBEYED_OF_SERVICES)
    },
    **{
        f"label-{number}": labelled(keys.SERVICE, name)
        for number, name in enumerate(allowlist.INJECTED)
    },
    "all-hosts": routed(rules=[{"http": HTTP}]),
    "wildcard": routed(rules=[{"host": "*.example.com", "http": HTTP}]),
    "default-backend": routed(defaultBackend=BACKEND),
    "wildcard-certificate": routed(tls=[{"hosts": ["*.example.com"], "secretName": "a"}]),
    "class-annotation": annotation_row(keys.INGRESS, "kubernetes.io/ingress.class"),
    "address-pool": annotation_row(keys.SERVICE, "metallb.universe.tf/address-pool"),
    "load-balancer-ips": annotation_row(keys.SERVICE, "metallb.universe.tf/loadBalancerIPs"),
    "load-balancer-id": annotation_row(keys.SERVICE, "loadbalancer.openstack.org/load-balancer-id"),
    "neg": annotation_row(keys.SERVICE, "cloud.google.com/neg"),
    "url-map": annotation_row(keys.INGRESS, "ingress.kubernetes.io/url-map"),
    "path-of-directives": pathed("/x { } location / {"),
    "path-of-a-variable": pathed("/$request_uri"),
    "path-of-a-quote": pathed('/x"y'),
    "many-rules": Row(
        keys.INGRESS, {"spec": {"rules": [{"host": f"a{n}.example.com"} for n in range(101)]}},
        "more than 100 rules",
    ),
    "finalizer": Row(keys.SERVICE, {"metadata": {"finalizers": ["a.io/b"]}}, "metadata.finalizers"),
    **{
        f"protection-of-{kind.plural}": Row(
            kind, {"metadata": {"finalizers": [PROTECTION]}}, "metadata.finalizers"
        )
        for kind in (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE, keys.INGRESS)
    },
    **{
        f"owner-of-{kind.plural}": Row(
            kind, {"metadata": {"ownerReferences": [OWNER]}}, "metadata.ownerReferences"
        )
        for kind in HONEST
    },
    "finalizer-of-config": Row(
        keys.CONFIG_MAP, {"metadata": {"finalizers": ["a.io/b"]}}, "metadata.finalizers"
    ),
    "finalizer-of-claim": Row(
        CLAIM, {"metadata": {"finalizers": ["a.io/b"]}}, "metadata.finalizers"
    ),
    "account-token": Row(
        keys.SECRET,
        {
            "type": "kubernetes.io/service-account-token",
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
        },
        "gives rights in this cluster",
    ),
    "bootstrap-token": Row(
        keys.SECRET, {"type": "bootstrap.kubernetes.io/token"}, "gives rights in this cluster"
    ),
    "volume-name": Row(CLAIM, {"spec": {"volumeName": "theirs"}}, "spec.volumeName"),
    "selector": Row(CLAIM, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.selector"),
    "snapshot": Row(CLAIM, {"spec": {"dataSource": SNAPSHOT}}, "spec.dataSource"),
    "clone": Row(CLAIM, {"spec": {"dataSourceRef": OTHERS}}, "spec.dataSourceRef"),
    "static-volume": Row(
        CLAIM, {"spec": {"storageClassName": ""}},
        'spec.storageClassName "" would take any volume that has no class: name a class, or leave',
    ),
    "clone-request": annotation_row(CLAIM, "k8s.io/CloneRequest"),
    "import": annotation_row(CLAIM, "cdi.kubevirt.io/storage.import.endpoint"),
    "volume-attributes": Row(
        CLAIM,
        {"spec": {"volumeAttributesClassName": "fast"}},
        "spec.volumeAttributesClassName may name",
    ),
    "copied-secret": annotation_row(keys.SECRET, "replicator.v1.mittwald.de/replicate-from"),
    "copied-config": annotation_row(keys.CONFIG_MAP, "reflector.v1.k8s.emberstack.com/reflects"),
    "storage-class": Row(CLAIM, {"spec": {"storageClassName": "gold"}}, "class gold is not"),
    "ingress-class": Row(
        keys.INGRESS, {"spec": {"ingressClassName": "inner"}}, "class inner is not offered"
    ),
    "load-balancer": outward("LoadBalancer"),
    "load-balancer-class": outward("LoadBalancer", loadBalancerClass="a.io/b"),
    "node-port": outward("NodePort", ports=[{"port": 443, "nodePort": 30443}]),
    "bind-completed": annotation_row(CLAIM, "pv.kubernetes.io/bind-completed"),
    "selected-node": annotation_row(CLAIM, "volume.kubernetes.io/selected-node"),
    "provisioner": annotation_row(CLAIM, "volume.kubernetes.io/storage-provisioner"),
}  # fmt: skip


def hostile(namespace: str) -> dict[str, Object]:
    return {
        name: merged(HONEST[row.kind](namespace, name), row.changes) for name, row in ROWS.items()
    }


def test_what_a_consumer_may_not_say_is_refused_by_name(provider: Kubectl) -> None:
    said = dry_create(provider, list(hostile(TWIN).values()), *ROME)

    for name, row in ROWS.items():
        lines = [line for line in said.splitlines() if f"{TWIN}/{name}:" in line]
        assert any(row.told in line for line in lines), (name, lines, said[-2000:])


def test_data_of_another_namespace_is_dropped_before_anybody_judges(provider: Kubectl) -> None:
    across = {"spec": {"dataSourceRef": {**OTHERS, "namespace": "theirs"}}}
    asked = json.dumps(merged(claim(TWIN, "clone-across"), across))

    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    made = json.loads(provider.run(*dry, *ROME, stdin=asked))

    assert "dataSourceRef" not in made["spec"]


def test_what_a_virtual_kubelet_makes_of_it_is_taken(provider: Kubectl) -> None:
    """Nothing but names that are the author's to choose is refused of an honest consumer."""
    theirs = {
        name: obj
        for name, obj in hostile(PAIR.local_namespace).items()
        if not (name.startswith("name-") or ROWS[name].told == "it would take all hosts")
        and ROWS[name].told != "gives rights in this cluster"
        and not name.startswith(("path-", "many-"))
    }
    twins = [forged_twin(FORGES[ROWS[name].kind], obj) for name, obj in theirs.items()]
    own = external(f"db.{PAIR.local_namespace}.svc.cluster.local").changes
    twins.append(
        forged_twin(networking.SERVICE_REFLECTION, merged(factories.service("shop", "own"), own))
    )
    outside = external("db.example.com").changes
    twins.append(
        forged_twin(
            networking.SERVICE_REFLECTION, merged(factories.service("shop", "outside"), outside)
        )
    )

    assert dry_create(provider, twins, *ROME) == ""


def test_classes_that_are_offered_may_be_named_and_others_where_nothing_is_said(
    provider: Kubectl,
) -> None:
    silver = merged(claim(TWIN, "silver"), {"spec": {"storageClassName": "silver"}})
    outer = merged(factories.ingress(TWIN, "outer"), {"spec": {"ingressClassName": "outer"}})

    assert dry_create(provider, [silver, outer], *ROME) == ""
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STORAGE_CLASSES}-")
    gold = merged(claim(TWIN, "gold"), {"spec": {"storageClassName": "gold"}})
    asyncio.run(until_taken(provider, gold))
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STORAGE_CLASSES}=silver,bronze")


def test_hosts_are_those_of_the_pattern_and_paths_those_of_a_location(provider: Kubectl) -> None:
    pattern = r"[a-z]+\.rome\.example"
    paths = ["/", "/shop/?(.*)", "/api/v[12]/$1", "/a-b_c~d%20", "/shop(/|$)(.*)"]
    honest = [
        merged(factories.ingress(TWIN, f"honest-{n}", "shop.rome.example"), pathed(path).changes)
        for n, path in enumerate(paths)
    ]
    assert dry_create(provider, honest, *ROME) == ""
    theirs = factories.ingress(TWIN, "theirs", "console.rome.example.org")
    certified = factories.ingress(TWIN, "certified", "shop.rome.example")
    certified["spec"]["tls"] = [{"hosts": ["console.milan.example"], "secretName": "a"}]

    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_INGRESS_HOSTS}={pattern}")
    for each in (theirs, certified):
        asyncio.run(until_refused(provider, each, "spec.ingressHosts.pattern of the Provider"))
    assert dry_create(provider, [factories.ingress(TWIN, "ours", "shop.rome.example")], *ROME) == ""
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_INGRESS_HOSTS}-")
    asyncio.run(until_taken(provider, theirs))


def test_the_largest_ingress_is_judged_and_a_larger_one_is_told_so(provider: Kubectl) -> None:
    long = ".".join(["a" * 60] * 4)
    pattern = "|".join(["([a-z]+[.])+example"] * 12)

    def routes(name: str, many: int) -> Object:
        one = {"path": "/" + "p" * 1000, "pathType": "Prefix", "backend": BACKEND}
        rules = [{"host": f"{long}.example", "http": {"paths": [one, one]}}] * many
        tls = [{"hosts": [f"{long}.example"], "secretName": "a"}] * many
        return merged(factories.ingress(TWIN, name), {"spec": {"rules": rules, "tls": tls}})

    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_INGRESS_HOSTS}={pattern}")
    other = factories.ingress(TWIN, "other", "shop.example.org")
    asyncio.run(until_refused(provider, other, "spec.ingressHosts.pattern of the Provider"))
    assert dry_create(provider, [routes("largest", 100)], *ROME) == ""
    assert "more than 100 rules" in dry_create(provider, [routes("larger", 200)], *ROME)
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_INGRESS_HOSTS}-")
    asyncio.run(until_taken(provider, other))


def test_annotations_that_controllers_obey_pass_where_their_domain_is_opened(
    provider: Kubectl,
) -> None:
    theirs = hostile(TWIN)
    harmless = {
        "nginx.ingress.kubernetes.io/proxy-body-size": "8m",
        "nginx.ingress.kubernetes.io/ssl-redirect": "true",
        "nginx.ingress.kubernetes.io/rewrite-target": "/$2",
        "nginx.ingress.kubernetes.io/permanent-redirect": "https://shop.example/a?b=c",
        "app.kubernetes.io/part-of": "shop",
    }
    served = merged(factories.ingress(TWIN, "a", "shop.example"), noted(harmless))
    noticed = merged(factories.service(TWIN, "a"), noted({"team.example.org/owner": "shop"}))
    assert dry_create(provider, [served, noticed], *ROME) == ""

    domains = "cert-manager.io,external-dns.alpha.kubernetes.io"
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_ANNOTATION_DOMAINS}={domains}")
    for opened in ("issuer", "dns", "dns-of-service"):
        asyncio.run(until_taken(provider, theirs[opened]))
    for closed in ("snippet", "cloud"):
        assert ROWS[closed].told in dry_create(provider, [theirs[closed]], *ROME)
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_ANNOTATION_DOMAINS}-")
    asyncio.run(until_refused(provider, theirs["issuer"], ROWS["issuer"].told))


def test_so_many_annotations_are_judged_and_more_are_told_so(provider: Kubectl) -> None:
    def many(count: int) -> Object:
        notes = {f"{'a' * 60}{n}.example/{'b' * 60}": "c" for n in range(count)}
        return merged(factories.service(TWIN, f"many-{count}"), noted(notes))

    assert dry_create(provider, [many(allowlist.MOST_ANNOTATIONS)], *ROME) == ""
    assert "more than 100 annotations" in dry_create(provider, [many(1000)], *ROME)


def noted(annotations: dict[str, str]) -> Object:
    return {"metadata": {"annotations": annotations}}


HELM: Final = {
    "labels": {
        "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "web",
        "helm.sh/chart": "web-1.2.3", "release": "shop", "heritage": "Helm",
        "kustomize.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/name": "shop",
    },
    "annotations": {
        "meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "config.kubernetes.io/origin": "path: web.yaml", "kubernetes.io/description": "The shop",
        "kustomize.toolkit.fluxcd.io/ssa": "merge",
    },
}  # fmt: skip
"""What tools write on every object."""
CHARTS: Final[dict[str, tuple[str, Row]]] = {
    "web": ("", Row(keys.SERVICE, {"spec": {"selector": HELM["labels"]}}, "")),
    "hooked": ("", ordering(keys.SERVICE, "helm.sh/resource-policy", "keep")),
    "brokers": (
        "",
        Row(
            keys.SERVICE,
            {
                "metadata": {
                    "annotations": {
                        "service.alpha.kubernetes.io/tolerate-unready-endpoints": "true",
                        "service.kubernetes.io/topology-mode": "Auto",
                    }
                },
                "spec": {"clusterIP": "None", "publishNotReadyAddresses": True},
            },
            "",
        ),
    ),
    "metrics": ("prometheus.io", ordering(keys.SERVICE, "prometheus.io/scrape", "true")),
    "balanced": (
        "service.beta.kubernetes.io",
        ordering(keys.SERVICE, "service.beta.kubernetes.io/aws-load-balancer-type", "nlb"),
    ),
    "dashboard": ("", ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/ssl-redirect", "true")),
    "uploads": ("", ordering(keys.INGRESS, "nginx.ingress.kubernetes.io/proxy-body-size", "64m")),
    "certified": ("cert-manager.io", ordering(keys.INGRESS, "cert-manager.io/cluster-issuer")),
}
"""Shaped as in charts that many install: the domain that is opened for it, and what it says."""


def test_services_and_ingresses_of_charts_pass_as_liqo_sends_them(provider: Kubectl) -> None:
    """With all labels and annotations of the original, as a whole object."""
    objs = {
        name: merged(merged(HONEST[row.kind](TWIN, f"chart-{name}"), {"metadata": HELM}),
                      row.changes)
        for name, (_, row) in CHARTS.items()
    }  # fmt: skip
    open_ = [objs[name] for name, (domain, _) in CHARTS.items() if not domain]
    assert dry_create(provider, open_, *ROME) == ""

    closed = {name: row for name, (domain, row) in CHARTS.items() if domain}
    for name, row in closed.items():
        assert row.told in dry_create(provider, [objs[name]], *ROME), name
    domains = ",".join(CHARTS[name][0] for name in closed)
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_ANNOTATION_DOMAINS}={domains}")
    for name in closed:
        asyncio.run(until_taken(provider, objs[name]))
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_ANNOTATION_DOMAINS}-")
    asyncio.run(until_refused(provider, objs["metrics"], CHARTS["metrics"][1].told))


def test_what_stood_on_a_service_before_it_was_listed_holds_up_no_change(provider: Kubectl) -> None:
    old = {"prometheus.io/scrape": "true", "kubernetes.io/elb.id": "1"}
    labels = {"istio.io/global": "true"}
    made = merged(
        factories.service(TWIN, "older"), {"metadata": {"annotations": old, "labels": labels}}
    )
    provider.apply([made])
    where = ("patch", "service", "older", "-n", TWIN, "--type=merge", "-p")

    provider.run(*where, json.dumps({"spec": {"selector": {"app": "other"}}}), *ROME)
    for changes in ({"annotations": {"prometheus.io/scrape": "slow"}}, {"labels": dict.fromkeys(
        labels, "other"
    )}):  # fmt: skip
        with pytest.raises(KubectlError, match="may be an order"):
            provider.run(*where, json.dumps({"metadata": changes}), *ROME)
    provider.run(*where, json.dumps({"metadata": {"annotations": dict.fromkeys(old)}}), *ROME)


def test_a_mutating_policy_takes_off_what_is_not_listed(provider: Kubectl) -> None:
    """Then nobody is refused for an annotation, also a consumer that sends all of them."""
    made_of = policies.mutating(provider)
    if not made_of:
        pytest.skip("this API server has no MutatingAdmissionPolicies")
    theirs = {
        name: obj for name, obj in hostile(TWIN).items() if ROWS[name].told.startswith("annotation")
    }
    assert dry_create(provider, [theirs["issuer"]], *ROME) != ""
    provider.run("apply", "-f", "-", stdin=made_of)
    asyncio.run(until_taken(provider, theirs["issuer"]))
    assert dry_create(provider, list(theirs.values()), *ROME) == ""

    notes = {"prometheus.io/scrape": "true", "note": "x", "helm.sh/resource-policy": "keep"}
    asked = json.dumps(merged(factories.service(TWIN, "noted"), noted(notes)))
    made = json.loads(provider.run("create", "-o", "json", "-f", "-", *ROME, stdin=asked))
    assert {*objects.annotations(made)} == {"note", "helm.sh/resource-policy"}
    where = ("service", "noted", "-n", TWIN)
    provider.run("annotate", *where, "prometheus.io/scrape=true")
    provider.run("annotate", *where, "prometheus.io/path=/x", "prometheus.io/scrape=true", *ROME)
    kept = {"note", "helm.sh/resource-policy", "prometheus.io/scrape"}
    assert {*objects.annotations(provider.get(*where))} == kept, "what an administrator added stays"

    provider.run("delete", "-f", "-", stdin=made_of)
    asyncio.run(until_refused(provider, theirs["issuer"], ROWS["issuer"].told))


EXPRESSIONS: Final = (
    allowlist.SERVICES, allowlist.CLAIMS, allowlist.DATA,
    allowlist.PLAIN, allowlist.INGRESSES, allowlist.VALUES, allowlist.PLACES, allowlist.PLACE,
)  # fmt: skip


def test_policy_and_reflector_know_annotations_by_the_same_expressions() -> None:
    text = (documents.ROOT / "70-policies" / "consumers.yaml").read_text()
    for expression in EXPRESSIONS:
        assert f"'{expression}'" in text, expression


def test_what_a_reflector_sends_of_each_annotation_is_taken(provider: Kubectl) -> None:
    for name, row in ROWS.items():
        if row.told.startswith("annotation") and row.kind != CLAIM:
            original = merged(HONEST[row.kind](PAIR.local_namespace, name), row.changes)
            assert dry_create(provider, [forged_twin(FORGES[row.kind], original)], *ROME) == "", (
                name
            )


def test_a_pattern_of_hosts_is_a_regular_expression(provider: Kubectl) -> None:
    def policy(pattern: str) -> Object:
        spec = {"ingressHosts": {"pattern": pattern}}
        return named(keys.PROVIDER_POLICY, Key("", "patterns"), spec=spec)

    assert "must be a regular expression" in dry_create(provider, [policy("a(")])
    assert dry_create(provider, [policy(r".*\.rome\.example")]) == ""


def test_a_claim_takes_no_volume_without_a_class_unless_that_is_opened(provider: Kubectl) -> None:
    static = hostile(TWIN)["static-volume"]

    assert "the provider opens it by spec.staticVolumes" in dry_create(provider, [static], *ROME)
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STATIC_VOLUMES}=true")
    asyncio.run(until_taken(provider, static))
    provider.run("annotate", "namespace", TWIN, f"{keys.OFFERED_STATIC_VOLUMES}-")
    asyncio.run(until_refused(provider, static, "would take any volume"))


EPHEMERAL: Final = (
    "--as=system:serviceaccount:kube-system:ephemeral-volume-controller",
    "--as=system:kube-controller-manager",
)


@pytest.mark.parametrize("controller", EPHEMERAL)
def test_the_claim_of_an_ephemeral_volume_is_judged_as_a_claim_of_the_consumer(
    provider: Kubectl, controller: str
) -> None:
    """Kubernetes makes it, and not the consumer whose pod has the template."""
    provider.run(  # cluster administrators bind it so by default
        "create", "clusterrolebinding", f"ephemeral-{len(controller)}",
        "--clusterrole=cluster-admin", "--user=" + controller.removeprefix("--as="),
    )  # fmt: skip
    theirs = {name: obj for name, obj in hostile(TWIN).items() if ROWS[name].kind == CLAIM}

    said = {name: dry_create(provider, [obj], controller) for name, obj in theirs.items()}

    refused = {name for name, message in said.items() if ROWS[name].told in message}
    others = {name for name in theirs if ROWS[name].told.startswith("metadata.")}
    assert refused == theirs.keys() - others, "those are of who makes the claim"
    assert dry_create(provider, [claim(TWIN, "honest")], controller) == ""


def test_without_a_default_class_a_claim_has_to_name_one(provider: Kubectl) -> None:
    nameless = claim(TWIN, "nameless")
    provider.apply([silver(is_default="false")])
    asyncio.run(until_refused(provider, nameless, "no default class here: would take"))
    provider.apply([silver()])
    asyncio.run(until_taken(provider, nameless))


def test_secrets_that_give_rights_are_not_even_sent() -> None:
    for name in ("account-token", "bootstrap-token"):
        obj = hostile(PAIR.local_namespace)[name]
        assert configuration.SECRET_REFLECTION.reason_to_stay(
            obj, ReflectionContext(PAIR, Policy.DENY_LIST)
        )


def test_what_an_admin_of_the_provider_adds_stays(provider: Kubectl) -> None:
    made = forged_twin(networking.SERVICE_REFLECTION, factories.service("shop", "kept"))
    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(made))
    where = ("service", "kept", "-n", TWIN)
    added = {
        "spec": {"externalIPs": ["192.0.2.7"]},
        "metadata": {"finalizers": ["a.io/b"], "annotations": {"cloud.google.com/neg": "x"}},
    }
    provider.run("patch", *where, "--type=merge", "-p", json.dumps(added))

    changed_ = {**made, "spec": {**made["spec"], "selector": {"app": "other"}}}
    provider.run("apply", "--server-side", "-f", "-", *ROME, stdin=json.dumps(changed_))
    found = provider.get(*where)
    assert found["spec"]["externalIPs"] == ["192.0.2.7"]
    assert found["spec"]["selector"] == {"app": "other"}
    more = json.dumps({"spec": {"externalIPs": ["192.0.2.7", "192.0.2.8"]}})
    with pytest.raises(KubectlError, match=r"spec.externalIPs is the provider's to say"):
        provider.run("patch", *where, "--type=merge", "-p", more, *ROME)
    ended = json.dumps({"metadata": {"finalizers": None}})
    provider.run("patch", *where, "--type=merge", "-p", ended)


def test_outside_of_its_twins_nobody_is_judged(provider: Kubectl) -> None:
    provider.apply([named(keys.NAMESPACE, Key("", "plain"))])
    kinds = {keys.SERVICE, keys.INGRESS}
    plain = [obj for name, obj in hostile("plain").items() if ROWS[name].kind in kinds]

    assert dry_create(provider, plain) == ""
    assert objects.key_of(plain[0]).namespace == "plain"
    assert dry_create(provider, [hostile(TWIN)["external-ips"]]) == "", "an admin of the provider"
