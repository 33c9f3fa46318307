"""What keeps a pod off nodes, counted, and what to do about it. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from apis import keys
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import Obstacle, Rule
from liqoctl.forge import whynamespace
from liqoctl.forge.findings import Facts

_COUNTED: Final = {
    Rule.STRATEGY: "excluded by the strategy",
    Rule.SELECTOR: "outside the cluster selector",
    Rule.NOT_READY: "not Ready",
    Rule.UNSCHEDULABLE: "cordoned",
    Rule.TAINT: "with a taint that it does not tolerate",
    Rule.NODE_SELECTOR: "outside its nodeSelector",
    Rule.AFFINITY: "outside its node affinity",
    Rule.RESOURCES: "too small",
}
CURES: Final = {
    Rule.NOT_READY: "see why the nodes are not Ready: of a virtual node, the pods of its "
    "deployment vk-NODE and the way to its cluster",
    Rule.UNSCHEDULABLE: "let the cordoned nodes take pods again: kubectl uncordon NODE",
    Rule.TAINT: "tolerate the taints in the pod, or remove them from the nodes",
    Rule.NODE_SELECTOR: "correct spec.nodeSelector of the pod, or the labels of the nodes",
    Rule.AFFINITY: "correct the pod's node affinity, spec.clusterSelector of the namespace's "
    "NamespaceOffloading, or the labels of the virtual nodes; then create the pod again",
    Rule.RESOURCES: "request less, or let the virtual nodes offer more",
}


def counted(found: Sequence[Sequence[Obstacle]]) -> str:
    """Return what keeps a pod off its nodes, each node's obstacles in ``found``."""
    texts = {"; ".join(one.text for one in obstacles) for obstacles in found}
    if len(texts) == 1:
        return texts.pop()
    counts = Counter(obstacles[0].rule for obstacles in found)
    return ", ".join(f"{count} {_COUNTED[rule]}" for rule, count in counts.items())


def cures(found: Iterable[Sequence[Obstacle]]) -> list[str]:
    """Return what to do about them, our own taint left out."""
    others = [one for obstacles in found for one in obstacles if not _is_our_taint(one)]
    rules = dict.fromkeys(one.rule for one in others)
    return [CURES[rule] for rule in rules if rule in CURES]


def to_offload(facts: Facts, found: Iterable[Sequence[Obstacle]]) -> list[str]:
    """Return what opens the virtual nodes to a pod that their taint keeps away."""
    if not any(_is_our_taint(one) for obstacles in found for one in obstacles):
        return []
    name, offloading = facts.namespace, whynamespace.parsed(facts)
    if offloading is None:
        return [f"to let it go to virtual nodes: liqoctl offload namespace {name}"]
    if offloading.strategy is not Strategy.LOCAL:
        return []
    wider = "--pod-offloading-strategy LocalAndRemote"
    return [f"to let it go to virtual nodes: liqoctl offload namespace {name} {wider}"]


def _is_our_taint(obstacle: Obstacle) -> bool:
    return obstacle.rule is Rule.TAINT and keys.VIRTUAL_NODE_TAINT in obstacle.text
