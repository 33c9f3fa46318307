"""The cluster's ID is an administrator's, or derived once and kept."""

import pytest

from apis import keys
from apis.objects import Key, named, uid
from controllers import clusterid
from kube.cluster import Cluster
from kube.reconcile import TerminalError
from tests.controllers.support import there


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
