"""What an offloaded namespace asks of its pods, and whether they stay as it asks. Pure.

Source: docs/parity.md § 3.1, 3.2; A-14 to A-19, A-23; SEC-D4, SEC-D5.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from apis import keys, naming, nodeselector, objects, placement, podfields, validation
from apis.nodeselector import Term
from apis.objects import Object, annotations, is_terminating, labels
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import PlacementAnnotation
from apis.validation import DeniedError
from webhook import admission
from webhook.admission import Admitted, NodeSelector, Operation, Path, Request

MAX_TERMS: Final = 100
"""Of a pod's required node affinity: the scheduler reads each for each node."""
MAX_BYTES: Final = 64 * 1024
"""Of that affinity, as JSON, where the webhook adds to it."""

TOLERATION: Final[Object] = {
    "key": keys.VIRTUAL_NODE_TAINT,
    "operator": "Exists",
    "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
}

_VIRTUAL: Final[Term] = {
    "matchExpressions": [
        {"key": keys.NODE_TYPE, "operator": "In", "values": [keys.VIRTUAL_NODE_TYPE]}
    ]
}
_NOTE: Final[Path] = ("metadata", "annotations", keys.PLACEMENT)
_TOLERATIONS: Final[Path] = ("spec", "tolerations")
_WORDS: Final = {"tolerations": placement.TOLERATION, "affinity": placement.NODE_AFFINITY}
REQUIRED: Final[Path] = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)


def place(pod: Object, offloading: NamespaceOffloading) -> Admitted:
    """Return the verdict on ``pod``, in a word for the audit log, with its changes.

    Raises:
        DeniedError: the changes would grow beyond what a scheduler should have to read.
        MalformedError: not a pod.
    """
    check_shape(pod)
    reason = placed_otherwise(pod)
    changes = offload(pod, offloading)
    verdict = f"unchanged: {reason or offloading.strategy.value}"
    if changes:
        is_kept = reason or _stays_local(pod, offloading)
        verdict = f"{'kept here' if is_kept else 'offloaded'}: {offloading.strategy.value}"
    return Admitted([*changes, *_note(pod, changes, offloading)], verdict=verdict)


def offload(pod: Object, offloading: NamespaceOffloading) -> list[Operation]:
    """Return the changes that let ``pod`` run where its namespace says; [] if none.

    A pod of the runtime class gets toleration and virtual nodes from that class, and from here
    no more than the choice among them. Where pods stay local, one that tolerates virtual nodes is
    kept away from them. One of a DaemonSet stays on its node, unless that is a virtual one which
    the namespace does not allow. A pod that was changed is not changed again, since the API server
    asks again when a later webhook touches it.

    Raises:
        DeniedError: the pod's terms or the namespace's are too large, or what both make is.
    """
    if pod["spec"].get("nodeName"):
        return []
    if placement.is_forced(pod):
        return _require(pod, selected_clusters(offloading))
    if _is_pinned(pod) or offloading.strategy is Strategy.LOCAL:
        return _require(pod, _kept(offloading)) if is_let_in(pod) else []
    return [*_tolerate(pod), *_require(pod, allowed_nodes(offloading))]


def _kept(offloading: NamespaceOffloading) -> list[Term]:
    """Return what keeps a pod, wherever else it may go, off the virtual nodes not allowed."""
    is_remote = offloading.strategy is Strategy.REMOTE
    return allowed_nodes(
        replace(offloading, strategy=Strategy.LOCAL_AND_REMOTE) if is_remote else offloading
    )


def _stays_local(pod: Object, offloading: NamespaceOffloading) -> bool:
    is_forced = placement.is_forced(pod)
    return offloading.strategy is Strategy.LOCAL and not is_forced


def _note(
    pod: Object, changes: list[Operation], offloading: NamespaceOffloading
) -> list[Operation]:
    """Return what tells of all that was added to ``pod``, now or before, and that it was judged.

    By its generation the API server knows that (``liqo-judged-pods`` in the manifests).
    """
    have = str(annotations(pod).get(keys.PLACEMENT) or "")
    before, added = PlacementAnnotation.parse(have), _added(changes)
    if before is not None and before.is_of(offloading):
        added |= before.added
    new = PlacementAnnotation.by(offloading, added, _nodes_of(admission.applied(pod, changes)))
    return admission.put(pod, _NOTE, str(new))


