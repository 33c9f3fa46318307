"""Which volumes a consumer's pod may have on the provider. Pure.

In a cluster of one's own, who may create pods may mount any disk or share that its nodes reach. A
consumer is a stranger: of storage it gets what a claim gets it.
Source: Kubernetes API reference, Volume; docs/parity.md SEC-A1, SEC-A3, SEC-A17.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apis import allowlist, keys, podsecurity, validation
from apis.objects import Object
from apis.providerpolicy import PRIVILEGED, ProviderPolicy

DEFAULT: Final = podsecurity.RESTRICTED_VOLUMES - {"csi"}
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


def complaints(_name: str, value: Any, spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    """Yield what is not allowed in ``value``, the volumes of ``spec``."""
    for index, volume in enumerate(validation.structs(value, "spec.pod.volumes")):
        path = f"volumes[{index}]"
        yield from _types(volume, path, policy)
        yield from template_complaints(volume, path, policy)
        projected = validation.struct(volume.get("projected"), f"spec.pod.{path}.projected")
        where = f"{path}.projected.sources"
        for source in validation.structs(projected.get("sources"), f"spec.pod.{where}"):
            yield from _source(source, spec, where)


def _types(volume: Object, path: str, policy: ProviderPolicy) -> Iterator[str]:
    for unknown in sorted(volume.keys() - VOLUMES - {"name"}):
        yield f"{path}.{unknown} is not a volume that is allowed"
    if policy.pod_security_level == PRIVILEGED:
        return
    for type_ in sorted(volume.keys() & OPENED - policy.allowed.volume_types):
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


# Which claims a pod may have made for it ----------------------------------------------------------

TEMPLATE_FIELDS: Final = ("accessModes", "resources", "storageClassName", "volumeMode")
"""What the spec of a claim says, by itself or in a template; all else is the provider's to say."""
_OF_OTHERS: Final = frozenset(["dataSource", "dataSourceRef", "selector", "volumeName"])
"""They name volumes that are there, and claims of any namespace."""
_TEXTS: Final = ("annotations", "labels")
_METADATA: Final = frozenset(_TEXTS)
_OURS: Final = ("liqo.io", "pyliqo.io")
NEVER: Final = "names what is the provider's"
STATIC: Final = "would take any volume that has no class"
UNOFFERED: Final = "none of those offered"


def template_complaints(volume: Object, path: str, policy: ProviderPolicy) -> Iterator[str]:
    """Yield what is not allowed in the template of ``volume``, if it is ephemeral."""
    ephemeral = validation.struct(volume.get("ephemeral"), f"spec.pod.{path}.ephemeral")
    where = f"{path}.ephemeral.volumeClaimTemplate"
    template = validation.struct(ephemeral.get("volumeClaimTemplate"), f"spec.pod.{where}")
    yield from _unknown(ephemeral, frozenset(["volumeClaimTemplate"]), f"{path}.ephemeral")
    yield from _unknown(template, frozenset(["metadata", "spec"]), where)
    metadata = validation.struct(template.get("metadata"), f"spec.pod.{where}.metadata")
    spec = validation.struct(template.get("spec"), f"spec.pod.{where}.spec")
    yield from _metadata(metadata, f"{where}.metadata", policy.annotation_domains)
    for name in sorted(_set(spec) & _OF_OTHERS):
        yield f"{where}.spec.{name} {NEVER}"
    yield from _unknown(spec, frozenset(TEMPLATE_FIELDS) | _OF_OTHERS, f"{where}.spec")
    if template:
        yield from _class(spec, f"{where}.spec.storageClassName", policy)


def left_out(spec: Object, opened: Iterable[str] = ()) -> frozenset[str]:
    """Return the annotations of templates in the PodSpec ``spec`` that no claim is made with."""
    volumes = validation.structs(spec.get("volumes"), "spec.pod.volumes")
    return frozenset().union(*(_unlisted(_annotations(one), opened) for one in volumes))


def listed(spec: Object, opened: Iterable[str] = ()) -> Object:
    """Return ``spec`` without these: a provider leaves them out of the Pod that it makes."""
    if not left_out(spec, opened):
        return spec
    return {**spec, "volumes": [_listed(one, opened) for one in spec["volumes"]]}


def _listed(volume: Object, opened: Iterable[str]) -> Object:
    noted = _annotations(volume)
    gone = _unlisted(noted, opened)
    if not gone:
        return volume
    kept = {name: value for name, value in noted.items() if name not in gone}
    template = volume["ephemeral"]["volumeClaimTemplate"]
    template = {**template, "metadata": {**template["metadata"], "annotations": kept}}
    return {**volume, "ephemeral": {**volume["ephemeral"], "volumeClaimTemplate": template}}


def _annotations(volume: Object) -> dict[str, str]:
    found: Object = volume
    for name in ("ephemeral", "volumeClaimTemplate", "metadata", "annotations"):
        found = validation.struct(found.get(name), f"spec.pod.volumes: {name}")
    return found


def _unlisted(annotations: Mapping[str, str], opened: Iterable[str]) -> frozenset[str]:
    ours = frozenset(name for name in annotations if is_of(name, _OURS))
    return ours | allowlist.unsent(keys.PERSISTENT_VOLUME_CLAIM, annotations, opened)


def _class(spec: Object, path: str, policy: ProviderPolicy) -> Iterator[str]:
    """Yield that the class is not offered; without one it is the default class of the cluster."""
    said, classes = spec.get("storageClassName"), policy.storage_classes
    if said is None and (classes is None or any(one.is_default for one in classes)):
        return
    named = validation.text(said, f"spec.pod.{path}")
    if said == "":
        if not policy.static_volumes:
            yield f"{path} '' {STATIC}"
    elif classes is not None and named not in (offered := {one.name for one in classes}):
        listed = ", ".join(sorted(offered)) or "there are none"
        yield f"{path} {named!r} is {UNOFFERED} ({listed})"


def _metadata(metadata: Object, where: str, opened: frozenset[str]) -> Iterator[str]:
    for name in sorted(_set(metadata) - _METADATA):
        yield f"{where}.{name} {NEVER}"
    given = {field: _texts(metadata.get(field), f"spec.pod.{where}.{field}") for field in _TEXTS}
    ours = {name for name in given["labels"] if is_of(name, _OURS)}
    found = allowlist.refused_labels(keys.PERSISTENT_VOLUME_CLAIM, given["labels"], opened)
    for name in sorted(ours | found):
        yield f"{where}.labels {name} {NEVER}"


def _texts(part: object, path: str) -> dict[str, str]:
    return {
        name: validation.text(text, f"{path}.{name}")
        for name, text in validation.struct(part, path).items()
    }


def is_of(name: str, domains: tuple[str, ...]) -> bool:
    """Whether the label or annotation ``name`` is of one of ``domains``, or of one below."""
    prefix, slash, _ = name.partition("/")
    return bool(slash) and any(prefix == one or prefix.endswith(f".{one}") for one in domains)


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in sorted(_set(part) - known):
        yield f"{path}.{name} is not known to this version of pyliqo"


def _set(part: Object) -> set[str]:
    return {name for name, value in part.items() if value is not None}
