"""A ShadowPod has one Pod of its own, and says how it is."""

import asyncio
from typing import Any, Final

import pytest

from apis import apply, keys, networks, objects, podaffinity
from apis.networks import Remap
from apis.objects import Key, Kind, Object, named
from apis.providerpolicy import AllowedPodFields, ProviderPolicy
from controllers.offloading.shadowpod import forge, slim
from controllers.offloading.shadowpod.forge import Permission
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler, by_policy
from kube.cluster import Cluster, Selection
from kube.errors import BusyError, ForbiddenError, InvalidError, KubeError, NotFoundError, refusal
from kube.informer import Change, Informer
from tests import factories
from tests.controllers.support import NOW, Ledger, Told, end, settle, there
from tests.fakes import FakeCluster
from tests.kube.running import running, until


def shadow(namespace: str, name: str = "web") -> Object:
    metadata = {
        "labels": {"app": "web", keys.ORIGIN: "rome"},
        "annotations": {
            keys.LOCAL_POD_UID: "one",
            keys.LAST_APPLIED: "{}",
            keys.APPLIED_META: "{}",
        },
    }
    spec = {"pod": factories.pod_spec()}
    return named(keys.SHADOW_POD, Key(namespace, name), metadata=metadata, spec=spec)


@pytest.fixture
async def web(cluster: Cluster, namespace: str) -> Key:
    account = named(keys.SERVICE_ACCOUNT, Key(namespace, "default"))
    await cluster.create(keys.SERVICE_ACCOUNT, account)
    await cluster.create(keys.SHADOW_POD, shadow(namespace))
    return Key(namespace, "web")


def pod_reconciler(cluster: Cluster, find: slim.Find | None = None) -> ShadowPodReconciler:
    told = Told(cluster).recorder
    return ShadowPodReconciler(cluster, events=told, clock=lambda: NOW, find=find)


def without_pods(cluster: Cluster) -> slim.Find:
    """Return a cache that shows no Pod yet."""

    async def found(kind: Kind, key: Key) -> Object | None:
        return None if kind == keys.POD else await cluster.get_live(kind, key)

    return found


async def test_the_consumers_api_server_is_found_where_the_fabric_says(
    cluster: Cluster, namespace: str, web: Key
) -> None:
    known = networks.remap_of_networks(["10.70.0.0/16"], ["10.72.0.0/16"])
    api_server = {"ip": "10.70.0.1", "hostnames": ["kubernetes.default", "kubernetes.default.svc"]}
    own = {"ip": "10.70.0.9", "hostnames": ["shop.example"]}
    asked = shadow(namespace, "far")
    asked["spec"]["pod"]["hostAliases"] = [own, api_server]
    await cluster.create(keys.SHADOW_POD, asked)
    told = Told(cluster).recorder
    loop = ShadowPodReconciler(
        cluster, events=told, clock=lambda: NOW, reached={namespace: known}.__getitem__
    )

    await loop.reconcile(Key(namespace, "far"))
    await loop.reconcile(web)

    pod = await there(cluster, keys.POD, Key(namespace, "far"))
    assert pod["spec"]["hostAliases"] == [own, {**api_server, "ip": "10.72.0.1"}]
    assert "hostAliases" not in (await there(cluster, keys.POD, web))["spec"]


async def test_a_configuration_that_makes_no_sense_holds_the_pod_back_and_is_named(
    cluster: Cluster, web: Key
) -> None:
    def broken(_consumer: str) -> Remap:
        raise ValueError("configuration liqo-tenant-rome/rome: no networks: correct it")

    told = Told(cluster).recorder
    loop = ShadowPodReconciler(cluster, events=told, clock=lambda: NOW, reached=broken)

    assert await loop.reconcile(web)

    found = await there(cluster, keys.SHADOW_POD, web)
    assert "configuration liqo-tenant-rome/rome" in found["status"]["conditions"][0]["message"]
    assert await cluster.get_live(keys.POD, web) is None


async def run_pod(cluster: Cluster, key: Key, phase: str) -> None:
    await cluster.patch_status(keys.POD, key, {"phase": phase})
    await pod_reconciler(cluster).reconcile(key)


async def seen_finished(cluster: Cluster, key: Key, phase: str) -> None:
    """Note on the ShadowPod, as a virtual kubelet does, how the local pod ended."""
    note = {"metadata": {"annotations": {keys.FINISHED: phase}}}
    await cluster.patch(keys.SHADOW_POD, key, note)


