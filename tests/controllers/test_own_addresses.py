"""Whatever knows the addresses of pods and Services, no consumer's endpoint is at one of them."""

import asyncio
import contextlib
import ipaddress

import pytest

from apis import keys
from apis.objects import Key, Object, named
from controllers.__main__ import parse
from controllers.manager import Limits
from controllers.offloading.shadowendpointslice import forge, reconciler
from kube import errors, localaddresses
from kube.cluster import Cluster
from tests import factories
from tests.controllers import whole
from tests.controllers.test_shadowendpointslice import shadow_slice
from tests.fakes import FakeCluster
from tests.kube.running import turns

SPACE, NODE = "shop-rome", "milan-1"
THEIRS, OURS, ELSEWHERE = "10.202.0.7", "10.64.1.9", "10.65.1.9"
FLAG = Limits(service_cidrs=("172.30.0.0/16",))


async def put_endpoints(cluster: Cluster, name: str, *addresses: str) -> None:
    with contextlib.suppress(errors.AlreadyExistsError):
        twin = factories.namespace(SPACE, **{keys.REMOTE_CLUSTER_ID: "rome"})
        await cluster.create(keys.NAMESPACE, twin)
    made = shadow_slice(SPACE, *addresses)
    made["metadata"]["name"] = name
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, made)


async def until_endpoints(cluster: Cluster, name: str, *addresses: str) -> None:
    """Wait until the EndpointSlice called ``name`` has these endpoints."""
    found: set[str] = set()
    async with asyncio.timeout(60):
        while True:
            made = await cluster.get_live(keys.ENDPOINT_SLICE, Key(SPACE, name))
            if made is not None:
                found = {one["addresses"][0] for one in made.get("endpoints") or []}
                if found == set(addresses):
                    return
            await asyncio.sleep(0.02)


async def start_pod(cluster: Cluster, name: str, node: str, ip: str) -> Key:
    """Have a pod on ``node`` with an address that no node's networks have."""
    key = Key(SPACE, name)
    pod = factories.pod(SPACE, name, spec=factories.pod_spec(nodeName=node))
    await cluster.create(keys.POD, pod)
    status: Object = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
    await cluster.patch_status(keys.POD, key, status)
    return key


async def create_nodes(cluster: Cluster) -> None:
    virtual = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}
    await cluster.create(keys.NODE, named(keys.NODE, Key("", NODE)))
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "turin"), **virtual))


async def pods_come_and_go(cluster: Cluster) -> None:
    """Judge one address before its pod is there, while it is, and afterwards; another never."""
    await create_nodes(cluster)
    await put_endpoints(cluster, "web-1", THEIRS, OURS, ELSEWHERE)
    async with whole.controlling(cluster, reconciler.ShadowEndpointSliceReconciler.setup):
        await until_endpoints(cluster, "web-1", THEIRS, OURS, ELSEWHERE)
        await start_pod(cluster, "remote", "turin", ELSEWHERE)
        own = await start_pod(cluster, "local", NODE, OURS)
        beside = await start_pod(cluster, "beside", NODE, OURS)  # both in the host's network
        await until_endpoints(cluster, "web-1", THEIRS, ELSEWHERE)
        await put_endpoints(cluster, "web-2", THEIRS, OURS)
        await until_endpoints(cluster, "web-2", THEIRS)
        await cluster.patch_status(keys.POD, own, {"phase": "Succeeded"})
        await put_endpoints(cluster, "web-3", THEIRS, OURS)
        await until_endpoints(cluster, "web-3", THEIRS)
        await cluster.patch_status(keys.POD, beside, {"phase": "Succeeded"})
        await until_endpoints(cluster, "web-1", THEIRS, OURS, ELSEWHERE)


async def test_pods_outside_of_their_nodes_networks_are_this_clusters_too() -> None:
    """A pod on a virtual node is not: its address is the other cluster's."""
    await pods_come_and_go(FakeCluster())


async def test_a_pod_has_only_those_slices_looked_at_that_name_its_address() -> None:
    cluster = FakeCluster()
    await create_nodes(cluster)
    await put_endpoints(cluster, "web", THEIRS, OURS)
    for number in range(20):
        await put_endpoints(cluster, f"other-{number}", THEIRS)
    async with whole.controlling(cluster, reconciler.ShadowEndpointSliceReconciler.setup):
        for name in ("web", "other-19"):
            await until_endpoints(cluster, name, *([THEIRS, OURS] if name == "web" else [THEIRS]))
        await turns()
        with whole.calls(forge.named.__code__) as asked:
            await start_pod(cluster, "beside", NODE, "192.0.2.77")
            await start_pod(cluster, "local", NODE, OURS)
            await until_endpoints(cluster, "web", THEIRS)
            await turns()

    assert len(asked) <= 10, "looks at one slice, which has two addresses, not at all of them"


async def test_where_there_are_no_service_cidrs_a_flag_says_them() -> None:
    cluster = FakeCluster()
    await put_endpoints(cluster, "web-1", THEIRS, "172.30.0.1")

    async with whole.controlling(cluster, reconciler.ShadowEndpointSliceReconciler.setup, FLAG):
        await until_endpoints(cluster, "web-1", THEIRS)


def test_the_flag_takes_networks_only() -> None:
    given = parse(["--service-cidr=172.30.0.0/16,fd00:1::/108"], {})
    assert given.limits.service_cidrs == ("172.30.0.0/16", "fd00:1::/108")
    with pytest.raises(SystemExit):
        parse(["--service-cidr=172.30.0.1/16"], {})


@pytest.mark.cluster
async def test_no_endpoint_is_at_a_service_or_pod_of_the_cluster(
    own_server: Cluster, crds: None
) -> None:
    """Source: docs/parity.md SEC-A16."""
    (kubernetes,) = [
        one
        for key, one in (await own_server.list(localaddresses.SERVICE_CIDRS)).items.items()
        if key.name == "kubernetes"
    ]
    network = ipaddress.ip_network(kubernetes["spec"]["cidrs"][0])
    await put_endpoints(own_server, "services", THEIRS, str(network[1]), str(network[200]))
    async with whole.controlling(own_server, reconciler.ShadowEndpointSliceReconciler.setup):
        await until_endpoints(own_server, "services", THEIRS)
    await pods_come_and_go(own_server)
