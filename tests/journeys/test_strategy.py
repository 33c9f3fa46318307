"""A strategy that changes while pods run: counted at once, told, and evicted only if asked."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from apis import keys, objects
from apis.objects import Key, Object, is_terminating
from kube.errors import KubeError
from sandbox.kubectl import Kubectl, KubectlError
from tests.journeys import world

pytestmark = pytest.mark.journey


def placed(offloading: Object) -> str:
    found = (
        objects.find_condition(offloading.get("status", {}).get("conditions"), "PodsPlaced") or {}
    )
    return str(found.get("status", ""))


def at(seen: world.World) -> list[str]:
    pods = [pod for pod in seen.values() if not is_terminating(pod)]
    return [pod["spec"].get("nodeName", "") for pod in pods if world.phase(pod) == "Running"]


async def test_pods_move_when_somebody_asks_and_never_before(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    kubectl = Kubectl(kubeconfigs["rome"])
    key = Key(namespace, keys.OFFLOADING_NAME)
    await both.offload(namespace)
    await both.rome.create(keys.DEPLOYMENT, world.deployment(namespace, "web", both.image, 2))
    await world.until(both.rome, keys.POD, namespace, lambda seen: at(seen) == [both.node] * 2)

    change = ("patch", "nsoff", "offloading", "--type=merge", "--patch")
    spec = '{"spec": {"podOffloadingStrategy": "Local"}}'
    strict = ("-n", namespace, "--warnings-as-errors")  # which come after the change is made
    with pytest.raises(
        KubectlError, match=r"2 running pod\(s\) violate podOffloadingStrategy Local"
    ):
        await asyncio.to_thread(kubectl.run, *strict, *change, spec)
    told = await world.until_one(
        both.rome, keys.NAMESPACE_OFFLOADING, key, lambda found: placed(found) == "False"
    )
    before = await world.until(both.rome, keys.POD, namespace, lambda seen: True)
    note = f"{keys.EVICT_MISPLACED}=Local"
    await asyncio.to_thread(kubectl.run, "-n", namespace, "annotate", "nsoff", "offloading", note)

    await world.until(
        both.rome,
        keys.POD,
        namespace,
        lambda seen: len(at(seen)) == 2 and both.node not in at(seen),
    )
    await world.until_one(
        both.rome, keys.NAMESPACE_OFFLOADING, key, lambda found: placed(found) == "True"
    )
    assert "2 pods" in objects.find_condition(told["status"]["conditions"], "PodsPlaced")["message"]  # type: ignore[index]  # it is there
    assert at(before) == [both.node] * 2

    await is_not_run_however_it_is_bound(both, namespace, kubectl)


async def is_not_run_however_it_is_bound(
    both: world.Pair, namespace: str, kubectl: Kubectl
) -> None:
    """Admission refuses it; the scheduler, whom nobody asks, gets it nowhere either."""
    tolerating = {"tolerations": [{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}]}
    named = world.pod(namespace, "named", both.image, "sleep 60", nodeName=both.node, **tolerating)
    with pytest.raises(KubeError, match="podOffloadingStrategy Local"):
        await both.rome.create(keys.POD, named)
    waiting = {"schedulerName": "nobody", **tolerating}
    await both.rome.create(
        keys.POD, world.pod(namespace, "bound", both.image, "sleep 60", **waiting)
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound"},
        "target": {"kind": "Node", "name": both.node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/bound/binding"
    as_scheduler = ("create", "--raw", path, "-f", "-", "--as=system:kube-scheduler")

    await asyncio.to_thread(kubectl.run, *as_scheduler, stdin=json.dumps(binding))

    key = Key(namespace, "bound")
    told = await world.until_one(
        both.rome, keys.POD, key, lambda found: found["status"].get("reason") == "FailedReflection"
    )
    assert "strategy Local keeps pods off virtual nodes" in told["status"]["message"]
    assert await both.milan.get_live(keys.POD, Key(both.twin(namespace), "bound")) is None
