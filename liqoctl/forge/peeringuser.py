"""A user that may do on a provider what ``liqoctl peer`` needs, for one consumer. Pure.

Source: docs/parity.md § 2.5, 7.6, 8.3.
"""

from datetime import timedelta
from typing import Final

from apis import authentication, keys, naming, objects
from apis.objects import Key, Kind, Object

TENANT_ROLE: Final = "liqo-peering-user-tenant-ns"
LIQO_ROLE: Final = "liqo-peering-user-liqo-ns"
RANDOM_BYTES: Final = 16


def user(consumer: str, dice: bytes) -> str:
    return naming.peering_user(consumer, dice.hex())


def signing_request(request: bytes, consumer: str, name: str, lifetime: timedelta) -> Object:
    """Return the CertificateSigningRequest of the user called ``name``."""
    return {
        "apiVersion": keys.CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": keys.CERTIFICATE_SIGNING_REQUEST.kind,
        "metadata": {"generateName": "liqo-peering-user-", "labels": _labels(consumer, name)},
        "spec": {
            "request": authentication.encoded(request),
            "signerName": keys.CLIENT_SIGNER,
            "usages": ["digital signature", "key encipherment", "client auth"],
            "expirationSeconds": int(lifetime.total_seconds()),
        },
    }


def approval(request: Object, moment: str) -> Object:
    """Return the merge patch by which an administrator approves ``request``."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "PeeringUser",
        "message": "liqoctl generate peering-user",
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    version = {"resourceVersion": request["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": [condition]}}


def grants(consumer: str, name: str, namespace: str, liqo: str) -> list[tuple[Kind, Object]]:
    """Return the bindings of the user: in the consumer's tenant namespace, and in pyliqo's own."""
    there = ("ClusterRole", TENANT_ROLE)
    return [
        _binding(Key(namespace, TENANT_ROLE), there, consumer, name),
        _binding(
            Key(liqo, naming.shorten(f"{LIQO_ROLE}-{consumer}")),
            ("Role", LIQO_ROLE),
            consumer,
            name,
        ),
    ]


def _binding(key: Key, role: tuple[str, str], consumer: str, name: str) -> tuple[Kind, Object]:
    kind, called = role
    made = objects.named(
        keys.ROLE_BINDING,
        key,
        metadata={"labels": _labels(consumer, name)},
        subjects=[{"apiGroup": keys.RBAC_GROUP, "kind": "User", "name": name}],
        roleRef={"apiGroup": keys.RBAC_GROUP, "kind": kind, "name": called},
    )
    return keys.ROLE_BINDING, made


def selector(consumer: str) -> str:
    """Return the labels of all that belongs to the peering users of ``consumer``."""
    return f"{keys.PEERING_USER_NAME},{keys.REMOTE_CLUSTER_ID}={consumer}"


def _labels(consumer: str, name: str) -> dict[str, str]:
    return {keys.REMOTE_CLUSTER_ID: consumer, keys.PEERING_USER_NAME: naming.shorten(name)}