async def test_the_pod_is_created_with_metadata_spec_and_owner(cluster: Cluster, web: Key) -> None:
    await pod_reconciler(cluster).reconcile(web)

    pod = await there(cluster, keys.POD, web)
    owner = pod["metadata"]["ownerReferences"][0]
    assert owner["kind"] == "ShadowPod"
    assert owner["controller"] is True
    assert pod["metadata"]["labels"] == {
        "app": "web",
        keys.ORIGIN: "rome",
        keys.MANAGED_BY: "shadowpod",
    }
    assert pod["metadata"]["annotations"].keys() == {keys.LOCAL_POD_UID, keys.APPLIED_META}
    assert pod["spec"]["containers"][0]["image"] == "nginx"


async def test_up_to_running_it_costs_two_writes(cluster: Cluster, web: Key) -> None:
    ledger = Ledger(cluster)
    await settle(pod_reconciler(ledger), web, ledger)
    await cluster.patch_status(keys.POD, web, {"phase": "Running"})

    await settle(pod_reconciler(ledger), web, ledger)

    assert [verb for verb, *_ in ledger.writes] == ["create", "patch_status"]
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == "Running"


async def test_a_cache_that_is_behind_gets_nothing_written_twice(
    cluster: Cluster, web: Key
) -> None:
    await pod_reconciler(cluster).reconcile(web)
    await cluster.patch_status(keys.POD, web, {"phase": "Running"})
    stale = await there(cluster, keys.SHADOW_POD, web)

    async def behind(kind: Kind, key: Key) -> Object | None:
        return stale if kind == keys.SHADOW_POD else await cluster.get_live(kind, key)

    ledger = Ledger(cluster)
    loop = pod_reconciler(ledger, find=behind)
    for _ in range(3):
        await loop.reconcile(web)
    await cluster.patch_status(keys.POD, web, {"phase": "Succeeded"})
    stale = await there(cluster, keys.SHADOW_POD, web)
    await loop.reconcile(web)

    assert [verb for verb, *_ in ledger.writes] == ["patch_status"] * 2
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == "Succeeded"


async def test_a_pod_that_the_cache_does_not_show_is_not_made_again(
    cluster: Cluster, web: Key
) -> None:
    await pod_reconciler(cluster).reconcile(web)
    await cluster.patch_status(keys.POD, web, {"phase": "Running"})
    ledger = Ledger(cluster)

    await pod_reconciler(ledger, find=without_pods(cluster)).reconcile(web)

    assert [verb for verb, *_ in ledger.writes] == ["create", "patch_status"], "one was refused"
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == "Running"


async def test_a_pod_that_was_just_created_is_not_created_again(cluster: Cluster, web: Key) -> None:
    ledger = Ledger(cluster)
    loop = pod_reconciler(ledger, find=without_pods(cluster))

    again_s = [await loop.reconcile(web) for _ in range(3)]

    assert again_s == [None, 5.0, 5.0]
    assert [verb for verb, *_ in ledger.writes] == ["create"]


async def test_a_first_pod_is_created_without_a_read() -> None:
    cluster, key = FakeCluster(), Key("shop", "web")
    await cluster.create(keys.SHADOW_POD, shadow(key.namespace))
    shadows: Informer[slim.SlimShadow] = Informer(Selection(keys.SHADOW_POD, slim.SlimShadow))
    pods: Informer[slim.SlimPod] = Informer(Selection(keys.POD, slim.SlimPod))
    loop = pod_reconciler(cluster, find=slim.seen(shadows, pods))
    async with running(shadows.run(cluster), pods.run(cluster)):
        await shadows.synced.wait()
        cluster.requests.clear()
        await loop.reconcile(key)
        reads = {asked: count for asked, count in cluster.requests.items() if asked[0] == "get"}
        assert not reads
        await until(lambda: pods.get(key))
        first = await there(cluster, keys.POD, key)
        await cluster.patch_status(keys.SHADOW_POD, key, {"phase": "Running"})
        await cluster.delete(keys.POD, key, uid=first["metadata"]["uid"], grace_s=0)
        await until(lambda: pods.get(key) is None and shadows.items()[key].status.phase)
        cluster.requests.clear()

        await loop.reconcile(key)

        assert cluster.requests["get", "shadowpods"] == cluster.requests["get", "pods"] == 1
        assert (await there(cluster, keys.POD, key))["spec"] == first["spec"]
        assert shadows.items()[key].waiting is None, "what runs needs no specification here"


