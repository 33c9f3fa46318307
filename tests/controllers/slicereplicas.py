"""Replicas of a consumer's ResourceSlices."""

from apis import keys
from apis.objects import Key, Object, named

AUTHENTICATED = {
    "conditions": [
        {
            "type": "Authentication",
            "status": "Accepted",
            "reason": "ResourceSliceAuthenticationAccepted",
            "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
        }
    ]
}


def replica(key: Key, origin: str, class_: str, wanted: dict[str, str]) -> Object:
    labels = {
        keys.REPLICATION: "false",
        keys.REPLICATED: "true",
        keys.ORIGIN_ID: origin,
        keys.REMOTE_CLUSTER_ID: origin,
        keys.REMOTE_ID: "milan",
    }
    spec: Object = {"consumerClusterID": origin, "providerClusterID": "milan"}
    if class_:
        spec["class"] = class_
    if wanted:
        spec["resources"] = {name.replace("_", "-"): amount for name, amount in wanted.items()}
    return named(keys.RESOURCE_SLICE, key, metadata={"labels": labels}, spec=spec)
