"""The real claim and the volume behind a claim of the virtual class, on a node of this cluster.

Source: docs/parity.md § 4.15.
"""

import copy
from collections.abc import Iterable
from typing import Final

from apis import claims, keys, objects, ownership
from apis.objects import Key, Object, named
from controllers.offloading.namespaceoffloading.forge import READY, REQUIRED

_TAKEN: Final = ("accessModes", "resources", "volumeMode", "volumeAttributesClassName")
"""Of a claim's spec, what the real one has of it: nothing by which it could name what exists."""

_REPLACED: Final = frozenset({*_TAKEN, "storageClassName", "volumeName"})
_NOT_SHARED: Final = frozenset(
    {"claimRef", "storageClassName", "nodeAffinity", "persistentVolumeReclaimPolicy"}
)
_NOT_VIRTUAL: Final = {"key": keys.NODE_TYPE, "operator": "DoesNotExist"}


def is_ours(claim: Object) -> bool:
    """Whether ``claim`` is of the virtual class and its volume is asked of us."""
    annotations = objects.annotations(claim)
    return claim["spec"].get("storageClassName") == keys.VIRTUAL_STORAGE_CLASS and any(
        annotations.get(name) == keys.STORAGE_PROVISIONER for name in keys.STORAGE_PROVISIONERS
    )


def is_waiting(claim: Object, uid: str) -> bool:
    """Whether ``claim``, read just now, still is the one of that UID and waits for a volume."""
    is_same = objects.uid(claim) == uid and not objects.is_terminating(claim)
    return is_same and is_ours(claim) and not claim["spec"].get("volumeName")


def selected_node(claim: Object) -> str:
    """Return the node that the scheduler chose for the first pod; empty before that."""
    return objects.annotations(claim).get(keys.SELECTED_NODE, "")


def real_key(claim: Object) -> Key:
    return Key(keys.STORAGE_NAMESPACE, objects.uid(claim))


def is_real(claim: Object) -> bool:
    """Whether ``claim`` is one that we made for a claim of the virtual class."""
    where, name = objects.key_of(claim).namespace, keys.VIRTUAL_CLAIM_NAME
    return where == keys.STORAGE_NAMESPACE and name in objects.labels(claim)


def virtual_key(real: Object) -> Key | None:
    """Return where the claim is for which ``real`` was made.

    None for one of an earlier version, which only has labels: they are cut at 63 characters.
    """
    said = objects.annotations(real)
    where = Key(said.get(keys.VIRTUAL_CLAIM_NAMESPACE, ""), said.get(keys.VIRTUAL_CLAIM_NAME, ""))
    return where if all(where) else None


def is_for(real: Object, claim: Object | None) -> bool:
    return claim is not None and objects.uid(claim) == objects.key_of(real).name


def volume_of(real: Object) -> Key:
    """Return the name of the volume that binds the claim of ``real``."""
    return Key("", f"pvc-{objects.key_of(real).name}")


def source_key(claim: Object) -> Key | None:
    """Return which claim ``claim`` wants a copy of, None for one of another namespace."""
    spec, where = claim["spec"], objects.key_of(claim)
    asked = spec.get("dataSourceRef") or spec.get("dataSource") or {}
    is_claim = asked.get("kind") == keys.PERSISTENT_VOLUME_CLAIM.kind and not asked.get("apiGroup")
    is_near = asked.get("namespace") in (None, "", where.namespace)
    return Key(where.namespace, str(asked.get("name"))) if is_claim and is_near else None


def is_awaited(source: Object | None) -> bool:
    """Whether ``source``, of which a copy is wanted, may have its data in this cluster later."""
    if source is None:
        return True
    is_virtual = source["spec"].get("storageClassName") == keys.VIRTUAL_STORAGE_CLASS
    return is_virtual and not source["spec"].get("volumeName")


def left_out(claim: Object, source: Object | None) -> str:
    """Return what of ``claim`` its real claim has not, and why; empty if that is nothing.

    All real claims are in one namespace, where each could name those of other users: of what there
    is, only the data of a claim of the same namespace may be asked for, as Kubernetes has it.
    ``source``: the real claim of that one, if its data is in this cluster.
    """
    translated = {"dataSource", "dataSourceRef"} if source else set()
    names = sorted(set(claim["spec"]) - _REPLACED - translated)
    if not names:
        return ""
    fields = ", ".join(f"spec.{name}" for name in names)
    return (
        f"{fields}: left out, the volume is a new one; only a claim of class "
        f"{keys.VIRTUAL_STORAGE_CLASS} of this namespace whose data is in this cluster is copied"
    )