def _nodes_of(pod: Object) -> str | None:
    """Return the nodes of a pod that virtual nodes let in, in words; None without such nodes."""
    required = admission.find(pod, REQUIRED) or []
    is_told = is_let_in(pod) and not nodeselector.excess(required)
    return nodeselector.text(required) if is_told else None


def _added(changes: list[Operation]) -> frozenset[str]:
    return frozenset(_WORDS[change["path"].split("/")[2]] for change in changes)


def is_let_in(pod: Object) -> bool:
    """Whether the taint of virtual nodes does not keep ``pod`` away from them."""
    return placement.is_tolerated(placement.TAINT, admission.find(pod, _TOLERATIONS) or [])


def allowed_nodes(offloading: NamespaceOffloading) -> list[Term]:
    """Return the node-selector terms the pods must meet; [] allows every node."""
    selected = selected_clusters(offloading)
    match offloading.strategy:
        case Strategy.LOCAL:
            return [placement.OFF_VIRTUAL_NODES]
        case Strategy.REMOTE:
            return nodeselector.conjunction(selected, [_VIRTUAL])
        case Strategy.LOCAL_AND_REMOTE:
            return [*selected, placement.OFF_VIRTUAL_NODES] if selected else []


def selected_clusters(offloading: NamespaceOffloading) -> list[Term]:
    """Return the terms of the namespace's cluster selector.

    Raises:
        DeniedError: one that was stored before the sizes were limited is too large.
    """
    selected = list(offloading.cluster_selector)
    problem = nodeselector.excess(selected)
    if len(selected) > MAX_TERMS:
        problem = f"has more than {MAX_TERMS} terms"
    if problem:
        message = f"spec.clusterSelector of the NamespaceOffloading: {problem}"
        raise DeniedError(f"{message}: shorten it")
    return selected


def placed_otherwise(pod: Object) -> str:
    """Return why ``pod`` does not wait for a scheduler's free choice; empty if it does."""
    if pod["spec"].get("nodeName"):
        return "names a node"
    return "is pinned by its DaemonSet" if _is_pinned(pod) else ""


def _is_pinned(pod: Object) -> bool:
    """Whether ``pod`` has a DaemonSet, and the node affinity that this gives its pods.

    Anybody may write both, and gains nothing: virtual nodes are as far away as for others.
    """
    required = admission.find(pod, REQUIRED) or []
    names_nodes = bool(required) and all(term.get("matchFields") for term in required)
    return names_nodes and bool(placement.is_pinned(pod))


def _tolerate(pod: Object) -> list[Operation]:
    if any(_covers(toleration) for toleration in admission.find(pod, _TOLERATIONS) or []):
        return []
    return admission.append(pod, _TOLERATIONS, TOLERATION)


def keep_tolerations(old: Object, new: Object) -> Admitted:
    """Give ``new`` back what lets ``old`` onto virtual nodes: no update may take a toleration away.

    Kubernetes' own DefaultTolerationSeconds does the same with those that it adds.

    Raises:
        MalformedError: not pods.
    """
    check_shape(old)
    check_shape(new)
    have = admission.find(new, _TOLERATIONS) or []
    kept = set(map(objects.canonical, have))
    lost = [
        one
        for one in admission.find(old, _TOLERATIONS) or []
        if one.get("key") == keys.VIRTUAL_NODE_TAINT and objects.canonical(one) not in kept
    ]
    if not lost:
        return Admitted(verdict="unchanged: has its tolerations")
    return Admitted(
        admission.put(new, _TOLERATIONS, [*have, *lost]), verdict="kept: its tolerations"
    )


def keep_affinity(old: Object, new: Object, offloading: NamespaceOffloading) -> list[Operation]:
    """Return what gives ``new`` the node affinity of ``old``, if it asks what that asked itself."""
    unbound = {name: value for name, value in new["spec"].items() if name != "nodeName"}
    pod = {**new, "spec": unbound}
    placed = admission.applied(pod, offload(pod, offloading))
    had = admission.find(old, REQUIRED)
    is_lost = had and admission.find(placed, REQUIRED) == had
    return admission.put(new, REQUIRED, had) if is_lost else []


