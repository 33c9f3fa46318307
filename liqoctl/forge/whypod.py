"""Why a pod is where it is, or nowhere: a sentence, the nodes, the provider's word. Pure.

Source: docs/parity.md § 3.1, 5.5.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from apis import downward, keys, objects, placement, podfields, reflectionpolicy
from apis.objects import Kind, Object
from apis.objects import spec as spec_of
from apis.objects import status as status_of
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import Obstacle, PlacementAnnotation, Rule
from liqoctl.forge import whynamespace
from liqoctl.forge.findings import Facts, Finding, Outcome
from liqoctl.forge.whynamespace import RefusedPods

BACK_OFF: Final = keys.OFFLOADING_BACK_OFF
ABORTED: Final = keys.OFFLOADING_ABORTED
_PROVIDER: Final = frozenset(
    {keys.FAILED_REFLECTION, keys.REFLECTION_DISABLED, BACK_OFF, ABORTED, keys.TOKEN_NOT_SENT}
)
_TAINT: Final[Object] = {"key": keys.VIRTUAL_NODE_TAINT, "effect": keys.VIRTUAL_NODE_TAINT_EFFECT}
_MOST: Final = 5
"""Names of nodes in a sentence."""
_ANEW: Final = "delete it, so that its owner creates it again (a pod without an owner: create it)"


def judge(facts: Facts) -> Finding:
    """Return the verdict on the pod: the first rule that has something to say."""
    pod = facts.pod or {}
    found = next(found for rule in _RULES if (found := rule(facts, pod)) is not None)
    more = (*_drifted(facts, pod), *_differing(facts, pod))
    return Finding(found.outcome, found.clause, (*found.cures, *more))


def judge_refusal(found: Sequence[RefusedPods]) -> Finding:
    """Return the verdict on a pod that is not there, by the newest of what was ``found``."""
    newest = found[0]
    owner = f"{newest.kind} {newest.owner}"
    who = f" by the webhook {newest.webhook}" if newest.webhook and newest.is_unasked else ""
    clause = f"was refused{who} because {newest.message}"
    if newest.is_over:
        cure = f"{owner} created a pod since: look at its pods, kubectl get pods"
    elif newest.is_unasked:
        cure = f"see why that webhook does not answer; {owner} tries again by itself"
    else:
        cure = f"do what the message says; {owner} tries again by itself"
    return Finding(Outcome.REFUSED, clause, (cure,))


def section(facts: Facts) -> Object:
    """Return where the pod is, and what the webhook and the scheduler wrote on it.

    Shape: {"phase", "node", "virtual", "cluster", "judged": {"strategy", "generation", "added": [],
    "isCurrent"}, "admission": {annotation: value}, "scheduler"}; "judged" is {} where the webhook
    added nothing.
    """
    pod = facts.pod or {"metadata": {}}
    node = node_of(facts, pod)
    ours = {k: v for k, v in objects.annotations(pod).items() if k.startswith("pyliqo.io/")}
    return {
        "phase": status_of(pod).get("phase") or "Pending",
        "node": spec_of(pod).get("nodeName") or "",
        "virtual": node is not None and placement.is_virtual(node),
        "cluster": cluster_of(node),
        "judged": _judged(facts, pod),
        "admission": ours,
        "scheduler": scheduler_says(pod),
    }


def _judged(facts: Facts, pod: Object) -> Object:
    found = PlacementAnnotation.of(pod)
    if found is None:
        return {}
    now = whynamespace.parsed(facts)
    return {
        "strategy": found.strategy.value,
        "generation": found.generation,
        "added": sorted(found.added),
        "isCurrent": now is not None and found.is_of(now),
    }


def provider(facts: Facts) -> list[Object]:
    """Return what the virtual kubelet and the provider said of the pod, what holds now last.

    Shape: [{"source": "condition" | "status" | "event", "reason", "message", "at"}].
    """
    pod = facts.pod or {}
    refused, status = refusal_of(pod), status_of(pod)
    events = sorted(facts.events, key=whynamespace.time_of)
    said = [
        _said("event", event, whynamespace.time_of(event))
        for event in events
        if event.get("reason") in _PROVIDER
    ]
    if status.get("reason") in _PROVIDER:
        said.append(_said("status", status, ""))
    if refused is not None:
        said.append(_said("condition", refused, str(refused.get("lastTransitionTime") or "")))
    return [one for number, one in enumerate(said) if not _is_said(one, said[number + 1 :])]


def _is_said(one: Object, later: Iterable[Object]) -> bool:
    same = ("reason", "message")
    return any(all(one[name] == other[name] for name in same) for other in later)


def _said(source: str, who: Object, at: str) -> Object:
    reason, message = who.get("reason") or "", who.get("message") or ""
    return {"source": source, "reason": reason, "message": message, "at": at}


# The rules, first hit wins ------------------------------------------------------------------------


def _ending(facts: Facts, pod: Object) -> Finding | None:
    if not objects.is_terminating(pod):
        return None
    clause = f"is being deleted{_on(facts, pod)}"
    refused = refusal_of(pod)
    if refused is None:
        return Finding(Outcome.ENDS, clause)
    cluster = section(facts)["cluster"] or "the provider"
    cure = f"ask the administrator of {cluster}; it is tried again"
    return Finding(Outcome.ENDS, f"{clause}, and cannot end: {refused.get('message')}", (cure,))


def _ended(facts: Facts, pod: Object) -> Finding | None:
    status = status_of(pod)
    if not objects.is_finished(pod):
        return None
    cause = told(status)
    clause = f"ended{_on(facts, pod)}: {status['phase']}{f', {cause}' if cause else ''}"
    aborted = status.get("reason") == ABORTED
    return Finding(Outcome.ENDED, clause, (_ANEW,) if aborted else ())


def _refused_there(facts: Facts, pod: Object) -> Finding | None:
    refused = refusal_of(pod)
    if refused is None:
        return None
    cluster = section(facts)["cluster"] or "the provider"
    message = refused.get("message") or "no message"
    cure = f"do what the message says, or ask the administrator of {cluster}; it is tried again"
    return Finding(Outcome.WAITS, f"waits because {cluster} refuses it: {message}", (cure,))


def _backed_off(facts: Facts, pod: Object) -> Finding | None:
    if status_of(pod).get("reason") != BACK_OFF:
        return None
    name = facts.namespace
    message = f"waits because namespace {name} is not offloaded to the cluster of its node"
    cures = [f"see why: liqoctl why namespace {name}", f"or {_ANEW}"]
    if placement.is_pinned(pod):
        cures = ["keep its DaemonSet off virtual nodes by the patch that liqoctl info prints"]
    return Finding(Outcome.WAITS, f"{message} {spec_of(pod).get('nodeName')}", tuple(cures))


def _unreachable(facts: Facts, pod: Object) -> Finding | None:
    if objects.labels(pod).get(keys.REMOTE_UNAVAILABLE) != "true":
        return None
    where = _on(facts, pod).removeprefix(" on ")
    message = f"was last seen on {where}, which cannot be reached now"
    return Finding(Outcome.UNKNOWN, message, (CURES[Rule.NOT_READY],))


def _running(facts: Facts, pod: Object) -> Finding | None:
    if status_of(pod).get("phase") != "Running":
        return None
    ready = objects.condition(pod, "Ready") or {"status": "True"}
    runs = f"runs{_on(facts, pod)}"
    if ready.get("status") == "True":
        return Finding(Outcome.RUNS, runs)
    clause = f"{runs}, and is not Ready: {why_halted(pod, ready)}"
    name, namespace = objects.key_of(pod).name, facts.namespace
    probed = f"see what its readiness probe says: kubectl describe pod {name} -n {namespace}"
    return Finding(Outcome.RUNS, clause, tuple(_to_start(facts, pod)) or (probed,))


def _starting(facts: Facts, pod: Object) -> Finding | None:
    name = spec_of(pod).get("nodeName")
    if not name:
        return None
    if facts.nodes is not None and node_of(facts, pod) is None:
        message = f"waits because its node {name} does not exist (any more)"
        return Finding(Outcome.WAITS, message, (_ANEW,))
    silence = objects.condition(pod, keys.OFFLOADED_CONDITION)
    if silence.get("status") == "Unknown":
        clause = f"waits{_on(facts, pod)} because {silence.get('message')}"
        return Finding(Outcome.WAITS, clause, ("look at the ShadowPod of its name there",))
    if said := scheduler_says(pod):
        clause = f"waits{_on(facts, pod)} because no node there takes it: {said}"
        return Finding(Outcome.WAITS, clause, (_to_fit(node_of(facts, pod)),))
    halted = why_halted(pod, {})
    if halted:
        clause = f"waits{_on(facts, pod)} because {halted}"
        return Finding(Outcome.WAITS, clause, tuple(_to_start(facts, pod)))
    return Finding(Outcome.STARTS, f"starts{_on(facts, pod)}")


def _to_fit(node: Object | None) -> str:
    """Return what to do about a pod that fits the sum and no node of its provider."""
    largest = objects.annotations(node or {"metadata": {}}).get(keys.LARGEST_POD)
    told = f" (no node behind it has more free than {largest})" if largest else ""
    return f"request less{told}, or ask the administrator of {cluster_of(node) or 'the provider'}"


def _gated(_facts: Facts, pod: Object) -> Finding | None:
    gates = ", ".join(str(gate.get("name")) for gate in spec_of(pod).get("schedulingGates") or [])
    if not gates:
        return None
    cure = "the one who set the scheduling gates removes them"
    return Finding(Outcome.WAITS, f"waits because it has scheduling gates: {gates}", (cure,))


def _nowhere(facts: Facts, pod: Object) -> Finding | None:
    if facts.nodes is None:
        return None
    found = [placement.obstacles(pod, node) for node in facts.nodes]
    if not all(found):
        return None
    if not found:
        return Finding(Outcome.WAITS, "waits because the cluster has no nodes")
    count = f"none of the {len(found)} nodes" if len(found) > 1 else "the only node does not"
    takes = "takes it" if len(found) > 1 else "take it"
    clause = f"waits because {count} {takes}: {counted(found)}"
    return Finding(Outcome.WAITS, clause, (*to_offload(facts, found), *cures(found)))


def _unprovided(facts: Facts, _pod: Object) -> Finding | None:
    """Follow the first claim that keeps it from running, to what was said of it last."""
    if not facts.claims:
        return None
    claim = facts.claims[0]
    name = objects.key_of(claim).name
    if not objects.uid(claim):
        clause = f"waits because persistentvolumeclaim {name} does not exist"
        return Finding(Outcome.WAITS, clause, (f"create persistentvolumeclaim {name}",))
    if objects.status(claim).get("phase") == "Lost":
        clause = f"waits because persistentvolumeclaim {name} has lost its volume"
        cure = f"restore the volume, or delete persistentvolumeclaim {name} to start empty"
        return Finding(Outcome.WAITS, clause, (cure,))
    said = [
        event
        for event in sorted(facts.claim_events, key=whynamespace.time_of)
        if (event.get("involvedObject") or {}).get("uid") == objects.uid(claim)
        and event.get("reason") not in _WAITS_FOR_POD
    ]
    if not said:
        return None
    clause = f"waits because its persistentvolumeclaim {name} is not bound"
    cures = (
        f"do what the message says, or give it another class: kubectl describe pvc {name}",
        "storage of providers: liqoctl info peer",
    )
    return Finding(Outcome.WAITS, f"{clause}: {told(said[-1])}", cures)


_WAITS_FOR_POD: Final = frozenset({"WaitForFirstConsumer", "WaitForPodScheduled"})
"""Which tell that a claim waits for its pod, and not the other way round."""


def _unplaced(facts: Facts, pod: Object) -> Finding:
    said = scheduler_says(pod)
    open_ = [node for node in facts.nodes or () if not placement.obstacles(pod, node)]
    names = _listed([objects.key_of(node).name for node in open_])
    match = f"{names} would take it" if open_ else "its nodes are not known"
    if said:
        cure = "free resources there, or let the virtual nodes offer more"
        return Finding(Outcome.WAITS, f"waits because the scheduler says: {said}", (cure,))
    cure = "if this lasts, see whether the scheduler runs"
    return Finding(Outcome.WAITS, f"waits for the scheduler; {match}", (cure,))


_RULES: Final[Sequence[Callable[[Facts, Object], Finding | None]]] = (
    _ending,
    _ended,
    _refused_there,
    _backed_off,
    _unreachable,
    _running,
    _starting,
    _gated,
    _unprovided,
    _nowhere,
    _unplaced,
)


def _drifted(facts: Facts, pod: Object) -> list[str]:
    """Return what to do about a pod that today's rules of its namespace would place otherwise."""
    offloading = whynamespace.parsed(facts)
    if offloading is None or placement.is_pinned(pod) or status_of(pod).get("phase") not in _LIVING:
        return []
    node = node_of(facts, pod)
    out = [] if node is None else placement.misplaced(offloading, pod, node)
    if out:
        return [f"it runs where its namespace places no pods any more ({out[0].text}): {_ANEW}"]
    if node is not None or offloading.strategy is Strategy.LOCAL:
        return []
    if placement.is_tolerated(_TAINT, spec_of(pod).get("tolerations") or []):
        return []
    return [f"it was created before its namespace was offloaded: {_ANEW}"]