async def test_a_pod_that_ended_and_went_before_anybody_looked_is_not_made_again() -> None:
    cluster, key = FakeCluster(), Key("shop", "web")
    await cluster.create(keys.SHADOW_POD, shadow(key.namespace))
    shadows: Informer[slim.SlimShadow] = Informer(Selection(keys.SHADOW_POD, slim.SlimShadow))
    pods: Informer[slim.SlimPod] = Informer(Selection(keys.POD, slim.SlimPod))
    loop = ShadowPodReconciler(
        cluster,
        events=Told(cluster).recorder,
        clock=lambda: NOW,
        find=slim.seen(shadows, pods),
        ends=slim.FinalPhases(pods),
    )
    async with running(shadows.run(cluster), pods.run(cluster)):
        await shadows.synced.wait()
        await loop.reconcile(key)
        await until(lambda: pods.get(key))
        pod = await there(cluster, keys.POD, key)
        await cluster.patch_status(keys.POD, key, {"phase": "Succeeded"})
        await cluster.delete(keys.POD, key, uid=pod["metadata"]["uid"], grace_s=0)
        await until(lambda: pods.get(key) is None)

        await loop.reconcile(key)

    assert await cluster.get_live(keys.POD, key) is None
    assert forge.phase(await there(cluster, keys.SHADOW_POD, key)) == "Succeeded"


async def test_a_shadow_pod_that_the_cache_does_not_show_costs_no_request() -> None:
    cluster = FakeCluster()
    shadows = Informer(Selection(keys.SHADOW_POD, slim.SlimShadow))
    pods = Informer(Selection(keys.POD, slim.SlimPod))

    await pod_reconciler(cluster, find=slim.seen(shadows, pods)).reconcile(Key("shop", "gone"))

    assert not cluster.requests


class Policies:
    """The ProviderPolicy ``default`` as it is now."""

    def __init__(self) -> None:
        self.generation = 0
        self.spec: Object = {}

    def say(self, **spec: Any) -> None:
        self.spec, self.generation = spec, self.generation + 1

    def __call__(self) -> dict[Key, Object]:
        key = Key("", "default")
        metadata = {"generation": self.generation}
        return {key: named(keys.PROVIDER_POLICY, key, metadata=metadata, spec=self.spec)}


@pytest.mark.parametrize(
    ("fields", "part", "told"),
    [
        (
            {"priorityClassNames": ["high"]},
            {"priorityClassName": "high"},
            "spec.pod.priorityClassName 'high' is not offered",
        ),
        (
            {"tolerations": [{"operator": "Exists"}]},
            {"tolerations": [{"operator": "Exists"}]},
            "spec.pod.tolerations[0] tolerates every taint",
        ),
        (
            {"maxTerminationGracePeriodSeconds": 7200},
            {"terminationGracePeriodSeconds": 7200},
            "spec.pod.terminationGracePeriodSeconds must be from 0 to 3600",
        ),
        (
            {"volumeTypes": ["nfs"]},
            {"volumes": [{"name": "v", "nfs": {"server": "nfs.example", "path": "/"}}]},
            "spec.pod.volumes[0].nfs names storage",
        ),
    ],
)
async def test_what_the_policy_no_longer_allows_is_not_created_again(
    fields: Object, part: Object, told: str
) -> None:
    cluster, key, policies = FakeCluster(), Key("shop", "web"), Policies()
    wanted = shadow(key.namespace)
    wanted["spec"]["pod"] |= part
    await cluster.create(keys.SHADOW_POD, wanted)
    policies.say(allowedPodFields=fields)
    events = Told(cluster)
    loop = ShadowPodReconciler(
        cluster, events=events.recorder, clock=lambda: NOW, permission=Permission(policies)
    )
    await loop.reconcile(key)
    first = await there(cluster, keys.POD, key)
    await cluster.patch_status(keys.POD, key, {"phase": "Running"})

    policies.say()
    await loop.reconcile(key)
    assert await there(cluster, keys.POD, key), "what runs stays"
    await cluster.delete(keys.POD, key, uid=first["metadata"]["uid"], grace_s=0)
    assert await loop.reconcile(key)

    assert await cluster.get_live(keys.POD, key) is None
    status = (await there(cluster, keys.SHADOW_POD, key))["status"]
    (said,) = (one for one in status["conditions"] if one["type"] == "Admitted")
    assert (said["status"], said["reason"]) == ("False", "PolicyRefused")
    assert said["message"].startswith(told)
    assert forge.is_not_allowed(status["conditions"])
    policies.say(allowedPodFields=fields)
    await loop.reconcile(key)
    assert await there(cluster, keys.POD, key)


