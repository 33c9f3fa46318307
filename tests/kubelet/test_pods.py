"""One pod's life, by the decision table of behaviour.md 5.5.1."""

import datetime as dt
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, named
from kube import errors, metrics
from kubelet.endings import LINGER_S, MAX_LINGER_S
from kubelet.forge.mapping import MappingState, NamespaceMapping
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World, ended, running, waiting


async def test_a_bound_pod_gets_a_shadow_pod_and_a_label(world: World) -> None:
    local = await world.bound(metadata={"labels": {"app": "web"}})

    await world.reconcile()

    shadow = await world.shadow()
    pod = await world.pod()
    assert shadow
    assert pod
    assert objects.labels(shadow) == {
        "app": "web",
        "offloading.liqo.io/origin": "rome",
        "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": "milan",
    }
    assert objects.annotations(shadow)[keys.LOCAL_POD_UID] == objects.uid(local)
    assert pod["status"]["phase"] == "Pending"
    assert world.recorder.told == []

    await world.run_remotely(running())
    await world.reconcile()
    pod = await world.pod()
    assert pod
    assert objects.labels(pod) == {"app": "web", "liqo.io/shadowPod": "true"}


async def test_a_pod_that_takes_its_time_is_told_what_it_waits_for(world: World) -> None:
    await world.bound()
    await world.reconcile()
    await world.run_remotely(waiting("ContainerCreating"))
    await world.reconcile()
    assert world.writes() == (0, 1)

    world.now += dt.timedelta(seconds=10)
    await world.reconcile(2)

    assert world.writes() == (1, 1)
    state = (await world.status())["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ContainerCreating"}}


async def test_up_to_running_it_costs_two_writes(world: World) -> None:
    await world.bound()
    await world.reconcile(2)
    await world.run_remotely()
    for status in (waiting("ContainerCreating"), waiting("PodInitializing"), running()):
        await world.runs(status)
        await world.reconcile(2)

    assert world.writes() == (1, 1)
    status = await world.status()
    assert status["phase"] == "Running"
    assert status["podIP"] == "10.1.0.7"
    assert status["hostIP"] == worlds.HOST
    assert world.recorder.told == []


async def test_a_second_reconcile_writes_nothing(world: World) -> None:
    await world.offloaded()
    before = world.writes()

    assert await world.reconcile(3) is None

    assert world.writes() == before


async def test_why_a_pod_stays_pending_is_told(world: World) -> None:
    await world.bound()
    await world.reconcile()
    await world.run_remotely(waiting("ImagePullBackOff", "no such image"))

    await world.reconcile(2)

    state = (await world.status())["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


async def test_that_no_remote_node_fits_is_told(world: World) -> None:
    await world.bound()
    await world.reconcile()
    unschedulable = worlds.condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes"
    )
    await world.run_remotely({"phase": "Pending", "conditions": [unschedulable]})

    await world.reconcile()

    shown = worlds.named_condition(await world.status(), "PodScheduled")
    assert (shown["status"], shown["message"]) == ("False", "0/1 nodes")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_what_ended_while_we_were_away_ends_here(
    world: World, phase: str, policy: str
) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    await world.runs(ended(phase, int(phase == "Failed")))
    world.restart()

    await world.reconcile(2)

    assert (await world.status())["phase"] == phase
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"phase": phase})
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_what_goes_on_goes_on_here(world: World, phase: str, policy: str) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    await world.runs(running(phase))
    world.restart()

    await world.reconcile(2)

    expected = "Running" if phase == "Pending" else phase
    assert (await world.status())["phase"] == expected
    assert await world.shadow()


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_a_remote_pod_that_is_gone_for_now_changes_nothing(world: World, policy: str) -> None:
    await world.offloaded(spec={"restartPolicy": policy})
    before = await world.status()
    await world.end_remotely()
    world.restart()

    await world.reconcile(2)

    assert await world.status() == before


