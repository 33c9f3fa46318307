"""When a Tenant may stand for a consumer. Pure. Source: docs/parity.md § 3.6; SEC-A9."""

from collections.abc import Iterable, Mapping
from typing import Final

from apis import authentication, keys, objects, ownership, validation
from apis.authentication import Binding
from apis.objects import Key, Kind, Object, labels
from apis.validation import DeniedError
from webhook import patch
from webhook.admission import Admitted
from webhook.rules import shape

_LABEL: Final = ("metadata", "labels", keys.REMOTE_CLUSTER_ID)
BINDINGS: Final = (keys.CLUSTER_ROLE_BINDING, keys.ROLE_BINDING)


def label(obj: Object) -> Admitted:
    """Add the consumer's label if it is absent; a wrong one is refused later."""
    shape.check(obj, "Tenant")
    cluster_id = _cluster_id(obj)
    if not cluster_id or ownership.cluster_named_by(obj):
        return Admitted(verdict="unchanged")
    return Admitted(patch.put(obj, _LABEL, cluster_id), verdict="labelled")


def is_judged(old: Object, new: Object) -> bool:
    """Whether a change concerns what is judged: not a finalizer's coming and going."""
    shape.check(old, "Tenant")
    shape.check(new, "Tenant")
    before, after = ownership.cluster_named_by(old), ownership.cluster_named_by(new)
    return old.get("spec") != new.get("spec") or before != after


def is_renamed(old: Object, new: Object) -> bool:
    """Whether the certificates of the Tenant will be for another name."""
    return _cluster_id(old) != _cluster_id(new)


def check(
    obj: Object,
    key: Key,
    namespace: Object | None,
    *,
    others: Mapping[Key, Object],
    bindings: Iterable[tuple[Kind, Key, Binding]],
) -> Admitted:
    """Admit the Tenant at ``key``; ``others`` are all of the cluster.

    ``bindings`` are all, too, of a Tenant whose name is new; to close one none is looked at.

    Raises:
        DeniedError: not in the tenant's namespace, not the only one, or with somebody's name.
    """
    shape.check(obj, "Tenant")
    cluster_id = _cluster_id(obj)
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


def _check_unique(key: Key, others: Mapping[Key, Object]) -> None:
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


def _cluster_id(obj: Object) -> str:
    return validation.text(objects.spec(obj).get("clusterID"), "spec.clusterID")
