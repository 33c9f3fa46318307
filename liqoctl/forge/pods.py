"""What a pod and its node say of themselves, for those who ask why. Pure."""

from typing import Final

from apis import conditions, keys, mentions, objects
from apis.objects import Kind, Object
from liqoctl.forge.findings import Facts


def node_of(facts: Facts, pod: Object) -> Object | None:
    """Return the node it is bound to, if that is known."""
    name = spec(pod).get("nodeName")
    return next((n for n in facts.nodes or () if objects.key_of(n).name == name), None)


def cluster_of(node: Object | None) -> str:
    """Return the cluster of a virtual node, "" of any other."""
    return objects.labels(node or {"metadata": {}}).get(keys.REMOTE_CLUSTER_ID, "")


def refused(pod: Object) -> Object | None:
    """Return the condition by which the provider's refusal is told, if it holds."""
    found = conditions.find(status(pod).get("conditions"), keys.OFFLOADED_CONDITION)
    return found if found is not None and found.get("status") == "False" else None


def scheduler_says(pod: Object) -> str:
    """Return why the scheduler found no node; empty if it did, or did not try."""
    found = conditions.find(status(pod).get("conditions"), "PodScheduled") or {}
    return str(found.get("message") or "") if found.get("status") == "False" else ""


def halted(pod: Object, otherwise: Object) -> str:
    """Return why the first container that does not run does not; empty if it is just starting."""
    now = status(pod)
    for name in ("initContainerStatuses", "containerStatuses"):
        for one in now.get(name) or []:
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in _QUIET:
                return f"container {one.get('name')}: {told(waiting)}"
    return told(now) or told(otherwise)


_QUIET: Final = frozenset({None, "", "ContainerCreating", "PodInitializing"})


def claims(pod: Object) -> list[str]:
    """Return the names of the claims that it mounts. Source: Kubernetes, "Ephemeral Volumes"."""
    name = objects.key_of(pod).name
    found = [
        f"{name}-{volume.get('name')}"
        if volume.get("ephemeral")
        else str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
        for volume in spec(pod).get("volumes") or []
    ]
    return sorted({one for one in found if one})


def mentioned(pod: Object) -> dict[Kind, list[str]]:
    """Return the names of the ConfigMaps, Secrets and claims that it mentions."""
    found = mentions.of(spec(pod))
    named = {
        kind: sorted(name for one, name in found if one == kind)
        for kind in (keys.CONFIG_MAP, keys.SECRET)
    }
    return {**named, keys.PERSISTENT_VOLUME_CLAIM: claims(pod)}


def told(part: Object) -> str:
    """Return reason and message of ``part`` in one line."""
    return ": ".join(str(part[name]) for name in ("reason", "message") if part.get(name))


def spec(pod: Object) -> Object:
    return objects.spec(pod)


def status(pod: Object) -> Object:
    return objects.status(pod)
