"""A cluster says in which networks its pods are, to who peers with it.

Source: docs/decisions/0013 (5).
"""

import asyncio
import contextlib

import pytest

from apis import keys
from apis.objects import Key, Object, named
from controllers.__main__ import parse
from controllers.clusterid import PodNetworksReconciler
from controllers.manager import Limits
from kube import errors
from kube.cluster import Cluster
from tests.controllers import whole
from tests.fakes import FakeCluster

WHERE = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


async def configured_networks(cluster: Cluster) -> Object:
    found = await cluster.get_live(keys.CONFIG_MAP, WHERE)
    assert found is not None
    data: Object = found["data"]
    return data


async def put(cluster: Cluster) -> None:
    with contextlib.suppress(errors.AlreadyExistsError):
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", WHERE.namespace)))
    data = {keys.CLUSTER_ID_KEY: "milan"}
    await cluster.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, WHERE, data=data))


async def nodes_come(cluster: Cluster) -> None:
    """A node names a network; a second widens it, a virtual one says nothing."""
    await put(cluster)
    virtual = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}
    async with whole.controlling(cluster, PodNetworksReconciler.setup):
        for name, network, rest in (
            ("podnet-1", "10.244.3.0/24", {}),
            ("podnet-rome", "10.99.0.0/24", virtual),
            ("podnet-2", "fd00:1:0:5::/64", {}),
        ):
            spec = {"podCIDR": network, "podCIDRs": [network]}
            await cluster.create(keys.NODE, named(keys.NODE, Key("", name), spec=spec, **rest))
        await until_networks(cluster, "10.244.0.0/16,fd00:1::/56")


async def until_networks(cluster: Cluster, networks: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if (await configured_networks(cluster)).get(keys.POD_CIDRS_KEY) == networks:
                return
            await asyncio.sleep(0.02)


async def test_nodes_say_them_and_the_cluster_id_stays() -> None:
    cluster = FakeCluster()
    await nodes_come(cluster)
    assert (await configured_networks(cluster))[keys.CLUSTER_ID_KEY] == "milan"


async def test_a_flag_says_them_where_nodes_do_not() -> None:
    cluster = FakeCluster()
    await put(cluster)
    limits = Limits(pod_cidrs=parse(["--pod-cidr=172.31.0.0/16"], {}).limits.pod_cidrs)
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "podnet-1")))
    async with whole.controlling(cluster, PodNetworksReconciler.setup, limits):
        await until_networks(cluster, "172.31.0.0/16")


@pytest.mark.cluster
async def test_on_an_api_server(own_server: Cluster) -> None:
    await nodes_come(own_server)