def _differing(facts: Facts, pod: Object) -> Iterator[str]:
    """Yield what a program of a pod on a virtual node reads otherwise than here, or not at all."""
    node = node_of(facts, pod)
    if node is None or not placement.is_virtual(node):
        return
    if tokenless := podfields.tokenless(pod, [node]):
        yield tokenless
    remote = objects.status(facts.offloading).get("remoteNamespaceName") or facts.namespace
    read = downward.reading(spec_of(pod), downward.NAMESPACE)
    is_local = downward.is_namespace_local(pod, facts.offloading)
    if read and remote != facts.namespace and not is_local:
        yield (
            f"it reads {remote} as its metadata.namespace ({', '.join(read)}): with the annotation "
            f"{keys.DOWNWARD_NAMESPACE}: {downward.CONSUMER} on pod or NamespaceOffloading a new "
            f"pod reads {facts.namespace}"
        )


_LIVING: Final = frozenset({None, "", "Pending", "Running"})


def _on(facts: Facts, pod: Object) -> str:
    name = spec_of(pod).get("nodeName")
    if not name:
        return ""
    node = node_of(facts, pod)
    if node is None:
        return f" on {name}"
    if not placement.is_virtual(node):
        return f" on {name} (this cluster)"
    return f" on {name} (virtual node of cluster {cluster_of(node) or 'unknown'})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


