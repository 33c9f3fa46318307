"""The twin of a claim whose first pod goes to the provider, and the volume that binds it here.

Source: docs/parity.md § 6.9. The data is where the twin is, and pods follow it.
"""

from collections.abc import Iterable
from typing import Final

from apis import claims, keys, objects, reflection, reflectionpolicy
from apis.claims import Storage
from apis.objects import Key, Object, named
from apis.reflectionpolicy import NotReflected
from reflector.kinds import contract
from reflector.kinds.contract import Input, KindReflection, ReflectionContext, Write, nobody

PLACEHOLDER: Final = "/tmp/liqo-placeholder"  # noqa: S108  # nobody mounts it
_ACCESS_MODES: Final = frozenset(
    {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}
)


def remote_claim(local: Object, context: ReflectionContext) -> Object:
    """Return the claim on the provider.

    Raises:
        NotYetError: an annotation names an unknown access mode.
    """
    have = local["spec"]
    spec = {
        "accessModes": _access_modes(local),
        "volumeMode": have.get("volumeMode") or "Filesystem",
        "resources": have.get("resources") or {},
    }
    class_ = objects.annotations(local).get(keys.REMOTE_STORAGE_CLASS)
    if chosen := class_ or _offered_class(claims.selected_node(local), context):
        spec["storageClassName"] = chosen
    made = contract.remote_object(keys.PERSISTENT_VOLUME_CLAIM, local, context, spec=spec)
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


def stays(local: Object, context: ReflectionContext) -> NotReflected | None:
    """Return why ``local`` is no matter of this provider, None when it is."""
    return claims.reason_to_stay(local, _storage(context))


def _storage(context: ReflectionContext) -> Storage:
    def is_node(name: str) -> bool:
        return _node(name, context) is not None

    def is_offered(name: str) -> bool:
        node = _node(name, context)
        said = ((node and node.metadata.labels) or {}).get(keys.STORAGE_AVAILABLE)
        return context.settings.enable_storage if said is None else said == "true"

    return Storage(
        context.pair.destination,
        is_offered,
        is_node,
        lambda name: context.lister.get(keys.PERSISTENT_VOLUME, Key("", name)),
        context.settings.virtual_storage_class,
    )


def _node(name: str, context: ReflectionContext) -> contract.Labelled | None:
    """Return the virtual node of that name, if it is one of the provider."""
    node: contract.Labelled | None = context.lister.get(keys.NODE, Key("", name))
    return node if node is not None and node.is_node_of(context.pair.destination) else None


def _offered_class(name: str, context: ReflectionContext) -> str:
    """Return the class of the provider that the virtual node of that name offers."""
    node = _node(name, context)
    annotations = (node and node.metadata.annotations) or {}
    return annotations.get(keys.OFFERED_STORAGE_CLASS, context.settings.storage_class)


def back(
    key: Key, original: Object | None, twin_: Object | None, context: ReflectionContext
) -> Iterable[Write]:
    """Yield what binds the claim at the consumer to the provider, or lets it be bound elsewhere."""
    is_bound = bool(original and original["spec"].get("volumeName"))
    if not is_bound:
        yield from _released(key, original, context)
    if original is None:
        return
    if twin_ is not None and not is_bound:
        volume = volume_of(original, context)
        if context.lister.get(keys.PERSISTENT_VOLUME, objects.key_of(volume)) is None:
            yield Write("create", keys.PERSISTENT_VOLUME, objects.key_of(volume), volume)
    elif twin_ is not None:
        yield from _grown(key, original, twin_, context)
    elif _is_refused(original, context):
        metadata = {"uid": objects.uid(original), "annotations": {keys.SELECTED_NODE: None}}
        yield Write("patch", keys.PERSISTENT_VOLUME_CLAIM, key, {"metadata": metadata})