async def test_another_policy_has_what_was_refused_judged_anew() -> None:
    cluster, policies = FakeCluster(), Policies()
    for name, fields in (("web", {}), ("first", {"priorityClassName": "high"})):
        wanted = shadow("shop", name)
        wanted["spec"]["pod"] |= fields
        await cluster.create(keys.SHADOW_POD, wanted)
        told = Told(cluster).recorder
        await ShadowPodReconciler(
            cluster, events=told, clock=lambda: NOW, permission=Permission(policies)
        ).reconcile(Key("shop", name))
    shadows: Informer[slim.SlimShadow] = Informer(Selection(keys.SHADOW_POD, slim.SlimShadow))
    old = policies()[Key("", "default")]
    policies.say(podSecurityLevel="privileged")
    new = policies()[Key("", "default")]

    async with running(shadows.run(cluster)):
        await shadows.synced.wait()
        concerned = by_policy(shadows)

        assert [*concerned(Change(Key("", "default"), old, new))] == [Key("shop", "first")]
        assert not [*concerned(Change(Key("", "default"), new, new))]


ORDERS: Final[dict[str, str]] = factories.table("controllers")["shadowpod"]["orders"]


@pytest.mark.parametrize("name", ORDERS)
async def test_what_programs_of_the_provider_obey_is_not_on_the_pod_unless_opened(
    cluster: Cluster, namespace: str, web: Key, name: str
) -> None:
    wanted, key, told = shadow(namespace, "ordering"), Key(namespace, "ordering"), Told(cluster)
    kept = {
        "note": "x",
        "checksum/config": "1",
        "kubectl.kubernetes.io/default-container": "c",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    wanted["metadata"]["annotations"] |= {name: ORDERS[name], **kept}
    wanted["metadata"]["labels"] |= {"sidecar.istio.io/inject": "true"}
    await cluster.create(keys.SHADOW_POD, wanted)
    policies = Policies()
    policies.say()
    loop = ShadowPodReconciler(
        cluster, events=told.recorder, clock=lambda: NOW, permission=Permission(policies)
    )

    await loop.reconcile(key)
    await loop.reconcile(key)

    made = (await there(cluster, keys.POD, key))["metadata"]
    assert kept.items() <= made["annotations"].items()
    assert name not in made["annotations"]
    assert made["labels"].keys() >= {"app", keys.ORIGIN}
    assert "sidecar.istio.io/inject" not in made["labels"]
    assert (await there(cluster, keys.SHADOW_POD, key))["metadata"]["annotations"][name]
    opened = name.partition("/")[0] if "/" in name else name.rpartition(".")[0] or name
    policies.say(allowedPodFields={"annotationDomains": [opened]})
    await loop.reconcile(key)
    assert (await there(cluster, keys.POD, key))["metadata"]["annotations"][name] == ORDERS[name]
    policies.say()
    await loop.reconcile(key)
    assert name not in (await there(cluster, keys.POD, key))["metadata"]["annotations"]
    assert told.reasons == ["AnnotationsLeftOut"] * 2, "as it was made, and as it lost what it had"


async def test_what_is_left_out_is_told_once() -> None:
    cluster, key = FakeCluster(), Key("shop", "web")
    wanted = shadow(key.namespace)
    wanted["metadata"]["annotations"] |= ORDERS
    await cluster.create(keys.SHADOW_POD, wanted)
    told = Told(cluster)
    loop = ShadowPodReconciler(cluster, events=told.recorder, clock=lambda: NOW)

    await loop.reconcile(key)
    await loop.reconcile(key)

    assert told.reasons == ["AnnotationsLeftOut"]
    assert all(name in forge.left_out(wanted) for name in ORDERS)
    domains = frozenset({"hashicorp.com"})
    opened = ProviderPolicy(allowed=AllowedPodFields(annotation_domains=domains))
    assert "vault" not in forge.left_out(wanted, opened)


async def test_claims_of_a_pods_volumes_are_made_without_what_storage_obeys() -> None:
    """Such a template keeps no pod from the provider: the claim is made of what is left."""
    cluster, key = FakeCluster(), Key("shop", "web")
    notes = {"k8s.io/CloneRequest": "theirs", "liqo.io/remote-storage-class-name": "x", "note": "x"}
    template = {"metadata": {"annotations": notes, "labels": {"app": "web"}}, "spec": {}}
    volumes: list[Object] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "ephemeral": {"volumeClaimTemplate": template}},
    ]
    wanted = shadow(key.namespace)
    wanted["spec"]["pod"]["volumes"] = volumes
    await cluster.create(keys.SHADOW_POD, wanted)
    told = Told(cluster)
    loop = ShadowPodReconciler(cluster, events=told.recorder, clock=lambda: NOW)

    await loop.reconcile(key)

    made = (await there(cluster, keys.POD, key))["spec"]["volumes"]
    assert made[0] == volumes[0]
    metadata = made[1]["ephemeral"]["volumeClaimTemplate"]["metadata"]
    assert metadata == {"annotations": {"note": "x"}, "labels": {"app": "web"}}
    assert told.reasons == ["AnnotationsLeftOut"]
    assert "claims of its ephemeral volumes" in forge.left_out(wanted)


