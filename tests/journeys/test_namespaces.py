"""Twin namespaces: conflicts are said where the user looks, unoffload cleans up."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import errors
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


async def test_a_strategy_that_the_provider_does_not_accept_is_told_until_it_does(
    both: world.Pair, namespace: str
) -> None:
    """Its ProviderPolicy refuses the entry alone; what it says of Pod Security holds for twins."""
    key = Key(namespace, keys.OFFLOADING_NAME)
    narrowed = {"namespaceMappingStrategies": ["DefaultName"], "podSecurityLevel": "restricted"}
    async with world.policy(both.milan, "rome", **narrowed) as policy:
        wanted = world.offloading(namespace, namespaceMappingStrategy="EnforceSameName")
        await both.rome.create(keys.NAMESPACE_OFFLOADING, wanted)
        told = await world.until_one(both.rome, keys.NAMESPACE_OFFLOADING, key, is_refused)
        assert (
            "providerpolicy rome accepts no namespaceMappingStrategy EnforceSameName,"
            " only: DefaultName"
        ) in str(told["status"]["remoteNamespacesConditions"]["milan"])

        accepted = {"spec": {"namespaceMappingStrategies": None}}
        await both.milan.patch(keys.PROVIDER_POLICY, policy, accepted)
        await world.until_one(
            both.rome,
            keys.NAMESPACE_OFFLOADING,
            key,
            lambda found: found["status"]["offloadingPhase"] == "Ready",
        )
        twin = await both.milan.get_live(keys.NAMESPACE, Key("", namespace))
        assert twin
        assert objects.labels(twin)[keys.POD_SECURITY_ENFORCE] == "restricted"


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
    await both.offload(namespace, podOffloadingStrategy="LocalAndRemote")
    selector = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
    placed = await held(both, namespace, nodeSelector=selector)
    await both.unoffload(namespace)

    for key in placed:
        await both.rome.patch(keys.POD, key, {"spec": {"schedulingGates": None}})

    seen = await world.until(both.rome, keys.POD, namespace, lambda seen: len(seen) == 4)
    reasons = {seen[key]["status"].get("reason") for key in placed}
    assert reasons == {"OffloadingAborted"}
    assert not any(is_judged(pod) for key, pod in seen.items() if key not in placed)


async def test_pods_that_wait_for_a_virtual_node_when_their_namespace_is_unoffloaded_come_home_too(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace, podOffloadingStrategy="Remote")
    placed = await held(both, namespace)

    await both.unoffload(namespace)

    await world.until(
        both.rome,
        keys.POD,
        namespace,
        lambda seen: len(seen) == 2 and placed.keys().isdisjoint(seen),
    )


async def held(both: world.Pair, namespace: str, **spec: Any) -> world.World:
    """Return two pods of a Deployment that were judged and have no node yet."""
    made = world.deployment(namespace, "web", both.image, 2)
    gates = [{"name": "test.pyliqo.io/hold"}]
    made["spec"]["template"]["spec"] |= {"schedulingGates": gates, **spec}
    await both.rome.create(keys.DEPLOYMENT, made)
    placed = await world.until(both.rome, keys.POD, namespace, lambda seen: len(seen) == 2)
    assert all(map(is_judged, placed.values()))
    return dict(placed)


def is_judged(pod: Object) -> bool:
    return keys.PLACEMENT in objects.annotations(pod)


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


async def test_a_name_for_the_twin_counts_under_selected_name_alone(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    """By command and by YAML, at creation and later; to choose it, unoffload and offload again."""
    key, theirs = Key(namespace, keys.OFFLOADING_NAME), f"theirs-{namespace}"
    region = ("-l", "topology.kubernetes.io/region=lombardy")
    named_so = ("--remote-namespace-name", theirs)

    async def liqoctl(*args: str) -> world.Said:
        verb, *flags = args
        return await world.liqoctl(kubeconfigs["rome"], verb, "namespace", namespace, *flags)

    await both.offload(
        namespace, remoteNamespaceName="No.Name", podOffloadingStrategy="LocalAndRemote"
    )
    for name in (theirs, "another"):
        await both.rome.patch(
            keys.NAMESPACE_OFFLOADING, key, {"spec": {"remoteNamespaceName": name}}
        )
    again = await liqoctl("offload", *named_so, "--namespace-mapping-strategy", "DefaultName")
    assert again.code == 0, again.err
    assert f"offloaded as {both.twin(namespace)}" in again.err or "as asked for" in again.err
    assert "--remote-namespace-name is ignored" in again.err
    assert await both.milan.get_live(keys.NAMESPACE, Key("", both.twin(namespace)))
    assert await both.milan.get_live(keys.NAMESPACE, Key("", theirs)) is None

    gone = await liqoctl("unoffload")
    assert gone.code == 0, gone.err
    chosen = ("--namespace-mapping-strategy", "SelectedName", *named_so)
    made = await liqoctl("offload", *chosen, "--pod-offloading-strategy", "Remote", *region)
    assert f"offloaded as {theirs}" in made.err
    await both.rome.create(keys.POD, world.pod(namespace, "web", both.image))
    await world.until_one(
        both.milan, keys.POD, Key(theirs, "web"), lambda pod: world.phase(pod) == "Running"
    )
    other = {"spec": {"remoteNamespaceName": "another"}}
    with pytest.raises(errors.KubeError, match="remoteNamespaceName cannot be"):
        await both.rome.patch(keys.NAMESPACE_OFFLOADING, key, other)

    gone = await liqoctl("unoffload")
    assert gone.code == 0, gone.err
    assert await both.milan.get_live(keys.NAMESPACE, Key("", theirs)) is None


def is_refused(found: Object) -> bool:
    return bool(found.get("status", {}).get("offloadingPhase") == "AllFailed")


def nodes(seen: world.World) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in seen.values())


def at_home(seen: world.World) -> bool:
    running = [pod for pod in seen.values() if world.phase(pod) == "Running"]
    return len(running) == 2 and all(pod["spec"]["nodeName"] != "milan" for pod in running)