@pytest.mark.parametrize(("phase", "exit_code"), [("Succeeded", 0), ("Failed", 1)])
async def test_a_shadow_that_ended_without_its_pod_ends_the_pod(
    world: World, phase: str, exit_code: int
) -> None:
    await world.offloaded()
    await world.end_remotely()
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"phase": phase})

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == (phase, "RemotePodTerminated")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == exit_code


async def test_a_recreated_pod_is_one_more_restart(world: World) -> None:
    await world.offloaded(running(restarts=2))
    await world.end_remotely()
    await world.reconcile()
    await world.run_remotely(running(restarts=0))

    await world.reconcile()

    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1
    world.restart()
    await world.reconcile()
    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1


async def test_what_was_made_anew_while_nobody_looked_counts_too(world: World) -> None:
    await world.offloaded(running(restarts=2))
    counts = []
    for restarts in (0, 3, 0):
        await world.end_remotely()
        world.restart()
        await world.run_remotely(running(restarts=restarts))
        await world.reconcile()
        world.restart()
        await world.reconcile()
        counts.append((await world.status())["containerStatuses"][0]["restartCount"])

    assert counts == [1, 2 + 3, 3]


async def test_a_pod_made_anew_counts_from_before_it_runs(world: World) -> None:
    await world.offloaded()
    await world.end_remotely()
    await world.run_remotely({"phase": "Pending"})
    await world.reconcile()
    world.restart()
    await world.runs(running())
    await world.reconcile()

    assert (await world.status())["containerStatuses"][0]["restartCount"] == 1


async def test_what_is_noted_of_a_remote_pod_stays_at_home(world: World) -> None:
    await world.offloaded(metadata={"annotations": {keys.REMOTE_POD: "another 7"}})
    await world.reconcile()

    pod, remote, shadow = await world.pod(), await world.remote_pod(), await world.shadow()
    assert pod
    assert remote
    assert shadow
    assert objects.annotations(pod)[keys.REMOTE_POD] == f"{objects.uid(remote)} 0"
    assert (await world.status())["containerStatuses"][0]["restartCount"] == 0
    assert keys.REMOTE_POD not in objects.annotations(shadow)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_how_a_remote_pod_ends_while_it_is_deleted_there_is_no_end(
    fake_world: World, phase: str
) -> None:
    world = fake_world
    await world.offloaded(running())
    remote = await world.remote_pod()
    assert remote
    keep = {"metadata": {"finalizers": ["tests/keep"]}}
    await world.remote.patch(keys.POD, world.twin, keep)
    await world.remote.delete(keys.POD, world.twin, uid=remote["metadata"]["uid"], grace_s=30)
    await world.runs({"phase": phase})

    await world.reconcile()

    assert (await world.status())["phase"] == "Running"


async def test_the_label_of_its_creator_goes_with_the_next_shadow_pod(fake_world: World) -> None:
    world = fake_world
    label = {keys.CREATOR_USER: "rome"}
    await world.offloaded(metadata={"labels": label})  # so the provider answers
    spec = {**factories.pod_spec(), "nodeName": worlds.NODE}
    await world.local.create(keys.POD, factories.pod(world.web.namespace, "next", spec=spec))

    await world.reconciler.reconcile(Key(world.web.namespace, "next"))

    shadow = await world.remote.get(keys.SHADOW_POD, Key(world.twin.namespace, "next"))
    assert shadow
    assert objects.labels(shadow)[keys.CREATOR_USER] == "rome"


async def test_labels_and_annotations_follow_and_the_spec_stays(world: World) -> None:
    await world.offloaded(metadata={"labels": {"app": "web", "old": "1"}})
    by_provider = {"labels": {keys.CREATOR_USER: "milan"}}
    await world.remote.patch(keys.SHADOW_POD, world.twin, {"metadata": by_provider})
    changes = {"labels": {"tier": "front", "old": None}, "annotations": {"note": "x"}}
    await world.local.patch(keys.POD, world.web, {"metadata": changes})

    await world.reconcile(2)

    shadow = await world.shadow()
    assert shadow
    labels = objects.labels(shadow)
    assert (labels["tier"], labels[keys.CREATOR_USER]) == ("front", "milan")
    assert "old" not in labels
    assert objects.annotations(shadow)["note"] == "x"


