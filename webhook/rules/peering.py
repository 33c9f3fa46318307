"""When Tenants, ResourceSlices and ForeignClusters may be made, and how they are labelled. Pure.

Source: docs/parity.md § 0.4, 3.3, 3.5, 3.6; SEC-A9.
"""

from collections.abc import Iterable
from typing import Final

from apis import authentication, keys, objects, ownership, placement, validation
from apis.authentication import Binding
from apis.objects import Key, Kind, Object, annotations, labels
from apis.validation import DeniedError
from webhook import admission
from webhook.admission import Admitted, Lookup, Request

_CLUSTER_LABEL: Final = ("metadata", "labels", keys.REMOTE_CLUSTER_ID)
BINDINGS: Final = (keys.CLUSTER_ROLE_BINDING, keys.ROLE_BINDING)


def label_tenant(request: Request) -> Admitted:
    """Add the consumer's label if it is absent; a wrong one is refused later."""
    obj = request.object
    admission.check_object(obj, "Tenant")
    cluster_id = _tenant_cluster(obj)
    if not cluster_id or ownership.cluster_named_by(obj):
        return Admitted(verdict="unchanged")
    return Admitted(admission.put(obj, _CLUSTER_LABEL, cluster_id), verdict="labelled")


def _is_reviewed(old: Object, new: Object) -> bool:
    """Whether a change concerns what is checked: not a finalizer's coming and going."""
    admission.check_object(old, "Tenant")
    admission.check_object(new, "Tenant")
    before, after = ownership.cluster_named_by(old), ownership.cluster_named_by(new)
    return old.get("spec") != new.get("spec") or before != after


def check_tenant(request: Request, lookup: Lookup) -> Admitted:
    """Admit a Tenant by its namespace and the others, and a new name by all bindings.

    Raises:
        DeniedError: not in the tenant's namespace, not the only one, or with somebody's name.
    """
    obj, old = request.object, request.old_object
    is_update = request.operation == "UPDATE"
    if is_update and not _is_reviewed(old, obj):
        return Admitted(verdict="allowed: nothing that is judged has changed")
    is_renamed = not is_update or _tenant_cluster(old) != _tenant_cluster(obj)
    bindings = [
        (kind, key, binding)
        for kind in (BINDINGS if is_renamed else ())
        for key, binding in lookup.select_live(kind, Binding).items()
    ]
    namespace = lookup.get_live(keys.NAMESPACE, Key("", request.namespace))
    others = lookup.list_live(keys.TENANT)
    admission.check_object(obj, "Tenant")
    key, cluster_id = Key(request.namespace, request.name), _tenant_cluster(obj)
    _check_labels(obj, cluster_id, namespace, key.namespace)
    _check_unique(key, others)
    _check_name(cluster_id, bindings)
    return Admitted()


def _check_labels(obj: Object, cluster_id: str, namespace: Object | None, name: str) -> None:
    have = labels(namespace) if namespace else {}
    if have.get(keys.TENANT_NAMESPACE) != "true":
        message = f"namespace {name} lacks the label {keys.TENANT_NAMESPACE}=true"
        raise DeniedError(f"{message}: create the Tenant in its tenant namespace", code=400)
    what = f"label {keys.REMOTE_CLUSTER_ID}"
    if ownership.cluster_named_by(obj) != cluster_id:
        message = (
            f"metadata.labels: {keys.REMOTE_CLUSTER_ID} must equal spec.clusterID {cluster_id!r}"
        )
        raise DeniedError(f"{message}: correct or remove it", code=400)
    if ownership.cluster_in(have) != cluster_id:
        message = f"namespace {name} is for {ownership.cluster_in(have)!r} by its {what}"
        raise DeniedError(f"{message}: create the Tenant of {cluster_id!r} in its own namespace")


def _check_unique(key: Key, others: Iterable[Key]) -> None:
    for other in others:
        if other == key:
            continue
        if other.namespace == key.namespace:
            message = f"namespace {key.namespace} has the tenant {other.name!r} already"
            raise DeniedError(f"{message}: delete that one first", code=409)
        if other.name == key.name:
            message = f"there is a tenant {key.name!r} in namespace {other.namespace}"
            raise DeniedError(f"{message}: choose another name", code=409)


