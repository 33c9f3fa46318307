"""A ForeignCluster tells the truth about the other cluster, from nothing to gone."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from controllers.manager import OversizedPeers
from controllers.peers.foreigncluster import forge
from controllers.peers.foreigncluster.forge import APIServerHealth, PeerFacts
from controllers.peers.foreigncluster.reconciler import (
    ForeignClusterReconciler,
    SliceVersionReconciler,
)
from kube import informer
from kube.cluster import Cluster
from kube.errors import InvalidError
from tests import factories
from tests.controllers.support import (
    LATER,
    NOW,
    Ledger,
    end,
    ensure_namespace,
    make,
    manager_of,
    settle,
    there,
    virtual_node,
)
from tests.controllers.whole import controlling
from tests.fakes import FakeCluster

KIND = keys.FOREIGN_CLUSTER
HERE = "liqo-tenant-{}"


class Peer:
    """One other cluster, as the reconciler of this one sees it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.ledger = cluster, Ledger(cluster)
        self.name, self.key, self.namespace = name, Key("", name), HERE.format(name)
        self.reach: APIServerHealth | None = None
        self.now = NOW
        manager = manager_of(self.ledger, clock=lambda: self.now)
        self.reconciler = ForeignClusterReconciler(manager, version="0.1.0")
        self.reconciler.reach = lambda _: self.reach

    async def status(self) -> Object:
        """Return what the ForeignCluster says once nothing is left to write."""
        await settle(self.reconciler, self.key, self.ledger)
        return dict((await there(self.cluster, KIND, self.key))["status"])

    async def tenant(self, **status: Any) -> Object:
        spec = {"clusterID": self.name}
        made = named(keys.TENANT, Key(self.namespace, self.name), spec=spec)
        return await make(self.cluster, keys.TENANT, made, status=status or None)

    async def identity(self, **status: Any) -> Object:
        spec = {
            "clusterID": self.name,
            "type": "ControlPlane",
            "namespace": "liqo-tenant-rome",
            "authParams": {"apiServer": "https://milan:6443"},
        }
        made = named(keys.IDENTITY, Key(self.namespace, f"controlplane-{self.name}"), spec=spec)
        return await make(self.cluster, keys.IDENTITY, made, status=status or None)


@pytest.fixture
async def peer(cluster: Cluster, namespace: str) -> Peer:
    """Return a peer with a tenant namespace of this test's own."""
    made = Peer(cluster, f"milan{namespace[-4:]}")
    await cluster.create(keys.NAMESPACE, factories.tenant_namespace(made.namespace, made.name))
    return made


async def test_each_module_is_told_by_the_changes_of_what_it_is_made_of() -> None:
    """Nothing is looked at again after a while: an event that nobody heard would end this test."""
    cluster = FakeCluster(strict=True)
    peer = Peer(cluster, "rome")
    tenant, node = Key(peer.namespace, peer.name), Key("", peer.name)
    identity = Key(peer.namespace, f"controlplane-{peer.name}")

    async def says(module: str, **wanted: str) -> None:
        def is_so(obj: Object | None) -> bool:
            status = (obj or {}).get("status")
            shown = found(status, module) if status else {}
            return {type_: one[0] for type_, one in shown.items()} == wanted

        async with asyncio.timeout(300):
            await informer.until(cluster, KIND, peer.key, is_so)

    await ensure_namespace(cluster, peer.namespace)
    excess = OversizedPeers()
    async with controlling(cluster, ForeignClusterReconciler.setup, excess=excess):
        await peer.tenant()
        await says("authentication", AuthTenantStatus="NotReady")
        params = {"apiServer": "https://rome:6443", "signedCRT": "eA=="}
        signed = {"tenantNamespace": peer.namespace, "authParams": params}
        await cluster.patch_status(keys.TENANT, tenant, signed)
        await says("authentication", AuthTenantStatus="Ready")
        await peer.identity()
        both = {"AuthTenantStatus": "Ready", "AuthIdentityControlPlaneStatus": "NotReady"}
        await says("authentication", **both)
        secret = {"kubeconfigSecretRef": {"name": "none"}}
        await cluster.patch_status(keys.IDENTITY, identity, secret)
        await says("authentication", **{**both, "AuthIdentityControlPlaneStatus": "Ready"})

        virtual = virtual_node(peer.namespace, peer.name, peer.name)
        await make(cluster, keys.VIRTUAL_NODE, virtual)
        silent = {"OffloadingVirtualNodeStatus": "NotReady", "OffloadingNodeStatus": "NotReady"}
        await says("offloading", **silent)
        await run_kubelet(peer)
        await says("offloading", OffloadingVirtualNodeStatus="Ready", OffloadingNodeStatus="Ready")
        lost = {"conditions": [{"type": "Ready", "status": "False", "reason": "r", "message": "m"}]}
        await cluster.patch_status(keys.NODE, node, lost)
        await says("offloading", **{**silent, "OffloadingVirtualNodeStatus": "Ready"})
        await end(cluster, keys.DEPLOYMENT, Key(peer.namespace, f"vk-{peer.name}"))
        await says("offloading", **silent)
        await end(cluster, keys.TENANT, tenant)
        await says("authentication", AuthIdentityControlPlaneStatus="Ready")
        excess.say(peer.name, "it sends 9 Gi")
        async with asyncio.timeout(300):
            await informer.until(cluster, KIND, peer.key, lambda obj: "9 Gi" in str(obj))