async def test_while_the_provider_is_silent_nothing_is_mirrored_and_the_pod_is_not_ready(
    world: World,
) -> None:
    await world.offloaded()
    world.is_silent = True
    await world.reconcile(2)
    pod = await world.pod()
    assert pod
    assert objects.labels(pod)[keys.REMOTE_UNAVAILABLE] == "true"
    ready = worlds.named_condition(pod["status"], "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RemoteClusterUnavailable")
    before = world.writes()
    by_kubernetes = [worlds.condition("Ready", "False", reason="NodeNotReady")]
    await world.told({"conditions": by_kubernetes})
    await world.reconcile(2)
    assert world.writes() <= (before[0] + 1, before[1])
    ready = worlds.named_condition(await world.status(), "Ready")
    assert ready["status"] == "False"

    world.is_silent = False
    assert set(world.reconciler.after_silence()) == {world.web}
    await world.reconcile(2)
    pod = await world.pod()
    assert pod
    assert keys.REMOTE_UNAVAILABLE not in objects.labels(pod)
    assert worlds.named_condition(pod["status"], "Ready")["status"] == "True"


async def test_nothing_is_deleted_or_made_while_the_provider_is_silent(world: World) -> None:
    await world.offloaded()
    world.is_silent = True
    await delete_locally(world)

    await world.reconcile(2)

    assert await world.shadow()
    assert await world.pod()
    assert world.web in set(world.reconciler.after_silence())


GATE: Final = "example.org/in-rotation"


