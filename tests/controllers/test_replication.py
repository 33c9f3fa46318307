"""Spec goes from consumer to provider, status comes back, and nothing goes by mistake."""

from dataclasses import dataclass, replace

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from controllers.peers.replication import forge
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.peers import PeerKey, complaint, wanted_peers
from controllers.peers.replication.reconciler import (
    LOOKS_A_SECOND,
    ReleaseReconciler,
    ReplicationReconciler,
    looks,
)
from kube.cluster import Cluster
from kube.controller import TerminalError
from kube.errors import ForbiddenError, NotReachableError
from tests import factories
from tests.controllers.support import Ledger, Told, end, ensure_namespace, local_map, settle, there
from tests.fakes import FakeCluster

KIND = keys.NAMESPACE_MAP


@dataclass
class Peers:
    """Two tenant namespaces; in one cluster, which is all the same to a reconciler."""

    cluster: Ledger
    peering: Peering

    def __post_init__(self) -> None:
        self.told = Told(self.cluster)
        self.reconciler = ReplicationReconciler(
            KIND, self.peering, self.cluster, self.cluster, self.told.recorder
        )

    @property
    def here(self) -> Key:
        return Key(self.peering.local_namespace, "milan")

    @property
    def there(self) -> Key:
        return self.peering.replica_of(self.here)

    async def settle(self) -> None:
        await settle(self.reconciler, self.here, self.cluster)

    async def original(self) -> Object:
        return await there(self.cluster, KIND, self.here)

    async def replica(self) -> Object:
        return await there(self.cluster, KIND, self.there)


async def replicating_peers(cluster: Cluster, unique: str) -> Peers:
    peering = Peering("rome", "milan", f"liqo-tenant-milan-{unique}", f"liqo-tenant-rome-{unique}")
    await ensure_namespace(cluster, peering.local_namespace)
    await ensure_namespace(cluster, peering.remote_namespace)
    await cluster.create(KIND, local_map(peering.local_namespace, "milan", foo="foo-rome"))
    return Peers(Ledger(cluster), peering)


@pytest.fixture
async def peers(cluster: Cluster, namespace: str) -> Peers:
    return await replicating_peers(cluster, namespace)


async def test_the_replica_has_the_spec_and_the_labels_of_the_example(peers: Peers) -> None:
    await peers.settle()

    replica = await peers.replica()
    assert replica["spec"] == {"desiredMapping": {"foo": "foo-rome"}}
    assert objects.labels(replica) == {
        "liqo.io/replication": "false",
        "liqo.io/remoteID": "milan",
        "liqo.io/originID": "rome",
        "liqo.io/replicated": "true",
        "liqo.io/remote-cluster-id": "rome",
    }
    assert objects.finalizers(await peers.original()) == ["crdreplicator.liqo.io/resource"]


async def test_ownership_and_the_last_applied_configuration_stay_here() -> None:
    original = local_map("t", "milan")
    original["metadata"]["labels"][keys.OWNERSHIP] = "mine"
    original["metadata"]["annotations"] = {keys.LAST_APPLIED: "{}", "note": "x"}

    replica = forge.replica(KIND, original, Peering("rome", "milan", "t", "r"))

    assert keys.OWNERSHIP not in objects.labels(replica)
    assert objects.annotations(replica) == {"note": "x"}


async def test_spec_follows_and_status_comes_back(peers: Peers) -> None:
    await peers.settle()
    changes = {"spec": {"desiredMapping": {"foo": None, "bar": "bar-rome"}}}
    await peers.cluster.patch(KIND, peers.here, changes)
    current = {"bar": {"remoteNamespace": "bar-rome", "phase": "Accepted"}}
    await peers.cluster.patch_status(KIND, peers.there, {"currentMapping": current})

    await peers.settle()

    assert (await peers.replica())["spec"]["desiredMapping"] == {"bar": "bar-rome"}
    assert (await peers.original())["status"]["currentMapping"] == current


async def test_the_reason_of_a_refusal_comes_back(peers: Peers) -> None:
    await peers.settle()
    entry = {"remoteNamespace": "foo-rome", "phase": "CreationLoopBackOff"}
    refused = {"foo": {**entry, "reason": "Conflict", "message": "it exists"}}
    await peers.cluster.patch_status(KIND, peers.there, {"currentMapping": refused})

    await peers.settle()

    assert (await peers.original())["status"]["currentMapping"] == refused


