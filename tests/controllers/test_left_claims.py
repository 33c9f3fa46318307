"""Real claims of which the virtual one has gone. Source: docs/parity.md H5, H18."""

import asyncio
import contextlib

import msgspec
import pytest

from apis import claims, keys, objects
from apis.objects import Key, Kind, Object, named
from controllers.offloading.storage import forge
from controllers.offloading.storage.reconciler import (
    MOST_OF_TEXT,
    SOURCE_RETRY_S,
    LeftClaimReconciler,
    LeftVolumeReconciler,
    PlaceholderReconciler,
    SlimClaim,
    StorageReconciler,
)
from kube import errors
from kube.cluster import Cluster, Selection
from kube.slim import Partial
from tests.controllers.storages import ASKED, HERE, bind_volume, our_claim, providing, storage
from tests.controllers.support import Ledger, Told, defaulted, local_map, manager_of
from tests.controllers.whole import controlling, together
from tests.kube.running import until_so

KIND = keys.PERSISTENT_VOLUME_CLAIM


async def real_claims(cluster: Cluster, namespace: str) -> list[Key]:
    label = f"{keys.VIRTUAL_CLAIM_NAMESPACE}={namespace}"
    return [*(await cluster.list(Selection(KIND, Partial, "liqo-storage", label))).items]


def loops(cluster: Cluster) -> tuple[StorageReconciler, LeftClaimReconciler, Told]:
    told = Told(cluster)
    made = providing(cluster, told)
    return made, LeftClaimReconciler(manager_of(cluster)), told


async def test_claims_that_are_made_and_deleted_again_leave_nothing(
    cluster: Cluster, namespace: str
) -> None:
    """The attack: each round would leave a volume that no quota counts."""
    name, node = "data." + "d" * 100, f"node-{namespace}"
    for kind, one in ((keys.NODE, node), (keys.NAMESPACE, "liqo-storage")):
        with contextlib.suppress(errors.AlreadyExistsError):
            await cluster.create(kind, named(kind, Key("", one)))
    made, left, _ = loops(cluster)
    where = Key(namespace, name)
    for _ in range(3):
        asked = our_claim({**ASKED, keys.SELECTED_NODE: node})
        asked["metadata"] |= {"namespace": namespace, "name": name}
        virtual = await cluster.create(KIND, asked)
        await made.reconcile(where)
        real = forge.real_key(virtual)
        assert await left.reconcile(real) is None
        assert await real_claims(cluster, namespace) == [real]

        await cluster.delete(KIND, where, uid=objects.uid(virtual))
        with contextlib.suppress(errors.NotFoundError, TimeoutError):
            async with asyncio.timeout(60):  # the finalizer of claims, where a server has it
                while found := await cluster.get_live(KIND, where):
                    changes: Object = {"metadata": {"finalizers": None}}
                    await cluster.patch(KIND, objects.key_of(found), changes)
        await left.reconcile(real)
        await _without_finalizers(cluster, real)
        await left.reconcile(real)

        assert await real_claims(cluster, namespace) == []
    assert await made.reconcile(where) is None
    assert await real_claims(cluster, namespace) == []


async def _without_finalizers(cluster: Cluster, key: Key) -> None:
    """Do what the controller of Kubernetes does once no pod has the claim that is to go."""
    found = await cluster.get_live(KIND, key)
    if found and objects.is_terminating(found):
        await cluster.patch(KIND, key, {"metadata": {"finalizers": None}})


async def test_a_namesake_is_another_claim() -> None:
    cluster, made = await storage(our_claim())
    provided, left, _ = loops(cluster)
    await provided.reconcile(HERE)
    await cluster.delete(KIND, HERE, uid=objects.uid(made))
    await cluster.create(KIND, our_claim())

    await left.reconcile(forge.real_key(made))

    assert await cluster.get(KIND, forge.real_key(made)) is None


@pytest.mark.parametrize("kept", [0, 1])
async def test_one_of_an_earlier_version_is_found_by_its_uid(kept: int) -> None:
    cluster, made = await storage(our_claim())
    provided, left, _ = loops(cluster)
    await provided.reconcile(HERE)
    real = forge.real_key(made)
    names = (keys.VIRTUAL_CLAIM_NAMESPACE, keys.VIRTUAL_CLAIM_NAME)
    await cluster.patch(KIND, real, {"metadata": {"annotations": dict.fromkeys(names)}})
    if not kept:
        await cluster.delete(KIND, HERE, uid=objects.uid(made))

    await left.reconcile(real)

    assert bool(await cluster.get(KIND, real)) == bool(kept)