async def test_readiness_gates_are_judged_at_home(world: World) -> None:
    await world.offloaded(spec={"readinessGates": [{"conditionType": GATE}]})
    shadow = await world.shadow()
    assert shadow
    assert "readinessGates" not in shadow["spec"]["pod"]
    ready = worlds.named_condition(await world.status(), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert GATE in ready["message"]

    for said, expected in (("True", "True"), ("False", "False")):
        await world.told({"conditions": [{"type": GATE, "status": said}]})
        await world.reconcile(2)
        assert worlds.named_condition(await world.status(), "Ready")["status"] == expected
    assert worlds.named_condition(await world.status(), GATE)["status"] == "False"


async def test_conditions_that_others_write_meanwhile_stay(fake_world: World) -> None:
    world = fake_world
    stale = await world.bound()
    live = world.local
    assert isinstance(live, FakeCluster)
    disruption = worlds.condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.told({"conditions": [disruption, worlds.condition(GATE)]})
    world.local = _Late(live, stale)  # type: ignore[assignment]  # a Cluster all the same
    world.restart()

    await world.reconcile()
    await world.run_remotely(running())
    await world.reconcile(2)

    pod = await live.get(keys.POD, world.web)
    assert pod
    kept = {item["type"] for item in pod["status"]["conditions"]}
    assert {"DisruptionTarget", GATE, "Ready"} <= kept


async def test_who_evicts_at_home_is_still_told_when_the_pod_runs(world: World) -> None:
    await world.offloaded()
    disruption = worlds.condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.told({"conditions": [disruption]})

    await world.runs(running(conditions=[worlds.condition("Ready", "False")]))
    await world.reconcile(2)

    assert worlds.named_condition(await world.status(), "DisruptionTarget")["status"] == "True"


async def test_a_running_pod_that_the_provider_takes_no_more_is_not_ready(world: World) -> None:
    await world.offloaded()
    await world.end_remotely()
    refusal = {"type": "Admitted", "status": "False", "reason": "FailedCreatePod", "message": "no"}
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": [refusal]})

    await world.reconcile(2)

    status = await world.status()
    assert status["phase"] == "Running"
    assert worlds.named_condition(status, "Ready")["status"] == "False"
    assert worlds.named_condition(status, "pyliqo.io/Offloaded")["message"] == "no"
    assert world.recorder.told.count(("Warning", "FailedReflection")) == 1

    await world.remote.patch_status(
        keys.SHADOW_POD, world.twin, {"conditions": [{**refusal, "status": "True"}]}
    )
    await world.run_remotely(running())
    await world.reconcile(2)
    status = await world.status()
    assert worlds.named_condition(status, "Ready")["status"] == "True"
    assert "message" not in status


TROUBLES: Final = {
    "image": (waiting("ErrImagePull", "no such image"), "FailedImagePull"),
    "crash": (waiting("CrashLoopBackOff", "back-off"), "CrashLoopBackOff"),
    "node": (
        {
            "phase": "Pending",
            "conditions": [worlds.condition("PodScheduled", "False", message="0/1 nodes")],
        },
        "FailedScheduling",
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
async def test_what_goes_wrong_on_the_provider_is_an_event_here(world: World, name: str) -> None:
    status, reason = TROUBLES[name]
    await world.bound()
    await world.reconcile()
    await world.run_remotely(status)

    await world.reconcile(3)

    assert world.recorder.told.count(("Warning", reason)) == 1
    world.restart()
    await world.reconcile(2)
    assert world.recorder.told.count(("Warning", reason)) == 1


async def test_what_may_change_in_a_pod_follows(world: World) -> None:
    await world.offloaded()
    pod = await world.pod()
    assert pod
    main, tolerations = pod["spec"]["containers"][0], pod["spec"].get("tolerations") or []
    debug = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
    gpu = {"key": "gpu", "operator": "Exists"}
    await world.local.patch(
        keys.POD,
        world.web,
        {
            "spec": {
                "containers": [{**main, "image": "nginx:2"}],
                "activeDeadlineSeconds": 600,
                "tolerations": [*tolerations, gpu],
            }
        },
    )
    await world.local.patch(
        keys.POD,
        world.web,
        {"spec": {"ephemeralContainers": [debug]}},
        subresource="ephemeralcontainers",
    )

    await world.reconcile(3)

    shadow = await world.shadow()
    assert shadow
    spec = shadow["spec"]["pod"]
    assert spec["containers"][0]["image"] == "nginx:2"
    assert (spec["activeDeadlineSeconds"], spec["tolerations"][-1]) == (600, gpu)
    assert spec["ephemeralContainers"][0]["name"] == "debug"
    assert int(objects.annotations(shadow)[keys.LOCAL_POD_GENERATION]) > 1
    before = world.writes()
    await world.reconcile(3)
    assert world.writes() == before


# The end -----------------------------------------------------------------------------------------


async def delete_locally(world: World) -> None:
    pod = await world.pod()
    assert pod
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod))


async def test_a_deleted_pod_goes_when_nothing_of_it_is_left(world: World) -> None:
    await world.offloaded()
    await delete_locally(world)

    await world.reconcile(2)
    assert await world.shadow() is None
    assert await world.pod(), "the remote pod is still there"

    await world.end_remotely()
    await world.reconcile(2)
    assert await world.pod() is None


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

    await judged(world, allowed=0)
    with pytest.raises(errors.BusyError, match="disruption budget"):
        await evict(world)
    await world.reconcile(2)
    kept = await world.pod()
    assert kept
    assert not objects.is_terminating(kept)
    assert await world.shadow()
    assert await world.remote_pod()

    await judged(world, allowed=1)
    await evict(world)
    await world.reconcile(2)
    assert await world.shadow() is None
    status = await world.status()
    assert worlds.named_condition(status, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"

    await world.end_remotely()
    await world.reconcile(2)
    assert await world.pod() is None


async def judged(world: World, *, allowed: int) -> None:
    """Do what Kubernetes' disruption controller does, which does not run here."""
    counts = {"currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1, **counts}
    await world.local.patch_status(BUDGET, world.web, status)


async def evict(world: World) -> None:
    pod = await world.pod()
    assert pod
    request = named(objects.Kind("policy", "v1", "Eviction", "evictions"), world.web)
    request["deleteOptions"] = {"preconditions": {"uid": objects.uid(pod)}}
    await world.local.post(keys.POD, world.web, "eviction", request)


async def test_a_pod_deleted_by_force_takes_its_shadow_along(world: World) -> None:
    await world.offloaded()
    pod = await world.pod()
    assert pod
    await world.local.delete(keys.POD, world.web, uid=objects.uid(pod), grace_s=0)

    await world.reconcile(2)

    assert await world.shadow() is None


async def test_a_terminating_pod_shows_its_final_phase_if_it_lingers(world: World) -> None:
    await world.offloaded()
    await delete_locally(world)
    await world.reconcile()
    before = world.writes()

    await world.runs(running(conditions=[worlds.condition("Ready", "False")]))
    await world.reconcile()
    assert world.writes() == before

    world.now += dt.timedelta(seconds=LINGER_S / 2)
    await world.runs(ended("Succeeded", 0))
    assert await world.reconcile(2) == LINGER_S
    world.now += dt.timedelta(seconds=LINGER_S / 2)
    assert await world.reconcile(2) == LINGER_S / 2
    assert world.writes() == before
    world.now += dt.timedelta(seconds=LINGER_S / 2)
    await world.reconcile(2)
    assert world.writes() == (before[0] + 1, before[1])
    assert (await world.status())["phase"] == "Succeeded"


async def test_a_terminating_pod_that_never_stops_changing_is_told(world: World) -> None:
    await world.offloaded()
    await delete_locally(world)
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
    await delete_locally(world)
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
    assert shadow
    assert objects.annotations(shadow)[keys.FINISHED] == "Succeeded"
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before


async def test_a_new_pod_of_the_same_name_waits_for_the_end_of_the_old(world: World) -> None:
    await world.offloaded()
    old = await world.pod()
    assert old
    await world.local.delete(keys.POD, world.web, uid=objects.uid(old), grace_s=0)
    new = await world.bound()

    await world.reconcile()
    assert await world.shadow() is None
    assert await world.reconcile() is not None, "the old remote pod is still there"
    assert await world.shadow() is None

    await world.end_remotely()
    await world.reconcile()
    shadow = await world.shadow()
    assert shadow
    assert objects.annotations(shadow)[keys.LOCAL_POD_UID] == objects.uid(new)


async def test_a_shadow_that_the_provider_deleted_comes_back(world: World) -> None:
    await world.offloaded()
    shadow = await world.shadow()
    assert shadow
    await world.remote.delete(keys.SHADOW_POD, world.twin, uid=objects.uid(shadow))

    await world.reconcile()

    again = await world.shadow()
    assert again
    assert objects.uid(again) != objects.uid(shadow)


async def test_a_finished_pod_is_never_offloaded_again(world: World) -> None:
    await world.bound({"phase": "Failed"})

    await world.reconcile(2)

    assert await world.shadow() is None


async def test_a_pod_that_cannot_work_there_is_refused_and_told_what_to_do(world: World) -> None:
    await world.bound(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})

    assert await world.reconcile(2)

    assert await world.shadow() is None
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

    assert await world.shadow()
    assert world.recorder.told == [("Warning", "UnknownField")]
    assert world.recorder.messages[0].startswith("spec.fromTheFuture did not go to milan: ")


async def test_a_provider_that_takes_a_pod_and_makes_none_of_it_is_told_of(world: World) -> None:
    await world.bound()
    await world.reconcile(2)
    world.now += dt.timedelta(seconds=15)
    assert await world.reconcile(2)
    assert world.recorder.told == []

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

    assert await world.shadow() is None
    assert unanswered_pods() == 0


def unanswered_pods() -> float | None:
    """Return what is scraped."""
    return metrics.REGISTRY.get_sample_value("kubelet_unanswered_pods")


# Whose it is -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [keys.SHADOW_POD, keys.POD], ids=str)
async def test_what_is_not_ours_is_never_touched(world: World, kind: objects.Kind) -> None:
    theirs = await world.remote.create(
        kind, objects.named(kind, world.twin, spec=factories.pod_spec())
    )
    await world.bound()

    assert await world.reconcile(2)

    assert await world.remote.get(kind, world.twin) == theirs
    assert world.recorder.told == [("Warning", "FailedReflection")]
    assert "already exists" in (await world.status())["message"]
    await delete_locally(world)
    await world.reconcile(2)
    assert await world.pod() is None
    assert await world.remote.get(kind, world.twin) == theirs


async def test_what_another_virtual_node_made_is_never_touched(world: World) -> None:
    labels = {**world.pair.labels(), keys.NODE_NAME: "turin"}
    theirs = objects.named(
        keys.SHADOW_POD, world.twin, metadata={"labels": labels}, spec={"pod": {}}
    )
    made = await world.remote.create(keys.SHADOW_POD, theirs)

    await world.reconcile()
    assert await world.shadow() == made

    await world.bound()
    assert await world.reconcile() is not None
    assert await world.shadow() == made


async def test_a_pod_of_another_node_is_none_of_ours(world: World) -> None:
    await world.bound(spec={"nodeName": "physical"})

    await world.reconcile(2)

    assert await world.shadow() is None
    assert "hostIP" not in await world.status()


# Refused -----------------------------------------------------------------------------------------


async def test_a_pod_that_may_not_grow_yet_says_so_and_runs_on(world: World) -> None:
    await world.offloaded()
    before = world.writes()[0]
    full = {"type": keys.UPDATED_CONDITION, "status": "False", "reason": "QuotaExceeded"}
    message = "the pod asks for 1 more of cpu, quota rome/x has 0 free of 2"
    said = [{**full, "message": message}]
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": said})

    await world.reconcile(times=2)
    waits = await world.status()
    done = [{"type": keys.UPDATED_CONDITION, "status": "True", "reason": "Updated"}]
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": done})
    await world.reconcile()

    pending = worlds.named_condition(waits, "PodResizePending")
    assert (pending["status"], pending["reason"]) == ("True", "Deferred")
    assert pending["message"] == message
    assert worlds.named_condition(waits, "Ready")["status"] == "True"
    assert world.writes()[0] - before == 2
    assert worlds.named_condition(await world.status(), "PodResizePending") == {}


async def test_a_refused_pod_stays_pending_and_says_why(fake_world: World) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.bound()
    world.remote.fail("create", errors.ForbiddenError("quota exceeded"), times=3)

    pauses = [await world.reconcile() for _ in range(3)]

    assert pauses == [1.0, 2.0, 4.0]
    status = await world.status()
    assert (status["phase"], status["message"]) == ("Pending", "quota exceeded")
    assert worlds.named_condition(status, "pyliqo.io/Offloaded")["status"] == "False"
    assert world.recorder.told == [("Warning", "FailedReflection")]

    await world.reconcile()
    status = await world.status()
    assert await world.shadow()
    assert world.recorder.told[1:] == [("Normal", "SuccessfulReflection")]
    assert "message" not in status
    assert not worlds.named_condition(status, "pyliqo.io/Offloaded")


async def test_a_shadow_that_is_not_admitted_says_why(world: World) -> None:
    await world.bound()
    await world.reconcile()
    refusal = {"type": "Admitted", "status": "False", "reason": "QuotaExceeded", "message": "full"}
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": [refusal]})

    await world.reconcile(2)
    assert (await world.status())["message"] == "full"

    admitted = {**refusal, "status": "True", "message": ""}
    await world.remote.patch_status(keys.SHADOW_POD, world.twin, {"conditions": [admitted]})
    await world.reconcile(2)
    assert "message" not in await world.status()


async def test_a_lost_answer_doubles_nothing(fake_world: World) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.bound()
    world.remote.fail("create", errors.NotReachableError("reset"), after=True)

    with pytest.raises(errors.NotReachableError):
        await world.reconcile()
    await world.reconcile(2)

    assert world.remote.requests["create", "shadowpods"] == 1
    assert await world.shadow()


@pytest.mark.parametrize("is_terminating", [False, True])
async def test_nothing_is_deleted_for_lack_of_contact(
    fake_world: World, *, is_terminating: bool
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    if is_terminating:
        await delete_locally(world)
    world.remote.fail("*", errors.NotReachableError("silence"), times=100)

    for _ in range(3):
        with pytest.raises(errors.NotReachableError):
            await world.reconcile()

    assert await world.pod()
    assert (keys.SHADOW_POD, world.twin) in world.remote.everything()


# Not offloaded, or no more -----------------------------------------------------------------------


async def test_nothing_is_judged_before_its_namespace_is_seen(fake_world: World) -> None:
    world = fake_world
    await world.bound()
    world.namespaces.synced = False

    await world.reconcile()

    assert await world.shadow() is None
    assert world.writes() == (0, 0)


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ("ReplicaSet", "OffloadingAborted"),
        ("DaemonSet", "OffloadingBackOff"),
        ("", "OffloadingBackOff"),
    ],
)
async def test_an_offloaded_pod_that_never_started_makes_way_for_its_successor(
    world: World, owner: str, reason: str
) -> None:
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1"}
    owners = [{**reference, "controller": True}] if owner else []
    labels = {keys.SHADOW_POD_LABEL: "true"}
    await world.bound(metadata={"labels": labels, "ownerReferences": owners})

    await world.reconcile(2)

    assert (await world.status())["reason"] == reason


JUDGED: Final = "strategy=Remote generation=1 added=toleration,nodeAffinity"


async def unoffloaded(world: World, offloading: str, note: str, owner: str) -> None:
    """Let a pod be bound a minute before its namespace is withdrawn that never reached milan."""
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    if offloading:
        key = Key(world.pair.local_namespace, keys.OFFLOADING_NAME)
        made = named(keys.NAMESPACE_OFFLOADING, key, spec={"podOffloadingStrategy": "Remote"})
        made["metadata"]["finalizers"] = [keys.NAMESPACE_OFFLOADING_FINALIZER]
        made = await world.local.create(keys.NAMESPACE_OFFLOADING, made)
        if offloading == "ending":
            await world.local.delete(keys.NAMESPACE_OFFLOADING, key, uid=objects.uid(made))
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1"}
    owners = [{**reference, "controller": True}] if owner else []
    notes = {keys.PLACEMENT: note} if note else {}
    await world.bound(metadata={"annotations": notes, "ownerReferences": owners})


@pytest.mark.parametrize("offloading", ["", "ending"])
async def test_a_pod_that_was_on_its_way_makes_way_for_one_that_is_judged_anew(
    world: World, offloading: str
) -> None:
    await unoffloaded(world, offloading, JUDGED, "ReplicaSet")

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OffloadingAborted")


@pytest.mark.parametrize(
    ("offloading", "note", "owner"),
    [
        ("there", JUDGED, "ReplicaSet"),
        ("", "", "ReplicaSet"),
        ("", "strategy=Remote generation=1 added=nodeAffinity", "ReplicaSet"),
        ("", JUDGED, "DaemonSet"),
        ("", JUDGED, ""),
    ],
)
async def test_a_pod_that_never_started_waits_where_no_other_would_be_placed_elsewhere(
    world: World, offloading: str, note: str, owner: str
) -> None:
    await unoffloaded(world, offloading, note, owner)

    again = await world.reconcile(2)

    assert (await world.status())["reason"] == "OffloadingBackOff"
    assert (again is not None) == (offloading == "there")


@pytest.mark.parametrize("state", [MappingState.WAITING, MappingState.WITHDRAWN])
async def test_a_pod_that_never_started_backs_off(world: World, state: MappingState) -> None:
    world.namespaces.now = NamespaceMapping(state)
    world.now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)  # noqa: TID251  # as the fake
    await world.bound()

    await world.reconcile(3)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Pending", "OffloadingBackOff")
    assert world.recorder.told == [("Warning", "ReflectionDisabled")]

    world.namespaces.now = NamespaceMapping(MappingState.OFFLOADED, world.pair)
    await world.reconcile()
    assert await world.shadow()
    assert "reason" not in await world.status()