async def test_a_replica_that_the_provider_deletes_comes_back(peers: Peers) -> None:
    await peers.settle()
    before = objects.uid(await peers.replica())
    await end(peers.cluster, KIND, peers.there)

    await peers.settle()

    assert objects.uid(await peers.replica()) != before


async def test_the_original_waits_until_the_replica_is_gone(peers: Peers) -> None:
    await peers.settle()
    finalizers = {"metadata": {"finalizers": ["example.org/slow"]}}
    await peers.cluster.patch(KIND, peers.there, finalizers)
    await end(peers.cluster, KIND, peers.here)

    again = await peers.reconciler.reconcile(peers.here)
    waiting = await peers.original()
    await peers.cluster.patch(KIND, peers.there, {"metadata": {"finalizers": []}})
    await peers.settle()

    assert again is not None
    assert objects.finalizers(waiting)
    assert await peers.cluster.get_live(KIND, peers.here) is None
    assert await peers.cluster.get_live(KIND, peers.there) is None


async def test_a_replica_whose_original_is_gone_goes(peers: Peers) -> None:
    await peers.settle()
    await peers.cluster.patch(KIND, peers.here, {"metadata": {"finalizers": []}})
    await end(peers.cluster, KIND, peers.here)

    await peers.settle()

    assert await peers.cluster.get_live(KIND, peers.there) is None


async def test_what_is_not_our_replica_is_left_alone(peers: Peers) -> None:
    foreign = local_map(peers.peering.remote_namespace, "milan", theirs="x")
    made = await peers.cluster.create(KIND, foreign)

    with pytest.raises(TerminalError, match="is not our replica"):
        await peers.reconciler.reconcile(peers.here)
    await end(peers.cluster, KIND, peers.here)
    await peers.settle()

    assert await peers.replica() == made


@factories.cases("marks")
async def test_what_is_a_replica_is_never_an_original(peers: Peers, marks: dict[str, str]) -> None:
    """Else its own consumer would have us bring home the status that it wrote there."""
    await peers.cluster.patch(KIND, peers.here, {"metadata": {"labels": marks}})
    before = await peers.original()

    await peers.settle()

    assert await peers.cluster.get_live(KIND, peers.there) is None
    assert await peers.original() == before


def test_labels_add_no_peer_to_those_that_are_followed() -> None:
    """Each would cost a task, a watch and a connection."""
    where = "liqo-tenant-turin"
    invented = [local_map(where, f"x{number}") for number in range(2000)]
    maps = {objects.key_of(one): one for one in invented}
    turin = local_map(where, "turin")

    assert wanted_peers([maps], {where: "turin"}) == set()
    assert wanted_peers([maps, {objects.key_of(turin): turin}], {where: "turin"}) == {
        PeerKey(where, "turin")
    }
    assert wanted_peers([{objects.key_of(turin): turin}], {}) == set()


async def test_what_is_not_for_this_peer_stays_here(peers: Peers) -> None:
    labels = {"metadata": {"labels": {keys.REMOTE_ID: "turin"}}}
    await peers.cluster.patch(KIND, peers.here, labels)

    await peers.settle()

    assert await peers.cluster.get_live(KIND, peers.there) is None


async def test_a_peer_that_does_not_answer_loses_nothing() -> None:
    here, away = FakeCluster(), FakeCluster()
    peers = await replicating_peers(here, "x")
    two = ReplicationReconciler(KIND, peers.peering, here, away, peers.told.recorder)
    await two.reconcile(peers.here)
    await end(here, KIND, peers.here)
    away.fail("get", NotReachableError("no answer"))

    with pytest.raises(NotReachableError):
        await two.reconcile(peers.here)

    assert objects.finalizers(await peers.original())
    assert not objects.is_terminating(await there(away, KIND, peers.there))


async def test_what_the_provider_refuses_is_told_on_the_original() -> None:
    here, away = FakeCluster(), FakeCluster()
    peers = await replicating_peers(here, "x")
    two = ReplicationReconciler(KIND, peers.peering, here, away, peers.told.recorder)
    away.fail("create", ForbiddenError("exceeded quota: liqo-objects, limited: 16"))

    with pytest.raises(ForbiddenError):
        await two.reconcile(peers.here)

    assert peers.told.reasons == ["ReplicationRefused"]


