"""The twin of a claim whose first pod goes to the provider, and the volume that binds it at home.

Source: behaviour.md 6.9. The data is where the twin is, and pods follow it.
"""

from collections.abc import Iterable
from typing import Final

from apis import keys, leaving, objects, reflection, volumes
from apis.leaving import Stay
from apis.objects import Key, Object, named
from reflector.forge import shapes, twins
from reflector.forge.contract import Forge, Input, Scene, Write, nobody

PLACEHOLDER: Final = "/tmp/liqo-placeholder"  # noqa: S108  # nobody mounts it
_ACCESS_MODES: Final = frozenset(
    {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}
)


def twin(local: Object, scene: Scene) -> Object:
    """Return the claim on the provider.

    Raises:
        NotYetError: an annotation names an access mode that is none.
    """
    have = local["spec"]
    spec = {
        "accessModes": _access_modes(local),
        "volumeMode": have.get("volumeMode") or "Filesystem",
        "resources": have.get("resources") or {},
    }
    class_ = objects.annotations(local).get(keys.REMOTE_STORAGE_CLASS)
    if chosen := class_ or scene.settings.storage_class:
        spec["storageClassName"] = chosen
    made = twins.of(keys.PERSISTENT_VOLUME_CLAIM, local, scene, spec=spec)
    annotations = made["metadata"].get("annotations", {})
    for name in keys.ANNOTATIONS_OF_CLAIMS:
        annotations.pop(name, None)
    return made


def settled(wanted: Object, found: Object) -> Object:
    """Return ``wanted`` with the class and modes of the claim ``found``: they cannot change."""
    fixed = {
        name: found["spec"][name]
        for name in ("storageClassName", "accessModes", "volumeMode")
        if name in found["spec"]
    }
    return {**wanted, "spec": {**wanted["spec"], **fixed}}


def stays(local: Object, scene: Scene) -> Stay | None:
    """Return why ``local`` is no matter of this provider, None when it is."""
    if local["spec"].get("storageClassName") != scene.settings.virtual_storage_class:
        return Stay("its class is not the virtual one", is_told=False)
    if local["spec"].get("volumeName"):
        return _elsewhere(local, scene)
    annotations = objects.annotations(local)
    if not any(
        annotations.get(name) == keys.STORAGE_PROVISIONER for name in keys.STORAGE_PROVISIONERS
    ):
        return Stay("nobody has asked for its volume yet", is_told=False)
    if not _is_selected(local, scene):
        return Stay("its first pod does not go to the provider", is_told=False)
    if not scene.settings.enable_storage:
        return Stay(f"{scene.pair.destination} offers no storage", is_told=True)
    return None


def back(key: Key, original: Object | None, twin_: Object | None, scene: Scene) -> Iterable[Write]:
    """Yield what binds the claim at home to the provider, or lets it be bound elsewhere."""
    if original is None:
        yield from _released(key, scene)
    elif twin_ is not None and not original["spec"].get("volumeName"):
        volume = volume_of(original, scene)
        if scene.look.get(keys.PERSISTENT_VOLUME, objects.key_of(volume)) is None:
            yield Write("create", keys.PERSISTENT_VOLUME, objects.key_of(volume), volume)
    elif twin_ is not None:
        yield from _grown(key, original, twin_, scene)
    elif _is_refused(original, scene):
        metadata = {"uid": objects.uid(original), "annotations": {keys.SELECTED_NODE: None}}
        yield Write("patch", keys.PERSISTENT_VOLUME_CLAIM, key, {"metadata": metadata})


def volume_of(claim: Object, scene: Scene) -> Object:
    """Return the volume that stands at home for the one on the provider."""
    class_ = scene.look.get(keys.STORAGE_CLASS, Key("", claim["spec"]["storageClassName"])) or {}
    where = objects.key_of(claim)
    term = {
        "key": keys.REMOTE_CLUSTER_ID,
        "operator": "In",
        "values": [scene.pair.destination],
    }
    spec = {
        "storageClassName": claim["spec"]["storageClassName"],
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        "hostPath": {"path": PLACEHOLDER},
        "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy") or "Delete",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        "claimRef": objects.reference(keys.PERSISTENT_VOLUME_CLAIM, where, objects.uid(claim)),
    }
    metadata = {
        "annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER},
        "labels": {keys.REMOTE_CLUSTER_ID: scene.pair.destination},
    }
    name = Key("", f"pvc-{objects.uid(claim)}")
    return named(keys.PERSISTENT_VOLUME, name, metadata=metadata, spec=spec)