async def test_a_new_pod_is_not_judged_while_its_namespace_may_be_on_its_way(
    fake_world: World,
) -> None:
    world = fake_world
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)
    world.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fake
    await world.bound()

    again = await world.reconcile()

    assert again is not None
    assert 0 < again <= 11
    assert world.writes() == (0, 0)


async def test_a_pod_that_ran_fails_when_its_namespace_is_withdrawn(world: World) -> None:
    await world.offloaded()
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, world.pair)

    await world.reconcile(2)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OffloadingAborted")
    assert worlds.named_condition(status, "Ready")["status"] == "False"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert world.recorder.told.count(("Warning", "ReflectionDisabled")) == 1

    world.namespaces.now = NamespaceMapping(MappingState.OFFLOADED, world.pair)
    await world.reconcile(2)
    assert await world.shadow() is None
    assert (await world.status())["phase"] == "Failed"


async def test_a_pod_that_runs_is_left_alone_while_nothing_is_known(world: World) -> None:
    await world.offloaded()
    before = await world.status()
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    await world.reconcile(3)

    assert await world.status() == before


async def test_a_terminating_pod_goes_with_its_namespace(world: World) -> None:
    await world.offloaded()
    await delete_locally(world)
    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, world.pair)

    await world.reconcile(2)
    assert await world.shadow() is None
    assert await world.pod()

    world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN)
    await world.reconcile()
    assert await world.pod() is None


