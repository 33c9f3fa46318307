"""What tests with the scheduler of Kubernetes share: nodes that no kubelet keeps, and a kind."""

from collections.abc import Mapping
from typing import Final

from apis import keys, objects
from apis.objects import Object
from kube.client import ClusterClient

ROOM: Final = {"cpu": "100", "memory": "100Gi", "pods": "1000"}


async def keep(cluster: ClusterClient, node: Object, room: Mapping[str, str] = ROOM) -> None:
    """Make ``node``, Ready and with ``room`` for pods."""
    await cluster.create(keys.NODE, node)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": room, "allocatable": room, "conditions": ready}
    await cluster.patch_status(keys.NODE, objects.key_of(node), status)
