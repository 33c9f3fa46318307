"""The cluster's ID is an administrator's, or derived once and kept."""

import pytest

from apis import keys
from apis.objects import Key, named, uid
from controllers import clusterid
from kube.cluster import Cluster
from kube.controller import TerminalError
from tests.controllers.support import there
from tests.fakes import FakeCluster


async def test_it_is_derived_from_the_uid_of_kube_system(cluster: Cluster, namespace: str) -> None:
    first = await clusterid.ensure(cluster, namespace)
    second = await clusterid.ensure(cluster, namespace)

    system = await there(cluster, keys.NAMESPACE, Key("", "kube-system"))
    made = await there(cluster, keys.CONFIG_MAP, Key(namespace, "clusterid-configmap"))
    assert first == second == f"cluster-{uid(system)[:8]}"
    assert made["metadata"]["labels"] == {"app.kubernetes.io/name": "clusterid-configmap"}


async def test_the_administrators_choice_stays(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)
    await cluster.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, key, data={"CLUSTER_ID": "rome"}))

    assert await clusterid.ensure(cluster, namespace) == "rome"


async def test_an_empty_choice_is_said(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)
    await cluster.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, key, data={}))

    with pytest.raises(TerminalError, match="has no CLUSTER_ID"):
        await clusterid.ensure(cluster, namespace)


async def test_the_about_api_says_how_the_cluster_is_called() -> None:
    cluster = FakeCluster(strict=False)
    await about(cluster, "lab-7")
    assert await clusterid.ensure(cluster, "liqo") == "lab-7"


@pytest.mark.parametrize("said", ["", "Lab_7", "lab.example.com", "x" * 64, None])
async def test_what_cannot_be_a_name_here_is_not_taken_from_the_about_api(said: str | None) -> None:
    cluster = FakeCluster(strict=True)
    await about(cluster, said)
    assert (await clusterid.ensure(cluster, "default")).startswith("cluster-")


async def about(cluster: FakeCluster, said: str | None) -> None:
    kind = keys.CLUSTER_PROPERTIES[0]
    property_ = named(kind, Key("", keys.CLUSTER_ID_PROPERTY), spec={"value": said})
    await cluster.create(kind, property_)
