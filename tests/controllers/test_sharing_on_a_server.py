"""Class ``shared`` on a real API server of its own: pods and nodes come, and the slice follows."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from controllers.granting.grants import reconciler
from kube import client, informer
from kube.client import ClusterClient
from sandbox import controlplane
from tests import factories
from tests.conftest import install_crds
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.controllers.support import ensure_namespace, make
from tests.controllers.whole import controlling

pytestmark = pytest.mark.cluster

ROME: Final = "rome"
SPACE: Final = naming.tenant_namespace(ROME)
POOL: Final = Key(SPACE, "pool")
QUOTA: Final = Key(SPACE, naming.quota_name("pool", ROME))
READY: Final = [{"type": "Ready", "status": "True"}]
GPU, FPGA = "nvidia.com/gpu", "example.com/fpga"
DISK, PAGES = "ephemeral-storage", "hugepages-2Mi"


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    """Yield a provider that has no nodes but those of the test."""
    with controlplane.start(tmp_path_factory.mktemp("shared")) as plane:
        await install_crds(plane.kubeconfig)
        async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:
            yield real


async def add_node(server: ClusterClient, name: str, **allocatable: str) -> None:
    amounts = {"memory": "100Gi", "pods": "110", **allocatable}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": READY}
    await make(server, keys.NODE, named(keys.NODE, Key("", name), spec={}), status=status)


async def granted_slice(server: ClusterClient, **wanted: str) -> Object:
    """Return the slice once it is granted ``wanted``, and its Quota says the same."""

    def is_so(obj: Object | None) -> bool:
        return wanted.items() <= (((obj or {}).get("status") or {}).get("resources") or {}).items()

    async with asyncio.timeout(300):
        found = await informer.until(server, keys.RESOURCE_SLICE, POOL, is_so)
        await informer.until(
            server,
            keys.QUOTA,
            QUOTA,
            lambda obj: obj is not None and wanted.items() <= obj["spec"]["resources"].items(),
        )
    assert found
    return found


def told(obj: Object) -> str:
    found = objects.find_condition(obj["status"]["conditions"], "Resources")
    assert found
    return str(found["message"])


async def test_90_of_100_then_45_beside_local_pods_then_180_of_a_grown_cluster(
    server: ClusterClient,
) -> None:
    await ensure_namespace(server, SPACE)
    tenant = named(keys.TENANT, Key(SPACE, ROME), spec={"clusterID": ROME})
    await server.create(keys.TENANT, tenant)
    await make(server, keys.RESOURCE_SLICE, replica(POOL, ROME, "shared", {}), status=AUTHENTICATED)
    async with controlling(server, reconciler.GrantsReconciler.setup):
        await add_node(
            server, "a", cpu="100", **{GPU: "10", FPGA: "1", DISK: "50Gi", PAGES: "400Mi"}
        )
        physical = {GPU: "9", FPGA: "1", DISK: "45Gi", PAGES: "360Mi"}
        first = await granted_slice(server, cpu="90", memory="90Gi", pods="99", **physical)
        rounded = f"{FPGA}: 90% of 1 free is 0.9, granted 1 (rounding AtLeastOne)"
        assert told(first) == f"class shared, 90% of what is free; {rounded}"

        takes = {GPU: "5", DISK: "10Gi", PAGES: "100Mi"}
        local = await server.create(keys.POD, taking("a", cpu="50", **takes))
        left = {GPU: "4", FPGA: "1", DISK: "36Gi", PAGES: "270Mi"}
        beside = await granted_slice(server, cpu="45", pods="98", **left)
        assert f"{GPU}: 90% of 5 free is 4.5, granted 4 (rounding AtLeastOne)" in told(beside)

        await server.delete(keys.POD, Key(SPACE, "local"), uid=local["metadata"]["uid"], grace_s=0)
        await granted_slice(server, cpu="90", **{GPU: "9"})
        await add_node(server, "b", cpu="100", **{FPGA: "1"})
        grown = await granted_slice(
            server, cpu="180", memory="180Gi", pods="198", **{GPU: "9", FPGA: "1"}
        )
        assert f"{FPGA}: 90% of 2 free is 1.8, granted 1" in told(grown)

        down = {"sharing": {"resources": {FPGA: 40}, "rounding": "Down"}}
        policy = named(keys.PROVIDER_POLICY, Key("", ROME), spec=down)
        await server.create(keys.PROVIDER_POLICY, policy)
        lost = await granted_slice(server, cpu="180", **{FPGA: "0"})
        assert f"{FPGA}: 40% of 2 free is 0.8, granted 0 (rounding Down)" in told(lost)


def taking(node: str, **requests: str) -> Object:
    """Return a pod of the provider's own that is on ``node`` already."""
    spec = factories.pod_spec(nodeName=node)
    spec["containers"][0]["resources"] = {"requests": requests, "limits": requests}
    return factories.pod(namespace=SPACE, name="local", spec=spec)
