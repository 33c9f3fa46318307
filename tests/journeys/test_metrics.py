"""What offloaded pods use: kubectl top, an autoscaler, and a cluster that sees its own only."""

import asyncio
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named, uid
from kube import errors, informer
from kube.client import ClusterClient
from sandbox import metrics
from sandbox.clusters import Sandbox
from tests.journeys import world
from tests.journeys.kubectl import Kubectl
from tests.journeys.scrapes import SCRAPE, consumer

pytestmark = pytest.mark.journey

AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LARGE = [{"name": f"SETTING_{number}", "value": "x" * 90} for number in range(350)]
"""More than caches keep of a pod."""
BUSY = "while :; do :; done"


@pytest.fixture(scope="module")
def measured(kubeconfigs: Mapping[str, Path]) -> Iterator[None]:
    """Run the real metrics-server in both clusters."""
    sites = [Sandbox().site(name) for name in kubeconfigs]
    for site in sites:
        metrics.start(site)
    yield
    for site in sites:
        metrics.stop(site)


async def test_the_summary_needs_no_metrics_server(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    await both.rome.create(keys.POD, world.pod(namespace, "web", both.image))
    with pytest.raises(errors.KubeError):
        await both.milan.get_text("/apis/metrics.k8s.io/v1beta1")

    await the_summary_tells_of_them(both, namespace)


async def test_namespaces_end_while_no_metric_agent_answers(both: world.Pair) -> None:
    milan, agent = both.milan, Key(keys.LIQO_NAMESPACE, keys.METRIC_AGENT)
    await until_available(milan)
    await milan.patch(keys.DEPLOYMENT, agent, {"spec": {"replicas": 0}})
    try:
        await informer.until(milan, keys.API_SERVICE, keys.METRICS_API, is_gone)
        left = Key("", f"left-{secrets.token_hex(3)}")
        made = await milan.create(keys.NAMESPACE, named(keys.NAMESPACE, left))
        await milan.delete(keys.NAMESPACE, left, uid=uid(made))
        await informer.until(milan, keys.NAMESPACE, left, is_gone)
    finally:
        await milan.patch(keys.DEPLOYMENT, agent, {"spec": {"replicas": 1}})
    await until_available(milan)


async def until_available(milan: ClusterClient) -> None:
    """Wait until the API server reaches a metric agent."""

    def is_available(found: Object | None) -> bool:
        said = ((found or {}).get("status") or {}).get("conditions")
        return objects.is_condition_true(said, "Available")

    await informer.until(milan, keys.API_SERVICE, keys.METRICS_API, is_available)


def is_gone(found: Object | None) -> bool:
    return found is None


@pytest.mark.usefixtures("measured")
async def test_what_pods_use_is_known_at_home_and_to_nobody_else(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    await both.offload(namespace)
    busy = world.deployment(namespace, "busy", both.image, 1)
    container = busy["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", BUSY]
    container["resources"] = {"requests": {"cpu": "20m"}, "limits": {"cpu": "100m"}}
    container["env"] = LARGE
    await both.rome.create(keys.DEPLOYMENT, busy)
    await both.rome.create(AUTOSCALER, autoscaler(namespace))
    kubectl = Kubectl(kubeconfigs["rome"], namespace)

    pods = await until_out(kubectl, "top", "pod", "--no-headers")
    assert pods.startswith(b"busy-")
    assert int(pods.split()[1].removesuffix(b"m")) > 0
    contained = await until_out(kubectl, "top", "pod", "--containers", "--no-headers")
    assert contained.split()[1] == b"main"
    nodes = await until_out(kubectl, "top", "node", both.node, "--no-headers")
    assert nodes.split()[0] == b"milan"
    assert int(nodes.split()[1].removesuffix(b"m")) > 0

    await world.until_one(
        both.rome,
        AUTOSCALER,
        Key(namespace, "busy"),
        lambda found: found.get("status", {}).get("desiredReplicas", 0) >= 2,
        patience_s=240,
    )

    await the_summary_tells_of_them(both, namespace)
    told = json.loads(await both.rome.get_text(f"/api/v1/nodes/{both.node}/proxy/pods"))["items"]
    here = [pod for pod in told if pod["metadata"]["namespace"] == namespace]
    assert [pod["spec"]["containers"][0]["env"] for pod in here] == [LARGE] * len(here)
    assert here
    await only_their_own_cluster_sees_them(both, namespace)


def autoscaler(namespace: str) -> Object:
    target = {"type": "Utilization", "averageUtilization": 50}
    return named(
        AUTOSCALER,
        Key(namespace, "busy"),
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
            "minReplicas": 1,
            "maxReplicas": 2,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    )


async def until_out(kubectl: Kubectl, *args: str) -> bytes:
    """Return what kubectl printed, once it had something to print."""
    async with asyncio.timeout(300):
        while True:
            done = await kubectl.run(*args)
            if done.code == 0 and done.out.strip():
                return done.out
            await asyncio.sleep(1)


async def the_summary_tells_of_them(both: world.Pair, namespace: str) -> None:
    path = f"/api/v1/nodes/{both.node}/proxy/stats/summary"
    async with asyncio.timeout(300):
        while True:
            told = json.loads(await both.rome.get_text(path))
            mine = [pod for pod in told["pods"] if pod["podRef"]["namespace"] == namespace]
            if mine and "usageNanoCores" in mine[0]["cpu"]:  # of two readings
                break
            await asyncio.sleep(1)
    assert told["node"]["nodeName"] == both.node
    assert mine[0]["containers"][0]["name"] == "main"
    assert mine[0]["cpu"]["usageCoreNanoSeconds"] > 0
    assert mine[0]["memory"]["workingSetBytes"] > 0
    resource = await both.rome.get_text(f"/api/v1/nodes/{both.node}/proxy/metrics/resource")
    assert f'namespace="{namespace}"' in resource
    assert "node_cpu_usage_seconds_total{} " in resource
    assert await both.rome.get_text(f"/api/v1/nodes/{both.node}/proxy/metrics/cadvisor")


async def only_their_own_cluster_sees_them(both: world.Pair, namespace: str) -> None:
    async with consumer(both.rome) as rome:
        own = await rome.get_text(f"{SCRAPE}/rome/metrics/resource")
        assert f'namespace="{namespace}"' in own
        assert both.twin(namespace) not in own
        assert 'namespace="kube-system"' not in own
        for other in ("cool-firefly", "milan", "system:authenticated-not"):
            with pytest.raises(errors.ForbiddenError):
                await rome.get_text(f"{SCRAPE}/{other}/metrics/resource")
        with pytest.raises(errors.KubeError):
            await rome.get_text(f"{SCRAPE}/rome/debug/pprof/heap")
    with pytest.raises(errors.ForbiddenError):
        await both.milan.get_text(f"{SCRAPE}/rome/metrics/resource")