async def test_the_data_of_a_volume_that_is_retained_stays_and_counts_against_nobody() -> None:
    cluster, made = await storage(our_claim())
    provided, left, told = loops(cluster)
    real = forge.real_key(made)
    await provided.reconcile(HERE)
    await bind_volume(cluster, real)
    await provided.reconcile(HERE)
    volume = forge.volume_key(made)
    retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
    await cluster.patch(keys.PERSISTENT_VOLUME, volume, retain)
    await cluster.patch_status(keys.PERSISTENT_VOLUME, volume, {"phase": "Released"})
    await cluster.delete(KIND, HERE, uid=objects.uid(made))

    await left.reconcile(real)
    await LeftVolumeReconciler(manager_of(cluster)).reconcile(volume)
    assert await cluster.get(KIND, real)

    again = await cluster.create(KIND, our_claim())
    assert await provided.reconcile(HERE) is None
    assert await cluster.get(KIND, forge.real_key(again))
    assert "TooManyRealClaims" not in told.reasons


async def test_what_we_did_not_make_stays() -> None:
    cluster, _ = await storage(our_claim())
    theirs = Key("liqo-storage", "somebodys")
    await cluster.create(KIND, named(KIND, theirs, spec={}))

    await LeftClaimReconciler(manager_of(cluster)).reconcile(theirs)

    assert await cluster.get(KIND, theirs)


class _Stale(Ledger):
    """A cluster whose cache shows a claim for ever."""

    def __init__(self, live: Cluster, claim_: Object) -> None:
        super().__init__(live)
        self._claim = claim_

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return self._claim if (kind, key) == (KIND, HERE) else await super().get(kind, key)


async def test_a_claim_that_went_meanwhile_gets_no_real_one() -> None:
    """Caches are behind: what is created is for the claim that the server has now."""
    cluster, made = await storage(our_claim())
    stale = _Stale(cluster, made)
    await cluster.delete(KIND, HERE, uid=objects.uid(made))

    assert await loops(stale)[0].reconcile(HERE) is None
    await cluster.create(KIND, our_claim())  # a namesake
    assert await loops(stale)[0].reconcile(HERE) is None

    assert stale.writes == []


async def test_a_namespace_has_no_more_real_claims_than_virtual_ones() -> None:
    cluster, made = await storage(our_claim())
    provided, left, told = loops(cluster)
    await provided.reconcile(HERE)
    await cluster.delete(KIND, HERE, uid=objects.uid(made))
    again = await cluster.create(KIND, our_claim())

    assert await provided.reconcile(HERE) == SOURCE_RETRY_S
    assert await cluster.get(KIND, forge.real_key(again)) is None
    assert told.reasons == ["TooManyRealClaims"]

    await left.reconcile(forge.real_key(made))
    assert await provided.reconcile(HERE) is None
    assert await real_claims(cluster, "foo") == [forge.real_key(again)]


def test_a_cache_keeps_little_of_a_large_claim() -> None:
    large = our_claim({**ASKED, "note": "x" * 250_000, keys.SELECTED_NODE: "n" * 200_000})
    large["spec"]["selector"] = {"matchLabels": {"a": "x" * 100_000}}
    large["spec"]["volumeName"] = "v" * 100_000

    kept = msgspec.convert(large, SlimClaim)

    assert len(msgspec.json.encode(kept)) < 4 * MOST_OF_TEXT
    assert forge.is_ours(kept.to_object())
    assert kept.key == HERE


def test_only_the_amount_of_storage_is_told() -> None:
    """Another cluster says what it likes of anything else."""
    said = {"cpu": "1e999999999", "storage": "2048Mi", "note": "x" * 100_000}

    assert claims.storage_amount(said) == {"storage": "2Gi"}


async def test_the_loops_remove_what_was_left_before_they_began_and_what_is_left_later() -> None:
    cluster, made = await storage(our_claim())
    label = {keys.VIRTUAL_CLAIM_NAMESPACE: "foo", keys.VIRTUAL_CLAIM_NAME: "gone"}
    old = named(KIND, Key("liqo-storage", "a-uid"), metadata={"labels": label}, spec={})
    await cluster.create(KIND, old)

    async def are(*wanted: Key) -> bool:
        return await real_claims(cluster, "foo") == [*wanted]

    async with controlling(
        cluster, together(StorageReconciler, LeftVolumeReconciler, LeftClaimReconciler)
    ):
        await until_so(lambda: are(forge.real_key(made)), "the one that is needed is there")
        await cluster.delete(KIND, HERE, uid=objects.uid(made))
        await until_so(are, "none is there")


