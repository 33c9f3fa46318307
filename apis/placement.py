"""Which nodes a pod may go to, and for each of the others every reason why not.

The predicates compare one pod with one node, without other pods: a node that passes may be full.
Source: Kubernetes, "Assigning Pods to Nodes", "Taints and Tolerations"; docs/parity.md § 3.1.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from apis import keys, nodeselector, objects, resources
from apis.nodeselector import Term
from apis.objects import Object
from apis.offloading import NamespaceOffloading, PodOffloadingStrategy
from apis.offloading import PodOffloadingStrategy as Strategy

LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that have not ended: only those can be out of place."""

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TOLD_OTHERWISE: Final = frozenset({_UNSCHEDULABLE, _NOT_READY, _UNREACHABLE})
_OURS: Final[Object] = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}
TAINT: Final[Object] = {
    "key": keys.VIRTUAL_NODE_TAINT,
    "value": keys.VIRTUAL_NODE_TAINT_VALUE,
    "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
}
"""That of virtual nodes."""
DAEMON_SET_CURE: Final = (
    "its DaemonSet tolerates virtual nodes, and its namespace is not offloaded to the cluster "
    "behind this node: keep the DaemonSet off virtual nodes by the patch that liqoctl info prints"
)
OFF_VIRTUAL_NODES: Final[Term] = {
    "matchExpressions": [
        {"key": keys.NODE_TYPE, "operator": "NotIn", "values": [keys.VIRTUAL_NODE_TYPE]}
    ]
}
_PARTS: Final = {"matchExpressions": "labels", "matchFields": "fields"}


class Rule(Enum):
    """What keeps a pod off a node."""

    STRATEGY = "strategy"
    SELECTOR = "clusterSelector"
    NOT_READY = "notReady"
    UNSCHEDULABLE = "unschedulable"
    TAINT = "taint"
    NODE_SELECTOR = "nodeSelector"
    AFFINITY = "affinity"
    RESOURCES = "resources"


@dataclass(frozen=True)
class Obstacle:
    """One reason why a pod does not go to a node; ``text`` is a clause about the node."""

    rule: Rule
    text: str


def is_virtual(node: Object) -> bool:
    return objects.labels(node).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE


def is_tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    """Whether one of ``tolerations`` covers ``taint``.

    Source: Kubernetes API reference, Toleration.
    """
    return any(_covers(toleration, taint) for toleration in tolerations)


def obstacles(pod: Object, node: Object) -> list[Obstacle]:
    """Return all that keeps ``pod`` off ``node``; [] if it may go there.

    Shape: both as the API server has them, the pod after admission.
    """
    spec = objects.spec(pod)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or []
    return [
        *_standing(node, spec.get("tolerations") or []),
        *_unselected(node, spec.get("nodeSelector") or {}),
        *([] if required is None else _unmet(node, terms, Rule.AFFINITY)),
        *_too_small(node, spec),
    ]


def barred(offloading: NamespaceOffloading | None, node: Object) -> list[Obstacle]:
    """Return what keeps a pod without wishes of its own off ``node``, in that namespace.

    None is a namespace that is not offloaded: its pods tolerate no virtual node.
    """
    if offloading is None:
        return [*_standing(node, [])]
    return [*_standing(node, [_OURS]), *forbidden(offloading, node)]


def forbidden(offloading: NamespaceOffloading, node: Object) -> list[Obstacle]:
    """Return which rule of the namespace excludes ``node``; [] if none does."""
    strategy = offloading.strategy
    if not is_virtual(node):
        only = "strategy Remote keeps pods off the nodes of this cluster"
        return [Obstacle(Rule.STRATEGY, only)] if strategy is Strategy.REMOTE else []
    if strategy is Strategy.LOCAL:
        return [Obstacle(Rule.STRATEGY, "strategy Local keeps pods off virtual nodes")]
    terms = offloading.cluster_selector
    return _unmet(node, terms, Rule.SELECTOR) if terms else []


def is_forced(pod: Object) -> bool:
    """Whether the RuntimeClass of ``pod`` sends it to virtual nodes, under every strategy."""
    return objects.spec(pod).get("runtimeClassName") == keys.RUNTIME_CLASS


def misplaced(offloading: NamespaceOffloading, pod: Object, node: Object | None) -> list[Obstacle]:
    """Return the rules by which ``pod`` would not be placed where it runs; [] if it may stay.

    ``node`` is None for one of this cluster that nobody looked up.
    """
    spec = objects.spec(pod)
    if not spec.get("nodeName") or objects.is_terminating(pod) or is_pinned(pod):
        return []
    if is_forced(pod):
        offloading = replace(offloading, strategy=Strategy.REMOTE)
    return forbidden(offloading, node or {"metadata": {}})