def volume_of(claim: Object, context: ReflectionContext) -> Object:
    """Return the volume that stands at the consumer for the one on the provider."""
    class_ = (
        context.lister.get(keys.STORAGE_CLASS, Key("", claim["spec"]["storageClassName"])) or {}
    )
    where = objects.key_of(claim)
    term = {
        "key": keys.REMOTE_CLUSTER_ID,
        "operator": "In",
        "values": [context.pair.destination],
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
        "labels": {keys.REMOTE_CLUSTER_ID: context.pair.destination},
    }
    name = Key("", f"pvc-{objects.uid(claim)}")
    return named(keys.PERSISTENT_VOLUME, name, metadata=metadata, spec=spec)


def _access_modes(local: Object) -> list[str]:
    asked = objects.annotations(local).get(keys.REMOTE_ACCESS_MODES, "")
    modes = [mode.strip() for mode in asked.split(",") if mode.strip()]
    if unknown := [mode for mode in modes if mode not in _ACCESS_MODES]:
        raise reflectionpolicy.NotYetError(
            f"annotation {keys.REMOTE_ACCESS_MODES} names {', '.join(unknown)}: "
            f"use {', '.join(sorted(_ACCESS_MODES))}"
        )
    return modes or list(local["spec"].get("accessModes") or [])


def _is_refused(original: Object, context: ReflectionContext) -> bool:
    return (
        not original["spec"].get("volumeName")
        and original["spec"].get("storageClassName") == context.settings.virtual_storage_class
        and _storage(context).is_refused(original)
    )


def _released(key: Key, original: Object | None, context: ReflectionContext) -> Iterable[Write]:
    """Yield the deletions of the volumes of claims that have gone, maybe before ``original``."""
    own, storage = objects.uid(original) if original else "", _storage(context)
    for volume in context.lister.each(keys.PERSISTENT_VOLUME):
        is_released = objects.status(volume).get("phase") == "Released"
        is_to_go = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        is_left = _claim(volume) == key and volume["spec"]["claimRef"].get("uid") != own
        if is_released and is_to_go and is_left and storage.has(volume):
            where = objects.key_of(volume)
            yield Write("delete", keys.PERSISTENT_VOLUME, where, volume)


def _grown(
    key: Key, original: Object, twin_: Object, context: ReflectionContext
) -> Iterable[Write]:
    """Yield what tells volume and claim of the consumer that the provider's has grown."""
    where = Key("", original["spec"]["volumeName"])
    volume = context.lister.get(keys.PERSISTENT_VOLUME, where)
    capacity = objects.status(twin_).get("capacity")
    if volume is None or not _storage(context).holds(volume, original):
        return
    said = claims.storage_amount(capacity)
    if claims.has_grown(capacity, volume["spec"]):
        changes = {"metadata": {"uid": objects.uid(volume)}, "spec": {"capacity": said}}
        yield Write("patch", keys.PERSISTENT_VOLUME, where, changes)
    if claims.has_grown(capacity, objects.status(original)):
        told = {"metadata": {"uid": objects.uid(original)}, "status": {"capacity": said}}
        yield Write("status", keys.PERSISTENT_VOLUME_CLAIM, key, told)


def _claim(volume: Object) -> Key:
    claim = volume["spec"].get("claimRef") or {}
    return Key(claim.get("namespace", ""), claim.get("name", ""))


def _of_volume(old: Object | None, new: Object | None, context: ReflectionContext) -> Iterable[Key]:
    claim = _claim(new or old or {"spec": {}})
    return [claim] if claim.namespace == context.pair.local_namespace else []


CLAIM_REFLECTION: Final = KindReflection(
    reflection.CLAIM,
    remote_claim,
    lacks=contract.lacks(keys.PERSISTENT_VOLUME_CLAIM),
    stays=stays,
    settled=settled,
    back=back,
    inputs=(
        Input(keys.PERSISTENT_VOLUME, _of_volume, labels=keys.REMOTE_CLUSTER_ID),
        Input(keys.NODE, nobody, shape=contract.Labelled),
        Input(keys.STORAGE_CLASS, nobody),
    ),
)