@pytest.mark.parametrize("consumer", ["rome", "milan"])
async def test_whose_twin_it_is_the_namespace_says(consumer: str) -> None:
    cluster, key = FakeCluster(), Key("shop", "web")
    label = {keys.REMOTE_CLUSTER_ID: consumer}
    twins = {
        one: named(keys.NAMESPACE, one, metadata={"labels": label})
        for one in (Key("", "shop"), Key("", "db"))
    }
    spec = {"allowedPodFields": {"priorityClassNames": ["high"]}}
    policy = named(keys.PROVIDER_POLICY, Key("", "rome"), spec=spec)
    wanted = shadow(key.namespace)
    term = {"topologyKey": "zone", "namespaces": ["shop", "db"]}
    anti = {"podAntiAffinity": {podaffinity.REQUIRED: [term]}}
    wanted["spec"]["pod"] |= {"priorityClassName": "high", "affinity": anti}
    await cluster.create(keys.SHADOW_POD, wanted)
    permission = Permission(lambda: {Key("", "rome"): policy}, lambda: twins)
    loop = ShadowPodReconciler(
        cluster, events=Told(cluster).recorder, clock=lambda: NOW, permission=permission
    )

    await loop.reconcile(key)

    assert (await cluster.get_live(keys.POD, key) is not None) is (consumer == "rome")


CHANGES: Final[dict[str, tuple[Object, str]]] = {
    "image": ({"containers": [{**factories.pod_spec()["containers"][0], "image": "nginx:2"}]}, ""),
    "deadline": ({"activeDeadlineSeconds": 600}, ""),
    "toleration": ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, ""),
    "patience": (
        {
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ]
        },
        "",
    ),
    "debugged": (
        {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]},
        "ephemeralcontainers",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_may_change_in_a_pod_follows_its_shadow_pod(
    cluster: Cluster, web: Key, name: str
) -> None:
    ledger = Ledger(cluster)
    await settle(pod_reconciler(ledger), web, ledger)
    changed, part = CHANGES[name]
    await cluster.patch(keys.SHADOW_POD, web, {"spec": {"pod": changed}})
    uid = (await there(cluster, keys.POD, web))["metadata"]["uid"]
    ledger.writes.clear()

    await settle(pod_reconciler(ledger), web, ledger)

    pod = await there(cluster, keys.POD, web)
    assert pod["metadata"]["uid"] == uid
    for field, value in changed.items():
        assert apply.keeps(pod["spec"][field][-1:] if part else pod["spec"][field], value) or (
            field == "tolerations" and value[0] in pod["spec"][field]
        )
    status = (await there(cluster, keys.SHADOW_POD, web))["status"]
    assert status["observedGeneration"] == 2
    assert [verb for verb, *_ in ledger.writes] == ["patch", "patch_status"]


async def refused(
    cluster: FakeCluster, web: Key, changes: Object, error: KubeError
) -> tuple[ShadowPodReconciler, Told]:
    """Change what the Pod is made of, three times in vain: the server answers with ``error``."""
    told = Told(cluster)
    loop = ShadowPodReconciler(cluster, events=told.recorder, clock=lambda: NOW)
    await loop.reconcile(web)
    await cluster.patch(keys.SHADOW_POD, web, {"spec": {"pod": changes}})
    cluster.fail("patch", error, kind=keys.POD)
    for _ in range(3):
        await loop.reconcile(web)
    return loop, told


