"""The conditions of a VirtualNode, its NamespaceMap, and who has to leave its Node."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from apis import keys, objects, ownership, placement, texts
from apis.objects import Key, Object
from apis.offloading import VirtualNode

VIRTUAL_KUBELET: Final = "VirtualKubelet"
NODE: Final = "Node"
NONE, RUNNING, CREATING, DRAINING, DELETING = (
    "None",
    "Running",
    "Creating",
    "Draining",
    "Deleting",
)
GIVEN_UP_AFTER: Final = timedelta(minutes=10)
"""So long a node waits, as it goes, for a virtual kubelet that does not run.

Twice what Kubernetes gives a pod of a node that is lost until it runs on another.
"""
LEAVES: Final = timedelta(seconds=60)
"""So long at most what belongs to a node is waited for, once that is gone."""
TOLD: Final = 10
"""So many pods are named in one message."""
_IGNORED: Final = frozenset({(NONE, DRAINING), (NONE, DELETING), (DELETING, DRAINING)})


def elder(obj: Object, others: Iterable[Object]) -> Key | None:
    """Return whose name ``obj`` has: of VirtualNodes made in one moment admission may let two pass.

    The one that was created first has it, until it is gone; its UID decides within a second.
    """
    alike = [one for one in others if one["metadata"]["name"] == obj["metadata"]["name"]]
    first = min([obj, *alike], key=_age)
    return None if objects.uid(first) == objects.uid(obj) else objects.key_of(first)


def _age(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["creationTimestamp"], objects.uid(obj)


def name_taken(by: Key) -> tuple[str, str, str]:
    """Return status, reason and message of both conditions where another one has the name."""
    message = f"there is a VirtualNode {by} already: delete one, and create it by another name"
    return NONE, "NameTaken", message


def namespace_map(virtual_node: VirtualNode) -> Object:
    """Return the map of the remote cluster of ``virtual_node``, shared by all nodes on it."""
    labels = {
        **ownership.original(virtual_node.cluster_id),
        keys.LIQO_MANAGED: "true",
    }
    key = Key(virtual_node.namespace, virtual_node.cluster_id)
    return objects.named(keys.NAMESPACE_MAP, key, metadata={"labels": labels}, spec={})


def is_map_of(virtual_node: VirtualNode, found: Object) -> bool:
    """Whether ``found`` is the local copy of that map, and not a replica from elsewhere."""
    peer = virtual_node.cluster_id
    goes_to = ownership.destination(found) or peer
    return goes_to == peer and not ownership.is_foreign(found, peer)


def kubelet_state(deployment: Object, missing: Key | None = None) -> tuple[str, str, str]:
    """Return status, reason and message of the condition ``VirtualKubelet``.

    ``missing`` is the Secret with its kubeconfig, where that is not there.
    """
    status = objects.status(deployment)
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    if seen and status.get("availableReplicas", 0) > 0:
        return RUNNING, "DeploymentAvailable", "the virtual kubelet is up"
    if missing is not None and not missing.name:
        return CREATING, "KubeconfigMissing", "spec.kubeconfigSecretRef names no Secret: set it"
    if missing is not None:
        cure = "create it, or correct spec.kubeconfigSecretRef"
        return CREATING, "KubeconfigMissing", f"secret {missing} does not exist: {cure}"
    failed = objects.find_condition(status.get("conditions"), "ReplicaFailure")
    if failed and failed["status"] == "True":
        why = texts.clamp(failed.get("message", ""))
        return CREATING, "DeploymentUnavailable", f"the virtual kubelet gets no pod: {why}"
    return CREATING, "DeploymentUnavailable", "the pod of the virtual kubelet is not ready"


def node_state(virtual_node_creates: bool, node: Object | None) -> tuple[str, str, str]:  # noqa: FBT001  # the one question
    """Return status, reason and message of the condition ``Node``."""
    if not virtual_node_creates:
        return NONE, "NodeNotWanted", "spec.createNode is false"
    if node is None:
        return CREATING, "NodeMissing", "the virtual kubelet has not created the node yet"
    found = objects.status(node).get("conditions")
    if objects.is_condition_true(found, "Ready"):
        return RUNNING, "NodeReady", "the node is ready"
    ready = objects.find_condition(found, "Ready") or {}
    return CREATING, "NodeNotReady", ready.get("message") or "the node is not ready"


def draining(
    virtual_node: VirtualNode, left: int, given_up: datetime | None
) -> tuple[str, str, str]:
    """Return status, reason and message of the condition ``Node`` while ``left`` pods are there.

    ``given_up`` is when nobody waits for them any more, as no virtual kubelet runs.
    """
    message = f"{left} pods are leaving the node"
    if given_up is not None:
        until = objects.timestamp(given_up)
        why = "no virtual kubelet runs that could end them"
        return DRAINING, "VirtualKubeletMissing", f"{message}, but {why}: given up at {until}"
    allow = f"as disruption budgets and {virtual_node.cluster_id} allow"
    cure = f"if that does not come back: liqoctl force unpeer {virtual_node.cluster_id}"
    return DRAINING, "NodeDraining", f"{message}, {allow}; {cure}"


def given_up(running: Object | None, node: Object) -> datetime | None:
    """Return when the pods of ``node`` are given up; None while a virtual kubelet may end them.

    ``running`` is its Deployment. That none runs is the word of two: no pod of the Deployment is
    available, and the node is not ready, since when its own record tells.
    """
    if objects.status(running).get("availableReplicas", 0) > 0:
        return None
    ready = objects.condition(node, "Ready")
    since = ready.get("lastTransitionTime")
    if ready.get("status") == "True" or not since:
        return None
    return datetime.fromisoformat(since) + GIVEN_UP_AFTER


def abandoned(virtual_node: VirtualNode, pods: Iterable[Key]) -> str:
    """Return who was given up, for the one who looks after the cluster that may run them still."""
    names = sorted(map(str, pods))
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    listed = ", ".join(names[:TOLD]) + more
    why = f"no virtual kubelet ran for {GIVEN_UP_AFTER.seconds // 60} minutes"
    return f"{why}: cluster {virtual_node.cluster_id} may still run {listed}, in their twins"


def status(
    virtual_node: Object, states: Mapping[str, tuple[str, str, str]], now: datetime
) -> Object:
    """Return the status after ``states`` by condition type; what is not named stays.

    A type occurs once. What was Running never becomes Creating again: then reason and message
    alone tell that it is not ready.
    Source: docs/parity.md § 4.3.
    """
    before: Object = objects.status(virtual_node)
    found = {each["type"]: each for each in before.get("conditions") or []}
    for type_, state in states.items():
        found[type_] = _condition(found.get(type_), type_, state, now)
    return {**before, "conditions": [found[type_] for type_ in sorted(found)]}


def _condition(
    before: Object | None, type_: str, state: tuple[str, str, str], now: datetime
) -> Object:
    status_, reason, message = state
    shown = (before or {}).get("status", "")
    if before and (shown, status_) in _IGNORED:
        return before
    if (shown, status_) == (RUNNING, CREATING):
        status_ = RUNNING
    since = (before or {}).get("lastTransitionTime")
    if status_ != shown or not since:
        since = objects.timestamp(now)
    said = {"status": status_, "reason": reason, "message": message}
    return {"type": type_, **said, "lastTransitionTime": since}


def has_to_leave(pod: Object) -> bool:
    """Whether a drain evicts ``pod`` of its node: not what the node would get back at once.

    A pod that has ended has left already, and so has one that is deleted before the provider got
    anything of it: a finalizer of a user may keep it for ever. Otherwise labels do not count: a pod
    that is bound and not offloaded yet will be.
    """
    phase = objects.status(pod).get("phase") or "Pending"
    is_on_provider = phase != "Pending" or keys.SHADOW_POD_LABEL in objects.labels(pod)
    has_left = objects.is_finished(pod) or (objects.is_terminating(pod) and not is_on_provider)
    return not placement.is_pinned(pod) and not has_left


def is_waited_for(pod: Object, now: datetime) -> bool:
    """Whether ``pod``, which ends with its node, still has time to do that."""
    metadata = pod["metadata"]
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return now < datetime.fromisoformat(metadata["deletionTimestamp"]) - grace + LEAVES


def is_node_of(virtual_node: VirtualNode, node: Object) -> bool:
    labels = objects.labels(node)
    return (
        labels.get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE
        and ownership.cluster_in(labels) == virtual_node.cluster_id
    )
