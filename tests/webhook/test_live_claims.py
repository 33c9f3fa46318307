"""What once got past by what it claimed, sent to a real API server by the one who would send it.

Source: docs/parity.md SEC-A1, SEC-A2, SEC-A7; A-22, A-31; § 3.1, 3.4, 3.7.
"""

import secrets
from typing import Any, Final

import pytest

from apis import keys, nodeselector
from apis.objects import Key, Object, named
from apis.podaffinity import PREFERRED, REQUIRED
from tests.factories import pod, pod_spec
from tests.webhook import reviews
from tests.webhook.installed import CONSUMER, EXEMPT, Answer, Installed, User, path_of
from tests.webhook.placed import EU, EVERYTHING, required
from tests.webhook.shadows import affine
from tests.webhook.test_live_podspecs import KUBELET

pytestmark = pytest.mark.cluster

OWNER: Final = User("owner-of-shop", ["system:authenticated"])
WRITES_PODS: Final = "system:aggregate-to-edit"
"""The rules of ``edit``, which a controller would add up."""
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/main"
YEAR_S: Final = 365 * 24 * 3600


def offloaded(live: Installed, strategy: str) -> str:
    """Make an offloaded namespace, from which boston is never allowed, and give it to its owner."""
    label = "false" if strategy == "Local" else "true"
    space = live.offloaded(label=label, podOffloadingStrategy=strategy, clusterSelector=EU)
    live.grant(space, WRITES_PODS, "User", OWNER.name)
    reviews.wait_until(lambda: live.create(keys.POD, pod(space), user=OWNER, dryRun="All").is_done)
    return space


def try_pod(
    live: Installed, space: str, metadata: Object, user: User = OWNER, **spec: Any
) -> Answer:
    name = f"p-{secrets.token_hex(4)}"
    return live.create(
        keys.POD, pod(space, name, metadata=metadata, spec=pod_spec(**spec)), user=user
    )


# Mirrors of static pods ---------------------------------------------------------------------------

MIRROR: Final[Object] = {"annotations": {keys.MIRROR_POD: "x"}}


@pytest.mark.parametrize("strategy", ["Local", "Remote", "LocalAndRemote"])
def test_no_annotation_makes_a_pod_of_a_namespace_a_mirror(live: Installed, strategy: str) -> None:
    found = try_pod(live, offloaded(live, strategy), MIRROR, nodeName=live.boston)

    assert not found.is_done
    assert f"spec.nodeName: {live.boston} is" in found.message


def test_a_node_mirrors_its_own_pods_and_no_others(live: Installed) -> None:
    space = offloaded(live, "Remote")
    worker = User("system:node:worker", ["system:nodes", EXEMPT])

    assert try_pod(live, space, MIRROR, worker, nodeName="worker").is_done
    other = try_pod(live, space, MIRROR, worker, nodeName=live.boston)
    assert f"spec.nodeName: {live.boston} is" in other.message


# Pods of DaemonSets -------------------------------------------------------------------------------

DAEMON: Final[Object] = {
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    ]
}


