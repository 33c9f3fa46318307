"""What tests of storage share: a consumer whose claims go to milan."""

from typing import Any

from apis import keys
from apis.objects import Key, Object, named
from controllers.manager import Limits
from controllers.offloading.storage.reconciler import StorageReconciler
from kube.cluster import Cluster
from tests.controllers.support import Told, manager_of
from tests.fakes import FakeCluster

HERE = Key("foo", "data")
ASKED = {keys.STORAGE_PROVISIONERS[0]: keys.STORAGE_PROVISIONER, keys.SELECTED_NODE: "rome-1"}


def our_claim(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    body = {
        "storageClassName": "liqo",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **spec,
    }
    metadata = {"annotations": ASKED if annotations is None else annotations}
    return named(keys.PERSISTENT_VOLUME_CLAIM, HERE, metadata=metadata, spec=body)


def providing(cluster: Cluster, told: Told | None = None) -> StorageReconciler:
    events = (told or Told(cluster)).recorder
    manager = manager_of(cluster, events=events, limits=Limits(real_storage_class="fast"))
    return StorageReconciler(manager)


async def storage(asked: Object) -> tuple[FakeCluster, Object]:
    cluster = FakeCluster()
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "rome-1")))
    virtual = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "milan"), **virtual))
    return cluster, await cluster.create(keys.PERSISTENT_VOLUME_CLAIM, asked)


async def bind_volume(cluster: FakeCluster, real: Key) -> None:
    """Do what the provisioner of the real class does."""
    affinity = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    }
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "fast", "volumeHandle": "7"},
        "nodeAffinity": {"required": affinity},
        "claimRef": {"namespace": real.namespace, "name": real.name},
    }
    await cluster.create(
        keys.PERSISTENT_VOLUME, named(keys.PERSISTENT_VOLUME, Key("", "real"), spec=spec)
    )
    kind = keys.PERSISTENT_VOLUME_CLAIM
    await cluster.patch(kind, real, {"spec": {"volumeName": "real"}})
    await cluster.patch_status(kind, real, {"phase": "Bound"})