def is_pinned(pod: Object) -> str:
    """Return why ``pod`` belongs to its node, whatever any rule says; empty if it does not."""
    if keys.MIRROR_POD in objects.annotations(pod):
        return "mirrors a static pod"
    owner = objects.controller_of(pod)
    if owner is None or owner.get("kind") != "DaemonSet":
        return ""
    is_daemon = str(owner.get("apiVersion")).partition("/")[0] == "apps"
    return "is pinned by its DaemonSet" if is_daemon else ""


def daemons_on_virtual_nodes(daemon_set: Object) -> list[Term] | None:
    """Return the node-selector terms that keep a DaemonSet off virtual nodes; None if it is.

    It is where it does not tolerate them, and where a label opts in.
    """
    pod = objects.spec(objects.spec(daemon_set).get("template") or {})
    opts_in = objects.labels(daemon_set).get(keys.ON_VIRTUAL_NODES) == "true"
    if opts_in or not is_tolerated(TAINT, pod.get("tolerations") or []):
        return None
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    have = required.get("nodeSelectorTerms") or []
    both = nodeselector.conjunction(have, [OFF_VIRTUAL_NODES])
    return None if both == have else both


def said(terms: Iterable[Term]) -> str:
    """Return ``terms`` in words: "region In [eu], gpu Exists; or zone In [a]"."""
    return "; or ".join(_term(term) for term in terms)


def _covers(toleration: Object, taint: Object) -> bool:
    key, effect = toleration.get("key") or "", toleration.get("effect") or ""
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _standing(node: Object, tolerations: Sequence[Object]) -> Iterator[Obstacle]:
    """Yield what is wrong with ``node`` for the one who has these ``tolerations``."""
    spec = objects.spec(node)
    ready = objects.condition(node, "Ready")
    if ready.get("status") != "True" and not is_tolerated(_ready_taint(ready), tolerations):
        yield Obstacle(Rule.NOT_READY, _not_ready(ready))
    cordon = {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}
    if spec.get("unschedulable") and not is_tolerated(cordon, tolerations):
        yield Obstacle(Rule.UNSCHEDULABLE, "is cordoned (spec.unschedulable)")
    for taint in spec.get("taints") or []:
        if _blocks(taint) and not is_tolerated(taint, tolerations):
            yield Obstacle(Rule.TAINT, f"taint {_taint(taint)} is not tolerated")


def _blocks(taint: Object) -> bool:
    return taint.get("effect") in _BLOCKING and taint.get("key") not in _TOLD_OTHERWISE


def _ready_taint(ready: Object) -> Object:
    key = _NOT_READY if ready.get("status") == "False" else _UNREACHABLE
    return {"key": key, "effect": "NoSchedule"}


def _not_ready(ready: Object) -> str:
    details = [str(ready[name]) for name in ("reason", "message") if ready.get(name)]
    return f"is not Ready ({': '.join(details)})" if details else "is not Ready"