def _access_modes(local: Object) -> list[str]:
    asked = objects.annotations(local).get(keys.REMOTE_ACCESS_MODES, "")
    modes = [mode.strip() for mode in asked.split(",") if mode.strip()]
    if unknown := [mode for mode in modes if mode not in _ACCESS_MODES]:
        raise leaving.NotYetError(
            f"annotation {keys.REMOTE_ACCESS_MODES} names {', '.join(unknown)}: "
            f"use {', '.join(sorted(_ACCESS_MODES))}"
        )
    return modes or list(local["spec"].get("accessModes") or [])


def _is_selected(local: Object, scene: Scene) -> bool:
    name = objects.annotations(local).get(keys.SELECTED_NODE)
    node: shapes.Labelled | None = scene.look.get(keys.NODE, Key("", name)) if name else None
    return node is not None and node.is_node_of(scene.pair.destination)


def _elsewhere(local: Object, scene: Scene) -> Stay | None:
    """Judge a bound claim by its volume; one that is not seen (yet) proves nothing.

    Raises:
        NotYetError: the volume is not there.
    """
    name = local["spec"]["volumeName"]
    volume = scene.look.get(keys.PERSISTENT_VOLUME, Key("", name))
    if volume is None:
        raise leaving.NotYetError(f"persistentvolume {name} of the claim is not there")
    if _is_on(volume, scene):
        return None
    return Stay("its volume is not on the provider", is_told=False)


def _is_on(volume: Object, scene: Scene) -> bool:
    made_by = objects.annotations(volume).get(keys.PROVISIONED_BY)
    where = objects.labels(volume).get(keys.REMOTE_CLUSTER_ID)
    return made_by == keys.STORAGE_PROVISIONER and where == scene.pair.destination


def _is_refused(original: Object, scene: Scene) -> bool:
    return (
        not original["spec"].get("volumeName")
        and original["spec"].get("storageClassName") == scene.settings.virtual_storage_class
        and not scene.settings.enable_storage
        and _is_selected(original, scene)
    )


def _released(key: Key, scene: Scene) -> Iterable[Write]:
    """Yield the deletions of the volumes of a claim that has gone."""
    for volume in scene.look.each(keys.PERSISTENT_VOLUME):
        is_released = (volume.get("status") or {}).get("phase") == "Released"
        is_to_go = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        if is_released and is_to_go and _claim(volume) == key and _is_on(volume, scene):
            where = objects.key_of(volume)
            yield Write("delete", keys.PERSISTENT_VOLUME, where, volume)


def _grown(key: Key, original: Object, twin_: Object, scene: Scene) -> Iterable[Write]:
    """Yield what tells volume and claim at home that the one on the provider has grown."""
    where = Key("", original["spec"]["volumeName"])
    volume = scene.look.get(keys.PERSISTENT_VOLUME, where)
    capacity = (twin_.get("status") or {}).get("capacity")
    if volume is None or not _is_on(volume, scene):
        return
    if volumes.grown(capacity, volume["spec"]):
        changes = {"metadata": {"uid": objects.uid(volume)}, "spec": {"capacity": capacity}}
        yield Write("patch", keys.PERSISTENT_VOLUME, where, changes)
    if volumes.grown(capacity, original.get("status") or {}):
        told = {"metadata": {"uid": objects.uid(original)}, "status": {"capacity": capacity}}
        yield Write("status", keys.PERSISTENT_VOLUME_CLAIM, key, told)


def _claim(volume: Object) -> Key:
    claim = volume["spec"].get("claimRef") or {}
    return Key(claim.get("namespace", ""), claim.get("name", ""))


def _of_volume(old: Object | None, new: Object | None, scene: Scene) -> Iterable[Key]:
    claim = _claim(new or old or {"spec": {}})
    return [claim] if claim.namespace == scene.pair.local_namespace else []


FORGE: Final = Forge(
    reflection.CLAIM,
    twin,
    stays=stays,
    settled=settled,
    back=back,
    inputs=(
        Input(keys.PERSISTENT_VOLUME, _of_volume, labels=keys.REMOTE_CLUSTER_ID),
        Input(keys.NODE, nobody, shape=shapes.Labelled),
        Input(keys.STORAGE_CLASS, nobody),
    ),
)
