"""Where pods go: strategies, cluster selectors, the RuntimeClass, with the real scheduler."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from apis import keys, objects, placement, resources
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import install
from tests.journeys import world
from tests.journeys.kubectl import Kubectl

pytestmark = pytest.mark.journey

ELSEWHERE = {**world.REGION, "values": ["elsewhere"]}


async def bound(both: world.Pair, namespace: str, name: str, **spec: object) -> str:
    """Create a pod and return the node that the scheduler chose."""
    await both.rome.create(keys.POD, world.pod(namespace, name, both.image, **spec))
    key = Key(namespace, name)
    pod = await world.until_one(both.rome, keys.POD, key, lambda found: bool(node_of(found)))
    return node_of(pod)


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


async def test_remote_pods_go_to_the_virtual_node(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)

    assert await bound(both, namespace, "away") == both.node


async def test_local_pods_stay_and_runtime_class_pods_go(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace, podOffloadingStrategy="Local")

    assert await bound(both, namespace, "home") != both.node
    assert await bound(both, namespace, "away", runtimeClassName="liqo") == both.node


async def test_a_runtime_class_counts_at_home_by_the_one_here_and_runs_by_the_one_there(
    both: world.Pair, namespace: str
) -> None:
    key, virtual = Key("", f"{namespace}-box"), {"nodeSelector": {"liqo.io/type": "virtual-node"}}
    here, there = {"cpu": "20m"}, {"cpu": "10m", "memory": "8Mi"}
    classes = {
        both.rome: {"overhead": {"podFixed": here}, "scheduling": virtual},
        both.milan: {"overhead": {"podFixed": there}},
    }
    await both.offload(namespace)
    try:
        for cluster, fields in classes.items():
            made = named(keys.RUNTIME_CLASSES, key, handler="runc", **fields)
            await cluster.create(keys.RUNTIME_CLASSES, made)
        for name, class_ in (("boxed", key.name), ("away", keys.RUNTIME_CLASS)):
            made = world.pod(namespace, name, both.image, runtimeClassName=class_)
            await both.rome.create(keys.POD, made)

        def run(found: world.World) -> bool:
            return {world.phase(pod) for pod in found.values()} == {"Running"}

        pods = await world.until(both.rome, keys.POD, namespace, run)
        twins = (await both.milan.list(Selection(keys.POD, Object, both.twin(namespace)))).items
    finally:
        for cluster in classes:
            await world.remove(cluster, keys.RUNTIME_CLASSES, key)

    assert pods[Key(namespace, "boxed")]["spec"]["overhead"] == here
    boxed, away = (twins[Key(both.twin(namespace), name)]["spec"] for name in ("boxed", "away"))
    assert (boxed["runtimeClassName"], boxed["overhead"]) == (key.name, there)
    assert "runtimeClassName" not in away


async def test_local_and_remote_pods_may_go_to_both(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace, podOffloadingStrategy="LocalAndRemote")
    only_virtual = {"liqo.io/type": "virtual-node"}
    only_real = {"kubernetes.io/hostname": await real_node(both)}

    assert await bound(both, namespace, "away", nodeSelector=only_virtual) == both.node
    assert await bound(both, namespace, "home", nodeSelector=only_real) != both.node


async def test_pods_of_other_namespaces_never_drift(both: world.Pair, namespace: str) -> None:
    """Nor does one that asks for a virtual node: it tolerates no taint of one, and waits."""
    wish = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
    made = world.pod(namespace, "away", both.image, nodeSelector=wish)
    await both.rome.create(keys.POD, made)

    waits = await world.until_one(
        both.rome, keys.POD, Key(namespace, "away"), lambda pod: "untolerated taint" in why_not(pod)
    )
    assert node_of(waits) == ""
    assert await bound(both, namespace, "home") != both.node


async def test_a_selector_that_fits_no_cluster_says_so(both: world.Pair, namespace: str) -> None:
    nowhere = {"nodeSelectorTerms": [{"matchExpressions": [ELSEWHERE]}]}
    await both.rome.create(
        keys.NAMESPACE_OFFLOADING, world.offloading(namespace, clusterSelector=nowhere)
    )

    await world.until_one(
        both.rome,
        keys.NAMESPACE_OFFLOADING,
        Key(namespace, keys.OFFLOADING_NAME),
        lambda found: found.get("status", {}).get("offloadingPhase") == "NoClusterSelected",
    )
    twin = Key("", both.twin(namespace))
    assert await both.milan.get_live(keys.NAMESPACE, twin) is None


async def test_a_pod_that_fits_the_sum_and_no_node_is_told_so_and_runs_when_one_has_room(
    both: world.Pair,
    namespace: str,
    kubeconfigs: Mapping[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The provider grants more than it has, and a pod of its own takes most of that."""
    await both.offload(namespace)
    whole = await memory_of_the_node(both.milan)
    filler, large = Key(both.twin(namespace), "filler"), Key(namespace, "large")
    await both.milan.create(keys.POD, asking(filler, both.image, whole * 6 // 10))
    node = await world.until_one(
        both.rome, keys.NODE, Key("", both.node), lambda node: room(node) <= whole * 4 // 10
    )
    assert memory(node) > whole, "the sum is not what is missing"

    pod = asking(large, both.image, whole // 2)
    await warned(Kubectl(kubeconfigs["rome"], namespace), pod)
    begun = time.monotonic()
    await both.rome.create(keys.POD, pod)
    await world.until_one(both.rome, keys.POD, large, lambda pod: "Insufficient" in why_not(pod))
    took = time.monotonic() - begun
    remote = await both.milan.get_live(keys.POD, Key(both.twin(namespace), large.name))
    assert remote, "what an autoscaler of the provider sees"
    assert (objects.find_condition(remote["status"]["conditions"], "PodScheduled") or {}).get(
        "reason"
    ) == "Unschedulable"
    with capsys.disabled():
        sys.stdout.write(f"\nnowhere to run, told at home after {took:.2f} s\n")
    await world.until(
        both.rome,
        keys.EVENT,
        namespace,
        lambda seen: any(
            (event["reason"], event["involvedObject"]["name"]) == ("FailedScheduling", large.name)
            for event in seen.values()
        ),
    )
    why = ("why", "pod", large.name, "-n", namespace)
    said = " ".join((await asyncio.to_thread(install.run, kubeconfigs["rome"], *why)).split())
    assert "because no node there takes it" in said
    assert "no node behind it has more free than" in said

    await world.remove(both.milan, keys.POD, filler)
    await world.until_one(both.rome, keys.POD, large, lambda pod: world.phase(pod) == "Running")


def asking(key: Key, image: str, memory: int) -> Object:
    """Return a pod that requests so many bytes, and uses few."""
    made = world.pod(key.namespace, key.name, image)
    requests = {"cpu": "5m", "memory": str(memory)}
    made["spec"]["containers"][0]["resources"] = {"requests": requests}
    return made


async def memory_of_the_node(milan: ClusterClient) -> int:
    """Return how many bytes milan's only node has."""
    nodes = await world.until(milan, keys.NODE, "", bool)
    (node,) = (node for node in nodes.values() if not placement.is_virtual(node))
    return memory(node)


def memory(node: Object) -> int:
    """Return how many bytes ``node`` has for pods."""
    return int(resources.parse_resources(node["status"]["allocatable"])["memory"].value)


def room(node: Object) -> int:
    """Return the memory of the largest pod that fits, in bytes."""
    told = resources.of_line(objects.annotations(node).get(keys.LARGEST_POD, ""))
    return int(told["memory"].value) if "memory" in told else sys.maxsize


def why_not(pod: Object) -> str:
    found = objects.find_condition(pod.get("status", {}).get("conditions"), "PodScheduled") or {}
    return str(found.get("message", "")) if found.get("status") == "False" else ""


async def warned(kubectl: Kubectl, pod: Object) -> None:
    """Ask to create ``pod``, and create nothing, until a webhook knows what there is room for."""
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            asked = await kubectl.run(
                "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod).encode()
            )
            assert asked.code == 0, asked.err
            if "no node behind it has more than" in asked.err:
                return


async def real_node(both: world.Pair) -> str:
    nodes = await world.until(
        both.rome, keys.NODE, "", lambda found: any(key.name != both.node for key in found)
    )
    return next(key.name for key in nodes if key.name != both.node)
