"""What is followed of kinds whose labels users may write in their namespaces. Source: H18."""

from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from controllers import watches
from controllers.manager import Informers, Manager
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.dynamicinformer import NamespacedInformer
from kube.informer import Informer
from tests.controllers.support import manager_of
from tests.fakes import FakeCluster
from tests.kube.running import running, until

LABELS = {keys.COMPONENT: keys.VIRTUAL_KUBELET}
KINDS = (keys.DEPLOYMENT, keys.SERVICE_ACCOUNT, keys.ROLE)
OURS, THEIRS = Key("liqo-tenant-milan", "milan"), Key("users", "milan")


def made_beside(kind: Kind, key: Key) -> Object:
    return named(kind, key, metadata={"labels": LABELS}, spec={"note": "x" * 1000})


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_only_what_is_beside_a_virtual_node_is_kept(kind: Kind) -> None:
    cluster = FakeCluster()
    await cluster.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, OURS, spec={}))
    for key in (OURS, THEIRS):
        await cluster.create(kind, made_beside(kind, key))
    scopes: Informer[Object] = Informer(watches.VIRTUAL_NODES)
    selection = watches.every(kind, labels=f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET}")
    seen: NamespacedInformer[Object] = NamespacedInformer(
        selection, scopes, lambda _: True, waits=True
    )

    async with running(scopes.run(cluster), seen.run(cluster)):
        await seen.synced.wait()
        assert list(seen.items()) == [OURS], "at first, so that nobody takes it for missing"

        later = Key("liqo-tenant-turin", "turin")
        await cluster.create(kind, made_beside(kind, later))
        await cluster.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, later, spec={}))
        await until(lambda: set(seen.items()) == {OURS, later})


def test_all_who_ask_share_one_informer() -> None:
    unused: Any = None
    informers = Informers(CachedCluster(unused))
    scopes = informers.of(watches.VIRTUAL_NODES)

    first, second = (
        informers.within(watches.DEPLOYMENTS, scopes, lambda _: True, waits=True) for _ in range(2)
    )

    assert first is second


@pytest.mark.parametrize("selection", [watches.SECRETS, *watches.BESIDE_VIRTUAL_NODES], ids=str)
def test_whoever_asks_follows_them_in_few_namespaces(selection: Selection[Object]) -> None:
    manager = manager_of(FakeCluster(), of=Manager)

    assert isinstance(manager.informer(selection), NamespacedInformer)


async def test_what_was_not_asked_for_in_time_is_no_empty_list() -> None:
    """Its informer would never be filled, and a controller would take all objects for gone."""
    manager = manager_of(FakeCluster(), of=Manager)
    manager.informer(watches.TENANTS)

    assert await manager.all(watches.TENANTS) == {}
    with pytest.raises(KeyError):
        await manager.all(watches.IDENTITIES)
