"""The replica of a local object on the provider, and which objects take part at all."""

from dataclasses import dataclass

from apis import allowlist, keys, objects, ownership
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceMap


@dataclass(frozen=True)
class Peering:
    """The tenant namespaces of one peer: here, and on the peer."""

    local_cluster_id: str
    remote_cluster_id: str
    local_namespace: str
    remote_namespace: str

    def replica_of(self, key: Key) -> Key:
        return Key(self.remote_namespace, key.name)

    def original_of(self, key: Key) -> Key:
        return Key(self.local_namespace, key.name)

    def selector(self) -> str:
        """Return the label selector of our replicas on the peer."""
        return f"{ownership.REPLICAS},{keys.ORIGIN_ID}={self.local_cluster_id}"


def is_replica(obj: Object, peering: Peering) -> bool:
    """Whether ``obj``, on the peer, was put there by this cluster."""
    return bool(ownership.origin(obj, peering.local_cluster_id))


def replica(kind: Kind, local: Object, peering: Peering) -> Object:
    """Return the replica of ``local``: its spec, and labels that say where it came from.

    Source: docs/parity.md § 4.12, 11.2.
    """
    return objects.named(
        kind,
        peering.replica_of(objects.key_of(local)),
        metadata={
            "labels": labels(local, peering),
            "annotations": allowlist.annotations_of_replica(objects.annotations(local)),
        },
        spec=objects.spec(local),
    )


def labels(local: Object, peering: Peering) -> dict[str, str]:
    """Return the labels of the replica of ``local``; what a provider refuses stays here."""
    kept = allowlist.labels_of_replica(objects.labels(local))
    return {**kept, **ownership.replica(peering.local_cluster_id)}


def changes(kind: Kind, local: Object, remote: Object, peering: Peering) -> Object:
    """Return the merge patch that brings ``remote`` up to date; {} when it is.

    What the provider added to labels and annotations stays.
    """
    wanted = replica(kind, local, peering)
    patch: Object = {}
    spec = objects.merge_patch(objects.spec(remote), wanted["spec"])
    if spec:
        patch["spec"] = spec
    metadata: Object = {
        field: differing
        for field in ("labels", "annotations")
        if (differing := _differing(remote, wanted, field))
    }
    if patch and kind == keys.NAMESPACE_MAP:
        metadata |= objects.UNTRACKED
    return {**patch, "metadata": metadata} if metadata else patch


def _differing(remote: Object, wanted: Object, field: str) -> dict[str, str]:
    found = remote["metadata"].get(field) or {}
    asked: dict[str, str] = wanted["metadata"][field]
    return {name: value for name, value in asked.items() if found.get(name) != value}


def size(obj: Object) -> int:
    """Return how many entries a NamespaceMap has; other kinds have none."""
    desired = objects.spec(obj).get("desiredMapping") or {}
    return max(len(desired), len(objects.status(obj).get("currentMapping") or {}))


def abandoned(namespace_map: Object) -> dict[str, str]:
    """Return the namespaces that nobody wants any more at a peer that is gone: twin by original.

    Nobody there says when they are deleted, so nobody here waits for it.
    """
    parsed = NamespaceMap.parse(namespace_map)
    return {
        local: entry.remote_namespace
        for local, entry in sorted(parsed.current.items())
        if local not in parsed.desired
    }
