"""What the source document S3 shows is what kubectl shows: wispy-firefly asks cool-firefly.

Both halves run on one API server, which is consumer and provider at once.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apis import keys, naming
from apis.objects import Key, named
from certs import identity
from controllers.granting.grants.reconciler import ALL, GrantsReconciler
from controllers.granting.resourceslice.reconciler import LocalSliceReconciler
from kube import client
from kube.client import ClusterClient
from kube.events import EventRecorder
from kubelet.node import NodeReconciler
from kubelet.nodeobject import Health, NodeIdentity
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.controllers.support import LATER, Ledger, make, manager_of, settle

pytestmark = pytest.mark.cluster

CONSUMER, PROVIDER = "wispy-firefly", "cool-firefly"
HOME, AWAY = naming.tenant_namespace(PROVIDER), naming.tenant_namespace(CONSUMER)


@pytest.fixture
async def server(own_plane: Plane) -> AsyncIterator[ClusterClient]:
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as real:
        for space, peer in ((HOME, PROVIDER), (AWAY, CONSUMER)):
            await real.create(keys.NAMESPACE, factories.tenant_namespace(space, peer))
        yield real


def shown(kubeconfig: Path, *args: str) -> list[str]:
    said = Kubectl(kubeconfig).run("get", *args)
    return [re.sub(r"(?<= )(\d+[dhms])+(?= |$)", "AGE", " ".join(line.split()))
            for line in said.splitlines()]  # fmt: skip


async def grant_mypool(server: ClusterClient) -> None:
    """Let the provider answer a replica of mypool, as replication and handshake leave it."""
    tenant = named(keys.TENANT, Key(AWAY, CONSUMER), spec={"clusterID": CONSUMER})
    await server.create(keys.TENANT, tenant)
    made = replica(Key(AWAY, "mypool"), CONSUMER, "default", {})
    await make(server, keys.RESOURCE_SLICE, made, status=AUTHENTICATED)
    ledger = Ledger(server)
    loop = GrantsReconciler(manager_of(ledger, clock=lambda: LATER), "s3", lambda: 0.0)
    loop.free = lambda _: {}
    await settle(loop, ALL, ledger)


async def adopt_answer(server: ClusterClient) -> None:
    """Let the consumer make its virtual node of the answer, as replication brings it home."""
    marks = {keys.CREATE_VIRTUAL_NODE: "true"}
    asked = named(keys.RESOURCE_SLICE, Key(HOME, "mypool"), metadata={"annotations": marks})
    answer = (await server.get(keys.RESOURCE_SLICE, Key(AWAY, "mypool")) or {})["status"]
    await make(server, keys.RESOURCE_SLICE, asked, status=answer)
    name = naming.resourceslice_identity("mypool")
    spec = {"clusterID": PROVIDER, "type": "ResourceSlice"}
    secret = {"kubeconfigSecretRef": {"name": naming.kubeconfig_secret(name)}}
    obj = named(keys.IDENTITY, Key(HOME, name), spec=spec)
    await make(server, keys.IDENTITY, obj, status=secret)
    ledger = Ledger(server)
    events = EventRecorder(server, "tests", "tests")
    loop = LocalSliceReconciler(
        manager_of(ledger, cluster_id=CONSUMER, private_key=identity.new_key(), events=events)
    )
    await settle(loop, Key(HOME, "mypool"), ledger)
    node = {"spec": {"createNode": True}}  # admission fills in what the template says
    await server.patch(keys.VIRTUAL_NODE, Key(HOME, "mypool"), node)


async def joined(server: ClusterClient, version: str) -> None:
    """Let the virtual kubelet make its Node of the virtual node."""
    where = Key(HOME, "mypool")
    virtual = await server.get(keys.VIRTUAL_NODE, where)
    assert virtual

    async def told() -> str:
        return version

    node = NodeReconciler(
        server,
        NodeIdentity("mypool", PROVIDER, "10.0.0.9", 10250, version),
        virtual_nodes=lambda: {where: virtual},
        health=Health,
        version=told,
        recorder=EventRecorder(server, "tests", "tests"),
        clock=lambda: LATER,
    )
    await node.reconcile(Key("", "mypool"))


async def test_the_listings_of_the_document(server: ClusterClient, own_plane: Plane) -> None:
    await grant_mypool(server)
    await adopt_answer(server)
    version = str((await server.version())["gitVersion"])
    await joined(server, version)

    assert shown(own_plane.kubeconfig, "resourceslices.authentication.liqo.io", "-n", HOME) == [
        "NAME AUTHENTICATION RESOURCES AGE",
        "mypool Accepted Accepted AGE",
    ]
    assert shown(own_plane.kubeconfig, "quotas.offloading.liqo.io", "-n", AWAY) == [
        "NAME ENFORCEMENT CORDONED AGE",
        "mypool-c34af51dd912 None AGE",
    ]
    assert shown(own_plane.kubeconfig, "virtualnodes.offloading.liqo.io", "-n", HOME) == [
        "NAME CLUSTERID CREATE NODE AGE",
        "mypool cool-firefly true AGE",
    ]
    assert shown(own_plane.kubeconfig, "nodes", "mypool") == [
        "NAME STATUS ROLES AGE VERSION",
        f"mypool Ready agent AGE {version}",
    ]
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}
    node = await server.get(keys.NODE, Key("", "mypool"))
    assert node
    assert node["status"]["capacity"] == node["status"]["allocatable"] == amounts
    granted_ = (await server.get(keys.RESOURCE_SLICE, Key(AWAY, "mypool")) or {})["status"]
    assert granted_["resources"] == amounts
