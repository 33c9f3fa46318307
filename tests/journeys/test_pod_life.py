"""One pod's whole life, for each restart policy and phase, on both sides."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from tests.journeys import world
from tests.world import is_ready, restarts

pytestmark = pytest.mark.journey

EVICTION: Final = Kind("policy", "v1", "Eviction", "evictions")
JOB: Final = Kind("batch", "v1", "Job", "jobs")
ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
ENDLESS = world.sleeping()
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
ONCE = "test -f /again/again || { touch /again/again; exit 3; }; " + ENDLESS


@dataclass(frozen=True)
class Life:
    """A pod's policy, what its container does, and how both sides must show it in the end."""

    policy: str
    script: str
    phase: str
    waiting: str = ""
    exit_code: int | None = None
    restarted: bool = False
    image: str = ""

    def pod(self, namespace: str, name: str, image: str) -> Object:
        made = world.pod(
            namespace,
            name,
            self.image or image,
            self.script,
            restartPolicy=self.policy,
            volumes=[{"name": "again", "emptyDir": {}}],
        )
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "again", "mountPath": "/again"}]
        return made

    def shown_by(self, pod: Object) -> bool:
        container = (pod.get("status", {}).get("containerStatuses") or [{}])[0]
        state = container.get("state", {})
        return (
            world.phase(pod) == self.phase
            and self.waiting in state.get("waiting", {}).get("reason", "")
            and self.exit_code == state.get("terminated", {}).get("exitCode")
            and self.restarted <= (container.get("restartCount", 0) > 0)
        )


NO_IMAGE = "localhost/nowhere:none"
LIVES = {
    "always-runs": Life(ALWAYS, ENDLESS, "Running"),
    "always-restarts": Life(ALWAYS, ONCE, "Running", restarted=True),
    "always-waits": Life(ALWAYS, ENDLESS, "Pending", waiting="Image", image=NO_IMAGE),
    "onfailure-runs": Life(ON_FAILURE, ENDLESS, "Running"),
    "onfailure-restarts": Life(ON_FAILURE, ONCE, "Running", restarted=True),
    "onfailure-succeeds": Life(ON_FAILURE, "exit 0", "Succeeded", exit_code=0),
    "onfailure-waits": Life(ON_FAILURE, ENDLESS, "Pending", waiting="Image", image=NO_IMAGE),
    "never-runs": Life(NEVER, ENDLESS, "Running"),
    "never-succeeds": Life(NEVER, "exit 0", "Succeeded", exit_code=0),
    "never-fails": Life(NEVER, "exit 7", "Failed", exit_code=7),
    "never-waits": Life(NEVER, ENDLESS, "Pending", waiting="Image", image=NO_IMAGE),
}


def all_shown(namespace: str, seen: world.World) -> bool:
    pods = {name: seen.get(Key(namespace, name)) for name in LIVES}
    return all(pod and LIVES[name].shown_by(pod) for name, pod in pods.items())


def addresses(seen: world.World) -> dict[str, str]:
    """Return which running pod has which address, with no condition that says it is hidden."""
    return {
        key.name: pod["status"]["podIP"]
        for key, pod in seen.items()
        if world.phase(pod) == "Running"
        and keys.ADDRESS_CONDITION not in [one["type"] for one in pod["status"]["conditions"]]
    }


async def test_each_restart_policy_and_phase_looks_the_same_on_both_sides(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace)
    made = [life.pod(namespace, name, both.image) for name, life in LIVES.items()]
    created = await asyncio.gather(*(both.rome.create(keys.POD, pod) for pod in made))
    twin = both.twin(namespace)

    there = await world.until(both.milan, keys.POD, twin, lambda seen: all_shown(twin, seen))
    here = await world.until(
        both.rome, keys.POD, namespace, lambda seen: all_shown(namespace, seen)
    )

    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in created}
    assert {key.name: pod["metadata"]["uid"] for key, pod in here.items()} == uids
    shadowed = {key.name: pod["metadata"]["annotations"] for key, pod in there.items()}
    assert {name: notes[keys.LOCAL_POD_UID] for name, notes in shadowed.items()} == uids
    assert all(pod["spec"]["nodeName"] == both.node for pod in here.values())
    assert addresses(here) == addresses(there)
    assert {name for name, life in LIVES.items() if life.phase == "Running"} <= set(addresses(here))

    await asyncio.gather(*(world.remove(both.rome, keys.POD, key) for key in here))
    await world.until(both.rome, keys.POD, namespace, lambda seen: not seen)
    await world.until(both.milan, keys.POD, twin, lambda seen: not seen)
    await world.until(both.milan, keys.SHADOW_POD, twin, lambda seen: not seen)


