"""The rights of a consumer, the verdict on its handshake, and what its Tenant shows.

Source: docs/parity.md § 4.9, 8.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from apis import authentication, keys, naming, objects, ownership, texts
from apis.authentication import AuthParams, Binding, Grant, Tenant
from apis.objects import Key, Kind, Object

READY: Final = "Ready"
AUTHENTICATED: Final = "Authenticated"
REPLICAS: Final[Mapping[Kind, str]] = {
    keys.RESOURCE_SLICE: "",
    keys.NAMESPACE_MAP: keys.NAMESPACE_MAP_FINALIZER,
    keys.RENEW: "",
}
"""What a consumer puts here, and the one finalizer that this cluster sets on it.

Source: docs/parity.md SEC-A20: what else a consumer puts there must not keep it from going.
"""

MOST_TWINS: Final = 5
"""So many twins that do not go the condition of a Tenant names."""
MOST_OF_A_TWIN: Final = 512
_KEEPING: Final = ("NamespaceFinalizersRemaining", "NamespaceContentRemaining")
_OWN_ROLES: Final = (keys.CONTROLLER_MANAGER_TWIN_ROLE, keys.CONTROLLER_MANAGER_TENANT_ROLE)


class TenantRefusedError(Exception):
    """The consumer gets nothing; ``reason`` and message are shown on its Tenant."""

    def __init__(self, reason: str, message: str, failures: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.failures = failures
        """Why rights could not be taken away, which is tried again."""


def colliding(cluster_id: str, bindings: Iterable[tuple[Kind, Binding]]) -> list[tuple[Kind, Key]]:
    """Return the bindings that would give somebody else's rights to ``cluster_id``."""
    return [
        (kind, Key(binding.metadata.namespace, binding.metadata.name))
        for kind, binding in bindings
        if authentication.collides(cluster_id, binding)
    ]


def collision(cluster_id: str, bindings: Iterable[tuple[Kind, Binding]]) -> str:
    """Return why certificates for ``cluster_id`` would be somebody else's; empty if not."""
    if authentication.is_reserved(cluster_id):
        return f"cluster ID {cluster_id!r} begins with system:, as Kubernetes' own users do"
    for kind, where in colliding(cluster_id, bindings):
        return (
            f"{kind} {where} gives rights to a user or group {cluster_id!r}: remove that, or "
            "let the consumer take another cluster ID"
        )
    return ""


def grants(namespace: str, tenant: Tenant) -> list[Grant]:
    """Return what lets the consumer in: its control plane here, its kubelets to their metrics."""
    metadata = {"labels": {**ownership.MANAGED, keys.REMOTE_CLUSTER_ID: tenant.cluster_id}}
    role = keys.VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE
    group = authentication.subject("Group", tenant.cluster_id)
    where = Key("", f"liqo-binding-{role}-{tenant.cluster_id}")
    found = [authentication.binding(where, metadata, group, role)]
    if tenant.has_handshake:
        role = keys.REMOTE_CONTROLPLANE_ROLE
        user = authentication.subject("User", tenant.cluster_id)
        where = Key(namespace, f"liqo-binding-{role}")
        found.append(authentication.binding(where, metadata, user, role))
    return found


def is_of(cluster_id: str, binding: Object) -> bool:
    """Whether ``binding`` was made by us for the consumer ``cluster_id``, and not for ourselves."""
    labels = objects.labels(binding)
    role = (binding.get("roleRef") or {}).get("name")
    return (
        labels.get(keys.APP_MANAGED_BY) == "liqo"
        and ownership.cluster_in(labels) == cluster_id
        and labels.get(keys.COMPONENT) != keys.VIRTUAL_KUBELET  # of our virtual node on its cluster
        and role not in _OWN_ROLES
    )


def proof(tenant: Tenant, nonce: str) -> str:
    """Return what is written down of a handshake: it names the key and the nonce by their hash."""
    key, signed = (
        authentication.nonce_fingerprint(tenant.public_key),
        authentication.nonce_fingerprint(nonce.encode()),
    )
    return f"the owner of public key {key} signed nonce {signed}"


def has_proved(obj: Object, tenant: Tenant) -> bool:
    """Whether the owner of the Tenant's key has signed a nonce before."""
    found = objects.condition(obj, AUTHENTICATED)
    key = authentication.nonce_fingerprint(tenant.public_key)
    return found.get("status") == "True" and f"public key {key} " in str(found.get("message"))