def real_claim(claim: Object, storage_class: str, source: Object | None = None) -> Object:
    """Return the real claim of ``claim``: of the class of this cluster, empty for its default.

    ``source``: the real claim whose data it begins with.
    """
    spec = {name: copy.deepcopy(claim["spec"][name]) for name in _TAKEN if name in claim["spec"]}
    if source:
        kind, name = keys.PERSISTENT_VOLUME_CLAIM.kind, objects.key_of(source).name
        spec["dataSource"] = {"kind": kind, "name": name}
    if storage_class:
        spec["storageClassName"] = storage_class
    where = objects.key_of(claim)
    metadata = {
        "labels": {
            keys.LIQO_MANAGED: "true",
            keys.VIRTUAL_CLAIM_NAMESPACE: where.namespace[:63],
            keys.VIRTUAL_CLAIM_NAME: where.name[:63].rstrip("-."),
        },
        "annotations": {
            keys.SELECTED_NODE: selected_node(claim),
            keys.VIRTUAL_CLAIM_NAMESPACE: where.namespace,
            keys.VIRTUAL_CLAIM_NAME: where.name,
        },
    }
    return named(keys.PERSISTENT_VOLUME_CLAIM, real_key(claim), metadata=metadata, spec=spec)


def no_amount(claim: Object) -> str:
    """Return why nothing comes of the amount that ``claim`` asks for; empty if it is one.

    API servers store more than a volume can have. Source: docs/parity.md SEC-A13.
    """
    asked = (claim["spec"].get("resources") or {}).get("requests") or {}
    if claims.storage_of(asked):
        return ""
    said = str(asked.get("storage", ""))
    return f"spec.resources.requests.storage {said:.80} is no amount: ask for another"


def larger(claim: Object, real: Object) -> Object:
    """Return the changes that let ``real`` ask for as much as ``claim`` does; {} for none."""
    asked, have = ((one["spec"].get("resources") or {}).get("requests") for one in (claim, real))
    if not claims.has_grown(asked, {"capacity": have}):
        return {}
    metadata = {"uid": objects.uid(real)}
    return {"metadata": metadata, "spec": {"resources": {"requests": asked}}}


def volume_key(claim: Object) -> Key:
    return Key("", f"pvc-{objects.uid(claim)}")


def volume(claim: Object, real: Object) -> Object:
    """Return the volume for ``claim``: that of the real one, and on nodes that are no clusters."""
    spec = {
        name: value
        for name, value in copy.deepcopy(real["spec"]).items()
        if name not in _NOT_SHARED
    }
    where = objects.key_of(claim)
    spec |= {
        "storageClassName": keys.VIRTUAL_STORAGE_CLASS,
        "persistentVolumeReclaimPolicy": "Delete",
        "nodeAffinity": _affinity(real),
        "claimRef": objects.reference(keys.PERSISTENT_VOLUME_CLAIM, where, objects.uid(claim)),
    }
    metadata = {
        "annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER},
        "labels": {keys.LIQO_MANAGED: "true"},
    }
    return named(keys.PERSISTENT_VOLUME, volume_key(claim), metadata=metadata, spec=spec)


def claim_of(volume_: Object) -> Key:
    claim = volume_["spec"].get("claimRef") or {}
    return Key(claim.get("namespace", ""), claim.get("name", ""))


def claim_uid(volume_: Object) -> str:
    return str((volume_["spec"].get("claimRef") or {}).get("uid", ""))


def is_retained(volume_: Object) -> bool:
    """Whether ``volume_`` stays when its claim has gone, as an administrator chose."""
    return bool(volume_["spec"].get("persistentVolumeReclaimPolicy") == "Retain")


def is_left(volume_: Object) -> bool:
    """Whether ``volume_`` is one of ours whose claim has gone, and so its real claim is to go."""
    return (
        objects.annotations(volume_).get(keys.PROVISIONED_BY) == keys.STORAGE_PROVISIONER
        and objects.labels(volume_).get(keys.LIQO_MANAGED) == "true"
        and objects.status(volume_).get("phase") == "Released"
        and volume_["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    )


def placeholder_of(volume_: Object) -> str:
    """Return the provider on which the data of ``volume_`` is; empty of one that has its own."""
    made_by = objects.annotations(volume_).get(keys.PROVISIONED_BY)
    return ownership.cluster_named_by(volume_) if made_by == keys.STORAGE_PROVISIONER else ""


def is_mapped(namespace: str, provider: str, maps: Iterable[Object]) -> bool:
    """Whether a NamespaceMap to ``provider`` asks for ``namespace``, or tells that it is there."""
    return any(
        namespace in (objects.spec(found).get("desiredMapping") or {})
        or namespace in (objects.status(found).get("currentMapping") or {})
        for found in maps
        if ownership.destination(found) == provider
    )


def is_withdrawn(offloading: Object, provider: str, *, has_map: bool) -> bool:
    """Whether ``offloading`` says that its namespace is not, or no longer, on ``provider``."""
    clusters = objects.status(offloading).get("remoteNamespacesConditions") or {}
    if provider not in clusters:
        return not has_map
    required = objects.find_condition(clusters[provider], REQUIRED)
    is_not = required is not None and required["status"] == "False"
    return is_not and objects.find_condition(clusters[provider], READY) is None


def lost(claim: Key, provider: str) -> str:
    return (
        f"namespace {claim.namespace} is no longer offloaded to {provider}, and the data of the "
        f"claim was deleted there with it: delete claim {claim.name} to start with an empty volume"
    )


def _affinity(real: Object) -> Object:
    required = ((real["spec"].get("nodeAffinity") or {}).get("required")) or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    narrowed = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), _NOT_VIRTUAL]}
        for term in terms
    ]
    return {"required": {"nodeSelectorTerms": narrowed}}