def _taint(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _unselected(node: Object, selector: Mapping[str, str]) -> Iterator[Obstacle]:
    labels = objects.labels(node)
    for key, value in selector.items():
        if labels.get(key) != value:
            text = f"nodeSelector {key}={value} is not met: {_has(labels, key)}"
            yield Obstacle(Rule.NODE_SELECTOR, text)


def _unmet(node: Object, terms: Sequence[Term], rule: Rule) -> list[Obstacle]:
    """Return one obstacle that tells what fails in each of ``terms``; [] if one is met."""
    labels, name = objects.labels(node), objects.key_of(node).name
    try:
        if nodeselector.matches(terms, labels, name):
            return []
    except ValueError as error:
        return [Obstacle(rule, f"{rule.value} cannot be read: {error}")]
    failures = dict.fromkeys(_failure(term, labels, name) for term in terms)
    text = "; and ".join(failures) or "it has no terms, and so matches nothing"
    return [Obstacle(rule, f"{rule.value} is not met: {text}")]


def _failure(term: Term, labels: Mapping[str, str], name: str) -> str:
    if nodeselector.is_empty(term):
        return "an empty term matches nothing"
    has = {"labels": labels, "fields": {"metadata.name": name}}
    return ", ".join(
        f"{_requirement(item)} ({_has(has[source], item['key'])})"
        for part, source in _PARTS.items()
        for item in term.get(part) or []
        if not nodeselector.matches([{part: [item]}], labels, name)
    )


def _has(values: Mapping[str, str], key: str) -> str:
    return f"it has {key}={values[key]}" if key in values else f"it has no {key}"


def _term(term: Term) -> str:
    asked = [_requirement(item) for part in _PARTS for item in term.get(part) or []]
    return ", ".join(asked) or "an empty term, which matches nothing"


def _requirement(item: Object) -> str:
    values: list[Any] = item.get("values") or []
    listed = f" [{', '.join(map(str, values))}]" if values else ""
    return f"{item.get('key')} {item.get('operator')}{listed}"


def _too_small(node: Object, spec: Object) -> Iterator[Obstacle]:
    """Yield what the whole node, empty, would be too small for.

    A virtual node is a sum: of it, what no single node of its cluster has room for now, too.
    """
    allocatable = objects.status(node).get("allocatable")
    if not allocatable:
        return
    try:
        wanted = resources.usage(spec)
        asked = {name: amount for name, amount in wanted.items() if amount}
        there = resources.parse_resources(
            {name: allocatable[name] for name in asked if name in allocatable}
        )
    except ValueError as error:
        yield Obstacle(Rule.RESOURCES, f"its resources cannot be read: {error}")
        return
    for name in resources.lacking(asked, there):
        have = there.get(name, "none")
        text = f"has {have} of {name} in all, the pod requests {wanted[name]}"
        yield Obstacle(Rule.RESOURCES, text)
    single = resources.of_line(objects.annotations(node).get(keys.LARGEST_POD, ""))
    for name in resources.lacking({name: asked[name] for name in asked if name in single}, single):
        text = f"no node behind it has more than {single[name]} of {name} free"
        yield Obstacle(Rule.RESOURCES, f"{text}, the pod requests {wanted[name]}")


# What the webhook notes on a pod ------------------------------------------------------------------

TOLERATION: Final = "toleration"
NODE_AFFINITY: Final = "nodeAffinity"
_ADDED: Final = (TOLERATION, NODE_AFFINITY)
_NOTHING: Final = "nothing"
_LINE: Final = re.compile(
    r'strategy=(\w+) generation=(\d{1,18}) added=([\w,]+)(?: nodes="([^"]*)")?', re.ASCII
)
_MOST: Final = 400
"""Characters of the nodes in words; more are not noted."""


@dataclass(frozen=True)
class PlacementAnnotation:
    """By which strategy a pod was placed, and what was added to it for that."""

    strategy: PodOffloadingStrategy
    generation: int
    """Of the NamespaceOffloading that said so."""
    added: frozenset[str] = frozenset()
    nodes: str | None = None
    """The node affinity that the pod had then, in the words of ``nodeselector.text``.

    As long as it has that and tolerates virtual nodes nobody has undone what was done to it, and
    the API server does not ask again (``pod.validate.liqo.io`` in the manifests).
    """

    @classmethod
    def by(
        cls, offloading: NamespaceOffloading, added: frozenset[str], nodes: str | None = None
    ) -> "PlacementAnnotation":
        """Return that ``offloading`` was what ``added`` came from."""
        shown = nodes if nodes is not None and len(nodes) <= _MOST else None
        return cls(offloading.strategy, offloading.generation, added, shown)

    @classmethod
    def parse(cls, text: str) -> "PlacementAnnotation | None":
        """Return what ``text`` says, None if it is no such line: anybody may write one."""
        found = _LINE.fullmatch(text)
        if found is None or found[1] not in {one.value for one in PodOffloadingStrategy}:
            return None
        added = frozenset(found[3].split(",")) - {_NOTHING}
        if not added <= set(_ADDED):
            return None
        return cls(PodOffloadingStrategy(found[1]), int(found[2]), added, found[4])

    @classmethod
    def of(cls, pod: Object) -> "PlacementAnnotation | None":
        """Return what ``pod`` carries, None if no webhook placed it."""
        return cls.parse(str(objects.annotations(pod).get(keys.PLACEMENT) or ""))

    def is_of(self, offloading: NamespaceOffloading) -> bool:
        """Whether ``offloading``, as it is now, was what it came from."""
        return (self.strategy, self.generation) == (offloading.strategy, offloading.generation)

    def __str__(self) -> str:
        added = ",".join(one for one in _ADDED if one in self.added) or _NOTHING
        line = f"strategy={self.strategy.value} generation={self.generation} added={added}"
        return line if self.nodes is None else f'{line} nodes="{self.nodes}"'
