"""What a provider makes a virtual kubelet write here has a rate (docs/parity.md H16)."""

import datetime as dt
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object
from kubelet.pods import significance
from kubelet.pods.report import StatusRate
from kubelet.pods.state import PodState
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World, ended, named_condition, running, waiting

OWNER: Final = {"kind": "ReplicaSet", "name": "web", "uid": "r1", "controller": True}


def writes_of_world(world: World) -> int:
    return world.writes()[0]


async def test_a_pod_that_changes_all_the_time_costs_ten_writes_and_the_last_state_arrives(
    fake_world: World,
) -> None:
    await fake_world.offloaded()
    before, again_s = writes_of_world(fake_world), None
    for count in range(1, 1001):
        await fake_world.runs(running(restarts=count))
        again_s = await fake_world.reconcile()

    assert writes_of_world(fake_world) - before <= 10
    assert again_s
    assert again_s <= 0.2
    fake_world.now += dt.timedelta(seconds=again_s)
    await fake_world.reconcile()
    (told,) = (await fake_world.status())["containerStatuses"]
    assert told["restartCount"] == 1000


async def test_what_takes_a_pod_out_of_service_never_waits(fake_world: World) -> None:
    await fake_world.offloaded()
    for count in range(1, 31):
        await fake_world.runs(running(restarts=count))
        await fake_world.reconcile()

    down = [worlds.pod_condition("Ready", "False")]
    await fake_world.runs(running(restarts=30, conditions=down))
    await fake_world.reconcile()
    assert named_condition(await fake_world.status(), "Ready")["status"] == "False"

    await fake_world.runs(ended("Failed", 1))
    await fake_world.reconcile()
    assert (await fake_world.status())["phase"] == "Failed"


async def test_what_a_provider_refuses_again_and_again_is_paced_as_well(fake_world: World) -> None:
    await fake_world.bound()
    await fake_world.reconcile()
    before = writes_of_world(fake_world)
    for number in range(200):
        refused = {"type": "Admitted", "status": "False", "message": f"no {number}"}
        await fake_world.remote.patch_status(
            keys.SHADOW_POD, fake_world.twin, {"conditions": [refused]}
        )
        again_s = await fake_world.reconcile()

    assert writes_of_world(fake_world) - before <= 10
    assert len(fake_world.recorder.told) <= 10, "an Event comes with the write that it is about"
    assert again_s
    fake_world.now += dt.timedelta(seconds=again_s)
    await fake_world.reconcile()
    assert (await fake_world.status())["message"] == "no 199"


def test_all_pods_of_a_provider_share_what_is_more_than_ten_a_minute() -> None:
    now = [0.0]
    pacing = StatusRate(lambda: now[0])
    pods = [PodState(f"u{n}") for n in range(2000)]
    due = dict.fromkeys(range(len(pods)), 0.0)
    count = [0] * len(pods)
    while now[0] < 60:
        for number, at in due.items():
            if at <= now[0]:
                left_s = pacing.left_s(pods[number], is_urgent=False)
                count[number] += left_s == 0
                due[number] = now[0] + left_s
        now[0] += 0.1

    assert sum(count) <= 20 * len(pods) + 300 * 61
    assert max(count) - min(count) <= 5, "each has as much as any other"
    assert min(count) >= 20


def test_a_burst_of_honest_pods_waits_for_nothing() -> None:
    pacing = StatusRate(lambda: 0.0)
    pods = [PodState(f"u{n}") for n in range(1000)]
    assert not any(pacing.left_s(pod, is_urgent=False) for _ in range(4) for pod in pods)


# Quick ends ---------------------------------------------------------------------------------------


async def fails_at_once(world: World, number: int, **rest: Any) -> Object:
    """Bind another pod of the owner, and let it fail as soon as it is there; return its status."""
    world.web, world.twin = Key("shop", f"web-{number}"), Key("shop-rome", f"web-{number}")
    metadata = rest.pop("metadata", {"ownerReferences": [OWNER]})
    await world.bound(metadata=metadata, **rest)
    await world.reconcile()
    await world.run_remotely(ended("Failed", 1))
    await world.reconcile()
    return await world.status()


async def test_the_owner_of_pods_that_fail_at_once_gets_ever_fewer(fake_world: World) -> None:
    told = [(await fails_at_once(fake_world, n))["phase"] for n in range(10)]
    assert told == ["Failed"] * 10

    pauses = []
    for number in range(10, 22):
        status = await fails_at_once(fake_world, number)
        assert (status["phase"], status["reason"]) == ("Pending", "OffloadingBackOff")
        pause_s = await fake_world.reconcile()
        assert pause_s
        pauses.append(pause_s)

    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 300
    fake_world.now += dt.timedelta(seconds=pauses[-1])
    await fake_world.reconcile()
    assert (await fake_world.status())["phase"] == "Failed"
    assert (await fake_world.status()).get("reason") != "OffloadingBackOff"


@pytest.mark.parametrize(
    "rest",
    [
        {"metadata": {}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"restartPolicy": "OnFailure"}},
    ],
    ids=["nobody's", "Never", "OnFailure"],
)
async def test_who_ends_by_its_own_will_is_told_at_once(fake_world: World, rest: Any) -> None:
    for number in range(30):
        status = await fails_at_once(fake_world, number, **rest)
        assert status["phase"] == "Failed"


async def test_a_pod_that_ran_for_a_while_is_told_at_once(fake_world: World) -> None:
    for number in range(30):
        fake_world.web = Key("shop", f"web-{number}")
        fake_world.twin = Key("shop-rome", f"web-{number}")
        await fake_world.offloaded(metadata={"ownerReferences": [OWNER]})
        fake_world.now += dt.timedelta(seconds=11)
        await fake_world.runs(ended("Failed", 1))
        await fake_world.reconcile()
        assert (await fake_world.status())["phase"] == "Failed"


async def test_a_pod_that_ran_is_not_ready_while_its_end_is_held_back(fake_world: World) -> None:
    for number in range(10):
        await fails_at_once(fake_world, number)
    fake_world.web, fake_world.twin = Key("shop", "last"), Key("shop-rome", "last")
    await fake_world.offloaded(metadata={"ownerReferences": [OWNER]})
    await fake_world.runs(ended("Failed", 1))
    await fake_world.reconcile()

    status = await fake_world.status()
    assert (status["phase"], status["reason"]) == ("Running", "OffloadingBackOff")
    assert named_condition(status, "Ready")["status"] == "False"


# Events -------------------------------------------------------------------------------------------


async def test_the_reasons_of_events_are_those_that_kubelets_have(fake_world: World) -> None:
    assert isinstance(fake_world.local, FakeCluster)
    await fake_world.offloaded()
    fake_world.recorder.told.clear()
    for number in range(100):
        fake_world.now += dt.timedelta(seconds=1)
        await fake_world.runs({**waiting(f"R{number}"), "phase": "Running"})
        await fake_world.reconcile()

    assert fake_world.recorder.told == [("Warning", "RemoteTrouble")]
    assert "R0" in fake_world.recorder.messages[-1]


@factories.cases("reason, event")
def test_each_reason_is_one_of_a_list(reason: str, event: str) -> None:
    assert list(significance.troubles(waiting(reason))) == [event]
