"""The whole controller manager on a real API server, which is consumer and provider at once."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apis import keys, naming, objects, ownership
from apis.objects import Key, Kind, named
from kube import client
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests import factories
from tests.controllers.managing import AT_FIRST, Manager, install_rights, managing, set_up_peer
from tests.controllers.support import defaulted, end, there
from tests.kube.running import until_so

pytestmark = pytest.mark.cluster


@pytest.fixture
async def cluster(own_plane: Plane) -> AsyncIterator[Cluster]:
    """Only the real one: the process speaks HTTP."""
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture
async def rights(cluster: Cluster) -> None:
    """Do ``install_rights``."""
    await install_rights(cluster)


@pytest.fixture
async def manager(
    cluster: Cluster, namespace: str, own_plane: Plane, tmp_path: Path, rights: None
) -> AsyncIterator[Manager]:
    """Do ``managing``."""
    async with managing(cluster, namespace, own_plane, tmp_path) as made:
        yield made


async def test_a_namespace_is_offloaded_and_taken_back(
    cluster: Cluster, namespace: str, manager: Manager, own_plane: Plane
) -> None:
    local, remote = await set_up_peer(cluster, namespace, own_plane.kubeconfig)
    key, milan = Key(namespace, "offloading"), f"milan-{namespace}"
    only = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": [milan]}
    touched = {"key": "touched", "operator": "NotIn", "values": ["never"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [only, touched]}]}
    obj = defaulted(namespace, clusterSelector=selector)
    await cluster.create(keys.NAMESPACE_OFFLOADING, obj)

    async def is_ready() -> bool:
        status = (await there(cluster, keys.NAMESPACE_OFFLOADING, key)).get("status") or {}
        return status.get("offloadingPhase") == "Ready"

    async def is_gone(kind: Kind, where: Key) -> bool:
        return await cluster.get_live(kind, where) is None

    await until_so(is_ready, "the namespace is offloaded")
    twin = await there(cluster, keys.NAMESPACE, Key("", f"{namespace}-rome-{namespace}"))
    assert objects.annotations(twin)[keys.MANAGED_BY_NAMESPACE_MAP] == f"{remote}/{milan}"
    assert not await is_gone(keys.DEPLOYMENT, Key(local, f"vk-{milan}"))
    await policies_are_told(cluster, key)
    assert await manager.refused() <= AT_FIRST
    await idle(cluster, manager, key)

    await end(cluster, keys.NAMESPACE_OFFLOADING, key)

    async def is_terminating() -> bool:
        found = await there(cluster, keys.NAMESPACE, objects.key_of(twin))
        return objects.is_terminating(found)

    await until_so(is_terminating, "the twin is being deleted")
    await end(cluster, keys.VIRTUAL_NODE, Key(local, milan))
    await until_so(
        lambda: is_gone(keys.VIRTUAL_NODE, Key(local, milan)), "the virtual node is gone"
    )
    assert await is_gone(keys.DEPLOYMENT, Key(local, f"vk-{milan}"))
    assert await is_gone(keys.SERVICE_ACCOUNT, Key(local, milan))
    assert await manager.refused() <= AT_FIRST


async def test_what_was_replicated_can_be_deleted_after_the_identity_is_gone(
    cluster: Cluster, namespace: str, manager: Manager
) -> None:
    """Somebody deletes a tenant namespace by hand: the kubeconfig goes before the replicas do."""
    peer_ = f"milan-{namespace}"
    space = naming.tenant_namespace(peer_)
    await cluster.create(keys.NAMESPACE, factories.tenant_namespace(space, peer_))
    metadata = {"labels": ownership.original(peer_), "finalizers": [keys.REPLICATION_FINALIZER]}
    key = Key(space, "renewed")
    await cluster.create(keys.RENEW, named(keys.RENEW, key, metadata=metadata, spec={}))

    await end(cluster, keys.RENEW, key)

    async def is_gone() -> bool:
        return await cluster.get_live(keys.RENEW, key) is None

    await until_so(is_gone, "what was replicated is gone")
    assert await manager.refused() <= AT_FIRST


async def policies_are_told(cluster: Cluster, key: Key) -> None:
    """Show that the NamespaceOffloading names a policy that holds here only, while it is there."""
    deny = Key(key.namespace, "deny")
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}

    async def told() -> str:
        status = (await there(cluster, keys.NAMESPACE_OFFLOADING, key)).get("status") or {}
        found = objects.find_condition(status.get("conditions"), "PoliciesReflected") or {}
        return str(found.get("message") or "")

    async def is_named() -> bool:
        return "NetworkPolicy deny" in await told()

    async def is_silent() -> bool:
        return not await told()

    assert await is_silent()
    await cluster.create(keys.NETWORK_POLICY, named(keys.NETWORK_POLICY, deny, spec=spec))
    await until_so(is_named, "the policy is named")
    await end(cluster, keys.NETWORK_POLICY, deny)
    await until_so(is_silent, "no policy is named")


async def idle(cluster: Cluster, manager: Manager, key: Key) -> None:
    """Show that looking at everything once more writes nothing, and lists nothing but pods."""

    async def looks() -> float:
        return await manager.counts("pyliqo_reconciles_total", controller="namespaceoffloading")

    async def virtual() -> Key:
        name = f"milan-{key.namespace}"
        return Key(naming.tenant_namespace(name), name)

    async def touch(kind: Kind, what: Key, number: int) -> None:
        before = await looks()
        await cluster.patch(kind, what, {"metadata": {"labels": {"touched": str(number)}}})

        async def looked() -> bool:
            return await looks() > before

        await until_so(looked, f"the controllers looked again at {kind} {what}")

    async def round_(number: int) -> tuple[float, float]:
        await touch(keys.NAMESPACE_OFFLOADING, key, number)
        await touch(keys.VIRTUAL_NODE, await virtual(), number)
        lists = await manager.counts("pyliqo_requests_total", verb="list")
        # A label of a VirtualNode may leave pods out of place: they are listed at each change.
        pods = await manager.counts("pyliqo_requests_total", verb="list", resource="pods")
        return await manager.writes(), lists - pods

    numbers = itertools.count(1)  # each value once: a patch that changes nothing wakes nobody
    first = await round_(next(numbers))

    async def is_quiet() -> bool:
        nonlocal first
        before, first = first, await round_(next(numbers))
        return before == first

    await until_so(is_quiet, "nothing is written, and nothing but pods listed any more")