# What keeps a pod off nodes, counted, and what to do about it -------------------------------------

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


# What a pod and its node say of themselves, for those who ask why ---------------------------------


def node_of(facts: Facts, pod: Object) -> Object | None:
    name = spec_of(pod).get("nodeName")
    return next((n for n in facts.nodes or () if objects.key_of(n).name == name), None)


def cluster_of(node: Object | None) -> str:
    return objects.labels(node or {"metadata": {}}).get(keys.REMOTE_CLUSTER_ID, "")


def refusal_of(pod: Object) -> Object | None:
    """Return the condition by which the provider's refusal is told, if it holds."""
    found = objects.condition(pod, keys.OFFLOADED_CONDITION)
    return found if found.get("status") == "False" else None


def scheduler_says(pod: Object) -> str:
    """Return why the scheduler found no node; empty if it did, or did not try."""
    found = objects.condition(pod, "PodScheduled")
    return str(found.get("message") or "") if found.get("status") == "False" else ""


def why_halted(pod: Object, otherwise: Object) -> str:
    """Return why the first container that does not run does not; empty if it is just starting."""
    for name, waiting in _halted(pod):
        return f"container {name}: {told(waiting)}"
    return told(status_of(pod)) or told(otherwise)


def _halted(pod: Object) -> Iterator[tuple[str, Object]]:
    """Yield each container that is kept from running, and its state."""
    now = status_of(pod)
    for name in ("initContainerStatuses", "containerStatuses"):
        for one in now.get(name) or []:
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in _QUIET:
                yield str(one.get("name")), waiting


