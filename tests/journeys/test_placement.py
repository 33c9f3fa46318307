"""Where pods go: strategies, cluster selectors, the RuntimeClass, with the real scheduler."""

import pytest

from apis import keys
from apis.objects import Key, Object
from tests.journeys import world

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


async def test_local_and_remote_pods_may_go_to_both(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace, podOffloadingStrategy="LocalAndRemote")
    only_virtual = {"liqo.io/type": "virtual-node"}
    only_real = {"kubernetes.io/hostname": await real_node(both)}

    assert await bound(both, namespace, "away", nodeSelector=only_virtual) == both.node
    assert await bound(both, namespace, "home", nodeSelector=only_real) != both.node


async def test_pods_of_other_namespaces_never_drift(both: world.Pair, namespace: str) -> None:
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


async def real_node(both: world.Pair) -> str:
    nodes = await world.until(
        both.rome, keys.NODE, "", lambda found: any(key.name != both.node for key in found)
    )
    return next(key.name for key in nodes if key.name != both.node)
