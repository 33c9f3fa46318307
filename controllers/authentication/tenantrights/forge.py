"""The binding that opens a tenant namespace to this process, and whose it is."""

from apis import keys, objects, ownership
from apis.objects import Key, Object


def binding(namespace: Object, account: Key) -> Object:
    """Return what gives ``account``, this process, its rights in a tenant namespace.

    The finalizer keeps it for as long as something there has to be ended with these rights.
    """
    metadata = {
        "labels": {
            keys.APP_MANAGED_BY: "liqo",
            keys.LIQO_MANAGED: "true",
            keys.REMOTE_CLUSTER_ID: ownership.peer_of(namespace),
        },
        "finalizers": [keys.TENANT_RIGHTS_FINALIZER],
    }
    subject = {"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}
    role = {
        "apiGroup": keys.RBAC_GROUP,
        "kind": keys.CLUSTER_ROLE.kind,
        "name": keys.CONTROLLER_MANAGER_TENANT_ROLE,
    }
    key = Key(objects.key_of(namespace).name, account.name)
    return objects.named(
        keys.ROLE_BINDING, key, metadata=metadata, subjects=[subject], roleRef=role
    )


def is_one(found: Object) -> bool:
    """Whether ``found`` is such a binding, also one that somebody made by hand."""
    role = found.get("roleRef") or {}
    is_of_cluster = role.get("kind") == keys.CLUSTER_ROLE.kind
    return is_of_cluster and role.get("name") == keys.CONTROLLER_MANAGER_TENANT_ROLE