def keep_daemons_off(request: Request) -> Admitted:
    """Keep the pods of a DaemonSet off virtual nodes if they tolerate them, unless it opts in.

    What is added depends on the template alone, so whoever applies it again changes nothing.

    Raises:
        MalformedError: no pod template.
    """
    daemon_set = request.object
    admission.check_struct(daemon_set, _DaemonSet, "DaemonSet")
    terms = placement.daemons_on_virtual_nodes(daemon_set)
    if terms is None:
        return Admitted(verdict="unchanged: gets no pod on virtual nodes unasked")
    changes = admission.put(daemon_set, ("spec", "template", *REQUIRED), terms)
    return Admitted(changes, verdict="kept off virtual nodes")


def _covers(toleration: Object) -> bool:
    """Whether it is ours or a wider one: no key means every key, no effect every effect."""
    return (
        toleration.get("operator") == "Exists"
        and toleration.get("key") in (None, "", keys.VIRTUAL_NODE_TAINT)
        and toleration.get("effect") in (None, "", keys.VIRTUAL_NODE_TAINT_EFFECT)
        and toleration.get("tolerationSeconds") is None
    )


def _require(pod: Object, terms: list[Term]) -> list[Operation]:
    if not terms:
        return []
    have = admission.find(pod, REQUIRED) or []
    _check_own(have, terms)
    try:
        both = nodeselector.conjunction(have, terms, most_terms=MAX_TERMS, most_bytes=MAX_BYTES)
    except nodeselector.TooLargeError as error:
        message = (
            f"spec.affinity.nodeAffinity: its {len(have)} required terms and the {len(terms)} of "
            f"the namespace make {error}: shorten one or the other"
        )
        raise DeniedError(message) from error
    return admission.put(pod, REQUIRED, both)


def _check_own(have: list[Term], terms: list[Term]) -> None:
    """Check the sizes of what a pod asks for itself, besides the ``terms`` of its namespace."""
    if nodeselector.excess(have) and (
        problem := nodeselector.excess(nodeselector.remainder(have, terms))
    ):
        raise DeniedError(f"spec.affinity.nodeAffinity: {problem}: say the same with fewer")


# What the rules read of a pod ---------------------------------------------------------------------


