"""What an offloaded namespace asks of its pods. Pure: no I/O, no clock, no globals.

Source: docs/parity.md § 3.1; A-14 to A-19.
"""

from dataclasses import replace
from typing import Any, Final

import msgspec

from apis import keys, nodeselector, objects, placement
from apis.nodeselector import Term
from apis.objects import Object, annotations
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import PlacementAnnotation
from apis.validation import DeniedError
from webhook import patch
from webhook.admission import Admitted
from webhook.patch import Operation, Path
from webhook.rules import shape

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


def judge(pod: Object, offloading: NamespaceOffloading) -> Admitted:
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
    new = PlacementAnnotation.by(offloading, added, _nodes_of(patch.applied(pod, changes)))
    return patch.put(pod, _NOTE, str(new))


def _nodes_of(pod: Object) -> str | None:
    """Return the nodes of a pod that virtual nodes let in, in words; None without such nodes."""
    required = patch.find(pod, REQUIRED) or []
    is_told = is_let_in(pod) and not nodeselector.excess(required)
    return nodeselector.text(required) if is_told else None


def _added(changes: list[Operation]) -> frozenset[str]:
    return frozenset(_WORDS[change["path"].split("/")[2]] for change in changes)


def is_let_in(pod: Object) -> bool:
    """Whether the taint of virtual nodes does not keep ``pod`` away from them."""
    return placement.is_tolerated(placement.TAINT, patch.find(pod, _TOLERATIONS) or [])


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
        DeniedError: one that was stored before the sizes were judged is too large.
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
    required = patch.find(pod, REQUIRED) or []
    names_nodes = bool(required) and all(term.get("matchFields") for term in required)
    return names_nodes and bool(placement.is_pinned(pod))


def _tolerate(pod: Object) -> list[Operation]:
    if any(_covers(toleration) for toleration in patch.find(pod, _TOLERATIONS) or []):
        return []
    return patch.append(pod, _TOLERATIONS, TOLERATION)


def keep_tolerations(old: Object, new: Object) -> Admitted:
    """Give ``new`` back what lets ``old`` onto virtual nodes: no update may take a toleration away.

    Kubernetes' own DefaultTolerationSeconds does the same with those that it adds.

    Raises:
        MalformedError: not pods.
    """
    check_shape(old)
    check_shape(new)
    have = patch.find(new, _TOLERATIONS) or []
    kept = set(map(objects.canonical, have))
    lost = [
        one
        for one in patch.find(old, _TOLERATIONS) or []
        if one.get("key") == keys.VIRTUAL_NODE_TAINT and objects.canonical(one) not in kept
    ]
    if not lost:
        return Admitted(verdict="unchanged: has its tolerations")
    return Admitted(patch.put(new, _TOLERATIONS, [*have, *lost]), verdict="kept: its tolerations")


def keep_affinity(old: Object, new: Object, offloading: NamespaceOffloading) -> list[Operation]:
    """Return what gives ``new`` the node affinity of ``old``, if it asks what that asked itself."""
    unbound = {name: value for name, value in new["spec"].items() if name != "nodeName"}
    pod = {**new, "spec": unbound}
    judged = patch.applied(pod, offload(pod, offloading))
    had = patch.find(old, REQUIRED)
    return patch.put(new, REQUIRED, had) if had and patch.find(judged, REQUIRED) == had else []


def keep_daemons_off(daemon_set: Object) -> Admitted:
    """Keep the pods of ``daemon_set`` off virtual nodes if they tolerate them, unless it opts in.

    What is added depends on the template alone, so whoever applies it again changes nothing.

    Raises:
        MalformedError: no pod template.
    """
    shape.fits(daemon_set, _DaemonSet, "DaemonSet")
    terms = placement.daemons_on_virtual_nodes(daemon_set)
    if terms is None:
        return Admitted(verdict="unchanged: gets no pod on virtual nodes unasked")
    changes = patch.put(daemon_set, ("spec", "template", *REQUIRED), terms)
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
    have = patch.find(pod, REQUIRED) or []
    _check_own(have, terms)
    try:
        both = nodeselector.conjunction(have, terms, most_terms=MAX_TERMS, most_bytes=MAX_BYTES)
    except nodeselector.TooLargeError as error:
        message = (
            f"spec.affinity.nodeAffinity: its {len(have)} required terms and the {len(terms)} of "
            f"the namespace make {error}: shorten one or the other"
        )
        raise DeniedError(message) from error
    return patch.put(pod, REQUIRED, both)


def _check_own(have: list[Term], terms: list[Term]) -> None:
    """Check the sizes of what a pod asks for itself, besides the ``terms`` of its namespace."""
    if nodeselector.excess(have) and (
        problem := nodeselector.excess(nodeselector.remainder(have, terms))
    ):
        raise DeniedError(f"spec.affinity.nodeAffinity: {problem}: say the same with fewer")


# What the rules read of a pod ---------------------------------------------------------------------


class _Expression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _Required(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct):
    required: _Required | None = msgspec.field(default=None, name=REQUIRED[3])


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
    shape.fits(pod, _Pod, "Pod")
