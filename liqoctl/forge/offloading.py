"""NamespaceOffloadings as users ask for them, and the label selectors that they type. Pure.

Source: Kubernetes, "Labels and Selectors"; docs/parity.md § 7.2 for the node-selector term.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from apis import keys, naming, nodeselector, objects, reflection
from apis.objects import Key, Object
from liqoctl.forge import manifests

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


class OffloadOutcome(Enum):
    """How far an offloading is."""

    READY = "ready"
    NOTHING_SELECTED = "nothing selected"
    FAILED = "failed"
    WAITING = "waiting"


_OUTCOMES: Final = {
    "Ready": OffloadOutcome.READY,
    "NoClusterSelected": OffloadOutcome.NOTHING_SELECTED,
    "SomeFailed": OffloadOutcome.FAILED,
    "AllFailed": OffloadOutcome.FAILED,
}


@dataclass(frozen=True)
class OffloadOptions:
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


def manifest(namespace: str, wanted: OffloadOptions) -> Object:
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
        terms = [to_term(parse(text)) for text in wanted.selectors]
        spec["clusterSelector"] = {"nodeSelectorTerms": terms}
    where = Key(namespace, keys.OFFLOADING_NAME)
    return manifests.made(keys.NAMESPACE_OFFLOADING, where, spec, _metadata(wanted))


def _metadata(wanted: OffloadOptions) -> Mapping[str, Mapping[str, str]]:
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
    return outcome(offloading) is OffloadOutcome.READY and not is_local


def is_tightened(existing: Object, wanted: Object) -> bool:
    """Whether pods that run now may violate ``wanted``, a patch."""
    before = existing["spec"].get("podOffloadingStrategy")
    after = objects.spec(wanted).get("podOffloadingStrategy", before)
    return after not in {before, "LocalAndRemote"}


def outcome(offloading: Object) -> OffloadOutcome:
    """Return how far the generation that was asked for is."""
    status = objects.status(offloading)
    if status.get("observedGeneration") != offloading["metadata"].get("generation"):
        return OffloadOutcome.WAITING
    return _OUTCOMES.get(status.get("offloadingPhase", ""), OffloadOutcome.WAITING)


def phase(offloading: Object) -> str:
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


def question(offloadings: Iterable[Object]) -> str:
    """Return what to ask before all of ``offloadings`` are removed; empty where nothing goes."""
    going = {objects.key_of(one).namespace: twins(one) for one in offloadings if not _is_empty(one)}
    if not going:
        return ""
    what = ", ".join(
        ", ".join(f"{name} on {cluster}" for cluster, name in found)
        or f"what other clusters have of {namespace}"
        for namespace, found in going.items()
    )
    here = ", ".join(sorted(going))
    stays = f"namespace {here} stays" if len(going) == 1 else f"namespaces {here} stay"
    return f"Delete {what}, with all pods and volumes there? Your {stays}."


def _is_empty(offloading: Object) -> bool:
    """Whether the controllers have told that no other cluster has a namespace of it."""
    known = objects.status(offloading).get("remoteNamespacesConditions")
    return known is not None and not twins(offloading)


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


# Label selectors as users type them: ``region in (europe,us-west), !staging`` -------------------

_REQUIREMENT: Final = re.compile(
    r"\s*(?:"
    r"!\s*(?P<absent>[^\s,=!<>()]+)"
    r"|(?P<key>[^\s,=!<>()]+)(?:"
    r"\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|\s*(?P<sign>==|=|!=|>|<)\s*(?P<value>[^\s,=!<>()]*)"
    r")?)\s*(?P<end>,|$)"
)
_OPERATORS: Final = {
    "in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt",
}  # fmt: skip


@dataclass(frozen=True)
class LabelRequirement:
    """One condition on one label; ``operator`` is a node selector's: In, NotIn, Exists, ..."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def parse(text: str) -> tuple[LabelRequirement, ...]:
    """Return the conditions in ``text``, all of which must hold; () for an empty text.

    Raises:
        ValueError: it is no label selector; the message says where.
    """
    found: list[LabelRequirement] = []
    position = 0
    while text[position:].strip() or (found and text[position - 1] == ","):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a label selector: see {text[position:].strip()!r}")
        found.append(_checked(_requirement(match), text))
        position = match.end()
        if match["end"] != ",":
            break
    return tuple(found)


def to_term(requirements: Iterable[LabelRequirement]) -> Object:
    """Return the node-selector term that asks the same.

    Shape: {"matchExpressions": [{"key", "operator", "values"}]}; no "values" for operators without.
    """
    return {
        "matchExpressions": [
            {"key": one.key, "operator": one.operator}
            | ({"values": list(one.values)} if one.values else {})
            for one in requirements
        ]
    }


def matches(requirements: Iterable[LabelRequirement], labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet all of ``requirements``; none are met by everything."""
    asked = tuple(requirements)
    return not asked or nodeselector.matches([to_term(asked)], labels, "")


def _requirement(match: re.Match[str]) -> LabelRequirement:
    if match["absent"]:
        return LabelRequirement(match["absent"], "DoesNotExist")
    word = match["set"] or match["sign"]
    if not word:
        return LabelRequirement(match["key"], "Exists")
    values = match["values"].split(",") if match["set"] else [match["value"]]
    unique = sorted({value.strip() for value in values})
    return LabelRequirement(match["key"], _OPERATORS[word], tuple(unique))


def _checked(requirement: LabelRequirement, text: str) -> LabelRequirement:
    if not naming.is_qualified_name(requirement.key):
        raise ValueError(f"{requirement.key!r} in {text!r} is not a label key")
    for value in requirement.values:
        if not naming.is_label_value(value):
            raise ValueError(f"{value!r} in {text!r} is not a label value")
        if requirement.operator in ("Gt", "Lt") and not value.isdecimal():
            raise ValueError(f"{value!r} in {text!r} is not an integer")
    return requirement
