"""The NamespaceOffloading that flags ask for, and what its status means to its author. Pure.

Source: docs/parity.md § 1.1, 7.2, 7.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from apis import keys, objects, reflection
from apis.objects import Key, Object
from liqoctl.forge import labelselector, manifests

SELECTED_NAME: Final = "SelectedName"
MAPPING_STRATEGIES: Final = ("DefaultName", "EnforceSameName", SELECTED_NAME)
POD_STRATEGIES: Final = ("LocalAndRemote", "Local", "Remote")
REFLECTION_POLICIES: Final = tuple(policy.value for policy in reflection.ALL)
TIGHTENED: Final = (
    "the new pod offloading strategy is stricter than the current one: "
    "pods that violate it and already run are not evicted"
)


NAME_IGNORED: Final = (
    "--remote-namespace-name is ignored without --namespace-mapping-strategy SelectedName"
)


class Outcome(Enum):
    """How far an offloading is."""

    READY = "ready"
    NOTHING_SELECTED = "nothing selected"
    FAILED = "failed"
    WAITING = "waiting"


_OUTCOMES: Final = {
    "Ready": Outcome.READY,
    "NoClusterSelected": Outcome.NOTHING_SELECTED,
    "SomeFailed": Outcome.FAILED,
    "AllFailed": Outcome.FAILED,
}


@dataclass(frozen=True)
class Wanted:
    """What the flags say; each selector is one term, and any term will do."""

    mapping: str | None = None
    pods: str | None = None
    remote_name: str = ""
    selectors: Sequence[str] = ()
    reflection: str | None = None
    """By which policy ConfigMaps and Secrets go; None as the virtual nodes say."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations that all objects get."""

    @property
    def chosen_name(self) -> str:
        """Return the name for the twins, empty where the strategy makes one of its own."""
        return self.remote_name if self.mapping == SELECTED_NAME else ""

    def fields(self) -> frozenset[str]:
        """Return the fields of the spec that the flags name: others stay as they are."""
        given = {
            "namespaceMappingStrategy": self.mapping,
            "podOffloadingStrategy": self.pods,
            "remoteNamespaceName": self.chosen_name,
            "clusterSelector": self.selectors,
        }
        return frozenset(name for name, value in given.items() if value)


def manifest(namespace: str, wanted: Wanted) -> Object:
    """Return the NamespaceOffloading of ``namespace``.

    Raises:
        ValueError: a selector cannot be read.
    """
    spec: Object = {
        "namespaceMappingStrategy": wanted.mapping or MAPPING_STRATEGIES[0],
        "podOffloadingStrategy": wanted.pods or POD_STRATEGIES[0],
    }
    if wanted.chosen_name:
        spec["remoteNamespaceName"] = wanted.chosen_name
    if wanted.selectors:
        terms = [labelselector.to_term(labelselector.parse(text)) for text in wanted.selectors]
        spec["clusterSelector"] = {"nodeSelectorTerms": terms}
    where = Key(namespace, keys.OFFLOADING_NAME)
    return manifests.made(keys.NAMESPACE_OFFLOADING, where, spec, _metadata(wanted))


def _metadata(wanted: Wanted) -> Mapping[str, Mapping[str, str]]:
    if not wanted.reflection:
        return wanted.metadata
    given = wanted.metadata.get("annotations") or {}
    annotations = {**given, keys.REFLECTION_POLICY: wanted.reflection}
    return {**wanted.metadata, "annotations": annotations}


def changes(existing: Object, wanted: Object, fields: frozenset[str]) -> Object:
    """Return the merge patch that gives ``existing`` what ``wanted`` says of ``fields``.

    Anybody who set the others meant them: a command that does not name them leaves them alone.
    """
    now, then = (
        {**one, "spec": {name: value for name, value in one["spec"].items() if name in fields}}
        for one in (existing, wanted)
    )
    return manifests.changes(now, then)


def places_pods(offloading: Object) -> bool:
    """Whether pods of the namespace may run on another cluster now."""
    is_local = objects.spec(offloading).get("podOffloadingStrategy") == POD_STRATEGIES[1]
    return outcome(offloading) is Outcome.READY and not is_local


def is_tightened(existing: Object, wanted: Object) -> bool:
    """Whether pods that run now may violate ``wanted``, a patch."""
    before = existing["spec"].get("podOffloadingStrategy")
    after = objects.spec(wanted).get("podOffloadingStrategy", before)
    return after not in {before, "LocalAndRemote"}


def outcome(offloading: Object) -> Outcome:
    """Return how far the generation that was asked for is."""
    status = objects.status(offloading)
    if status.get("observedGeneration") != offloading["metadata"].get("generation"):
        return Outcome.WAITING
    return _OUTCOMES.get(status.get("offloadingPhase", ""), Outcome.WAITING)


def phase(offloading: Object) -> str:
    """Return the phase that the status tells, for messages."""
    return objects.status(offloading).get("offloadingPhase") or "none yet"


def conditions(offloading: Object) -> list[str]:
    """Return one line for each condition of a cluster that is not as it should be."""
    found = objects.status(offloading).get("remoteNamespacesConditions") or {}
    return [
        f"{cluster}: {condition['type']}={condition['status']}, {_because(condition)}"
        for cluster in sorted(found)
        for condition in found[cluster] or []
        if condition["type"] == "Ready" and condition["status"] != "True"
    ]


def twins(offloading: Object) -> list[tuple[str, str]]:
    """Return the (cluster, remote namespace) pairs that removing ``offloading`` destroys."""
    status = objects.status(offloading)
    found = status.get("remoteNamespacesConditions") or {}
    name = str(status.get("remoteNamespaceName") or "")
    return [(cluster, name) for cluster in sorted(found) if _exists(found[cluster] or [])]


def left(namespace: str, pods: int, offloading: Object | None) -> str:
    """Return what is left to take away of ``namespace``; empty: nothing."""
    remote = [f"namespace {name} on {cluster}" for cluster, name in twins(offloading or {})]
    parts = [*([f"{pods} offloaded pods"] if pods else []), *remote]
    return f"namespace {namespace}: waiting for {', '.join(parts)} to go" if parts else ""


def lost_claims(
    offloading: Object, claims: Iterable[Object], volumes: Mapping[str, Object]
) -> list[tuple[str, str]]:
    """Return the (claim, cluster) pairs whose data goes with ``offloading``.

    Shape: ``volumes`` are the PersistentVolumes by name.
    """
    clusters = {cluster for cluster, _ in twins(offloading)}
    found = (
        (objects.key_of(claim).name, _cluster(volumes.get(claim["spec"].get("volumeName") or "")))
        for claim in claims
    )
    return sorted((name, cluster) for name, cluster in found if cluster in clusters)


def _cluster(volume: Object | None) -> str:
    return objects.labels(volume or {"metadata": {}}).get(keys.REMOTE_CLUSTER_ID, "")


def _exists(cluster: list[Object]) -> bool:
    return any(condition["type"] == "Ready" for condition in cluster)


def _because(condition: Object) -> str:
    reason, message = condition.get("reason") or "no reason", condition.get("message")
    return f"{reason} ({message})" if message else str(reason)
