"""The binding that opens a tenant namespace to this process, and whose it is."""

from apis import authentication, keys, objects, ownership
from apis.objects import Key, Object


def binding(namespace: Object, account: Key) -> Object:
    """Return what gives ``account``, this process, its rights in a tenant namespace.

    The finalizer keeps it for as long as something there has to be ended with these rights.
    """
    labels = {**ownership.MANAGED, keys.REMOTE_CLUSTER_ID: ownership.peer_of(namespace)}
    metadata = {"labels": labels, "finalizers": [keys.TENANT_RIGHTS_FINALIZER]}
    key = Key(objects.key_of(namespace).name, account.name)
    subject = authentication.account_subject(account)
    role = keys.CONTROLLER_MANAGER_TENANT_ROLE
    return authentication.binding(key, metadata, subject, role).wanted
