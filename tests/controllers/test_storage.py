"""Claims of the virtual class on nodes of this cluster."""

import contextlib
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from controllers.offloading.storage import forge
from controllers.offloading.storage.reconciler import (
    SOURCE_RETRY_S,
    LeftVolumeReconciler,
    StorageReconciler,
)
from kube import errors
from kube.cluster import Cluster
from tests.controllers.storages import ASKED, HERE, bind_volume, our_claim, providing, storage
from tests.controllers.support import Ledger, Told, manager_of

MORE = {"storage": "2Gi"}


def reconciler(cluster: Any) -> StorageReconciler:
    return providing(cluster)


async def test_a_real_claim_provides_for_the_virtual_one() -> None:
    cluster, made = await storage(our_claim())
    ledger = Ledger(cluster)
    loop = reconciler(ledger)
    real = Key("liqo-storage", made["metadata"]["uid"])

    await loop.reconcile(HERE)
    await loop.reconcile(HERE)
    asked = await cluster.get(keys.PERSISTENT_VOLUME_CLAIM, real)
    assert asked
    assert asked["spec"]["storageClassName"] == "fast"
    assert asked["metadata"]["annotations"] == {
        keys.SELECTED_NODE: "rome-1",
        keys.VIRTUAL_CLAIM_NAMESPACE: "foo",
        keys.VIRTUAL_CLAIM_NAME: "data",
    }

    await bind_volume(cluster, real)
    await loop.reconcile(HERE)
    await loop.reconcile(HERE)
    volume = await cluster.get(keys.PERSISTENT_VOLUME, forge.volume_key(made))
    assert volume
    assert volume["spec"]["csi"] == {"driver": "fast", "volumeHandle": "7"}
    assert forge.claim_of(volume) == HERE
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [one["key"] for one in term["matchExpressions"]] == ["zone", keys.NODE_TYPE]
    assert [verb for verb, _, _ in ledger.writes] == ["create", "create"]


KIND = keys.PERSISTENT_VOLUME_CLAIM
THEIRS = "5f1c6b1e-0000-4000-8000-000000000001"
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "old"}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (
            {"dataSource": SNAPSHOT, "dataSourceRef": SNAPSHOT},
            "spec.dataSource, spec.dataSourceRef",
        ),
        (
            {"dataSourceRef": {"kind": KIND.kind, "name": THEIRS, "namespace": "liqo-storage"}},
            "spec.dataSourceRef",
        ),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
        ({"fromTheFuture": {"name": THEIRS}}, "spec.fromTheFuture"),
        ({"dataSource": {"kind": KIND.kind, "name": "ordinary"}}, "spec.dataSource"),
    ],
    ids=["snapshot", "another namespace", "selector", "unknown", "claim of another class"],
)
async def test_what_could_name_the_data_of_others_is_left_out_and_told(
    *, spec: dict[str, Any], fields: str
) -> None:
    """Kubernetes lets a claim name data of its own namespace; real claims share one."""
    cluster, made = await storage(our_claim(**spec))
    theirs = named(KIND, Key("liqo-storage", THEIRS), spec={"volumeName": "their-volume"})
    await cluster.create(KIND, theirs)
    other = {"storageClassName": "fast", "volumeName": "mine"}
    await cluster.create(KIND, named(KIND, Key("foo", "ordinary"), spec=other))
    told = Told(cluster)
    loop = providing(cluster, told)

    assert await loop.reconcile(HERE) is None
    await loop.reconcile(HERE)

    real = await cluster.get(KIND, forge.real_key(made))
    assert real
    assert set(real["spec"]) == {"accessModes", "resources", "storageClassName"}
    assert told.reasons == ["FieldsLeftOut"]
    assert forge.left_out(made, None).startswith(f"{fields}: left out")


async def test_a_copy_of_a_claim_of_the_same_namespace_is_one_of_its_real_claim() -> None:
    source = {"kind": KIND.kind, "name": "old"}
    cluster, made = await storage(our_claim(dataSource=source, dataSourceRef=source))
    told = Told(cluster)
    loop = providing(cluster, told)
    spec = {"storageClassName": "liqo"}
    assert await loop.reconcile(HERE) == SOURCE_RETRY_S
    old = await cluster.create(KIND, named(KIND, Key("foo", "old"), spec=spec))
    assert await loop.reconcile(HERE) == SOURCE_RETRY_S
    assert await cluster.get(KIND, forge.real_key(made)) is None
    await cluster.create(KIND, named(KIND, forge.real_key(old), spec={"volumeName": "real"}))
    await cluster.patch(KIND, Key("foo", "old"), {"spec": {"volumeName": "pvc-old"}})

    assert await loop.reconcile(HERE) is None

    real = await cluster.get(KIND, forge.real_key(made))
    assert real
    assert real["spec"]["dataSource"] == {"kind": KIND.kind, "name": old["metadata"]["uid"]}
    assert "dataSourceRef" not in real["spec"]
    assert set(told.reasons) == {"WaitForDataSource"}


