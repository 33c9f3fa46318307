"""What is sent to the provider, field by field (docs/parity.md § 5.5.2, 5.5.3)."""

import copy
from typing import Any, Final

import pytest

from apis import apply, keys, podaffinity, podfields
from apis.objects import Object
from apis.offloading import OffloadingPatch
from apis.providerpolicy import AllowedPodFields, ProviderPolicy
from kubelet.pods import shadowpod
from kubelet.pods.shadowpod import Options
from tests import factories
from tests.kubelet.worlds import PAIR

TOLERATION = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"}
OTHER = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
ROOT_CA = {
    "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
}
DOWNWARD: Object = {"downwardAPI": {"items": []}}
PROJECTED = {"name": "kube-api-access-x", "projected": {"sources": [TOKEN, ROOT_CA, DOWNWARD]}}


def forged_pod(
    spec: Object | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    granted: tuple[Object, ...] | None = (),
    **patch: Any,
) -> Object:
    metadata = {"annotations": annotations or {}, "labels": labels or {}, "uid": "1"}
    pod = factories.pod(
        "shop", "web", spec={**factories.pod_spec(), **(spec or {})}, metadata=metadata
    )
    snapshot = copy.deepcopy(pod)
    made = shadowpod.spec(pod, PAIR, Options("milan", OffloadingPatch(**patch), granted=granted))
    assert pod == snapshot
    return made


@factories.cases("field, value")
def test_copied(field: str, value: object) -> None:
    assert forged_pod({field: value})[field] == value


@pytest.mark.parametrize(
    "field",
    [
        "serviceAccountName", "serviceAccount", "nodeName", "schedulerName", "priority",
        "priorityClassName", "preemptionPolicy", "overhead", "os", "hostUsers",
        "ephemeralContainers", "resourceClaims", "schedulingGates", "resources", "workloadRef",
        "schedulingGroup", "evictionResponders", "nodeSelector", "affinity", "readinessGates",
        "fromTheFuture",
    ],
)  # fmt: skip
def test_dropped(field: str) -> None:
    assert field not in forged_pod({field: {"some": "value"}})


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
def test_forced_false(field: str) -> None:
    assert forged_pod({field: True})[field] is False


def test_tokens_of_the_consumer_stay_and_its_root_ca_is_renamed() -> None:
    made = forged_pod(
        {"volumes": [PROJECTED, {"name": "own", "configMap": {"name": "kube-root-ca.crt"}}]}
    )

    renamed = {"configMap": {**ROOT_CA["configMap"], "name": "kube-root-ca.crt.rome"}}
    assert made["volumes"][0]["projected"]["sources"] == [renamed, DOWNWARD]
    assert made["volumes"][1]["configMap"]["name"] == "kube-root-ca.crt"
    assert made["automountServiceAccountToken"] is False


VOLUMES: dict[str, Object] = factories.table("kubelet")["shadowpod"]["volumes"]
"""One of each kind but ``projected``. Source: Kubernetes API reference, Volume."""
USUAL = (
    "configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "secret",
)  # fmt: skip
"""Those that reach neither into a node nor past its storage classes."""
NOT_OPENED = ("gitRepo", "hostPath")
NOT_IN_RESTRICTED = frozenset(VOLUMES) - {*USUAL, "csi"}


@pytest.mark.parametrize("kind", VOLUMES)
def test_a_volume_of_each_kind_is_kept_and_the_provider_says_whether_it_may_be(kind: str) -> None:
    volume = {"name": "v", kind: VOLUMES[kind]}
    made = forged_pod({"volumes": [volume]})
    assert made["volumes"] == [volume]
    plain = forged_pod()
    everything = frozenset(VOLUMES)
    opened = AllowedPodFields(volume_types=everything)
    for policy, kinds in (
        (ProviderPolicy(), everything - {*USUAL}),
        (ProviderPolicy(allowed=opened), NOT_OPENED),
        (ProviderPolicy(pod_security_level="restricted", allowed=opened), NOT_IN_RESTRICTED),
        (ProviderPolicy(pod_security_level="privileged"), ("gitRepo",)),
    ):
        more = {*podfields.complaints(made, policy)} - {*podfields.complaints(plain, policy)}
        assert bool(more) == (kind in kinds), policy


