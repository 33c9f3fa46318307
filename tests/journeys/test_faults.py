"""A virtual kubelet that is killed loses, doubles and restarts nothing."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key
from sandbox import pair
from tests.journeys import world
from tests.journeys.births import Births
from tests.world import restarts

pytestmark = pytest.mark.journey

PODS = 8


async def test_kill_of_the_kubelet_in_mid_life_deletes_and_doubles_no_pod(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    await both.offload(namespace)
    twin = both.twin(namespace)
    births = Births()
    recorder = asyncio.create_task(births.record(both, twin))

    for made in range(1, PODS + 1):
        await both.rome.create(keys.POD, world.pod(namespace, f"web-{made}", both.image))
        if made % 4 == 0:
            await asyncio.to_thread(pair.kill, "kubelet")
    here = await world.until(both.rome, keys.POD, namespace, all_running)

    victims = [Key(namespace, f"web-{number}") for number in (1, 2)]
    await asyncio.gather(*(world.remove(both.rome, keys.POD, victim) for victim in victims))
    await world.until(both.rome, keys.POD, namespace, lambda seen: len(seen) == PODS - 2)
    there = await world.until(both.milan, keys.POD, twin, lambda seen: len(seen) == PODS - 2)
    await births.has_all(there)
    after = await world.until(both.rome, keys.POD, namespace, lambda seen: True)
    recorder.cancel()

    assert {key: uid(pod) for key, pod in here.items() if key not in victims} == {
        key: uid(pod) for key, pod in after.items()
    }
    assert {local: len(remote) for local, remote in births.uids.items()} == {
        uid(pod): 1 for pod in here.values()
    }
    assert [pod for pod in after.values() if restarts(pod)] == []


def all_running(seen: world.World) -> bool:
    return len(seen) == PODS and all(world.phase(pod) == "Running" for pod in seen.values())


def uid(pod: Mapping[str, Mapping[str, str]]) -> str:
    return pod["metadata"]["uid"]
