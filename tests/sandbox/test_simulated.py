"""Simulated nodes: the status of their pods, step by step."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Object, merge_patch
from sandbox import simulated, stepper
from tests.fakes import FakeCluster

NOW = dt.datetime(2025, 1, 31, 12, tzinfo=dt.UTC)
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def later(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def simulated_pod(exits: str = "", restart: str = "Never", **metadata: Any) -> Object:
    annotations = {stepper.EXIT_ANNOTATION: exits} if exits else {}
    return {
        "metadata": {"name": "web", "uid": "u-1", "annotations": annotations, **metadata},
        "spec": {
            "nodeName": "simulated-0",
            "restartPolicy": restart,
            "containers": [{"name": "main", "image": "i"}, {"name": "helper", "image": "j"}],
        },
        "status": {"phase": "Pending", "conditions": [SCHEDULED]},
    }


def stepped(pod: Object, now: dt.datetime) -> Object:
    said = stepper.status(pod, now)
    assert said is not None
    return {**pod, "status": {**pod["status"], **said}}


def conditions(pod: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"]["conditions"]}


def test_a_new_pod_runs_and_is_ready_after_one_write() -> None:
    running = stepped(simulated_pod(), NOW)
    assert running["status"]["phase"] == "Running"
    assert running["status"]["podIP"] == stepper.address("u-1")
    assert [each["ready"] for each in running["status"]["containerStatuses"]] == [True, True]
    assert conditions(running) == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    assert stepper.status(running, later(3600)) is None


def test_the_pod_that_is_stepped_is_left_as_it_was() -> None:
    given, same = simulated_pod(), simulated_pod()
    stepper.status(given, NOW)
    assert merge_patch(given, same) == {}


@pytest.mark.parametrize(
    ("exits", "phase", "code"), [("5:0", "Succeeded", 0), ("5:3", "Failed", 3)]
)
def test_a_pod_ends_when_its_annotation_says(exits: str, phase: str, code: int) -> None:
    running = stepped(simulated_pod(exits), NOW)
    assert stepper.status(running, later(4)) is None
    assert stepper.remaining_s(running, later(4)) == 1
    ended = stepped(running, later(5))
    state = ended["status"]["containerStatuses"][0]["state"]
    assert ended["status"]["phase"] == phase
    assert state["terminated"]["exitCode"] == code
    assert conditions(ended)["Ready"] == "False"
    assert stepper.status(ended, later(60)) is None


@pytest.mark.parametrize("exits", ["", "soon", "5", "5:", ":1", "a:b"])
def test_nonsense_and_nothing_mean_a_pod_that_stays(exits: str) -> None:
    running = stepped(simulated_pod(exits), NOW)
    assert stepper.status(running, later(60)) is None
    assert stepper.remaining_s(running, NOW) is None


def test_a_pod_that_is_always_restarted_stays() -> None:
    running = stepped(simulated_pod("5:1", restart="Always"), NOW)
    assert stepper.status(running, later(60)) is None


def test_a_pod_that_is_to_go_gets_no_status() -> None:
    assert stepper.status(simulated_pod(deletionTimestamp="2025-01-31T12:00:00Z"), NOW) is None


def test_init_containers_are_done_and_sidecars_run() -> None:
    given = simulated_pod()
    given["spec"]["initContainers"] = [
        {"name": "setup", "image": "i"},
        {"name": "proxy", "image": "j", "restartPolicy": "Always"},
    ]
    setup, proxy = stepped(given, NOW)["status"]["initContainerStatuses"]
    assert setup["state"]["terminated"]["exitCode"] == 0
    assert "running" in proxy["state"]


def test_taints_are_said_as_kubectl_says_them() -> None:
    assert stepper.taint("a/b=c:NoExecute") == {"key": "a/b", "value": "c", "effect": "NoExecute"}
    assert stepper.taint("a:NoSchedule") == {"key": "a", "value": "", "effect": "NoSchedule"}
    for wrong in ("a", "=b:NoSchedule", "a=b:"):
        with pytest.raises(ValueError, match="is not key=value:effect"):
            stepper.taint(wrong)


def test_a_node_is_ready_and_roomy() -> None:
    said = stepper.node_status("simulated-0", NOW)
    assert {"Ready": "True"}.items() <= {
        each["type"]: each["status"] for each in said["conditions"]
    }.items()
    assert said["allocatable"]["pods"] == "10000"


def test_the_command_line_names_the_nodes() -> None:
    said = simulated.settings_of(["--kubeconfig", "f", "--nodes", "2"])
    assert said == simulated.Settings(Path("f"), ("simulated-0", "simulated-1"), (stepper.TAINT,))


async def test_a_node_notices_that_it_is_no_longer_taken_for_ready() -> None:
    cluster, key = FakeCluster(), Key("", "simulated-0")
    keeper = simulated.NodeKeeper(cluster, [stepper.TAINT], lambda: NOW)
    assert not await keeper.is_ready(key.name)

    await keeper.create(key.name)
    assert await keeper.is_ready(key.name)

    unknown = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    await cluster.patch_status(keys.NODE, key, unknown)
    assert not await keeper.is_ready(key.name)

    await keeper.create(key.name)
    assert await keeper.is_ready(key.name)