SOURCES: dict[str, tuple[Object, bool]] = {
    "configMap": ({"name": "settings", "items": []}, True),
    "secret": ({"name": "keys", "optional": True}, True),
    "downwardAPI": ({"items": []}, True),
    "clusterTrustBundle": ({"name": "roots", "path": "roots.pem", "optional": True}, True),
    "podCertificate": ({"signerName": "example.org/any", "keyType": "ED25519"}, True),
    "serviceAccountToken": ({"path": "token"}, False),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_of_a_projected_volume_all_but_tokens_is_kept(kind: str) -> None:
    source, is_kept = SOURCES[kind]
    volume = {"name": "v", "projected": {"sources": [{kind: source}], "defaultMode": 420}}
    made = forged_pod({"volumes": [volume]})
    sources = [{kind: source}] if is_kept else []
    assert made["volumes"] == [{"name": "v", "projected": {"sources": sources, "defaultMode": 420}}]
    told = "".join(podfields.complaints(made, ProviderPolicy(pod_security_level="privileged")))
    assert (kind in told) is (kind == "podCertificate"), "it would be of the provider's signers"


@pytest.mark.parametrize(("asked", "expected"), [(None, "robot"), ("theirs", "theirs")])
def test_mode_remote_keeps_the_service_account(asked: str | None, expected: str) -> None:
    annotations = {keys.API_SERVER_SUPPORT: "remote"}
    annotations |= {keys.REMOTE_SERVICE_ACCOUNT_NAME: asked} if asked else {}

    made = forged_pod({"serviceAccountName": "robot", "volumes": [PROJECTED]}, annotations)

    assert made["serviceAccountName"] == expected
    assert made["automountServiceAccountToken"] is True
    assert made["volumes"] == [PROJECTED]


def test_the_toleration_of_virtual_nodes_stays_here() -> None:
    asked = {"tolerations": [TOLERATION, OTHER]}
    made = forged_pod(asked, tolerations=(DEDICATED,), granted=None)
    assert made["tolerations"] == [OTHER, DEDICATED]


EXISTS = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("asked", "granted", "is_sent"),
    [
        (OTHER, (), True),
        (DEDICATED, (), False),
        (EXISTS, (), False),
        ({"key": "node.kubernetes.io/out-of-service", **EXISTS}, (), False),
        ({"key": "CriticalAddonsOnly", **EXISTS}, (), False),
        (GPU, (), False),
        (DEDICATED, (DEDICATED,), True),
        ({**DEDICATED, "tolerationSeconds": 5}, (DEDICATED,), True),
        (DEDICATED, ({"key": "dedicated", **EXISTS},), True),
        (DEDICATED, ({"key": "dedicated", **EXISTS, "effect": "NoExecute"},), False),
        (DEDICATED, (EXISTS,), True),
        (DEDICATED, ({**DEDICATED, "value": "b"},), False),
        ({"key": "dedicated", **EXISTS}, (DEDICATED,), False),
        (EXISTS, ({"key": "dedicated", **EXISTS},), False),
    ],
)
def test_tolerations_are_sent_as_far_as_the_provider_takes_them(
    asked: Object, granted: tuple[Object, ...], *, is_sent: bool
) -> None:
    """Likewise those of the virtual node's patch; a provider that says nothing gets them all."""
    sent = [asked] if is_sent else None
    told = podfields.complaints(
        {"tolerations": [asked]}, ProviderPolicy(allowed=AllowedPodFields(tolerations=granted))
    )

    assert forged_pod({"tolerations": [asked]}, granted=granted).get("tolerations") == sent
    assert forged_pod(tolerations=(asked,), granted=granted).get("tolerations") == sent
    assert bool([*told]) is not is_sent
    assert forged_pod({"tolerations": [asked]}, granted=None)["tolerations"] == [asked]


@factories.cases("name, amount, is_sent")
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_taint_called_like_a_resource_that_is_asked_for_is_tolerated(
    field: str, name: str, amount: Any, *, is_sent: bool
) -> None:
    """Who asks for none of it, or for what is no extended resource, may go to other nodes, too."""
    key = "nvidia.com/gpu" if name == "amd.com/gpu" else name
    container = {"name": "a", "resources": {"limits": {name: amount}}}
    local = {field: [container], "tolerations": [{**GPU, "key": key}]}

    assert ("tolerations" in forged_pod(local)) is is_sent
    assert bool([*podfields.complaints(local, ProviderPolicy())]) is not is_sent


def test_the_offloading_patch_places() -> None:
    term: Object = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    made = forged_pod(node_selector={"zone": "a"}, node_affinity=term)
    assert made["nodeSelector"] == {"zone": "a"}
    assert made["affinity"] == {"nodeAffinity": term}


def test_a_preset_takes_nothing_of_the_offloading_patch_away() -> None:
    term: Object = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    made = forged_pod(annotations={keys.ANTI_AFFINITY_PRESET: "hard"}, node_affinity=term)
    assert made["affinity"]["nodeAffinity"] == term
    assert made["affinity"]["podAntiAffinity"]


