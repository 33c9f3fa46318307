"""Whose a tenant namespace is: the provider's own record, which no consumer can write.

Source: docs/parity.md § 2.5; SEC-A7.
"""

from apis import keys, whose
from apis.objects import Key
from kube.cluster import Cluster


async def peer_in(cluster: Cluster, namespace: str) -> str:
    """Return the cluster that the tenant namespace called ``namespace`` is for; empty for none."""
    return whose.peer_of(await cluster.get(keys.NAMESPACE, Key("", namespace)))


async def consumer_in(cluster: Cluster, namespace: str) -> str:
    """Return the cluster whose pods run in the twin called ``namespace``; empty for none."""
    return whose.consumer_of(await cluster.get(keys.NAMESPACE, Key("", namespace)))