async def test_a_drained_tenant_is_let_go() -> None:
    here, away = FakeCluster(), FakeCluster()
    peers = await replicating_peers(here, "x")
    two = ReplicationReconciler(KIND, peers.peering, here, away, peers.told.recorder)
    await two.reconcile(peers.here)
    await end(here, KIND, peers.here)
    away.fail("get_live", ForbiddenError("no rights"))
    away.fail("get", ForbiddenError("no rights"))

    await two.reconcile(peers.here)

    assert await here.get_live(KIND, peers.here) is None


async def test_where_the_peer_is_gone_for_good_the_original_is_let_go() -> None:
    here, away = FakeCluster(), FakeCluster()
    peers = await replicating_peers(here, "x")
    two = ReplicationReconciler(KIND, peers.peering, here, away, peers.told.recorder)
    await two.reconcile(peers.here)
    told = Told(here)
    release = ReleaseReconciler(KIND, here, told.recorder)

    await release.reconcile(peers.here)
    stays = await peers.original()
    await end(here, KIND, peers.here)
    await release.reconcile(peers.here)

    assert objects.finalizers(stays)
    assert await here.get_live(KIND, peers.here) is None
    assert await away.get_live(KIND, peers.there)
    assert told.reasons == ["ReplicaAbandoned"]


async def test_without_an_identity_the_original_is_let_go_once_the_server_says_so() -> None:
    """The cache knows no Secret where our rights went first, and sees none go."""
    here = FakeCluster()
    peers = await replicating_peers(here, "x")
    await ReplicationReconciler(
        KIND, peers.peering, here, FakeCluster(), peers.told.recorder
    ).reconcile(peers.here)
    await end(here, KIND, peers.here)
    told = Told(here)
    answers = iter((False, True))

    async def is_signed_out() -> bool:
        return next(answers)

    release = ReleaseReconciler(KIND, here, told.recorder, is_signed_out)

    assert await release.reconcile(peers.here) is not None
    assert objects.finalizers(await peers.original())
    assert await release.reconcile(peers.here) is None
    assert await here.get_live(KIND, peers.here) is None
    assert told.reasons == ["ReplicaAbandoned"]


async def test_what_a_namespace_waits_for_there_is_forgotten_and_told() -> None:
    """Then anybody who unoffloads a namespace waits no more for the twin to go."""
    here = FakeCluster()
    peers = await replicating_peers(here, "x")
    entry = {"phase": "Accepted"}
    current = {
        "foo": {"remoteNamespace": "foo-rome", **entry},
        "old": {"remoteNamespace": "old-rome", **entry},
    }
    await here.patch_status(KIND, peers.here, {"currentMapping": current})
    told = Told(here)

    for _ in range(2):
        await ReleaseReconciler(KIND, here, told.recorder).reconcile(peers.here)

    assert list((await peers.original())["status"]["currentMapping"]) == ["foo"]
    assert told.reasons == ["NamespacesAbandoned"]


def test_a_peer_that_is_silent_about_some_kinds_is_told_with_their_names() -> None:
    milan = PeerKey("liqo-tenant-milan", "milan")

    assert complaint(milan) == (
        "cluster milan does not answer the identity in secret "
        "liqo-tenant-milan/kubeconfig-controlplane-milan"
    )
    assert "about resourceslices.authentication.liqo.io: see that it has" in complaint(
        milan, [keys.RESOURCE_SLICE]
    )


async def test_looks_for_what_a_peer_invents_are_paced(peers: Peers) -> None:
    reconciler = replace(peers.reconciler, looks=looks(clock=lambda: 0.0))
    for number in range(30):
        invented = local_map(peers.peering.remote_namespace, f"invented-{number}")
        invented["metadata"]["labels"] = forge.labels(invented, peers.peering)
        await peers.cluster.create(KIND, invented)

    again = [
        await reconciler.reconcile(Key(peers.peering.local_namespace, f"invented-{number}"))
        for number in range(30)
    ]

    assert sum(left_s is None for left_s in again) == LOOKS_A_SECOND
