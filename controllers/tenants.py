"""Whose a tenant namespace is: the provider's own record, which no consumer can write.

Source: behaviour.md 2.5; security.md A7, principle 2.
"""

from apis import authentication, keys, objects
from apis.objects import Key, Object
from kube.cluster import Cluster


def is_tenant_namespace(namespace: Object) -> bool:
    """Whether ``namespace`` holds what concerns one peer."""
    labels = objects.labels(namespace)
    return labels.get(keys.TENANT_NAMESPACE) == "true" and bool(labels.get(keys.REMOTE_CLUSTER_ID))


def peer_of(namespace: Object | None) -> str:
    """Return the cluster that a tenant namespace is for; empty for any other namespace."""
    if namespace is None or not is_tenant_namespace(namespace):
        return ""
    return authentication.remote_cluster(namespace)


async def peer_in(cluster: Cluster, namespace: str) -> str:
    """Return the cluster that the tenant namespace called ``namespace`` is for; empty for none."""
    return peer_of(await cluster.get(keys.NAMESPACE, Key("", namespace)))
