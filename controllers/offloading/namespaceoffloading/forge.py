"""Which clusters a namespace goes to, and what its NamespaceOffloading says about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis import keys, naming, nodeselector, objects, texts
from apis.nodeselector import Term
from apis.objects import Key, Object
from apis.offloading import (
    CurrentMapping,
    MappingPhase,
    PodOffloadingStrategy,
    VirtualNode,
    is_scheduling_ours,
    suggested_labels,
)

REQUIRED: Final = "OffloadingRequired"
READY: Final = "Ready"

_FAILED: Final = frozenset({MappingPhase.CREATION_LOOP_BACK_OFF, MappingPhase.TERMINATING})
_WHY: Final = {
    None: ("Creating", "the remote namespace is being created"),
    MappingPhase.CREATION_LOOP_BACK_OFF: (
        "CreationLoopBackOff",
        "the remote cluster could not create the namespace",
    ),
    MappingPhase.TERMINATING: ("Terminating", "the remote namespace is being deleted"),
}


@dataclass(frozen=True)
class MappingStatus:
    """Where one namespace stands with one cluster; ``phase`` is None before its answer.

    ``has_entry`` says that the cluster answered something, if nothing that makes sense; ``is_left``
    that it was asked to give its twin up, did not, and is not waited for.
    """

    required: bool
    phase: MappingPhase | None = None
    reason: str = ""
    message: str = ""
    has_entry: bool = False
    is_left: bool = False

    @property
    def exists(self) -> bool:
        """Whether the cluster has, or is asked for, a twin of the namespace."""
        return self.required or self.phase is not None or self.has_entry


def check_namespace(namespace: str) -> None:
    """Refuse what is not offloaded, no matter who asks.

    Raises:
        ValueError: it holds the cluster's own parts or ours.
    """
    if naming.is_system(namespace):
        raise ValueError(f"namespace {namespace} belongs to the system: it stays here")


def mapping_status(namespace: str, namespace_map: Object) -> MappingStatus:
    """Return what ``namespace_map`` asks of its cluster for ``namespace``, and its answer."""
    desired, current = _entries(namespace_map)
    is_required = namespace in desired
    if namespace not in current:
        return MappingStatus(is_required)
    entry = CurrentMapping.parse(current[namespace])
    reason, message = texts.clamp(entry.reason), texts.clamp(entry.message)
    return MappingStatus(is_required, entry.phase, reason, message, has_entry=True)


def selected(
    terms: tuple[Term, ...], virtual_nodes: Iterable[VirtualNode], nodes: Mapping[Key, Object]
) -> frozenset[str]:
    """Return the clusters of which any virtual node matches ``terms``; no terms match all.

    Raises:
        ValueError: a term is syntactically invalid; the message says which.
    """
    return frozenset(node.cluster_id for node in selected_nodes(terms, virtual_nodes, nodes))


def selected_nodes(
    terms: tuple[Term, ...], virtual_nodes: Iterable[VirtualNode], nodes: Mapping[Key, Object]
) -> list[VirtualNode]:
    """Return those of ``virtual_nodes`` that match ``terms``, as ``selected``."""
    return [
        node
        for node in virtual_nodes
        if not terms or nodeselector.matches(terms, _labels(node, nodes), node.name)
    ]


def _labels(virtual_node: VirtualNode, nodes: Mapping[Key, Object]) -> Mapping[str, str]:
    """Return the labels of the Node; which cluster it is, it does not say of itself."""
    node, forged = nodes.get(Key("", virtual_node.name)), node_labels(virtual_node)
    if node is None:
        return forged
    identity = {name: forged[name] for name in (keys.NODE_TYPE, keys.REMOTE_CLUSTER_ID)}
    return {**objects.labels(node), **identity}


def node_labels(virtual_node: VirtualNode) -> dict[str, str]:
    """Return the labels that the Node of ``virtual_node`` will have, before it exists."""
    return {
        keys.HOSTNAME: virtual_node.name,
        keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE,
        keys.REMOTE_CLUSTER_ID: virtual_node.cluster_id,
        **virtual_node.labels,
        keys.STORAGE_AVAILABLE: "true" if virtual_node.storage_classes else "false",
    }


def touched(old: Object | None, new: Object | None) -> frozenset[str] | None:
    """Return the namespaces that a change of a NamespaceMap concerns; None means all of them."""
    if old is None or new is None or objects.is_terminating(old) != objects.is_terminating(new):
        return None
    concerned: set[str] = set()
    for was, now in zip(_entries(old), _entries(new), strict=True):
        concerned |= {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}
    return frozenset(concerned)


def _entries(namespace_map: Object) -> tuple[Object, Object]:
    """Return what is desired and what is there, by namespace; one is looked up, not all parsed."""
    desired = objects.spec(namespace_map).get("desiredMapping") or {}
    return desired, objects.status(namespace_map).get("currentMapping") or {}


def changed_labels(old: Object | None, new: Object | None) -> frozenset[str] | None:
    """Return which labels that selectors read a change of a VirtualNode or Node concerns.

    None means that every selector may have another verdict: one came, ends, or is another cluster.
    """
    if old is None or new is None or _identity(old) != _identity(new):
        return None
    concerned: set[str] = set()
    for was, now in zip(_label_sources(old), _label_sources(new), strict=True):
        concerned |= {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}
    return frozenset(concerned)


def _identity(obj: Object) -> tuple[object, ...]:
    type_ = objects.labels(obj).get(keys.NODE_TYPE)
    return type_, objects.spec(obj).get("clusterID"), objects.is_terminating(obj)


def _label_sources(obj: Object) -> tuple[Mapping[str, object], ...]:
    """Return what of a VirtualNode or Node is in the labels that selectors read."""
    spec = objects.spec(obj)
    storage = {keys.STORAGE_AVAILABLE: bool(spec.get("storageClasses"))}
    return objects.labels(obj), spec.get("labels") or {}, suggested_labels(obj), storage


def reads(offloading: Object, labels: frozenset[str] | None) -> bool:
    """Whether the cluster selector of ``offloading`` reads one of ``labels``; None are all."""
    if labels is None:
        return True
    selector: Object = objects.spec(offloading).get("clusterSelector") or {}
    terms: Iterable[Object] = selector.get("nodeSelectorTerms") or ()
    required = (one for term in terms for one in term.get("matchExpressions") or ())
    return any(one.get("key") in labels for one in required)


def scheduling_enabled(
    namespace: Object, offloading: Object, strategy: PodOffloadingStrategy
) -> Object | None:
    """Return the merge patch of the label by which webhooks choose namespaces; None for none.

    "true" has every pod judged; "false", for Local, those that virtual nodes would let in. What
    somebody set in advance stays where it has more pods judged.
    """
    wanted = "false" if strategy is PodOffloadingStrategy.LOCAL else "true"
    have = objects.labels(namespace).get(keys.SCHEDULING_ENABLED)
    if have == wanted or (have == "true" and not is_scheduling_ours(namespace)):
        return None
    by = {keys.SCHEDULING_ENABLED_BY: objects.uid(offloading)}
    return {"metadata": {"labels": {keys.SCHEDULING_ENABLED: wanted}, "annotations": by}}


def scheduling_removed(namespace: Object, *, is_only_ours: bool) -> Object | None:
    """Return the merge patch that removes label and mark; None for none.

    ``is_only_ours`` keeps a label that somebody set in advance.
    """
    is_ours = is_scheduling_ours(namespace)
    if is_only_ours and not is_ours:
        return None
    metadata: Object = {"annotations": {keys.SCHEDULING_ENABLED_BY: None}} if is_ours else {}
    if objects.labels(namespace).get(keys.SCHEDULING_ENABLED) in {"true", "false"}:
        metadata["labels"] = {keys.SCHEDULING_ENABLED: None}
    if not metadata:
        return None
    metadata["resourceVersion"] = namespace["metadata"]["resourceVersion"]
    return {"metadata": metadata}


def status(
    offloading: Object, remote_name: str, statuses: Mapping[str, MappingStatus], now: datetime
) -> Object:
    """Return the status of ``offloading``, given how it is mapped, by NamespaceMap.

    Shape: {remoteNamespaceName, offloadingPhase, observedGeneration,
        remoteNamespacesConditions: {map: [{type, status, lastTransitionTime, reason, message}]}}.
    """
    terminating = objects.is_terminating(offloading)
    kept = {cluster: each for cluster, each in statuses.items() if each.exists or not terminating}
    before = objects.status(offloading).get("remoteNamespacesConditions") or {}
    wanted: Object = {
        "remoteNamespaceName": remote_name,
        "offloadingPhase": phase(kept.values(), terminating=terminating),
        "observedGeneration": offloading["metadata"].get("generation", 0),
    }
    told = objects.status(offloading).get("conditions")
    if told is not None:
        wanted["conditions"] = told  # another loop's
    if kept:
        wanted["remoteNamespacesConditions"] = {
            cluster: _conditions(before.get(cluster) or [], kept[cluster], now)
            for cluster in sorted(kept)
        }
    return wanted


def asked_since(offloading: Object, cluster: str) -> datetime | None:
    """Return since when ``cluster`` is asked to give its twin up, as the status says; None if not.

    A cluster that was never asked for a twin has no condition Ready.
    """
    told = (objects.status(offloading).get("remoteNamespacesConditions") or {}).get(cluster)
    required = objects.find_condition(told, REQUIRED)
    if required is None or required["status"] != "False" or not objects.find_condition(told, READY):
        return None
    return datetime.fromisoformat(required["lastTransitionTime"])


def invalid(offloading: Object, maps: Iterable[str], why: str, now: datetime) -> Object:
    """Return the status of an ``offloading`` that cannot be understood: nothing else changes."""
    before: Object = objects.status(offloading)
    found = before.get("remoteNamespacesConditions") or {}
    told = {
        name: objects.set_condition(found.get(name), REQUIRED, "Unknown", "Invalid", why, now)
        for name in sorted(maps)
    }
    return {**before, "remoteNamespacesConditions": {**found, **told}} if told else before


def phase(statuses: Iterable[MappingStatus], *, terminating: bool) -> str:
    """Return the phase in one word; only clusters that are required count.

    Source: docs/parity.md § 4.1; its test vectors are in 11.3.
    """
    required = [each for each in statuses if each.required]
    ready = sum(each.phase is MappingPhase.ACCEPTED for each in required)
    failed = sum(each.phase in _FAILED for each in required)
    verdicts = {
        "Terminating": terminating,
        "NoClusterSelected": not required,
        "Ready": ready == len(required),
        "AllFailed": failed == len(required),
        "SomeFailed": failed > 0,
    }
    return next((word for word, holds in verdicts.items() if holds), "InProgress")


def _conditions(before: list[Object], mapped: MappingStatus, now: datetime) -> list[Object]:
    is_told = mapped.exists or mapped.is_left
    found = [each for each in before if each["type"] != READY or is_told]
    found = list(objects.set_condition(found, REQUIRED, *_required(mapped), now))
    if is_told:
        found = list(objects.set_condition(found, READY, *_ready(mapped), now))
    return found


def _required(mapped: MappingStatus) -> tuple[str, str, str]:
    if mapped.required:
        return "True", "ClusterSelected", "the cluster is selected for this namespace"
    return "False", "ClusterNotSelected", "the cluster is not selected for this namespace"


def _ready(mapped: MappingStatus) -> tuple[str, str, str]:
    if mapped.is_left:
        return "Unknown", "TwinMayBeLeft", mapped.message
    if mapped.phase is MappingPhase.ACCEPTED:
        return "True", "NamespaceCreated", "the remote namespace is there"
    reason, message = _WHY[mapped.phase]
    said = (part for part in (message, mapped.reason, mapped.message) if part)
    return "False", reason, ": ".join(said)
