"""Twin namespaces: conflicts are said where the user looks, unoffload cleans up."""

import asyncio

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from tests.journeys import world

pytestmark = pytest.mark.journey


async def test_a_namespace_that_is_not_ours_is_never_adopted_and_the_user_is_told(
    both: world.Pair, namespace: str
) -> None:
    taken = await both.milan.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", namespace)))
    key = Key(namespace, keys.OFFLOADING_NAME)
    wanted = world.offloading(namespace, namespaceMappingStrategy="EnforceSameName")

    await both.rome.create(keys.NAMESPACE_OFFLOADING, wanted)

    told = await world.until_one(both.rome, keys.NAMESPACE_OFFLOADING, key, is_refused)
    (ready,) = [
        condition
        for condition in told["status"]["remoteNamespacesConditions"]["milan"]
        if condition["type"] == "Ready"
    ]
    assert ready["reason"] == "CreationLoopBackOff"
    assert namespace in ready["message"]
    bindings = await world.until(both.milan, keys.ROLE_BINDING, namespace, lambda seen: True)
    assert not bindings

    await both.milan.delete(keys.NAMESPACE, Key("", namespace), uid=taken["metadata"]["uid"])
    await world.until_one(
        both.rome,
        keys.NAMESPACE_OFFLOADING,
        key,
        lambda found: found["status"]["offloadingPhase"] == "Ready",
    )


async def test_unoffload_brings_the_pods_home_and_leaves_nothing(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace)
    await both.rome.create(keys.DEPLOYMENT, world.deployment(namespace, "web", both.image, 2))
    await world.until(both.rome, keys.POD, namespace, lambda seen: nodes(seen) == [both.node] * 2)

    await both.unoffload(namespace)

    twin = Key("", both.twin(namespace))
    assert await both.milan.get_live(keys.NAMESPACE, twin) is None
    home = await world.until(both.rome, keys.POD, namespace, at_home)
    assert len([pod for pod in home.values() if world.phase(pod) == "Running"]) == 2
    found = await both.rome.get_live(keys.NAMESPACE, Key("", namespace))
    assert found
    assert keys.SCHEDULING_ENABLED not in found["metadata"]["labels"]
    bindings = await both.rome.get_live(keys.ROLE_BINDING, Key(namespace, f"liqo-node-{both.node}"))
    assert bindings is None


async def test_pods_on_their_way_when_a_namespace_is_unoffloaded_come_home_too(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace)
    held = world.deployment(namespace, "web", both.image, 2)
    held["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "test.pyliqo.io/hold"}]
    await both.rome.create(keys.DEPLOYMENT, held)
    placed = await world.until(both.rome, keys.POD, namespace, lambda seen: len(seen) == 2)
    await both.unoffload(namespace)

    for key in placed:
        await both.rome.patch(keys.POD, key, {"spec": {"schedulingGates": None}})

    seen = await world.until(both.rome, keys.POD, namespace, lambda seen: len(seen) == 4)
    late = {key: pod for key, pod in seen.items() if key in placed}
    assert {pod["status"].get("reason") for pod in late.values()} == {"OffloadingAborted"}
    notes = [objects.annotations(pod) for key, pod in seen.items() if key not in placed]
    assert not any(keys.PLACEMENT in note for note in notes)


async def test_a_mapping_cannot_be_changed_by_any_patch(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    key = Key(namespace, keys.OFFLOADING_NAME)
    changes = {"spec": {"namespaceMappingStrategy": "EnforceSameName"}}

    refusals = await asyncio.gather(
        both.rome.patch(keys.NAMESPACE_OFFLOADING, key, changes),
        both.rome.apply(
            keys.NAMESPACE_OFFLOADING,
            world.offloading(namespace, namespaceMappingStrategy="EnforceSameName"),
            manager="somebody",
        ),
        return_exceptions=True,
    )

    assert all("cannot be changed" in str(refusal) for refusal in refusals), refusals


def is_refused(found: Object) -> bool:
    return bool(found.get("status", {}).get("offloadingPhase") == "AllFailed")


def nodes(seen: world.World) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in seen.values())


def at_home(seen: world.World) -> bool:
    running = [pod for pod in seen.values() if world.phase(pod) == "Running"]
    return len(running) == 2 and all(pod["spec"]["nodeName"] != "milan" for pod in running)