@factories.cases("annotation, own, offered, expected")
def test_runtime_class(annotation: str, own: str, offered: str, expected: str | None) -> None:
    annotations = {keys.REMOTE_RUNTIME_CLASS_NAME: annotation} if annotation else {}
    made = forged_pod({"runtimeClassName": own} if own else {}, annotations, runtime_class=offered)
    assert made.get("runtimeClassName") == expected


LABELS = {"app": "web", "tier": "x", "pod-template-hash": "7", "liqo.io/shadowPod": "true"}


def test_anti_affinity_soft_and_hard() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web", "tier": "x"}},
    }
    soft = forged_pod(annotations={keys.ANTI_AFFINITY_PRESET: "soft"}, labels=LABELS)
    hard = forged_pod(annotations={keys.ANTI_AFFINITY_PRESET: "hard"}, labels=LABELS)
    assert soft["affinity"]["podAntiAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
    }
    assert hard["affinity"]["podAntiAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [term]
    }


def test_anti_affinity_by_listed_labels_and_propagated() -> None:
    listed = {keys.ANTI_AFFINITY_PRESET: "hard", keys.ANTI_AFFINITY_LABELS: "app, other"}
    made = forged_pod(annotations=listed, labels=LABELS)
    term = made["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["labelSelector"] == {"matchLabels": {"app": "web"}}

    own = {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"y": 1}}
    made = forged_pod({"affinity": own}, {keys.ANTI_AFFINITY_PRESET: "propagate"})
    assert made["affinity"] == {"podAntiAffinity": {"x": 1}}


def over(*namespaces: str, **term: Any) -> Object:
    more = {"namespaces": [*namespaces]} if namespaces else {}
    return {"topologyKey": keys.HOSTNAME, "labelSelector": {}, **more, **term}


def propagated(required: list[Object], preferred: list[Object], **twins: str) -> Object:
    """Return the anti-affinity there of a pod of these terms."""
    weighted = [{"weight": 1, "podAffinityTerm": one} for one in preferred]
    terms = {podaffinity.REQUIRED: required, podaffinity.PREFERRED: weighted}
    local = factories.pod(
        "shop",
        spec={**factories.pod_spec(), "affinity": {"podAntiAffinity": terms}},
        metadata={"annotations": {keys.ANTI_AFFINITY_PRESET: "propagate"}, "uid": "1"},
    )
    found: Object = shadowpod.spec(local, PAIR, Options("milan", OffloadingPatch(), twins=twins))
    made: Object = found["affinity"]["podAntiAffinity"]
    return made


def test_terms_over_namespaces_name_their_twins() -> None:
    terms = [over("shop", "db"), over(), over(namespaceSelector=None)]

    made = propagated(terms, terms, shop="shop-rome", db="data")

    there = [over("shop-rome", "data"), over(), over(namespaceSelector=None)]
    assert made[podaffinity.REQUIRED] == there
    assert [one["podAffinityTerm"] for one in made[podaffinity.PREFERRED]] == there


def test_a_term_that_means_namespaces_of_here_is_not_sent() -> None:
    foreign = [over("shop", "other"), over(namespaceSelector={})]

    made = propagated([over(), *foreign], [*foreign, over("shop")], shop="shop-rome")

    assert made[podaffinity.REQUIRED] == [over()]
    assert [one["podAffinityTerm"] for one in made[podaffinity.PREFERRED]] == [over("shop-rome")]


def test_what_is_not_reflected_is_not_sent() -> None:
    metadata = {
        "uid": "1",
        "labels": {"app": "web", "secret": "x", keys.SHADOW_POD_LABEL: "true"},
        "annotations": {"note": "x", "hidden": "y", keys.LAST_APPLIED: "{}"},
    }
    patch = OffloadingPatch(labels_not_reflected=("secret",), annotations_not_reflected=("hidden",))
    pod = factories.pod("shop", "web", metadata=metadata)

    made = shadowpod.shadow(pod, PAIR, Options("milan", patch))

    assert made["metadata"]["labels"] == {
        "app": "web", keys.NODE_NAME: "milan", **PAIR.labels(),
    }  # fmt: skip
    assert apply.recorded(made) == {
        "labels": sorted(made["metadata"]["labels"]), "annotations": ["note", keys.LOCAL_POD_UID],
    }  # fmt: skip
    assert made["metadata"]["annotations"].pop(keys.APPLIED_META)
    assert made["metadata"]["annotations"] == {"note": "x", keys.LOCAL_POD_UID: "1"}
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("shop-rome", "web")
    assert shadowpod.changes(made, pod, PAIR, Options("milan", patch)) == ({}, None)


SAID: Final = {"prometheus.io/scrape": "true", "team.example.org/owner": "shop", "note": "x"}


