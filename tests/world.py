"""What tests do with clusters, fake or real."""

import contextlib
import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from apis import keys, objects
from apis.objects import Key, Kind, Object
from certs import pki
from kube import errors
from kube.cluster import Cluster
from tests import factories


async def existing(cluster: Cluster, kind: Kind, key: Key) -> Object:
    """Return what there is under ``key``; fail where nothing is."""
    found = await cluster.get_live(kind, key)
    assert found, f"{kind} {key} is not there"
    return found


async def remove(cluster: Cluster, kind: Kind, key: Key, *, grace_s: int | None = None) -> None:
    """Delete what there is under ``key``; fail where nothing is."""
    uid = objects.uid(await existing(cluster, kind, key))
    await cluster.delete(kind, key, uid=uid, grace_s=grace_s)


async def offload(
    cluster: Cluster, where: Key, twins: Mapping[str, str | None], phase: str = "Accepted"
) -> None:
    """Map namespaces as if a provider had made ``twins``; None takes one back."""
    current = {
        local: remote and {"remoteNamespace": remote, "phase": phase}
        for local, remote in twins.items()
    }
    with contextlib.suppress(errors.AlreadyExistsError):
        await cluster.create(keys.NAMESPACE_MAP, factories.namespace_map(where))
    await cluster.patch(keys.NAMESPACE_MAP, where, {"spec": {"desiredMapping": dict(twins)}})
    await cluster.patch_status(keys.NAMESPACE_MAP, where, {"currentMapping": current})


def is_ready(obj: Object | None) -> bool:
    """Whether the condition Ready of a pod or Node is true; not, if it is not there."""
    return objects.is_condition_true(((obj or {}).get("status") or {}).get("conditions"), "Ready")


def holds(certificate: bytes, now: dt.datetime) -> bool:
    return pki.started(certificate) <= now < pki.expiry(certificate)


def restarts(pod: Object) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or [])


def descriptors() -> int:
    """Return how many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