async def test_a_terminating_pod_that_ran_waits_while_nothing_is_known(world: World) -> None:
    await world.offloaded()
    await delete_locally(world)
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    assert await world.reconcile(2) is not None

    assert await world.pod()


async def test_a_terminating_pod_that_never_ran_goes_at_once(world: World) -> None:
    await world.bound()
    await delete_locally(world)
    world.namespaces.now = NamespaceMapping(MappingState.WAITING)

    await world.reconcile()

    assert await world.pod() is None


async def test_what_we_wrote_and_the_cache_lacks_is_not_written_again(fake_world: World) -> None:
    world = fake_world
    stale = await world.bound()
    assert isinstance(world.local, FakeCluster)
    local = _Late(world.local, stale)
    world.local = local  # type: ignore[assignment]  # a Cluster all the same
    world.restart()
    await world.reconcile()
    await world.run_remotely(running())
    await world.reconcile()
    written = local.patches

    await world.reconcile(3)

    assert local.patches == written == 1


class _Late:
    """A cluster whose cache shows the pod as it first was."""

    def __init__(self, cluster: FakeCluster, stale: objects.Object) -> None:
        self._cluster, self._stale, self.patches = cluster, stale, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    async def get(self, kind: objects.Kind, key: Key) -> objects.Object:
        return self._stale

    async def patch_status(self, *args: object, **rest: object) -> object:
        self.patches += 1
        return await self._cluster.patch_status(*args, **rest)  # type: ignore[arg-type]  # as sent