@pytest.mark.parametrize(
    ("opened", "sent"),
    [
        (frozenset[str](), {"note"}),
        (frozenset({"example.org"}), {"note", "team.example.org/owner"}),
        (None, {*SAID}),
    ],
    ids=["", "opened", "by a provider that says nothing"],
)
def test_a_pod_reads_its_own_annotations_also_where_they_are_not_sent(
    opened: frozenset[str] | None, sent: set[str]
) -> None:
    def variable(name: str) -> Object:
        path = f"metadata.annotations['{name}']"
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    env = [variable(name) for name in SAID]
    spec = factories.pod_spec()
    spec["containers"][0]["env"] = env
    local = factories.pod("foo", "web", spec=spec, metadata={"annotations": SAID, "uid": "1"})
    options = Options("milan", OffloadingPatch(), opened=opened)

    made = shadowpod.shadow(local, PAIR, options)

    assert made["metadata"]["annotations"].keys() & SAID.keys() == sent
    assert made["spec"]["pod"]["containers"][0]["env"] == [
        one if one["name"] in sent else {"name": one["name"], "value": SAID[one["name"]]}
        for one in env
    ]
    assert shadowpod.unsent(local, options) == SAID.keys() - sent


def test_what_the_webhook_noted_stays_at_home() -> None:
    annotations = {keys.PLACEMENT: "strategy=Remote generation=1 added=toleration", "a": "b"}
    local = factories.pod("foo", "web", metadata={"annotations": annotations, "uid": "1"})

    made = shadowpod.metadata(local, PAIR, Options("milan", OffloadingPatch()))

    assert made["annotations"] == {"a": "b", keys.LOCAL_POD_UID: "1"}


# What an API server at home wrote into the pod ----------------------------------------------------


def spread(**more: Any) -> Object:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **more}


@factories.cases("asked, selector, sent")
def test_no_label_is_selected_by_two_fields(
    asked: list[str], selector: Object, sent: list[str] | None
) -> None:
    term = {"topologyKey": "zone", "labelSelector": selector}
    without = {"matchLabelKeys": sent} if sent else {}
    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": [{**term, "matchLabelKeys": asked}],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {**term, "matchLabelKeys": asked}}
        ],
    }

    made = forged_pod(
        {
            "topologySpreadConstraints": [spread(labelSelector=selector, matchLabelKeys=asked)],
            "affinity": {"podAntiAffinity": anti},
        },
        {keys.ANTI_AFFINITY_PRESET: "propagate"},
    )

    assert made["topologySpreadConstraints"] == [spread(labelSelector=selector, **without)]
    assert made["affinity"]["podAntiAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [{**term, **without}],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {**term, **without}}
        ],
    }


@pytest.mark.parametrize("is_shared", [True, False])
def test_ports_of_a_node_are_asked_for_by_who_asked_for_them(is_shared: bool) -> None:  # noqa: FBT001  # a row
    port = {"containerPort": 80, "hostPort": 80}
    container = {"name": "main", "image": "x", "ports": [port]}

    made = forged_pod({"hostNetwork": is_shared, "containers": [container]})

    assert made["containers"][0]["ports"] == [{"containerPort": 80} if is_shared else port]


# Annotations that steer the remote side ask for no more than the provider's policy allows.
# What the virtual kubelet forges of a pod is held to what the provider's webhook lets in.
# Source: docs/parity.md SEC-D7; § 0.4, 2.2, 3.8, 5.5.3.


def refused(annotations: dict[str, str], allowed: dict[str, Any] | None, **spec: Any) -> list[str]:
    """Return what a provider that allows ``allowed`` says to what becomes of such a pod."""
    policy = ProviderPolicy.parse(
        {"metadata": {"name": "rome"}, "spec": {"allowedPodFields": allowed or {}}}
    )
    return list(podfields.complaints(forged_pod(spec, annotations), policy))


@factories.cases("annotations, field, spec")
def test_what_an_annotation_asks_for_the_policy_can_refuse(
    annotations: dict[str, str], field: str, spec: dict[str, Any]
) -> None:
    assert refused(annotations, {field: ["another"]}, **spec) != []
    assert refused(annotations, {field: []}, **spec) != []
    assert refused(annotations, {field: ["default", "deployer", "admin", "gvisor"]}, **spec) == []
    assert refused(annotations, None, **spec) == []


@factories.cases("annotations")
def test_what_asks_for_nothing_passes_the_narrowest_policy(annotations: dict[str, str]) -> None:
    nothing: dict[str, Any] = {"serviceAccountNames": [], "runtimeClassNames": []}

    assert refused(annotations, nothing, serviceAccountName="deployer") == []
