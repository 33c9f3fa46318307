"""How pods end, here and on the provider."""

import datetime as dt
from typing import Any, Final

import pytest

from apis import keys, objects, podaffinity
from apis.objects import Object, named
from kube import errors, metrics
from kube.informer import Change
from kube.slim import Packed
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import LINGER_S, MAX_LINGER_S
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World, ended, running


async def test_a_deleted_pod_goes_when_nothing_of_it_is_left(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()

    await world.reconcile(2)
    assert not await world.has_shadow()
    assert await world.has_pod(), "the remote pod is still there"

    await world.end_remotely()
    await world.reconcile(2)
    assert not await world.has_pod()


TRACKED: Final = {"finalizers": ["batch.kubernetes.io/job-tracking"]}
"""What a Job has on its pods until it has counted how they ended."""


@pytest.mark.parametrize("there", [None, running()], ids=["waits", "runs"])
async def test_a_pod_that_is_counted_has_failed_before_it_goes_without_a_last_word(
    world: World, there: Object | None
) -> None:
    """A Job with ``podReplacementPolicy: Failed`` makes another only then."""
    await world.bound(spec={"restartPolicy": "Never"}, metadata=TRACKED)
    await world.reconcile()
    await world.run_remotely(there)
    await world.reconcile()
    await world.delete_locally()
    await world.reconcile()
    await world.end_remotely()

    await world.reconcile()

    status = await world.status()
    assert status["phase"] == "Failed"
    state = status["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("ContainerStatusUnknown", 137)
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before
    world.restart()
    await world.reconcile(2)
    assert world.writes() == (1, 0), "its deletion is asked for once more"
    await world.local.patch(keys.POD, world.web, {"metadata": {"finalizers": None}})
    assert not await world.has_pod()


@pytest.mark.parametrize("last", [ended("Succeeded", 0), ended("Failed", 3)])
async def test_a_pod_whose_end_and_removal_are_seen_at_once_goes_as_it_ended(
    world: World, last: Object
) -> None:
    await world.offloaded(spec={"restartPolicy": "Never"}, metadata=TRACKED)
    await world.delete_locally()
    await world.reconcile()
    gone = Packed.cached(await world.runs(last))
    await world.end_remotely()
    world.departures.on_remote(Change(world.twin, gone, None))

    await world.reconcile()

    status = await world.status()
    assert status["phase"] == last["phase"]
    assert (
        status["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        == last["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    )


@pytest.mark.parametrize(("refusals", "phase"), [(1, "Succeeded"), (9, "Running")])
async def test_a_last_word_that_the_api_server_refuses_keeps_no_pod_here(
    fake_world: World, refusals: int, phase: str
) -> None:
    world = fake_world
    assert isinstance(world.local, FakeCluster)
    await world.offloaded(spec={"restartPolicy": "Never"}, metadata=TRACKED)
    await world.delete_locally()
    await world.reconcile()
    gone = Packed.cached(await world.runs(ended("Succeeded", 0)))
    await world.end_remotely()
    world.departures.on_remote(Change(world.twin, gone, None))
    world.local.fail("patch_status", errors.InvalidError("no such state (422)"), times=refusals)

    await world.reconcile()

    assert (await world.status())["phase"] == phase
    world.local.heal()
    await world.local.patch(keys.POD, world.web, {"metadata": {"finalizers": None}})
    assert not await world.has_pod()


async def test_a_pod_that_nobody_counts_goes_without_a_write(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()
    await world.reconcile()
    await world.end_remotely()
    before = world.writes()

    await world.reconcile()

    assert not await world.has_pod()
    assert world.writes() == (before[0] + 1, before[1])


BUDGET: Final = objects.Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_an_eviction_ends_the_remote_pod_too_once_a_budget_at_home_allows_it(
    world: World,
) -> None:
    """As ``kubectl drain`` and autoscalers ask for it: by the API server, which keeps budgets."""
    await world.offloaded(metadata={"labels": {"app": "web"}})
    rule = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await world.local.create(BUDGET, named(BUDGET, world.web, spec=rule))

    await judged_end(world, allowed=0)
    with pytest.raises(errors.BusyError, match="disruption budget"):
        await evict(world)
    await world.reconcile(2)
    kept = await world.pod()
    assert not objects.is_terminating(kept)
    assert await world.has_shadow()
    assert await world.has_remote_pod()

    await judged_end(world, allowed=1)
    await evict(world)
    await world.reconcile(2)
    assert not await world.has_shadow()
    status = await world.status()
    assert worlds.named_condition(status, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"

    await world.end_remotely()
    await world.reconcile(2)
    assert not await world.has_pod()


async def judged_end(world: World, *, allowed: int) -> None:
    """Do what Kubernetes' disruption controller does, which does not run here."""
    counts = {"currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1, **counts}
    await world.local.patch_status(BUDGET, world.web, status)


async def evict(world: World) -> None:
    pod = await world.pod()
    request = named(objects.Kind("policy", "v1", "Eviction", "evictions"), world.web)
    request["deleteOptions"] = {"preconditions": {"uid": objects.uid(pod)}}
    await world.local.post(keys.POD, world.web, "eviction", request)


async def test_a_pod_deleted_by_force_takes_its_shadow_along(world: World) -> None:
    await world.offloaded()
    pod = await world.pod()
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)

    await world.reconcile(2)

    assert not await world.has_shadow()


async def test_a_terminating_pod_shows_its_final_phase_if_it_lingers(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()
    await world.reconcile()
    before = world.writes()

    await world.runs(running(conditions=[worlds.pod_condition("Ready", "False")]))
    await world.reconcile()
    assert world.writes() == before

    world.now += dt.timedelta(seconds=LINGER_S / 2)
    await world.runs(ended("Succeeded", 0))
    assert await world.reconcile(2) == LINGER_S
    world.now += dt.timedelta(seconds=LINGER_S / 2)
    world.set_back(3600)
    assert await world.reconcile(2) == LINGER_S / 2
    assert world.writes() == before
    world.now += dt.timedelta(seconds=LINGER_S / 2)
    await world.reconcile(2)
    assert world.writes() == (before[0] + 1, before[1])
    assert (await world.status())["phase"] == "Succeeded"


async def test_a_terminating_pod_that_never_stops_changing_is_told(world: World) -> None:
    await world.offloaded()
    await world.delete_locally()
    await world.reconcile()
    told = world.writes()[0]

    for number in range(round(MAX_LINGER_S)):
        await world.runs(running(message=str(number)))
        await world.reconcile()
        assert world.writes()[0] == told
        world.now += dt.timedelta(seconds=1)
    await world.runs(ended("Succeeded", 0))
    await world.reconcile()

    assert (await world.status())["phase"] == "Succeeded"


async def test_a_terminating_pod_whose_end_is_counted_tells_it_at_once(world: World) -> None:
    await world.offloaded(spec={"restartPolicy": "Never"})
    await world.delete_locally()
    await world.reconcile()

    await world.runs(ended("Failed", 3))
    await world.reconcile()

    assert (await world.status())["phase"] == "Failed"


async def test_that_a_pod_ended_is_told_to_the_provider_that_missed_it(world: World) -> None:
    await world.offloaded(spec={"restartPolicy": "Never"})
    await world.runs(ended("Succeeded", 0))
    await world.reconcile()
    await world.end_remotely()  # while the controllers there were down

    await world.reconcile(2)

    shadow = await world.shadow()
    assert objects.annotations(shadow)[keys.FINISHED] == "Succeeded"
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before


async def test_a_new_pod_of_the_same_name_waits_for_the_end_of_the_old(world: World) -> None:
    await world.offloaded()
    old = await world.pod()
    await world.local.delete(keys.POD, world.web, uid=objects.uid(old), grace_s=0)
    new = await world.bound()

    await world.reconcile()
    assert not await world.has_shadow()
    assert await world.reconcile() is not None, "the old remote pod is still there"
    assert not await world.has_shadow()

    await world.end_remotely()
    await world.reconcile()
    shadow = await world.shadow()
    assert objects.annotations(shadow)[keys.LOCAL_POD_UID] == objects.uid(new)


async def test_a_shadow_that_the_provider_deleted_comes_back(world: World) -> None:
    await world.offloaded()
    shadow = await world.shadow()
    await world.remote.delete(keys.SHADOW_POD, world.twin, uid=objects.uid(shadow))

    await world.reconcile()

    again = await world.shadow()
    assert objects.uid(again) != objects.uid(shadow)


async def test_a_finished_pod_is_never_offloaded_again(world: World) -> None:
    await world.bound({"phase": "Failed"})

    await world.reconcile(2)

    assert not await world.has_shadow()


async def test_a_pod_that_cannot_work_there_is_refused_and_told_what_to_do(world: World) -> None:
    await world.bound(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})

    assert await world.reconcile(2)

    assert not await world.has_shadow()
    status = await world.status()
    assert status["phase"] == "Pending"
    told = worlds.named_condition(status, "pyliqo.io/Offloaded")["message"]
    assert told.startswith("spec.resourceClaims does not work on virtual nodes: ")
    assert world.recorder.told == [("Warning", "FailedReflection")]
    assert world.writes() == (1, 0)


async def test_a_field_that_nobody_knows_yet_is_named(fake_world: World) -> None:
    world = fake_world
    await world.bound(spec={"fromTheFuture": {"a": 1}})

    await world.reconcile(2)

    assert await world.has_shadow()
    assert world.recorder.told == [("Warning", "UnknownField")]
    assert world.recorder.messages[0].startswith("spec.fromTheFuture did not go to milan: ")


def apart(when: str, **term: Any) -> dict[str, Any]:
    """Return what a pod is bound with that keeps from others as its term says."""
    term = {"topologyKey": keys.HOSTNAME, "labelSelector": {}, **term}
    item = term if when == podaffinity.REQUIRED else {"weight": 1, "podAffinityTerm": term}
    return {
        "spec": {"affinity": {"podAntiAffinity": {when: [item]}}},
        "metadata": {"annotations": {keys.ANTI_AFFINITY_PRESET: "propagate"}},
    }


@pytest.mark.parametrize("term", [{"namespaces": ["shop", "db"]}, {"namespaceSelector": {}}])
async def test_a_term_that_cannot_be_kept_there_keeps_the_pod_from_there(
    fake_world: World, term: Object
) -> None:
    world = fake_world
    world.namespaces.others["db"] = NamespaceMapping(MappingState.WITHDRAWN)
    await world.bound(**apart(podaffinity.REQUIRED, **term))

    assert await world.reconcile(2)

    assert not await world.has_shadow()
    told = worlds.named_condition(await world.status(), "pyliqo.io/Offloaded")["message"]
    field = f"spec.affinity.podAntiAffinity.{podaffinity.REQUIRED}[0]"
    assert told.startswith(field)
    assert world.recorder.told == [("Warning", "FailedReflection")]


async def test_a_preference_that_cannot_be_kept_there_is_not_sent_and_told(
    fake_world: World,
) -> None:
    world = fake_world
    world.namespaces.others["db"] = NamespaceMapping(MappingState.WITHDRAWN)
    await world.bound(**apart(podaffinity.PREFERRED, namespaces=["db"]))

    await world.reconcile(2)

    made = await world.shadow()
    assert made["spec"]["pod"]["affinity"]["podAntiAffinity"] == {podaffinity.PREFERRED: []}
    assert world.recorder.told == [("Warning", "AffinityNotSent")]
    assert "names db, not offloaded to that cluster" in world.recorder.messages[0]


async def test_what_programs_of_the_provider_would_obey_is_not_sent_and_told_once(
    fake_world: World,
) -> None:
    world, orders = fake_world, {"k8s.v1.cni.cncf.io/networks": "a", "iam.amazonaws.com/role": "b"}
    labels = {"app": "web", "sidecar.istio.io/inject": "true"}
    await world.bound(metadata={"annotations": {**orders, "note": "x"}, "labels": labels})

    await world.reconcile(3)

    made = await world.shadow()
    assert made["metadata"]["annotations"]["note"] == "x"
    assert not orders.keys() & made["metadata"]["annotations"].keys()
    assert made["metadata"]["labels"].keys() & labels.keys() == {"app"}
    assert world.recorder.told == [("Normal", "AnnotationsNotSent")]
    assert "iam.amazonaws.com/role, k8s.v1.cni.cncf.io/networks" in world.recorder.messages[0]


async def test_what_tolerates_nodes_of_others_is_not_sent_and_told_once(fake_world: World) -> None:
    world = fake_world
    asked = [
        {"key": "dedicated", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    await world.bound(spec={"tolerations": asked})

    await world.reconcile(3)

    made = await world.shadow()
    assert made["spec"]["pod"]["tolerations"] == asked[1:2]
    assert world.recorder.told == [("Normal", "TolerationsNotSent")]
    said = "tolerations of every taint, dedicated did not go to milan, which keeps such nodes"
    assert world.recorder.messages[0].startswith(said)


async def test_a_provider_that_takes_a_pod_and_makes_none_of_it_is_told_of(world: World) -> None:
    await world.bound()
    await world.reconcile(2)
    world.now += dt.timedelta(seconds=15)
    assert await world.reconcile(2)
    assert world.recorder.told == []

    world.set_back(3600)
    world.now += dt.timedelta(seconds=50)
    assert await world.reconcile(3) is None

    told = worlds.named_condition(await world.status(), "pyliqo.io/Offloaded")
    assert (told["status"], told["reason"]) == ("Unknown", "NoRemotePod")
    assert "has made no Pod of it in a minute" in told["message"]
    assert world.recorder.told == [("Warning", "NoRemotePod")]
    assert unanswered_pods() == 1

    await world.run_remotely(running())
    await world.reconcile(2)
    status = await world.status()
    assert status["phase"] == "Running"
    assert worlds.named_condition(status, "pyliqo.io/Offloaded") == {}
    assert unanswered_pods() == 0


async def test_a_pod_that_goes_unanswered_counts_no_more(fake_world: World) -> None:
    world = fake_world
    made = await world.bound()
    await world.reconcile(2)
    world.now += dt.timedelta(seconds=65)
    await world.reconcile(2)
    assert unanswered_pods() == 1

    await world.local.delete(keys.POD, world.web, uid=objects.uid(made), grace_s=0)
    await world.reconcile(2)

    assert not await world.has_shadow()
    assert unanswered_pods() == 0


def unanswered_pods() -> float | None:
    return metrics.REGISTRY.get_sample_value("pyliqo_kubelet_unanswered_pods")
