"""Ownership of objects: the namespace decides, and no label or annotation alone.

A tenant namespace and a twin name a cluster in labels that only administrators and our controllers
set. In a tenant namespace lies what the peer put there beside what goes to it: a policy keeps the
peer from making the one look like the other, and what it made before counts as its own whatever it
says now (``manifests/70-policies``: ``marks.yaml``, ``consumer-marks.yaml``).
Source: docs/parity.md § 2.1, 4.12; SEC-A7.
"""

from collections.abc import Mapping
from typing import Final

from apis import keys, objects
from apis.objects import Object

MANAGED: Final = {keys.APP_MANAGED_BY: "liqo", keys.LIQO_MANAGED: "true"}

REPLICAS: Final = f"{keys.REPLICATED}=true"
"""Selects what says that it is a replica: narrows a list, and decides nothing."""
PEERS: Final = keys.REMOTE_CLUSTER_ID
"""Selects tenant namespaces and twins among namespaces."""


def peer_of(namespace: Object | None) -> str:
    """Return the cluster that a tenant namespace is for; empty for any other namespace."""
    labels = objects.labels(namespace) if namespace else {}
    is_tenants = labels.get(keys.TENANT_NAMESPACE) == "true"
    return labels.get(keys.REMOTE_CLUSTER_ID, "") if is_tenants else ""


def consumer_of(namespace: Object | None) -> str:
    """Return the cluster whose pods run in ``namespace``; empty where it is no twin."""
    labels = objects.labels(namespace) if namespace else {}
    is_tenants = labels.get(keys.TENANT_NAMESPACE) == "true"
    return "" if is_tenants else labels.get(keys.REMOTE_CLUSTER_ID, "")


def cluster_named_by(obj: Object) -> str:
    """Return the cluster of which ``obj`` is: a Tenant, Identity, node or volume, or its Event.

    Empty where it names none. No consumer can write these; a replica is asked by ``origin``.
    """
    return cluster_in(objects.labels(obj))


def cluster_in(labels: Mapping[str, str]) -> str:
    return labels.get(keys.REMOTE_CLUSTER_ID, "")


def shadow_origin(obj: Object, unsaid: str = "") -> str:
    """Return the consumer that a shadow or a twin says it is of, ``unsaid`` where it says nothing.

    The namespace says whether that is true.
    """
    return objects.labels(obj).get(keys.ORIGIN, unsaid)


def is_foreign(obj: Object, peer: str = "") -> bool:
    """Whether the cluster of its tenant namespace put ``obj`` there, rather than this one.

    One sign is enough: a mark of a replica, the finalizer that only a provider sets, or a spec that
    asks in the name of ``peer``.
    """
    asks = objects.spec(obj).get("consumerClusterID") if peer else ""
    return (
        is_marked(objects.labels(obj))
        or keys.NAMESPACE_MAP_FINALIZER in objects.finalizers(obj)
        or bool(peer and asks == peer)
    )


def is_marked(labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` are those of a replica, whatever they say of it."""
    return keys.REPLICATED in labels or keys.ORIGIN_ID in labels


def origin(obj: Object, peer: str) -> str:
    """Return the cluster that ``obj``, in the tenant namespace of ``peer``, is served for.

    That is ``peer``, or nobody: of another's marks, or of none, nothing comes.
    """
    labels = objects.labels(obj)
    is_served = labels.get(keys.REPLICATED) == "true" and labels.get(keys.ORIGIN_ID) == peer
    return peer if is_served else ""


def destination(obj: Object) -> str:
    """Return where ``obj``, of this cluster, asks to be replicated to; empty for what stays.

    It goes there only from the tenant namespace of that cluster: ``is_for``.
    """
    labels = objects.labels(obj)
    is_sent = labels.get(keys.REPLICATION) == "true" and not is_foreign(obj)
    return labels.get(keys.REMOTE_ID, "") if is_sent else ""


def is_for(obj: Object, peer: str) -> bool:
    """Whether ``obj``, in the tenant namespace of ``peer``, is this cluster's and goes there."""
    return bool(peer) and destination(obj) == peer and not is_foreign(obj, peer)


def replica(consumer: str) -> dict[str, str]:
    """Return the marks by which a provider knows a replica that ``consumer`` puts there."""
    return {
        keys.REPLICATION: "false",
        keys.REPLICATED: "true",
        keys.ORIGIN_ID: consumer,
        keys.REMOTE_CLUSTER_ID: consumer,
    }


def original(provider: str) -> dict[str, str]:
    """Return the marks of an object of this cluster that is replicated to ``provider``."""
    return {
        keys.REMOTE_CLUSTER_ID: provider,
        keys.REPLICATION: "true",
        keys.REMOTE_ID: provider,
    }


def originals_for(provider: str) -> str:
    """Return the selector of what goes to ``provider``, among what it put there itself."""
    return f"{keys.REMOTE_CLUSTER_ID}={provider},{keys.REPLICATION}=true"


def named_by(obj: Object) -> str:
    """Return the cluster that a replica, or an original, names: for people to read, and choose by.

    Empty where it names none.
    """
    labels = objects.labels(obj)
    return labels.get(keys.ORIGIN_ID if is_foreign(obj) else keys.REMOTE_ID, "")