# Volumes that stand for claims on a provider ------------------------------------------------------


async def placeholder(cluster: Cluster, namespace: str, policy: str, *, bound: bool) -> Key:
    """Make what a reflector leaves: a volume for a claim of ``namespace``, which may have gone."""
    uid = "gone"
    if bound:
        asked = our_claim(storageClassName="liqo", volumeName=f"pvc-{namespace}")
        asked["metadata"]["namespace"] = namespace
        uid = objects.uid(await cluster.create(KIND, asked))
    where = Key("", f"pvc-{namespace}")
    spec = {
        "storageClassName": "liqo",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/nowhere"},
        "persistentVolumeReclaimPolicy": policy,
        "claimRef": objects.reference(KIND, Key(namespace, "data"), uid),
    }
    metadata = {
        "labels": {keys.REMOTE_CLUSTER_ID: "milan"},
        "annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER},
        "finalizers": [keys.VOLUME_PROTECTION],
    }
    made = named(keys.PERSISTENT_VOLUME, where, metadata=metadata, spec=spec)
    await cluster.create(keys.PERSISTENT_VOLUME, made)
    return where


def placeholders(cluster: Cluster) -> tuple[PlaceholderReconciler, Told]:
    told = Told(cluster)
    return PlaceholderReconciler(manager_of(cluster, events=told.recorder)), told


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_claim_whose_namespace_is_no_longer_there_has_lost_its_volume(
    cluster: Cluster, namespace: str, policy: str
) -> None:
    where = await placeholder(cluster, namespace, policy, bound=True)
    reconciler, told = placeholders(cluster)
    goes = local_map(namespace, "milan", **{namespace: f"{namespace}-rome"})
    await cluster.create(keys.NAMESPACE_MAP, goes)
    await reconciler.reconcile(where)
    assert await cluster.get_live(keys.PERSISTENT_VOLUME, where) is not None

    none: Object = {"spec": {"desiredMapping": {namespace: None}}}
    await cluster.patch(keys.NAMESPACE_MAP, objects.key_of(goes), none)
    await reconciler.reconcile(where)
    await reconciler.reconcile(where)

    assert await cluster.get_live(keys.PERSISTENT_VOLUME, where) is None
    assert told.reasons == ["VolumeLost"]


@pytest.mark.parametrize(("policy", "stays"), [("Delete", False), ("Retain", True)])
async def test_a_volume_whose_claim_has_gone_goes_though_nobody_reflects_its_namespace(
    cluster: Cluster, namespace: str, policy: str, *, stays: bool
) -> None:
    where = await placeholder(cluster, namespace, policy, bound=False)
    reconciler, told = placeholders(cluster)

    await reconciler.reconcile(where)

    assert (await cluster.get_live(keys.PERSISTENT_VOLUME, where) is not None) is stays
    assert told.reasons == []


@pytest.mark.parametrize(
    ("required", "ready", "stays"),
    [("True", None, True), ("False", "True", True), ("False", None, False)],
    ids=["wanted there", "still there", "taken back"],
)
async def test_a_map_that_was_made_again_takes_no_volume_along(
    cluster: Cluster, namespace: str, required: str, ready: str | None, *, stays: bool
) -> None:
    """It is empty for a moment; what the NamespaceOffloading says is older than that."""
    where = await placeholder(cluster, namespace, "Delete", bound=True)
    reconciler, _ = placeholders(cluster)
    await cluster.create(keys.NAMESPACE_MAP, local_map(namespace, "milan"))
    await cluster.create(keys.NAMESPACE_OFFLOADING, defaulted(namespace))
    said = {"OffloadingRequired": required, **({"Ready": ready} if ready else {})}
    conditions = [
        {"type": name, "status": status, "lastTransitionTime": "2025-01-31T12:00:00Z"}
        for name, status in said.items()
    ]
    key = Key(namespace, keys.OFFLOADING_NAME)
    status = {"remoteNamespacesConditions": {"milan": conditions}}
    await cluster.patch_status(keys.NAMESPACE_OFFLOADING, key, status)

    await reconciler.reconcile(where)

    assert (await cluster.get_live(keys.PERSISTENT_VOLUME, where) is not None) is stays