async def test_an_api_server_takes_the_copy_and_sees_no_other_source(
    cluster: Cluster, namespace: str
) -> None:
    """It writes dataSource into dataSourceRef and back, so that both have to be translated."""
    node, kind = f"node-{namespace}", {"kind": KIND.kind}
    for needed, name in ((keys.NODE, node), (keys.NAMESPACE, "liqo-storage")):
        with contextlib.suppress(errors.AlreadyExistsError):
            await cluster.create(needed, named(needed, Key("", name)))
    annotations = {**ASKED, keys.SELECTED_NODE: node}

    async def provided(name: str, **spec: Any) -> Object:
        asked = our_claim(annotations, **spec)
        asked["metadata"] |= {"namespace": namespace, "name": name}
        made = await cluster.create(KIND, asked)
        await reconciler(cluster).reconcile(Key(namespace, name))
        real = await cluster.get_live(KIND, forge.real_key(made))
        assert real
        return real

    old = await provided("old")
    await cluster.patch(KIND, Key(namespace, "old"), {"spec": {"volumeName": "pvc-old"}})
    copied = await provided("copied", dataSource={**kind, "name": "old"})
    theirs = {**kind, "name": objects.key_of(old).name, "namespace": "liqo-storage"}
    stolen = await provided("stolen", dataSourceRef=theirs)

    assert copied["spec"]["dataSource"]["name"] == objects.key_of(old).name
    assert not {"dataSource", "dataSourceRef"} & set(stolen["spec"])


async def test_the_uid_of_somebodys_claim_is_no_name_of_a_source() -> None:
    cluster, made = await storage(our_claim(dataSource={"kind": KIND.kind, "name": THEIRS}))
    theirs = named(KIND, Key("liqo-storage", THEIRS), spec={"volumeName": "their-volume"})
    await cluster.create(KIND, theirs)

    assert await reconciler(cluster).reconcile(HERE) == SOURCE_RETRY_S

    assert await cluster.get(KIND, forge.real_key(made)) is None


async def test_claims_that_go_elsewhere_are_left_alone() -> None:
    for other in (
        our_claim({**ASKED, keys.SELECTED_NODE: "milan"}),
        our_claim({}),
        our_claim(storageClassName="fast"),
        our_claim(volumeName="bound"),
    ):
        cluster, _ = await storage(other)
        ledger = Ledger(cluster)
        await reconciler(ledger).reconcile(HERE)
        assert ledger.writes == []


async def test_the_real_claim_and_the_volume_go_after_the_claim() -> None:
    cluster, made = await storage(our_claim())
    loop = reconciler(cluster)
    real = Key("liqo-storage", made["metadata"]["uid"])
    await loop.reconcile(HERE)
    await bind_volume(cluster, real)
    await loop.reconcile(HERE)
    volume = forge.volume_key(made)
    left = LeftVolumeReconciler(manager_of(cluster))

    await left.reconcile(volume)
    assert await cluster.get(keys.PERSISTENT_VOLUME_CLAIM, real)

    await cluster.patch_status(keys.PERSISTENT_VOLUME, volume, {"phase": "Released"})
    await left.reconcile(volume)
    assert await cluster.get(keys.PERSISTENT_VOLUME_CLAIM, real) is None
    assert await cluster.get(keys.PERSISTENT_VOLUME, volume) is None
    assert await cluster.get(keys.PERSISTENT_VOLUME, Key("", "real"))


async def test_a_claim_that_asks_for_more_gets_more_and_is_told() -> None:
    cluster, made = await storage(our_claim())
    ledger = Ledger(cluster)
    loop = reconciler(ledger)
    real, kind = Key("liqo-storage", made["metadata"]["uid"]), keys.PERSISTENT_VOLUME_CLAIM
    await loop.reconcile(HERE)
    await bind_volume(cluster, real)
    await loop.reconcile(HERE)
    asked = {"volumeName": forge.volume_key(made).name, "resources": {"requests": MORE}}
    await cluster.patch(kind, HERE, {"spec": asked})

    await loop.reconcile(HERE)
    found = await cluster.get(kind, real)
    assert found
    assert found["spec"]["resources"]["requests"] == MORE

    await cluster.patch_status(kind, real, {"capacity": MORE})
    await loop.reconcile(HERE)
    volume = await cluster.get(keys.PERSISTENT_VOLUME, forge.volume_key(made))
    told = await cluster.get(kind, HERE)
    assert volume
    assert told
    assert volume["spec"]["capacity"] == told["status"]["capacity"] == MORE
    writes = len(ledger.writes)
    await loop.reconcile(HERE)
    assert len(ledger.writes) == writes


async def test_a_claim_that_asks_for_what_is_no_amount_is_told_and_grows_no_more() -> None:
    """API servers store more than a volume can have. Source: docs/parity.md SEC-A13."""
    cluster, made = await storage(our_claim())
    told, real = Told(cluster), Key("liqo-storage", made["metadata"]["uid"])
    loop = providing(cluster, told)
    await loop.reconcile(HERE)
    await bind_volume(cluster, real)
    await loop.reconcile(HERE)
    odd = {"requests": {"storage": "1e400"}}
    asked = {"volumeName": forge.volume_key(made).name, "resources": odd}
    await cluster.patch(keys.PERSISTENT_VOLUME_CLAIM, HERE, {"spec": asked})

    await loop.reconcile(HERE)

    found = await cluster.get(keys.PERSISTENT_VOLUME_CLAIM, real)
    assert found
    assert found["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    assert told.reasons[-1] == "InvalidAmount"
