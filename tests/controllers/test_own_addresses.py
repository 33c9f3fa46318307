"""Whatever knows the addresses of pods and Services, no consumer's endpoint is at one of them."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator

import pytest

from apis import keys
from apis.objects import Key, Object, named
from controllers.__main__ import parse
from controllers.manager import Limits
from controllers.offloading.shadowendpointslice import reconciler
from kube import client, errors, localaddresses
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests import factories
from tests.controllers import whole
from tests.controllers.test_shadowendpointslice import shadow
from tests.fakes import FakeCluster

SPACE, NODE = "shop-rome", "milan-1"
THEIRS, OURS, ELSEWHERE = "10.202.0.7", "10.64.1.9", "10.65.1.9"
FLAG = Limits(service_cidrs=("172.30.0.0/16",))


@pytest.fixture
async def server(own_plane: Plane) -> AsyncIterator[Cluster]:
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


async def put(cluster: Cluster, name: str, *addresses: str) -> None:
    with contextlib.suppress(errors.AlreadyExistsError):
        twin = factories.namespace(SPACE, **{keys.REMOTE_CLUSTER_ID: "rome"})
        await cluster.create(keys.NAMESPACE, twin)
    made = shadow(SPACE, *addresses)
    made["metadata"]["name"] = name
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, made)


async def until(cluster: Cluster, name: str, *addresses: str) -> None:
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


async def start(cluster: Cluster, name: str, node: str, ip: str) -> Key:
    """Have a pod on ``node`` with an address that no node's networks have."""
    key = Key(SPACE, name)
    pod = factories.pod(SPACE, name, spec=factories.pod_spec(nodeName=node))
    await cluster.create(keys.POD, pod)
    status: Object = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
    await cluster.patch_status(keys.POD, key, status)
    return key


async def nodes(cluster: Cluster) -> None:
    virtual = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}
    await cluster.create(keys.NODE, named(keys.NODE, Key("", NODE)))
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "turin"), **virtual))


async def pods_come_and_go(cluster: Cluster) -> None:
    """Judge one address before its pod is there, while it is, and afterwards; another never."""
    await nodes(cluster)
    await put(cluster, "web-1", THEIRS, OURS, ELSEWHERE)
    async with whole.controlling(cluster, reconciler.controller):
        await until(cluster, "web-1", THEIRS, OURS, ELSEWHERE)
        await start(cluster, "remote", "turin", ELSEWHERE)
        own = await start(cluster, "local", NODE, OURS)
        await until(cluster, "web-1", THEIRS, ELSEWHERE)
        await put(cluster, "web-2", THEIRS, OURS)
        await until(cluster, "web-2", THEIRS)
        await cluster.patch_status(keys.POD, own, {"phase": "Succeeded"})
        await until(cluster, "web-1", THEIRS, OURS, ELSEWHERE)


async def test_pods_outside_of_their_nodes_networks_are_this_clusters_too() -> None:
    """A pod on a virtual node is not: its address is the other cluster's."""
    await pods_come_and_go(FakeCluster())


async def test_where_there_are_no_service_cidrs_a_flag_says_them() -> None:
    cluster = FakeCluster()
    await put(cluster, "web-1", THEIRS, "172.30.0.1")

    async with whole.controlling(cluster, reconciler.controller, FLAG):
        await until(cluster, "web-1", THEIRS)


def test_the_flag_takes_networks_only() -> None:
    given = parse(["--service-cidr=172.30.0.0/16,fd00:1::/108"], {})
    assert given.limits.service_cidrs == ("172.30.0.0/16", "fd00:1::/108")
    with pytest.raises(SystemExit):
        parse(["--service-cidr=172.30.0.1/16"], {})


@pytest.mark.cluster
async def test_no_endpoint_is_at_a_service_or_pod_of_the_cluster(
    server: Cluster, crds: None
) -> None:
    """Source: docs/parity.md SEC-A16."""
    (kubernetes,) = [
        one
        for key, one in (await server.list(localaddresses.SERVICE_CIDRS)).items.items()
        if key.name == "kubernetes"
    ]
    network = ipaddress.ip_network(kubernetes["spec"]["cidrs"][0])
    await put(server, "services", THEIRS, str(network[1]), str(network[200]))
    async with whole.controlling(server, reconciler.controller):
        await until(server, "services", THEIRS)
    await pods_come_and_go(server)