@pytest.mark.parametrize("grace_s", [2, 0], ids=["hurried", "forced"])
async def test_a_pod_of_the_same_name_is_a_new_pod(
    both: world.Pair, namespace: str, grace_s: int
) -> None:
    await both.offload(namespace)
    twin = both.twin(namespace)
    key, there = Key(namespace, "again"), Key(twin, "again")
    first = await run(both, key, STUBBORN, terminationGracePeriodSeconds=600)
    before = await both.milan.get(keys.POD, there)

    # As `kubectl delete --grace-period=2` and `--force`: its spec gives it ten minutes.
    await both.rome.delete(keys.POD, key, uid=first["metadata"]["uid"], grace_s=grace_s)
    await world.until_gone(both.rome, keys.POD, key)
    second = await run(both, key)

    after = await both.milan.get(keys.POD, there)
    assert before
    assert after
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert after["metadata"]["annotations"][keys.LOCAL_POD_UID] == second["metadata"]["uid"]


async def test_jobs_that_replace_failed_pods_replace_those_that_are_deleted(
    both: world.Pair, namespace: str
) -> None:
    """Also if nobody can tell how one ended: no node took it, or it was removed there by force."""
    await both.offload(namespace)
    twin = both.twin(namespace)
    for name, cpu in (("waits", "7"), ("runs", "5m")):
        await both.rome.create(JOB, job(namespace, name, both.image, cpu))
    here = await world.until(both.rome, keys.POD, namespace, are_begun)
    there = await world.until(both.milan, keys.POD, twin, are_begun)

    await asyncio.gather(*(world.remove(both.rome, keys.POD, key) for key in here))
    (runs,) = (pod for pod in there.values() if world.phase(pod) == "Running")
    await both.milan.delete(keys.POD, objects.key_of(runs), uid=objects.uid(runs), grace_s=0)

    await world.until(
        both.rome, keys.POD, namespace, lambda seen: len(seen) == 2 and seen.keys().isdisjoint(here)
    )


def job(namespace: str, name: str, image: str, cpu: str) -> Object:
    """Return a Job that takes a pod for failed, and makes another, once its phase says so."""
    template = world.pod(namespace, name, image, restartPolicy=NEVER)["spec"]
    template["containers"][0]["resources"]["requests"]["cpu"] = cpu
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [rule]},
        "backoffLimit": 2,
        "template": {"spec": template},
    }
    return named(JOB, Key(namespace, name), spec=spec)


def are_begun(seen: world.World) -> bool:
    """Whether one of two pods runs, and nothing has room for the other."""
    return sorted(map(world.phase, seen.values())) == ["Pending", "Running"]


async def test_a_remote_pod_that_vanishes_comes_back_and_the_local_one_stays(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace)
    key, there = Key(namespace, "kept"), Key(both.twin(namespace), "kept")
    local = await run(both, key)
    remote = await both.milan.get(keys.POD, there)
    assert remote

    # As `kubectl drain` of its node there.
    eviction = named(EVICTION, there, deleteOptions={"preconditions": {"uid": objects.uid(remote)}})
    await both.milan.post(keys.POD, there, "eviction", eviction)

    await world.until_one(
        both.milan,
        keys.POD,
        there,
        lambda pod: pod["metadata"]["uid"] != remote["metadata"]["uid"] and is_ready(pod),
    )
    again = await world.until_one(
        both.rome, keys.POD, key, lambda pod: restarts(pod) > 0 and is_ready(pod)
    )
    assert again["metadata"]["uid"] == local["metadata"]["uid"]
    assert "DisruptionTarget" not in [one["type"] for one in again["status"]["conditions"]]


async def test_logs_come_through_the_virtual_node(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    key = Key(namespace, "speaks")
    script = f"echo first; echo second; {ENDLESS}"
    await both.rome.create(keys.POD, world.pod(namespace, key.name, both.image, script))
    await world.until_one(both.rome, keys.POD, key, is_ready)

    path = f"/api/v1/namespaces/{namespace}/pods/{key.name}/log"

    assert await world.until_logged(both.rome, path, "second\n") == "first\nsecond\n"
    async with both.rome.stream("GET", path, {"tailLines": "1"}) as answer:
        assert [chunk async for chunk in answer.content.iter_any()] == [b"second\n"]


async def run(both: world.Pair, key: Key, *command: str, **spec: Any) -> Object:
    """Create a pod and return it once it is Running and ready on rome."""
    pod = world.pod(key.namespace, key.name, both.image, *command, **spec)
    await both.rome.create(keys.POD, pod)
    return await world.until_one(both.rome, keys.POD, key, is_ready)