def _check_name(cluster_id: str, bindings: Iterable[tuple[Kind, Key, Binding]]) -> None:
    if authentication.is_reserved(cluster_id):
        message = f"spec.clusterID {cluster_id!r} begins with system:, as Kubernetes' own users do"
        raise DeniedError(f"{message}: the consumer has to take another cluster ID")
    for kind, key, binding in bindings:
        if authentication.collides(cluster_id, binding):
            message = f"spec.clusterID {cluster_id!r} is a user or group that {kind} "
            message += f"{key} gives rights to"
            raise DeniedError(f"{message}: remove that, or let the consumer take another ID")


def _tenant_cluster(obj: Object) -> str:
    return validation.text(objects.spec(obj).get("clusterID"), "spec.clusterID")


# ResourceSlices -----------------------------------------------------------------------------------

CONTROL_PLANES: Final = "liqo.io"
"""The group of the control planes of other clusters."""
PROVIDERS: Final = (keys.CORDON, keys.CORDON_TENANT, keys.DRAIN)
"""Annotations by which a provider keeps a slice in check."""


_CREATE_NODE: Final = ("metadata", "annotations", keys.CREATE_VIRTUAL_NODE)


def mark_slice(request: Request) -> Admitted:
    """Ask for a virtual node of a user's new slice, unless the slice says whether it wants one."""
    obj = request.object
    admission.check_object(obj, "ResourceSlice")
    is_of_this_cluster = CONTROL_PLANES not in request.groups and not ownership.is_marked(
        labels(obj)
    )
    if not is_of_this_cluster or keys.CREATE_VIRTUAL_NODE in annotations(obj):
        return Admitted(verdict="unchanged")
    return Admitted(admission.put(obj, _CREATE_NODE, "true"), verdict="becomes a virtual node")


def check_slice(request: Request, lookup: Lookup) -> Admitted:
    """Admit a slice of this cluster by its name; a replica's was checked where it came from.

    Raises:
        DeniedError: another slice or a real node has its name, which will be a node's; or a
            consumer changes what is the provider's.
    """
    if request.operation == "UPDATE":
        return _check_changed_slice(request.old_object, request.object, request.groups)
    admission.check_object(request.object, "ResourceSlice")
    if ownership.is_marked(labels(request.object)):
        return Admitted(verdict="allowed: a replica")
    key, found = Key(request.namespace, request.name), lookup.list_live(keys.RESOURCE_SLICE)
    local = [other for other, one in found.items() if not ownership.is_foreign(one)]
    node = lookup.get(keys.NODE, Key("", request.name)) if request.name else None
    other = next((other for other in local if other.name == key.name and other != key), None)
    if node is not None and not placement.is_virtual(node):
        taken = f"there is a node {key.name!r}"
    elif other is not None:
        taken = f"resource slice {other} has this name"
    else:
        return Admitted()
    message = f"metadata.name: {taken}, and nodes are called after their slices: choose another"
    raise DeniedError(message, code=409)


def _check_changed_slice(old: Object, new: Object, groups: Iterable[str]) -> Admitted:
    """Admit a change; a consumer does not change whose it is, nor whether it is cordoned."""
    admission.check_object(old, "ResourceSlice")
    admission.check_object(new, "ResourceSlice")
    if CONTROL_PLANES not in groups:
        return Admitted()
    if ownership.cluster_named_by(old) != ownership.cluster_named_by(new):
        message = f"metadata.labels: {keys.REMOTE_CLUSTER_ID} is the provider's to change"
        raise DeniedError(f"{message}: leave it as it was")
    for name in PROVIDERS:
        if annotations(old).get(name) != annotations(new).get(name):
            message = f"metadata.annotations: {name} is the provider's to change"
            raise DeniedError(f"{message}: leave it as it was")
    return Admitted()


# ForeignClusters ----------------------------------------------------------------------------------


def label_foreign_cluster(request: Request) -> Admitted:
    """Set the label to the cluster's ID, whatever it was."""
    obj = request.object
    admission.check_object(obj, "ForeignCluster")
    cluster_id = validation.text(objects.spec(obj).get("clusterID"), "spec.clusterID")
    changes = admission.put(obj, _CLUSTER_LABEL, cluster_id) if cluster_id else []
    return Admitted(changes, verdict="labelled" if changes else "unchanged")