async def test_a_change_that_admission_refuses_is_told_and_not_tried_again(
    web_on_fake: tuple[FakeCluster, Key],
) -> None:
    cluster, web = web_on_fake
    changed, _ = CHANGES["image"]

    loop, told = await refused(cluster, web, changed, ForbiddenError("no such image here"))

    status = (await there(cluster, keys.SHADOW_POD, web))["status"]
    found = objects.find_condition(status["conditions"], keys.UPDATED_CONDITION) or {}
    assert (found["status"], found["message"]) == ("False", "no such image here")
    assert told.reasons == ["FailedUpdatePod"]
    assert cluster.requests["patch", "pods"] == 1

    await cluster.patch(keys.SHADOW_POD, web, {"spec": {"pod": {"activeDeadlineSeconds": 5}}})
    await loop.reconcile(web)
    status = (await there(cluster, keys.SHADOW_POD, web))["status"]
    assert objects.is_condition_true(status["conditions"], keys.UPDATED_CONDITION)
    assert (await there(cluster, keys.POD, web))["spec"]["containers"][0]["image"] == "nginx:2"


async def test_a_server_that_cannot_resize_pods_is_told_of(
    web_on_fake: tuple[FakeCluster, Key],
) -> None:
    """Before Kubernetes 1.33 there is no pods/resize, and a server answers 404."""
    cluster, web = web_on_fake
    main = {**factories.pod_spec()["containers"][0], "resources": {"requests": {"cpu": "2"}}}

    _, told = await refused(cluster, web, {"containers": [main]}, NotFoundError("no such resource"))

    status = (await there(cluster, keys.SHADOW_POD, web))["status"]
    found = objects.find_condition(status["conditions"], keys.UPDATED_CONDITION) or {}
    assert "has no pods/resize" in found["message"]
    assert told.reasons == ["FailedUpdatePod"]
    assert cluster.requests["patch", "pods"] == 1


async def test_labels_follow_but_the_rest_of_the_spec_stays(cluster: Cluster, web: Key) -> None:
    ledger = Ledger(cluster)
    await pod_reconciler(ledger).reconcile(web)
    changes = {"metadata": {"labels": {"tier": "front"}}, "spec": {"pod": {"hostname": "other"}}}
    await cluster.patch(keys.SHADOW_POD, web, changes)

    await settle(pod_reconciler(ledger), web, ledger)

    pod = await there(cluster, keys.POD, web)
    assert pod["metadata"]["labels"]["tier"] == "front"
    assert "hostname" not in pod["spec"]


@pytest.mark.parametrize("is_recorded", [True, False], ids=["", "made by an older version"])
async def test_what_a_shadow_pod_loses_its_pod_loses_and_what_the_provider_put_there_stays(
    cluster: Cluster,
    namespace: str,
    is_recorded: bool,  # noqa: FBT001  # a row
) -> None:
    wanted, key = shadow(namespace, "taken"), Key(namespace, "taken")
    wanted["metadata"]["annotations"]["note"] = "x"
    await cluster.create(keys.SHADOW_POD, wanted)
    ledger = Ledger(cluster)
    loop = pod_reconciler(ledger)
    await settle(loop, key, ledger)
    by_provider: Object = {"labels": {"team": "web"}, "annotations": {"seen.example.org/by": "me"}}
    if not is_recorded:
        by_provider["annotations"][keys.APPLIED_META] = None
    await cluster.patch(keys.POD, key, {"metadata": by_provider})
    await settle(loop, key, ledger)
    ledger.writes.clear()
    taken = {"labels": {"app": None}, "annotations": {"note": None}}
    await cluster.patch(keys.SHADOW_POD, key, {"metadata": taken})

    await settle(loop, key, ledger)

    made = (await there(cluster, keys.POD, key))["metadata"]
    assert made["labels"] == {
        keys.ORIGIN: "rome",
        keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD,
        "team": "web",
    }
    assert "note" not in made["annotations"]
    assert made["annotations"]["seen.example.org/by"] == "me"
    assert [verb for verb, *_ in ledger.writes] == ["patch"]


