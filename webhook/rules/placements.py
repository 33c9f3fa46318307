"""Whether a pod, as it will be stored, still goes only where its namespace lets it. Pure.

Source: docs/parity.md § 3.1; A-23; SEC-D5.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from apis import nodeselector, objects, placement, podfields, validation
from apis.objects import Object
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import PlacementAnnotation
from apis.validation import DeniedError
from webhook import patch
from webhook.admission import Admitted
from webhook.rules import pods

_SHOWN: Final = 3
_MOST_COMPARED: Final = 50_000
"""What a pod asks, times the virtual nodes: with more, a pod is not told that it has nowhere to go.

An ordinary pod asks ten things, so that is 5,000 nodes. Source: docs/parity.md H8.
"""


def check(pod: Object, offloading: NamespaceOffloading, nodes: Iterable[Object]) -> Admitted:
    """Admit a pod that has what the mutating webhook gave it; ``nodes`` are the virtual ones.

    Raises:
        DeniedError: another webhook took some of it away, the NamespaceOffloading was changed
            between the two webhooks, or the pod names a node it may not go to.
    """
    pods.check_shape(pod)
    if name := pod["spec"].get("nodeName"):
        node = next((one for one in nodes if objects.key_of(one).name == name), None)
        return check_node(pod, offloading, node)
    if changes := pods.offload(pod, offloading):
        field = changes[0]["path"].lstrip("/").removesuffix("/-").replace("/", ".")
        raise DeniedError(f"{field}: {_lack(pod, offloading)}")
    return Admitted(verdict="allowed: as it was judged")


def _lack(pod: Object, offloading: NamespaceOffloading) -> str:
    """Return why ``pod`` is not as ``offloading`` asks, and what to do about it."""
    judged = PlacementAnnotation.of(pod)
    if judged is not None and judged.is_of(offloading):
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
    if is_local or pods.placed_otherwise(pod):
        return admitted
    is_remote = offloading.strategy is Strategy.REMOTE or is_forced
    nowhere = _nowhere(patch.applied(pod, admitted.patch), nodes) if is_remote else ""
    spec = pod["spec"]
    warnings = (
        podfields.refusal(spec),
        podfields.unheeded(spec),
        podfields.tokenless(pod, nodes),
        nowhere,
    )
    told = [warning for warning in warnings if warning]
    return replace(admitted, warnings=told) if told else admitted


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
    terms = pods.selected_clusters(offloading)
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
    if _asked(pod) * len(nodes) > _MOST_COMPARED:
        return ""
    found: dict[str, str] = {}
    for node in nodes:
        obstacles = placement.obstacles(pod, node)
        if not obstacles:
            return ""
        found[objects.key_of(node).name] = obstacles[0].text
    if not found:
        return "the pod has nowhere to go now: there is no virtual node"
    told = [f"{name}: {found[name]}" for name in sorted(found)[:_SHOWN]]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"the pod has nowhere to go now: {'; '.join(told)}{more}"


def _asked(pod: Object) -> int:
    """Return how much of ``pod`` is compared with each node."""
    spec = pod["spec"]
    lists = ("tolerations", "nodeSelector", "containers", "initContainers")
    terms = patch.find(pod, pods.REQUIRED) or []
    return nodeselector.weight(terms) + sum(len(spec.get(name) or ()) for name in lists)
