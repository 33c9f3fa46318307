"""What is told at home of a pod that runs remotely."""

from typing import Any, Final, cast

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World, running, waiting


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


async def test_who_starts_during_an_outage_marks_what_it_never_saw_there(world: World) -> None:
    await world.offloaded()
    world.restart()
    world.namespaces.synced, world.is_silent = False, True

    await world.reconcile()

    pod = await world.pod()
    assert pod
    assert objects.labels(pod)[keys.REMOTE_UNAVAILABLE] == "true"


async def test_nothing_is_deleted_or_made_while_the_provider_is_silent(world: World) -> None:
    await world.offloaded()
    world.is_silent = True
    await world.delete_locally()

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
    world.local = worlds.Late(live, stale)  # type: ignore[assignment]  # a Cluster all the same
    world.restart()

    await world.reconcile()
    await world.run_remotely(running())
    await world.reconcile(2)

    pod = await live.get(keys.POD, world.web)
    assert pod
    kept = {item["type"] for item in pod["status"]["conditions"]}
    assert {"DisruptionTarget", GATE, "Ready"} <= kept


class Older:
    """A cluster whose API server does not know the fields ``unknown`` of containers' statuses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.unknown = {"resources", "user"}

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    async def patch_status(self, kind: Kind, key: Key, status: Object, **rest: Any) -> Object:
        kept = dict(status)
        kept.pop("observedGeneration", None)
        if listed := status.get("containerStatuses"):
            kept["containerStatuses"] = [
                {name: value for name, value in one.items() if name not in self.unknown}
                for one in listed
            ]
        return await self._cluster.patch_status(kind, key, kept, **rest)


async def test_what_the_api_server_here_does_not_keep_is_written_once(fake_world: World) -> None:
    world = fake_world
    older = Older(world.local)
    world.local = cast("Cluster", older)
    world.restart()

    def said(cpu: str, restarts: int = 0) -> Object:
        made = running(restarts=restarts)
        resources = {"requests": {"cpu": cpu}}
        made["containerStatuses"][0] |= {"resources": resources, "user": {"linux": {"uid": 1}}}
        return made

    resources = {"requests": {"cpu": "5m"}}
    containers = [{"name": "main", "image": "nginx", "resources": resources}]
    await world.offloaded(said("5m"), spec={"containers": containers})
    before = world.writes()
    await world.reconcile(3)
    assert world.writes() == before
    world.restart()
    await world.reconcile(3)
    assert world.writes() == (1, 0), "nobody remembers; of all pods this is the only one"

    await world.runs(said("5m", restarts=1))
    await world.reconcile(3)
    assert world.writes() == (2, 0)

    older.unknown = set()  # it was upgraded, and keeps what comes with the next change
    await world.runs(said("5m", restarts=2))
    await world.reconcile(3)
    assert world.writes() == (3, 0)
    await world.runs(said("4m", restarts=2))
    await world.reconcile(3)
    assert world.writes() == (4, 0)
    resized = (await world.status())["containerStatuses"][0]["resources"]
    assert resized == {"requests": {"cpu": "4m"}}


async def test_who_evicts_at_home_is_still_told_when_the_pod_runs(world: World) -> None:
    await world.offloaded()
    disruption = worlds.condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.told({"conditions": [disruption]})

    await world.runs(running(conditions=[worlds.condition("Ready", "False")]))
    await world.reconcile(2)

    assert worlds.named_condition(await world.status(), "DisruptionTarget")["status"] == "True"


async def test_that_the_provider_evicts_a_pod_goes_with_the_pod_it_was_about(
    world: World,
) -> None:
    await world.offloaded()
    disruption = worlds.condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.runs(running(conditions=[disruption, worlds.condition("Ready", "False")]))
    await world.reconcile()
    told = worlds.named_condition(await world.status(), "DisruptionTarget")
    assert told["reason"] == "EvictionByEvictionAPI"
    world.restart()
    await world.end_remotely()
    await world.reconcile()
    await world.run_remotely(running())

    await world.reconcile()

    assert not worlds.named_condition(await world.status(), "DisruptionTarget")
    assert worlds.named_condition(await world.status(), "Ready")["status"] == "True"
    before = world.writes()
    await world.told({"conditions": [disruption]})
    await world.runs(running(restarts=1))
    await world.reconcile(2)
    assert worlds.named_condition(await world.status(), "DisruptionTarget"), "said by somebody here"
    assert world.writes() == (before[0] + 1, before[1])


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


async def test_an_ephemeral_container_that_is_refused_has_ended_and_keeps_no_other_away(
    fake_world: World,
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    await debug(world, "nosy")
    world.remote.fail("patch", errors.ForbiddenError("must not have SYS_PTRACE (403)"), times=2)

    await world.reconcile(3)

    [told] = (await world.status())["ephemeralContainerStatuses"]
    assert told["state"]["terminated"]["reason"] == "FailedReflection"
    assert "must not have SYS_PTRACE (403)" in told["state"]["terminated"]["message"]
    assert world.recorder.told.count(("Warning", "FailedUpdate")) == 1
    await debug(world, "nosy", "plain")
    await world.reconcile(3)
    shadow = await world.shadow()
    assert shadow
    sent = shadow["spec"]["pod"]["ephemeralContainers"]
    assert [one["name"] for one in sent] == ["plain"]
    assert (await world.status())["ephemeralContainerStatuses"] == [told]
    assert world.recorder.told.count(("Warning", "FailedUpdate")) == 1
    before = world.writes()
    await world.reconcile(2)
    assert world.writes() == before


async def test_a_change_that_is_refused_keeps_no_ephemeral_container_away(
    fake_world: World,
) -> None:
    world = fake_world
    assert isinstance(world.remote, FakeCluster)
    await world.offloaded()
    await world.local.patch(keys.POD, world.web, {"spec": {"activeDeadlineSeconds": 600}})
    await debug(world, "plain")
    world.remote.fail("patch", errors.ForbiddenError("no deadlines (403)"))

    await world.reconcile()

    shadow = await world.shadow()
    assert shadow
    assert shadow["spec"]["pod"]["ephemeralContainers"][0]["name"] == "plain"
    assert "activeDeadlineSeconds" not in shadow["spec"]["pod"]
    assert "ephemeralContainerStatuses" not in await world.status()


async def debug(world: World, *names: str) -> None:
    """Give the pod ephemeral containers, as ``kubectl debug`` does."""
    listed = [{"name": name, "image": "busybox"} for name in names]
    changes = {"spec": {"ephemeralContainers": listed}}
    await world.local.patch(keys.POD, world.web, changes, subresource="ephemeralcontainers")


async def test_what_may_change_in_a_pod_follows(world: World) -> None:
    await world.offloaded()
    pod = await world.pod()
    assert pod
    main, tolerations = pod["spec"]["containers"][0], pod["spec"].get("tolerations") or []
    debug = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
    pressed = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}
    others = {"key": "gpu", "operator": "Exists"}
    await world.local.patch(
        keys.POD,
        world.web,
        {
            "spec": {
                "containers": [{**main, "image": "nginx:2"}],
                "activeDeadlineSeconds": 600,
                "tolerations": [*tolerations, others, pressed],
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
    assert (spec["activeDeadlineSeconds"], spec["tolerations"][-1]) == (600, pressed)
    assert others not in spec["tolerations"]
    assert spec["ephemeralContainers"][0]["name"] == "debug"
    assert int(objects.annotations(shadow)[keys.LOCAL_POD_GENERATION]) > 1
    before = world.writes()
    await world.reconcile(3)
    assert world.writes() == before