class _NodeAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED[3])


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Toleration(msgspec.Struct, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    runtime_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[_Toleration] | None = None
    affinity: _Affinity | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Template(msgspec.Struct):
    spec: _Spec


class _DaemonSetSpec(msgspec.Struct):
    template: _Template


class _DaemonSet(msgspec.Struct):
    metadata: _Metadata
    spec: _DaemonSetSpec


def check_shape(pod: Object) -> None:
    """Check what the rules read of ``pod``; an API server's own pods always pass.

    Raises:
        MalformedError: something else is there than in a Pod.
    """
    admission.check_struct(pod, _Pod, "Pod")


# Whether a pod, as it will be stored, still goes only where its namespace lets it -----------------

_SHOWN: Final = 3
_MOST_COMPARED: Final = 50_000
"""What a pod asks, times the virtual nodes: with more, a pod is not told that it has nowhere to go.

An ordinary pod asks ten things, so that is 5,000 nodes. Source: docs/parity.md H8.
"""


def check_placement(
    pod: Object, offloading: NamespaceOffloading, nodes: Iterable[Object]
) -> Admitted:
    """Admit a pod that has what the mutating webhook gave it; ``nodes`` are the virtual ones.

    Raises:
        DeniedError: another webhook took some of it away, the NamespaceOffloading was changed
            between the two webhooks, or the pod names a node it may not go to.
    """
    check_shape(pod)
    if name := pod["spec"].get("nodeName"):
        node = next((one for one in nodes if objects.key_of(one).name == name), None)
        return check_node(pod, offloading, node)
    if changes := offload(pod, offloading):
        field = changes[0]["path"].lstrip("/").removesuffix("/-").replace("/", ".")
        raise DeniedError(f"{field}: {_lack(pod, offloading)}")
    return Admitted(verdict="allowed: as it was judged")


def _lack(pod: Object, offloading: NamespaceOffloading) -> str:
    """Return why ``pod`` is not as ``offloading`` asks, and what to do about it."""
    placement_annotation = PlacementAnnotation.of(pod)
    if placement_annotation is not None and placement_annotation.is_of(offloading):
        return (
            "another webhook undid what the NamespaceOffloading asks for: let it leave that alone"
        )
    return (
        "the pod is not as the NamespaceOffloading asks, which was changed while the pod was being "
        "created: create the pod again in a moment"
    )


def warned(
    admitted: Admitted,
    pod: Object,
    offloading: NamespaceOffloading,
    nodes: Collection[Object],
) -> Admitted:
    """Return ``admitted``, of a new ``pod``, with what it is told: where it goes it would not run.

    That it has nowhere to go is only known where no node of this cluster may take it.
    """
    is_forced = placement.is_forced(pod)
    is_local = offloading.strategy is Strategy.LOCAL and not is_forced
    if is_local or placed_otherwise(pod):
        return admitted
    is_remote = offloading.strategy is Strategy.REMOTE or is_forced
    nowhere = _nowhere(admission.applied(pod, admitted.patch), nodes) if is_remote else ""
    spec = pod["spec"]
    warnings = (
        podfields.refusal(spec),
        podfields.unheeded(spec),
        podfields.tokenless(pod, nodes),
        nowhere,
    )
    return replace(admitted, warnings=[*filter(None, warnings)])


def check_node(pod: Object, offloading: NamespaceOffloading, node: Object | None) -> Admitted:
    """Admit that ``pod`` goes to the virtual ``node``; None stands for a node of this cluster.

    Raises:
        DeniedError: the strategy or the cluster selector of the namespace excludes it.
    """
    if node is None:
        return Admitted(verdict="allowed: a node of this cluster")
    name = objects.key_of(node).name
    is_forced = placement.is_forced(pod)
    if offloading.strategy is Strategy.LOCAL and not is_forced:
        message = (
            f"spec.nodeName: {name} is virtual, and podOffloadingStrategy Local keeps pods here"
        )
        raise DeniedError(f"{message}: choose another node, or change the NamespaceOffloading")
    if not _is_selected(node, offloading):
        message = (
            f"spec.nodeName: {name} is outside spec.clusterSelector of the NamespaceOffloading"
        )
        raise DeniedError(f"{message}: choose another node, or change the selector")
    return Admitted(verdict="allowed: a selected virtual node")


def _is_selected(node: Object, offloading: NamespaceOffloading) -> bool:
    terms = selected_clusters(offloading)
    try:
        name = objects.key_of(node).name
        return not terms or nodeselector.matches(terms, objects.labels(node), name)
    except ValueError as error:
        message = f"spec.clusterSelector of the NamespaceOffloading cannot be read: {error}"
        raise DeniedError(f"{message}: correct it", code=500) from error


def target(binding: Object) -> str:
    """Return the node that a Binding names, empty for none."""
    found = validation.struct(binding.get("target"), "target")
    return validation.text(found.get("name"), "target.name")


def _nowhere(pod: Object, virtual: Iterable[Object]) -> str:
    """Return what keeps ``pod`` off each of the ``virtual`` nodes; empty if one takes it now."""
    nodes = list(virtual)
    if _weight(pod) * len(nodes) > _MOST_COMPARED:
        return ""
    found: dict[str, str] = {}
    for node in nodes:
        obstacles = placement.obstacles(pod, node)
        if not obstacles:
            return ""
        found[objects.key_of(node).name] = obstacles[0].text
    if not found:
        return "the pod has nowhere to go now: there is no virtual node"
    shown = [f"{name}: {found[name]}" for name in sorted(found)[:_SHOWN]]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"the pod has nowhere to go now: {'; '.join(shown)}{more}"


def _weight(pod: Object) -> int:
    """Return how much of ``pod`` is compared with each node."""
    spec = pod["spec"]
    lists = ("tolerations", "nodeSelector", "containers", "initContainers")
    terms = admission.find(pod, REQUIRED) or []
    return nodeselector.weight(terms) + sum(len(spec.get(name) or ()) for name in lists)


# Which namespace gets the label that has its pods judged ------------------------------------------


def enabled_namespace(namespace: Object, by: str) -> Object | None:
    """Return the merge patch that labels ``namespace`` for the NamespaceOffloading of UID ``by``.

    None where there is a label already, no matter who set it, or none is due. What is labelled so
    is
    marked, and anybody who keeps the label may take it back; it is written to what was read, or not
    at all.
    """
    if keys.SCHEDULING_ENABLED in labels(namespace) or is_terminating(namespace):
        return None
    if naming.is_system(namespace["metadata"]["name"]):
        return None
    return {
        "metadata": {
            "labels": {keys.SCHEDULING_ENABLED: "true"},
            "annotations": {keys.SCHEDULING_ENABLED_BY: by},
            "resourceVersion": namespace["metadata"]["resourceVersion"],
        }
    }
