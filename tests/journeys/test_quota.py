"""A pod that exceeds what the provider grants waits, says why at home, and starts when it fits.

So does a pod that runs and is to grow.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from apis import keys, naming, objects, resources
from apis.objects import Key, Object
from apis.resources import Quantity
from sandbox import pair
from tests.journeys import failures, world
from tests.journeys.failures import Wrong

pytestmark = pytest.mark.journey

QUOTA = Key(naming.tenant_namespace("rome"), naming.quota_name("milan", "rome"))
SLICE = Key(naming.tenant_namespace("milan"), "milan")
ROOM = resources.parse_resources({"memory": "1536Mi"})["memory"]
"""Beyond what others have left there: one pod of a gibibyte, and not two, and none of two."""
MORE = resources.parse_resources({"memory": "1Gi"})["memory"]
LARGE: Object = {"requests": {"cpu": "5m", "memory": "1Gi"}}
TOLD = "the pod asks for 1Gi of memory, quota"


@pytest.fixture
async def lowered(both: world.Pair) -> AsyncIterator[Quantity]:
    """Grant rome no more memory than what is booked now, and ``ROOM``; yield how much."""
    quota = await both.milan.get_live(keys.QUOTA, QUOTA)
    assert quota
    taken = resources.parse_resources(quota.get("status", {}).get("booked")).get(
        "memory", Quantity()
    )
    memory = taken + ROOM
    await keep_node(both, is_kept=True)
    await grant(both, str(memory))
    yield memory
    await grant(both, pair.GRANTED["memory"])
    await keep_node(both, is_kept=False)


async def keep_node(both: world.Pair, *, is_kept: bool) -> None:
    """Leave the virtual node as large as it is, so that the Quota decides and not the scheduler."""
    follows = "false" if is_kept else "true"
    changes = {"metadata": {"annotations": {keys.CREATE_VIRTUAL_NODE: follows}}}
    await both.rome.patch(keys.RESOURCE_SLICE, SLICE, changes)


async def grant(both: world.Pair, memory: str) -> None:
    """Ask for that much, and wait until it is all that milan lets rome have."""
    changes = {"spec": {"resources": {"memory": memory}}}
    await both.rome.patch(keys.RESOURCE_SLICE, SLICE, changes)
    wanted = resources.parse_resources({"memory": memory})["memory"]
    await world.until_one(
        both.milan,
        keys.QUOTA,
        QUOTA,
        lambda quota: resources.parse_resources(quota["spec"]["resources"])["memory"] == wanted,
    )


def large(namespace: str, name: str, image: str) -> Object:
    made = world.pod(namespace, name, image)
    made["spec"]["containers"][0]["resources"] = LARGE
    return made


def refusal(pod: Object) -> str:
    found = objects.find_condition(
        pod.get("status", {}).get("conditions"), keys.OFFLOADED_CONDITION
    )
    return str((found or {}).get("message", ""))


TOO_MUCH = (
    "too-much",
    Wrong(
        {"resources": LARGE},
        lambda pod: TOLD in refusal(pod),
        keys.FAILED_REFLECTION,
        TOLD,
        is_made=False,
    ),
)


async def test_it_says_why_and_starts_as_soon_as_another_goes(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path], lowered: Quantity
) -> None:
    await both.offload(namespace)
    first, second = Key(namespace, "first"), Key(namespace, "second")
    await both.rome.create(keys.POD, large(namespace, "first", both.image))
    await world.until_one(both.rome, keys.POD, first, lambda pod: world.phase(pod) == "Running")

    wrong = [await failures.fails(both, namespace, *TOO_MUCH) for _ in range(failures.FAILURES)]
    print(f"told at home after: {', '.join(wrong)}")  # noqa: T201
    await both.rome.create(keys.POD, large(namespace, "second", both.image))
    waiting = await world.until_one(both.rome, keys.POD, second, lambda pod: TOLD in refusal(pod))

    assert world.phase(waiting) == "Pending"
    assert "it starts as soon as it fits" in refusal(waiting)
    why = [sys.executable, "-m", "liqoctl", "why", "pod", "second", "-n", namespace]
    asked = await asyncio.create_subprocess_exec(
        *why, "--kubeconfig", str(kubeconfigs["rome"]), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asked.communicate()
    assert "milan refuses it: the pod asks for 1Gi of memory" in " ".join(told.decode().split())
    events = await world.until(
        both.rome,
        keys.EVENT,
        namespace,
        lambda seen: any(
            event["reason"] == keys.FAILED_REFLECTION
            and event["involvedObject"]["name"] == second.name
            for event in seen.values()
        ),
    )
    assert events

    await world.remove(both.rome, keys.POD, first)
    started = await world.until_one(
        both.rome, keys.POD, second, lambda pod: world.phase(pod) == "Running"
    )
    assert refusal(started) == ""
    if await world.resizes(both):
        await it_grows_in_place_as_soon_as_there_is_room(both, second, lowered)


async def it_grows_in_place_as_soon_as_there_is_room(
    both: world.Pair, key: Key, granted: Quantity
) -> None:
    before = await both.rome.get_live(keys.POD, key)
    assert before
    main = before["spec"]["containers"][0]
    main["resources"]["requests"]["memory"] = "2Gi"
    await both.rome.patch(keys.POD, key, {"spec": {"containers": [main]}}, subresource="resize")

    await world.until_one(
        both.rome, keys.POD, key, lambda pod: "of memory, quota" in why_small(pod)
    )
    remote = await both.milan.get_live(keys.POD, Key(both.twin(key.namespace), key.name))
    assert remote
    assert remote["spec"]["containers"][0]["resources"]["requests"]["memory"] == "1Gi"

    await grant(both, str(granted + MORE))
    grown = await world.until_one(
        both.rome,
        keys.POD,
        key,
        lambda pod: memory_of(pod) == "2Gi" and not why_small(pod),
        patience_s=2 * world.PATIENCE_S,  # three controllers, a kubelet and its runtime on the way
    )
    assert grown["metadata"]["uid"] == before["metadata"]["uid"]
    assert grown["status"]["containerStatuses"][0]["restartCount"] == 0


def why_small(pod: Object) -> str:
    """Return why the pod is not as large yet as it asks to be, "" if it is."""
    found = (
        objects.find_condition(pod.get("status", {}).get("conditions"), "PodResizePending") or {}
    )
    return str(found.get("message", "")) if found.get("status") == "True" else ""


def memory_of(pod: Object) -> str:
    """Return the memory that the kubelet says is set aside for the container."""
    (container,) = pod.get("status", {}).get("containerStatuses") or [{}]
    return str(container.get("resources", {}).get("requests", {}).get("memory", ""))
