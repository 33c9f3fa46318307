"""What is told at home of a pod that runs remotely."""

from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster
from kubelet.pods import status
from tests.fakes import FakeCluster, Through
from tests.kubelet import worlds
from tests.kubelet.worlds import World, running, waiting
from tests.world import existing


async def test_while_the_provider_is_silent_nothing_is_mirrored_and_the_pod_is_not_ready(
    world: World,
) -> None:
    await world.offloaded()
    world.is_silent = True
    await world.reconcile(2)
    pod = await world.pod()
    assert objects.labels(pod)[keys.REMOTE_UNAVAILABLE] == "true"
    ready = worlds.named_condition(pod["status"], "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RemoteClusterUnavailable")
    before = world.writes()
    by_kubernetes = [worlds.pod_condition("Ready", "False", reason="NodeNotReady")]
    await world.told({"conditions": by_kubernetes})
    await world.reconcile(2)
    assert world.writes() <= (before[0] + 1, before[1])
    ready = worlds.named_condition(await world.status(), "Ready")
    assert ready["status"] == "False"

    world.is_silent = False
    assert set(world.reconciler.after_silence()) == {world.web}
    await world.reconcile(2)
    pod = await world.pod()
    assert keys.REMOTE_UNAVAILABLE not in objects.labels(pod)
    assert worlds.named_condition(pod["status"], "Ready")["status"] == "True"


async def test_who_starts_during_an_outage_marks_what_it_never_saw_there(world: World) -> None:
    await world.offloaded()
    world.restart()
    world.namespaces.synced, world.is_silent = False, True

    await world.reconcile()

    pod = await world.pod()
    assert objects.labels(pod)[keys.REMOTE_UNAVAILABLE] == "true"


async def test_nothing_is_deleted_or_made_while_the_provider_is_silent(world: World) -> None:
    await world.offloaded()
    world.is_silent = True
    await world.delete_locally()

    await world.reconcile(2)

    assert await world.has_shadow()
    assert await world.has_pod()
    assert world.web in set(world.reconciler.after_silence())


GATE: Final = "example.org/in-rotation"


async def test_readiness_gates_are_judged_at_home(world: World) -> None:
    await world.offloaded(spec={"readinessGates": [{"conditionType": GATE}]})
    shadow = await world.shadow()
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
    disruption = worlds.pod_condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.told({"conditions": [disruption, worlds.pod_condition(GATE)]})
    world.local = worlds.Late(live, stale)  # type: ignore[assignment]  # a Cluster all the same
    world.restart()

    await world.reconcile()
    await world.run_remotely(running())
    await world.reconcile(2)

    pod = await existing(live, keys.POD, world.web)
    kept = {item["type"] for item in pod["status"]["conditions"]}
    assert {"DisruptionTarget", GATE, "Ready"} <= kept


class Older(Through):
    """A cluster whose API server does not know the fields ``unknown`` of containers' statuses."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.unknown = {"resources", "user"}

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
    disruption = worlds.pod_condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.told({"conditions": [disruption]})

    await world.runs(running(conditions=[worlds.pod_condition("Ready", "False")]))
    await world.reconcile(2)

    assert worlds.named_condition(await world.status(), "DisruptionTarget")["status"] == "True"


async def test_that_the_provider_evicts_a_pod_goes_with_the_pod_it_was_about(world: World) -> None:
    await world.offloaded()
    disruption = worlds.pod_condition("DisruptionTarget", reason="EvictionByEvictionAPI")
    await world.runs(running(conditions=[disruption, worlds.pod_condition("Ready", "False")]))
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
            "conditions": [worlds.pod_condition("PodScheduled", "False", message="0/1 nodes")],
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
    spec = shadow["spec"]["pod"]
    assert spec["containers"][0]["image"] == "nginx:2"
    assert (spec["activeDeadlineSeconds"], spec["tolerations"][-1]) == (600, pressed)
    assert others not in spec["tolerations"]
    assert spec["ephemeralContainers"][0]["name"] == "debug"
    assert int(objects.annotations(shadow)[keys.LOCAL_POD_GENERATION]) > 1
    before = world.writes()
    await world.reconcile(3)
    assert world.writes() == before


# How often a pod was made again follows from what is noted on it, whatever that is.


def noted_pod(note: str | None, restarts: int = 0) -> Object:
    notes = {} if note is None else {keys.REMOTE_POD: note}
    return {"metadata": {"annotations": notes}, "status": running(restarts=restarts)}


def remote(uid: str = "b", restarts: int = 0) -> Object:
    return {"metadata": {"uid": uid}, "status": running(restarts=restarts)}


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("b 0", 0),
        ("b 5", 5),
        ("b 5 DisruptionTarget", 5),
        ("a 5 DisruptionTarget", 6),
        ("a 0", 1),
        ("a 5", 6),
        ("a 2147483647", 2**31 - 1),
        ("a 9999999999", 2**31 - 1),
        (None, 2),
        ("", 2),
        ("b", 2),
        ("b -1", 2),
        ("b many", 2),
        ("b \u0663", 2),
        ("b 99999999999", 2),
    ],
)
def test_a_note_counts_and_what_is_none_leaves_it_to_the_counts(
    note: str | None, expected: int
) -> None:
    assert status.restarts(noted_pod(note, restarts=3), remote(restarts=1)) == expected


def test_a_pod_that_never_ran_was_not_restarted() -> None:
    pod = {**noted_pod("a 3"), "status": {"phase": "Pending"}}

    assert status.restarts(pod, remote()) == 0
    assert status.note(pod, remote()) == {keys.REMOTE_POD: "b 0"}


def test_what_is_noted_is_not_noted_again() -> None:
    assert status.note(noted_pod("b 4"), remote()) == {}
    assert status.note(noted_pod("b 4"), None) == {}
    assert status.note(noted_pod("a 4"), remote()) == {keys.REMOTE_POD: "b 5"}


@given(st.text(max_size=2000))
def test_a_note_is_short_and_read_again_whatever_a_provider_calls_its_pods(uid: str) -> None:
    noted = status.note(noted_pod("a 1"), remote(uid))[keys.REMOTE_POD] if uid != "a" else "a 1"

    assert len(noted) < 100
    noted.encode()
    if uid:
        assert status.restarts(noted_pod(noted), remote(uid)) == int(noted.split(" ")[-1])
