"""The ClusterProfile of a peer. Pure. Source: KEP-4322; multicluster.x-k8s.io/v1alpha1."""

from datetime import datetime
from typing import Final

from apis import keys, objects, offloading
from apis.objects import Key, Object

MANAGER: Final = "liqo"
MANAGER_LABEL: Final = "x-k8s.io/cluster-manager"
HEALTHY: Final = "ControlPlaneHealthy"
_SHOWN: Final = ("role", "apiServerUrl")


def profile(cluster_id: str, namespace: str) -> Object:
    labels = {MANAGER_LABEL: MANAGER, keys.REMOTE_CLUSTER_ID: cluster_id}
    spec = {"displayName": cluster_id, "clusterManager": {"name": MANAGER}}
    key = Key(namespace, cluster_id)
    return objects.named(keys.CLUSTER_PROFILE, key, metadata={"labels": labels}, spec=spec)


def is_ours(found: Object) -> bool:
    return objects.labels(found).get(MANAGER_LABEL) == MANAGER


def status(before: Object, foreign_cluster: Object, now: datetime) -> Object:
    """Return its status by that of the ForeignCluster.

    Shape: {conditions, version: {kubernetes}, properties: [{name, value}]}. Of a consumer nobody
    asks the API server: its health is Unknown.
    """
    said = objects.status(foreign_cluster)
    answer = objects.find_condition(said.get("conditions"), offloading.API_SERVER_STATUS) or {}
    state = answer.get("status")
    health = (
        "True" if state == offloading.API_SERVER_ESTABLISHED else "False" if state else "Unknown"
    )
    reason, message = answer.get("reason") or "NotAsked", answer.get("message") or ""
    version = said.get("kubernetesVersion")
    return {
        "conditions": objects.set_condition(
            before.get("conditions"), HEALTHY, health, reason, message, now
        ),
        **({"version": {"kubernetes": version}} if version else {}),
        "properties": [
            {"name": f"{name.lower()}.liqo.io", "value": str(said[name])}
            for name in _SHOWN
            if said.get(name)
        ],
    }