def found(status: Object, module: str) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition of a module."""
    conditions = status["modules"][module].get("conditions", [])
    return {one["type"]: (one["status"], one["reason"]) for one in conditions}


async def test_a_namespace_alone_is_no_peer(peer: Peer) -> None:
    await settle(peer.reconciler, peer.key, peer.ledger)

    assert await peer.cluster.get_live(KIND, peer.key) is None


async def test_a_consumer(peer: Peer) -> None:
    await peer.tenant()

    waiting = await peer.status()

    assert waiting["role"] == "Consumer"
    assert waiting["tenantNamespace"] == {"local": peer.namespace}
    assert waiting["modules"]["offloading"] == {"enabled": False}
    assert waiting["modules"]["networking"] == {"enabled": False}
    assert found(waiting, "authentication") == {"AuthTenantStatus": ("NotReady", "TenantNotReady")}
    [condition] = waiting["modules"]["authentication"]["conditions"]
    assert condition["message"] == f"tenant {peer.name} may not sign in: it has no certificate yet"
    assert "conditions" not in waiting

    key = Key(peer.namespace, peer.name)
    params = {"apiServer": "https://rome:6443", "signedCRT": "eA=="}
    said = {"tenantNamespace": peer.namespace, "authParams": params}
    await peer.cluster.patch_status(keys.TENANT, key, said)
    peer.now = LATER
    ready = await peer.status()
    assert found(ready, "authentication") == {"AuthTenantStatus": ("Ready", "TenantReady")}

    refused = {"type": "Ready", "status": "False", "reason": "NameCollision", "message": "taken"}
    await peer.cluster.patch_status(keys.TENANT, key, {"conditions": [refused]})
    put_out = await peer.status()
    assert found(put_out, "authentication") == {"AuthTenantStatus": ("NotReady", "TenantNotReady")}
    [condition] = put_out["modules"]["authentication"]["conditions"]
    assert condition["message"] == f"tenant {peer.name} may not sign in: taken"


async def test_a_provider_from_identity_to_node(peer: Peer) -> None:
    await peer.identity()
    early = await peer.status()
    assert early["role"] == "Provider"
    assert early["apiServerUrl"] == "https://milan:6443"
    assert early["tenantNamespace"] == {"local": peer.namespace, "remote": "liqo-tenant-rome"}
    assert found(early, "authentication") == {
        "AuthIdentityControlPlaneStatus": ("NotReady", "IdentityNotReady")
    }

    await make(peer.cluster, keys.VIRTUAL_NODE, virtual_node(peer.namespace, peer.name, peer.name))
    unready = await peer.status()
    assert found(unready, "offloading") == {
        "OffloadingVirtualNodeStatus": ("NotReady", "VirtualNodesNotReady"),
        "OffloadingNodeStatus": ("NotReady", "NodesNotReady"),
    }

    await run_kubelet(peer)
    ready = await peer.status()
    assert found(ready, "offloading") == {
        "OffloadingVirtualNodeStatus": ("Ready", "VirtualNodesReady"),
        "OffloadingNodeStatus": ("Ready", "NodesReady"),
    }

    other = f"{peer.name}-2"
    await make(peer.cluster, keys.VIRTUAL_NODE, virtual_node(peer.namespace, other, peer.name))
    some = await peer.status()
    assert found(some, "offloading")["OffloadingNodeStatus"] == (
        "SomeNotReady",
        "NodesSomeNotReady",
    )
    assert some["modules"]["offloading"]["conditions"][1]["message"] == (
        f"1 of 2 nodes are not ready: {other}"
    )

    for name in (peer.name, other):
        await end(peer.cluster, keys.VIRTUAL_NODE, Key(peer.namespace, name))
    await end(peer.cluster, keys.IDENTITY, Key(peer.namespace, f"controlplane-{peer.name}"))
    gone = await peer.status()
    assert gone["role"] == "Unknown"
    assert not any(module["enabled"] for module in gone["modules"].values())
    await end(peer.cluster, keys.NODE, Key("", peer.name))
    await end(peer.cluster, KIND, peer.key)
    await settle(peer.reconciler, peer.key, peer.ledger)
    assert await peer.cluster.get_live(KIND, peer.key) is None, "it does not come back"


async def run_kubelet(peer: Peer) -> None:
    """Have the virtual kubelet and the Node of the peer, both ready."""
    labels = {keys.COMPONENT: keys.VIRTUAL_KUBELET, keys.REMOTE_CLUSTER_ID: peer.name}
    container = {"name": "c", "image": "none"}
    app = {"app": peer.name}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": app},
        "template": {"metadata": {"labels": app}, "spec": {"containers": [container]}},
    }
    where = Key(peer.namespace, f"vk-{peer.name}")
    deployment = named(keys.DEPLOYMENT, where, metadata={"labels": labels}, spec=spec)
    counts = {"replicas": 1, "readyReplicas": 1}
    await make(peer.cluster, keys.DEPLOYMENT, deployment, status=counts)
    node_labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: peer.name}
    node = named(keys.NODE, Key("", peer.name), metadata={"labels": node_labels})
    ready = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
    await make(peer.cluster, keys.NODE, node, status={"conditions": [ready]})


async def test_what_its_api_server_says(peer: Peer) -> None:
    await peer.identity(kubeconfigSecretRef={"name": "x"})
    assert "conditions" not in await peer.status()

    peer.reach = APIServerHealth.answering("v1.35.4", "0.2.0", timedelta(seconds=40), None)
    up = await peer.status()
    assert up["kubernetesVersion"] == "v1.35.4"
    assert up["clockSkewSeconds"] == 40
    assert (up["version"], up["versionSkew"]) == ("0.2.0", "Minor")
    assert [one["status"] for one in up["conditions"]] == ["Established"]

    peer.reach, peer.now = (
        APIServerHealth(is_answering=False, message="no answer within 5 s"),
        LATER,
    )
    down = await peer.status()
    assert down["conditions"][0]["reason"] == "APIServerNotReady"
    assert down["conditions"][0]["message"] == "no answer within 5 s"
    assert down["conditions"][0]["lastTransitionTime"] == "2025-01-31T13:00:00Z"
    assert down["kubernetesVersion"] == "v1.35.4"

    peer.reach = None  # another process leads now, and has not asked yet
    kept = await peer.status()
    assert kept["conditions"] == down["conditions"]
    assert kept["version"] == "0.2.0"


async def test_both_at_once(peer: Peer) -> None:
    await peer.tenant()
    await peer.identity()

    both = await peer.status()

    assert both["role"] == "ConsumerAndProvider"
    assert set(found(both, "authentication")) == {
        "AuthTenantStatus",
        "AuthIdentityControlPlaneStatus",
    }


async def test_a_foreign_cluster_that_nobody_needs_is_told_so(peer: Peer, cluster: Cluster) -> None:
    await cluster.create(KIND, forge.foreign_cluster(peer.name))

    status = await peer.status()

    assert status["role"] == "Unknown"
    assert status["observedGeneration"] == 1


def test_clocks_that_tick_are_no_news() -> None:
    def after(seconds: float, before: APIServerHealth | None) -> APIServerHealth:
        return APIServerHealth.answering("v1", "", timedelta(seconds=seconds), before)

    first = after(0.8, None)
    assert first.ahead_s == 0
    assert after(-1.2, first) == first
    assert after(-7, first).ahead_s == -7
    assert after(-3, after(-7, first)).ahead_s == -7
    assert after(1, after(-7, first)).ahead_s == 0
    assert forge.within(first, "") is first, "it sends no more than is kept"


def test_where_the_kubeconfigs_are() -> None:
    node = virtual_node("of-milan", "milan", "milan")
    spec = {"clusterID": "turin", "type": "ControlPlane"}
    identity = named(keys.IDENTITY, Key("of-turin", "x"), spec=spec)
    known = {**identity, "status": {"kubeconfigSecretRef": {"name": "mine"}}}

    assert forge.secrets([identity], [node]) == {
        "milan": Key("of-milan", "kubeconfig-controlplane-milan")
    }
    assert forge.secrets([known], [])["turin"] == Key("of-turin", "mine")


@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_a_virtual_kubelet_without_all_its_pods_does_not_run(replicas: int) -> None:
    node = virtual_node("of-milan", "milan", "milan")
    spec = {"replicas": replicas}
    deployment = {"spec": spec, "status": {"replicas": replicas, "readyReplicas": 1}}
    facts = PeerFacts(
        "milan", virtual_nodes=[node], deployments={Key("of-milan", "vk-milan"): deployment}
    )

    status = forge.status({}, facts, 1, NOW)

    expected = "Ready" if replicas == 1 else "NotReady"
    assert found(status, "offloading")["OffloadingVirtualNodeStatus"][0] == expected


@factories.cases("theirs, ours, expected")
def test_how_versions_differ(theirs: str, ours: str, expected: str) -> None:
    assert forge.skew(theirs, ours) == expected


async def test_each_side_writes_its_version_on_a_slice_and_reads_the_others(peer: Peer) -> None:
    stamps = SliceVersionReconciler(manager_of(peer.ledger), "0.1.0")
    await peer.tenant()
    mine, replica = Key(peer.namespace, "mine"), Key(peer.namespace, "theirs")
    labels = {
        keys.REMOTE_CLUSTER_ID: peer.name,
        keys.REPLICATION: "false",
        keys.REPLICATED: "true",
        keys.ORIGIN_ID: peer.name,
    }
    told = {"labels": labels, "annotations": {keys.CONSUMER_VERSION: "0.1.3"}}
    await peer.cluster.create(keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, mine, spec={}))
    await peer.cluster.create(
        keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, replica, metadata=told, spec={})
    )

    for key in (mine, replica, Key(peer.namespace, "none")):
        await settle(stamps, key, peer.ledger)

    found = [await there(peer.cluster, keys.RESOURCE_SLICE, key) for key in (mine, replica)]
    assert [objects.annotations(one) for one in found] == [
        {keys.CONSUMER_VERSION: "0.1.0"},
        {keys.CONSUMER_VERSION: "0.1.3", keys.PROVIDER_VERSION: "0.1.0"},
    ]
    status = await peer.status()
    assert (status["version"], status["versionSkew"]) == ("0.1.3", "Patch")
    # A slice that its peer has filled is given up until it changes.
    full = InvalidError("metadata.annotations: Too long: may not be more than 262144 bytes")
    peer.ledger.refuses["patch", str(keys.RESOURCE_SLICE), replica] = full
    assert await SliceVersionReconciler(manager_of(peer.ledger), "0.2.0").reconcile(replica) is None


def test_a_slice_of_ours_and_no_replica_is_asked_about() -> None:
    labels = {keys.REMOTE_CLUSTER_ID: "milan"}
    mine = named(keys.RESOURCE_SLICE, Key("t", "mine"), metadata={"labels": labels})
    origin = {**labels, keys.REPLICATED: "true", keys.ORIGIN_ID: "milan"}
    theirs = named(keys.RESOURCE_SLICE, Key("t", "theirs"), metadata={"labels": origin})

    assert forge.slice_of("milan", [theirs, mine]) == "mine"
    assert forge.slice_of("turin", [theirs, mine]) == ""