def pinned(node: str) -> Object:
    """Return the node affinity that the DaemonSet controller writes."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize("is_pinned", [False, True], ids=["owner alone", "with its affinity"])
@pytest.mark.parametrize("strategy", ["Local", "Remote", "LocalAndRemote"])
def test_no_owner_that_nobody_checked_leads_onto_a_node_that_is_not_allowed(
    live: Installed, strategy: str, *, is_pinned: bool
) -> None:
    affinity: Any = {"affinity": pinned(live.boston)} if is_pinned else {}

    made = try_pod(live, offloaded(live, strategy), DAEMON, tolerations=[EVERYTHING], **affinity)

    assert made.is_done, made
    boston = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, "region": "us"}
    assert not nodeselector.matches(required(made.body), boston, live.boston)


# ShadowPods ---------------------------------------------------------------------------------------

CERTIFICATE: Final = {"signerName": "example.org/any", "keyType": "ED25519"}
HUNG_ON: Final[dict[str, Object]] = {
    "metadata.finalizers": {"finalizers": ["example.org/keep"]},
    "metadata.ownerReferences": {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "1"}]
    },
    APP_ARMOR: {"annotations": {APP_ARMOR: "unconfined"}},
}
ASKED_FOR: Final[dict[str, Object]] = {
    "spec.pod.terminationGracePeriodSeconds": {"terminationGracePeriodSeconds": YEAR_S},
    "spec.pod.volumes": {
        "volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": CERTIFICATE}]}}]
    },
}


def shadow(twin: str, metadata: Object | None = None, **spec: Any) -> Object:
    metadata = {"labels": {keys.ORIGIN: CONSUMER}, **(metadata or {})}
    key = Key(twin, f"s-{secrets.token_hex(4)}")
    return named(keys.SHADOW_POD, key, metadata=metadata, spec={"pod": pod_spec(**spec)})


@pytest.mark.parametrize("what", HUNG_ON)
def test_a_consumer_hangs_nothing_on_a_shadow_pod(live: Installed, what: str) -> None:
    twin = live.twin()
    wanted = shadow(twin, HUNG_ON[what])
    made = live.create(keys.SHADOW_POD, shadow(twin), user=KUBELET)
    assert made.is_done, made

    change = {"metadata": HUNG_ON[what]}
    path, form = path_of(keys.SHADOW_POD, made.body), "merge-patch+json"
    found = [
        live.create(keys.SHADOW_POD, wanted, user=KUBELET),
        live.send("PATCH", path, change, form=form, user=KUBELET),
    ]

    assert all(what in one.message for one in found), found
    assert live.read(keys.SHADOW_POD, wanted) is None
    assert live.read(keys.SHADOW_POD, made.body) == made.body


@pytest.mark.parametrize("field", ASKED_FOR)
def test_a_consumer_asks_for_no_more_than_the_policy_grants(live: Installed, field: str) -> None:
    wanted = shadow(live.twin(), **ASKED_FOR[field])

    found = live.create(keys.SHADOW_POD, wanted, user=KUBELET)

    assert not found.is_done
    assert field in found.message
    assert live.read(keys.SHADOW_POD, wanted) is None


TOLERATED: Final[Object] = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
OPENED: Final[dict[str, tuple[Any, Object, Object]]] = {
    "priorityClassNames": (["high"], {"priorityClassName": "high"}, {"priorityClassName": "top"}),
    "runtimeClassNames": (
        ["gvisor"], {"runtimeClassName": "gvisor"}, {"runtimeClassName": "kata"}
    ),
    "serviceAccountNames": (
        ["robot"],
        {"automountServiceAccountToken": True, "serviceAccountName": "robot"},
        {"automountServiceAccountToken": True, "serviceAccountName": "admin"},
    ),
    "maxTerminationGracePeriodSeconds": (
        60, {"terminationGracePeriodSeconds": 60}, {"terminationGracePeriodSeconds": 61}
    ),
    "tolerations": (
        [TOLERATED],
        {"tolerations": [TOLERATED]},
        {"tolerations": [{"operator": "Exists"}]},
    ),
    "affinityNamespaces": (
        ["monitoring"],
        {"affinity": affine("podAffinity", PREFERRED, namespaces=["monitoring"])},
        {"affinity": affine("podAntiAffinity", REQUIRED, namespaceSelector={})},
    ),
    "volumeTypes": (
        ["nfs"],
        {"volumes": [{"name": "v", "nfs": {"server": "nfs.example", "path": "/"}}]},
        {"volumes": [{"name": "v", "csi": {"driver": "secrets-store.csi.k8s.io"}}]},
    ),
}  # fmt: skip
"""Of each field of ``allowedPodFields``: its value, what that lets through, what it does not."""


@pytest.mark.parametrize("field", OPENED)
def test_a_policy_opens_a_field_to_what_it_names_and_no_further(
    live: Installed, field: str
) -> None:
    value, inside, outside = OPENED[field]
    consumer = f"c-{secrets.token_hex(4)}"
    twin, kubelet = live.twin(consumer), User(f"{consumer}-pool", [consumer])

    def asks(spec: Object, **how: Any) -> Answer:
        wanted = shadow(twin, {"labels": {keys.ORIGIN: consumer}}, **spec)
        return live.create(keys.SHADOW_POD, wanted, user=kubelet, **how)

    spec = {"allowedPodFields": {field: value}}
    policy = named(keys.PROVIDER_POLICY, Key("", consumer), spec=spec)
    assert live.create(keys.PROVIDER_POLICY, policy).is_done
    reviews.wait_until(lambda: not asks(outside, dryRun="All").is_done)

    reviews.wait_until(lambda: asks(inside).is_done)
    refused = asks(outside)
    assert not refused.is_done
    assert "spec.pod." in refused.message
    assert live.send("DELETE", path_of(keys.PROVIDER_POLICY, policy)).is_done


# VirtualNodes -------------------------------------------------------------------------------------


def virtual_node_on(live: Installed, space: str, name: str) -> Object:
    reference = {"vkOptionsTemplateRef": {"name": live.run}}
    spec = {"clusterID": "milan", "createNode": False, **reference}
    return named(keys.VIRTUAL_NODE, Key(space, name), spec=spec)


def test_one_name_is_one_virtual_node_and_that_of_a_tenant(live: Installed) -> None:
    labels = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: "milan"}
    name = f"v-{secrets.token_hex(4)}"
    first, second = (virtual_node_on(live, live.space(labels), name) for _ in range(2))
    assert live.create(keys.VIRTUAL_NODE, first).is_done

    assert "choose another name" in live.create(keys.VIRTUAL_NODE, second).message
    assert live.read(keys.VIRTUAL_NODE, second) is None


def test_the_namespaces_of_the_cluster_have_no_virtual_node(live: Installed) -> None:
    system = named(keys.NAMESPACE, Key("", "kube-system"))
    wanted = virtual_node_on(live, "kube-system", f"v-{secrets.token_hex(4)}")

    def judged(run: str | None) -> Answer:
        change = {"metadata": {"labels": {"judged": run}}}
        return live.send("PATCH", path_of(keys.NAMESPACE, system), change, form="merge-patch+json")

    assert judged(live.run).is_done
    try:
        # As soon as the API server knows the label; in a real cluster there is none to know.
        reviews.wait_until(lambda: not live.create(keys.VIRTUAL_NODE, wanted, dryRun="All").is_done)
        found = live.create(keys.VIRTUAL_NODE, wanted)
    finally:
        assert judged(None).is_done

    assert f"lacks the label {keys.TENANT_NAMESPACE}=true" in found.message
    assert live.read(keys.VIRTUAL_NODE, wanted) is None


def test_a_certificate_that_home_gives_to_no_pod_is_asked_for_nowhere(live: Installed) -> None:
    """``PodCertificateRequest`` is off in 1.35: the API server takes the field out of pods."""
    wanted = ASKED_FOR["spec.pod.volumes"]

    made = try_pod(live, offloaded(live, "Remote"), {}, **wanted)

    assert made.is_done, made
    volumes = [one for one in made.body["spec"]["volumes"] if one["name"] == "v"]
    assert [one["projected"]["sources"] for one in volumes] == [[{}]]
    sent = live.create(keys.SHADOW_POD, shadow(live.twin(), volumes=volumes), user=KUBELET)
    assert sent.is_done, sent