async def test_a_pod_that_vanished_comes_back(cluster: Cluster, web: Key) -> None:
    await pod_reconciler(cluster).reconcile(web)
    first = await there(cluster, keys.POD, web)
    await run_pod(cluster, web, "Running")
    await cluster.delete(keys.POD, web, uid=first["metadata"]["uid"], grace_s=0)

    told = Told(cluster)
    await ShadowPodReconciler(cluster, events=told.recorder, clock=lambda: NOW).reconcile(web)

    second = await there(cluster, keys.POD, web)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert told.reasons == ["CreatedPod"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_work_is_not_started_again(cluster: Cluster, web: Key, phase: str) -> None:
    await pod_reconciler(cluster).reconcile(web)
    await run_pod(cluster, web, phase)
    pod = await there(cluster, keys.POD, web)
    await cluster.delete(keys.POD, web, uid=pod["metadata"]["uid"], grace_s=0)

    await pod_reconciler(cluster).reconcile(web)

    assert await cluster.get_live(keys.POD, web) is None
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == phase


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_work_that_the_consumer_saw_finished_is_not_started_again(
    cluster: Cluster, web: Key, phase: str
) -> None:
    await pod_reconciler(cluster).reconcile(web)
    await cluster.patch_status(keys.POD, web, {"phase": phase})
    await end(cluster, keys.POD, web)  # nobody looked in between
    await seen_finished(cluster, web, phase)

    await pod_reconciler(cluster).reconcile(web)

    assert await cluster.get_live(keys.POD, web) is None
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == phase


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_runs_although_its_work_was_seen_finished_is_ended(
    cluster: Cluster, web: Key, phase: str
) -> None:
    await pod_reconciler(cluster).reconcile(web)
    await run_pod(cluster, web, "Running")
    await seen_finished(cluster, web, phase)

    await pod_reconciler(cluster).reconcile(web)

    assert await cluster.get_live(keys.POD, web) is None
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == phase


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ended_is_not_deleted_whatever_a_cache_says(
    cluster: Cluster, web: Key, phase: str
) -> None:
    await pod_reconciler(cluster).reconcile(web)
    running_ = await there(cluster, keys.POD, web)
    await cluster.patch_status(keys.POD, web, {"phase": phase})
    await seen_finished(cluster, web, phase)

    async def behind(kind: Kind, key: Key) -> Object | None:
        return running_ if kind == keys.POD else await cluster.get_live(kind, key)

    await pod_reconciler(cluster, behind).reconcile(web)

    kept = await there(cluster, keys.POD, web)
    assert kept["status"]["phase"] == phase


async def test_that_admission_fails_is_told_and_tried_again(
    web_on_fake: tuple[FakeCluster, Key],
) -> None:
    cluster, web = web_on_fake
    said = {"message": "failed calling webhook guard: no endpoints"}
    cluster.fail("create", refusal(500, said), kind=keys.POD)
    with pytest.raises(BusyError):
        await pod_reconciler(cluster).reconcile(web)

    found = await there(cluster, keys.SHADOW_POD, web)
    (condition,) = found["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "FailedCreatePod")
    assert "guard" in condition["message"]
    await pod_reconciler(cluster).reconcile(web)
    assert await cluster.get_live(keys.POD, web)


async def test_the_pod_of_somebody_else_is_left_alone(cluster: Cluster, web: Key) -> None:
    ledger, told = Ledger(cluster), Told(cluster)
    foreign = await cluster.create(keys.POD, factories.pod(web.namespace, web.name))

    for find in (None, without_pods(cluster)):  # a cache of our Pods never shows it
        loop = ShadowPodReconciler(ledger, events=told.recorder, clock=lambda: NOW, find=find)
        assert [await loop.reconcile(web) for _ in range(3)] == [1.0, 2.0, 4.0]

    assert await there(cluster, keys.POD, web) == foreign
    condition = (await there(cluster, keys.SHADOW_POD, web))["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("Admitted", "False")
    assert condition["reason"] == "FailedCreatePod"
    assert set(told.reasons) == {"FailedCreatePod"}
    assert len(ledger.writes) == 1


async def test_where_somebody_elses_pod_was_the_own_one_comes(cluster: Cluster, web: Key) -> None:
    await cluster.create(keys.POD, factories.pod(web.namespace, web.name))
    loop = pod_reconciler(cluster)
    assert await loop.reconcile(web)
    await end(cluster, keys.POD, web)

    assert await loop.reconcile(web) is None

    pod = await there(cluster, keys.POD, web)
    owners = pod["metadata"]["ownerReferences"]
    assert owners[0]["kind"] == "ShadowPod"


async def test_what_admission_calls_invalid_is_tried_again_ever_more_slowly(
    web_on_fake: tuple[FakeCluster, Key],
) -> None:
    cluster, web = web_on_fake
    cluster.fail("create", InvalidError("a webhook said 400"), kind=keys.POD, times=2)
    loop = pod_reconciler(cluster)

    assert [await loop.reconcile(web) for _ in range(3)] == [1.0, 2.0, None]

    assert await there(cluster, keys.POD, web)


async def test_a_pod_that_is_no_longer_refused_is_admitted(
    web_on_fake: tuple[FakeCluster, Key],
) -> None:
    cluster, web = web_on_fake
    cluster.fail("create", ForbiddenError("violates PodSecurity"), kind=keys.POD)
    with pytest.raises(ForbiddenError):
        await pod_reconciler(cluster).reconcile(web)
    refused = (await there(cluster, keys.SHADOW_POD, web))["status"]["conditions"][0]

    await pod_reconciler(cluster).reconcile(web)

    condition = (await there(cluster, keys.SHADOW_POD, web))["status"]["conditions"][0]
    assert "PodSecurity" in refused["message"]
    assert condition["status"] == "True"


async def test_where_the_namespace_goes_nothing_is_tried_again() -> None:
    cluster, web = FakeCluster(), Key("gone", "web")
    await cluster.create(keys.SHADOW_POD, shadow(web.namespace))
    cluster.fail("create", ForbiddenError("is being terminated"), kind=keys.POD)

    assert await pod_reconciler(cluster).reconcile(web) is None

    assert not (await there(cluster, keys.SHADOW_POD, web)).get("status")


async def test_the_pod_of_a_predecessor_is_waited_for(cluster: Cluster, web: Key) -> None:
    await pod_reconciler(cluster).reconcile(web)
    first = await there(cluster, keys.POD, web)
    await end(cluster, keys.SHADOW_POD, web)
    await cluster.create(keys.SHADOW_POD, shadow(web.namespace))

    await pod_reconciler(cluster).reconcile(web)
    meanwhile = await there(cluster, keys.SHADOW_POD, web)
    await cluster.delete(keys.POD, web, uid=first["metadata"]["uid"], grace_s=0)
    await pod_reconciler(cluster).reconcile(web)

    assert not meanwhile.get("status")
    assert (await there(cluster, keys.POD, web))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_shadow_pod_on_its_way_out_gets_no_pod(cluster: Cluster, web: Key) -> None:
    await cluster.patch(keys.SHADOW_POD, web, {"metadata": {"finalizers": ["example.org/wait"]}})
    await end(cluster, keys.SHADOW_POD, web)

    await pod_reconciler(cluster).reconcile(web)

    assert await cluster.get_live(keys.POD, web) is None


@pytest.fixture
async def web_on_fake() -> tuple[FakeCluster, Key]:
    cluster = FakeCluster(strict=True)
    await cluster.create(keys.SHADOW_POD, shadow("default"))
    return cluster, Key("default", "web")


async def test_caches_without_specs_suffice(cluster: Cluster, web: Key) -> None:
    ledger = Ledger(cluster)
    shadows = Informer(Selection(keys.SHADOW_POD, slim.SlimShadow, web.namespace))
    pods = Informer(Selection(keys.POD, slim.SlimPod, web.namespace))
    reconciler = ShadowPodReconciler(
        ledger, events=Told(cluster).recorder, clock=lambda: NOW, find=slim.seen(shadows, pods)
    )

    async def cached(phase: str) -> None:
        async with asyncio.timeout(300):
            while (pod := pods.get(web)) is None or pod.status.phase != phase:  # noqa: ASYNC110  # what an informer holds
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(each.run(cluster)) for each in (shadows, pods)]
        await shadows.synced.wait()
        await reconciler.reconcile(web)
        await cached("Pending")
        await cluster.patch_status(keys.POD, web, {"phase": "Running"})
        await cached("Running")
        await reconciler.reconcile(web)
        for each in following:
            each.cancel()

    assert [verb for verb, *_ in ledger.writes] == ["create", "patch_status"]
    assert forge.phase(await there(cluster, keys.SHADOW_POD, web)) == "Running"


async def test_an_amount_that_is_none_is_never_sent_to_the_api_server() -> None:
    """A13, with the webhook away: it would compute 1e999999999 for minutes."""
    fake = FakeCluster()
    huge = {"cpu": "1e999999999"}
    spec = {"containers": [{"name": "a", "image": "a", "resources": {"requests": huge}}]}
    key = Key("shop", "web")
    await fake.create(keys.SHADOW_POD, named(keys.SHADOW_POD, key, spec={"pod": spec}))

    again = await pod_reconciler(fake).reconcile(key)

    assert again is not None
    assert fake.requests["create", "pods"] == 0
    (condition,) = (await there(fake, keys.SHADOW_POD, key))["status"]["conditions"]
    assert "resources.requests.cpu is no amount" in condition["message"]