def _to_start(facts: Facts, pod: Object) -> Iterator[str]:
    """Yield what to do about the first of them, by the reasons of Kubernetes' kubelet."""
    for container, waiting in _halted(pod):
        words = {"container": container, "pod": objects.key_of(pod).name, "ns": facts.namespace}
        for cure, reasons in _TO_START.items():
            if waiting.get("reason") in reasons:
                yield cure.format(**words)
        return


_TO_START: Final[Mapping[str, frozenset[str]]] = {
    "correct the image of container {container}, or name an imagePullSecret for its registry": (
        frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
    ),
    "create the ConfigMap, Secret or key that the message names; of a pod on a virtual node see "
    "whether it is reflected, too: liqoctl get reflections -n {ns}": frozenset(
        {"CreateContainerConfigError", "CreateContainerError"}
    ),
    "see why it ends: kubectl logs {pod} -n {ns} -c {container} --previous": frozenset(
        {"CrashLoopBackOff", "RunContainerError", "Error"}
    ),
}
_QUIET: Final = frozenset({None, "", "ContainerCreating", "PodInitializing"})


def claims(pod: Object) -> list[str]:
    """Return the names of the claims that it mounts. Source: Kubernetes, "Ephemeral Volumes"."""
    name = objects.key_of(pod).name
    found = [
        f"{name}-{volume.get('name')}"
        if volume.get("ephemeral")
        else str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
        for volume in spec_of(pod).get("volumes") or []
    ]
    return sorted({one for one in found if one})


def mentioned(pod: Object) -> dict[Kind, list[str]]:
    """Return the names of the ConfigMaps, Secrets and claims that it mentions."""
    found = reflectionpolicy.mentioned(spec_of(pod))
    named = {
        kind: sorted(name for one, name in found if one == kind)
        for kind in (keys.CONFIG_MAP, keys.SECRET)
    }
    return {**named, keys.PERSISTENT_VOLUME_CLAIM: claims(pod)}


def told(part: Object) -> str:
    return ": ".join(str(part[name]) for name in ("reason", "message") if part.get(name))