def is_used(obj: Object, nonce: str) -> bool:
    """Whether ``nonce`` is the one that the Tenant's proof is about."""
    found = objects.condition(obj, AUTHENTICATED)
    return str(found.get("message", "")).endswith(authentication.nonce_fingerprint(nonce.encode()))


def nonce_in(secret: Object | None) -> str:
    """Return the nonce that the Secret holds; empty without one."""
    if secret is None or objects.labels(secret).get(keys.NONCE_LABEL) != "true":
        return ""
    try:
        return authentication.decoded(secret.get("data") or {}, "nonce").decode("ascii")
    except (ValueError, UnicodeError):
        return ""


def is_told(obj: Object, reason: str, message: str) -> bool:
    found = objects.condition(obj, READY)
    return (found.get("reason"), found.get("message")) == (reason, message)


def state(
    obj: Object, reason: str, message: str, now: datetime, *, is_good: bool | None
) -> list[Object]:
    """Return the conditions of ``obj`` with ``Ready`` as told, of the spec as it is now.

    ``is_good`` None: it is not known yet.
    """
    before = objects.status(obj).get("conditions")
    ready = "Unknown" if is_good is None else str(is_good)
    told = objects.set_condition(before, READY, ready, reason, message, now)
    generation = obj["metadata"].get("generation")
    return [
        {**each, "observedGeneration": generation} if each["type"] == READY and generation else each
        for each in told
    ]


def status(obj: Object, conditions_: list[Object], params: AuthParams | None) -> Object:
    """Return the whole status; ``params`` None keeps those that were shown before.

    The ledger of what the consumer is granted is left as it is: ``controllers.granting.grants``.
    """
    before = objects.status(obj)
    shown = params.shown() if params else before.get("authParams")
    known: Object = {"tenantNamespace": obj["metadata"]["namespace"], "conditions": conditions_}
    beside = {"authParams": shown, "ledger": before.get("ledger")}
    return known | {name: value for name, value in beside.items() if value}


def is_consumers(kind: Kind, found: Object, consumer: str) -> bool:
    """Whether ``found`` in its tenant namespace ends with the consumer, whatever it says of itself.

    Only what goes to that cluster is ours, and a slice that our users have just written.
    """
    is_new = kind == keys.RESOURCE_SLICE and not ownership.destination(found)
    is_ours = is_new or ownership.is_for(found, consumer)
    return ownership.is_foreign(found, consumer) or not is_ours


def foreign_finalizers(kind: Kind, replica: Object) -> list[str]:
    """Return the finalizers of a replica that this cluster did not set, and nobody here removes."""
    return [each for each in objects.finalizers(replica) if each != REPLICAS[kind]]


def going(left: int, namespaces: Iterable[Object], consumer: str) -> str:
    """Return what is still going of a consumer, with what Kubernetes says keeps its twins.

    Source: Kubernetes, conditions of a namespace that is being deleted.
    """
    kept = [
        f"namespace {each['metadata']['name']}: {texts.clamp(why, MOST_OF_A_TWIN)}"
        for each in namespaces
        if ownership.consumer_of(each) == consumer and (why := _kept_by(each))
    ]
    more = f" and {len(kept) - MOST_TWINS} more" if len(kept) > MOST_TWINS else ""
    return "; ".join([f"{left} are going", *sorted(kept)[:MOST_TWINS]]) + more


def failing(failures: Sequence[Exception]) -> str:
    """Return what could not be removed, and why, as far as there is room for it."""
    said = [texts.clamp(str(each), MOST_OF_A_TWIN) for each in failures[:MOST_TWINS]]
    more = len(failures) - len(said)
    return f"not removed yet: {'; '.join(said)}" + (f" and {more} more" if more else "")


def _kept_by(namespace: Object) -> str:
    """Return what Kubernetes says of a namespace that it cannot delete yet; empty for nothing."""
    told = objects.status(namespace).get("conditions")
    found = (objects.find_condition(told, kind) or {} for kind in _KEEPING)
    said = (str(each.get("message") or "") for each in found if each.get("status") == "True")
    return next((each for each in said if each), "")


def certificate_secrets(namespace: str, found: Iterable[Object], consumer: str) -> list[Key]:
    """Return where the consumer's certificates are kept, among the Secrets of its namespace."""
    prefix = naming.remote_certificate()
    return [
        objects.key_of(each)
        for each in found
        if each["metadata"]["name"].startswith(prefix)
        and ownership.cluster_named_by(each) == consumer
        and objects.key_of(each).namespace == namespace
    ]
