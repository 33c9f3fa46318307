"""Which volumes a consumer's pod may have on the provider. Pure.

In a cluster of one's own, who may create pods may mount any disk or share that its nodes reach. A
consumer is a stranger: of storage it gets what a claim gets it.
Source: Kubernetes API reference, Volume; docs/parity.md SEC-A1, SEC-A3, SEC-A17.
"""

from collections.abc import Iterator
from typing import Any, Final

from apis import podclaims, validation
from apis.objects import Object
from apis.providerpolicy import PRIVILEGED, PodPolicy

DEFAULT: Final = frozenset(
    [
        "configMap",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
OPENED: Final = frozenset([
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume",
    "flocker", "gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk",
    "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
])  # fmt: skip
"""What names disks and shares of the provider, past its StorageClasses: as its policy says."""
VOLUMES: Final = DEFAULT | OPENED | {"hostPath"}
"""hostPath is up to the level of the Pod Security Standards; gitRepo runs commands on nodes."""
SOURCES: Final = frozenset(
    [
        "clusterTrustBundle",
        "configMap",
        "downwardAPI",
        "secret",
        "serviceAccountToken",
    ]
)
UNLISTED: Final = "past its StorageClasses"


def complaints(value: Any, spec: Object, policy: PodPolicy) -> Iterator[str]:
    """Yield what is not allowed in ``value``, the volumes of ``spec``."""
    for index, volume in enumerate(validation.structs(value, "spec.pod.volumes")):
        path = f"volumes[{index}]"
        yield from _types(volume, path, policy)
        yield from podclaims.complaints(volume, path, policy)
        projected = validation.struct(volume.get("projected"), f"spec.pod.{path}.projected")
        where = f"{path}.projected.sources"
        for source in validation.structs(projected.get("sources"), f"spec.pod.{where}"):
            yield from _source(source, spec, where)


def _types(volume: Object, path: str, policy: PodPolicy) -> Iterator[str]:
    for unknown in sorted(volume.keys() - VOLUMES - {"name"}):
        yield f"{path}.{unknown} is not a volume that is allowed"
    if policy.level == PRIVILEGED:
        return
    for type_ in sorted(volume.keys() & OPENED - policy.volume_types):
        yield f"{path}.{type_} names storage of the provider {UNLISTED}"


def _source(source: Object, spec: Object, where: str) -> Iterator[str]:
    for unknown in source.keys() - SOURCES:
        yield f"{where}: {unknown} is not a source that is allowed"
    token = source.get("serviceAccountToken")
    if token is None:
        return
    if spec.get("automountServiceAccountToken") is not True:
        yield f"{where}: a token goes with automountServiceAccountToken: true only"
    if validation.struct(token, f"spec.pod.{where}").get("audience"):
        yield f"{where}: a token for another audience is not allowed"
