"""The whole answer of ``liqoctl why``: what ``-o json`` prints. Pure."""

from collections.abc import Callable, Sequence

from apis import keys, objects, placement
from apis.objects import Object
from apis.placement import Obstacle
from liqoctl.forge import refusals, whypod, whyspace
from liqoctl.forge.findings import Facts, Finding
from liqoctl.forge.refusals import Refusal


def of_pod(facts: Facts, name: str) -> Object | None:
    """Return the answer for the pod ``name``; None if neither it nor a refusal is there.

    Shape: {"kind", "name", "outcome", "verdict", "namespace", "pod", "nodes", "provider",
    "staying", "refusals", "next", "notes"}; what is empty is left out, but for "next" and "notes".
    """
    subject = f"pod {facts.namespace}/{name}"
    if facts.pod is None:
        refused = refusals.find(facts.events, name)
        if not refused:
            return None
        finding = whypod.judge_refusal(refused)
        barred = _nodes(facts, lambda node: whyspace.barred(facts, node))
        return _answer("Pod", subject, facts, finding, nodes=barred, refusals=_told(refused))
    pod = facts.pod
    nodes = _nodes(facts, lambda node: placement.obstacles(pod, node))
    parts = {
        "pod": whypod.section(facts),
        "nodes": nodes,
        "provider": whypod.provider(facts),
        "staying": _staying(facts),
    }
    return _answer("Pod", subject, facts, whypod.judge(facts), **parts)


def of_namespace(facts: Facts) -> Object:
    """Return the answer for the namespace.

    Shape: as of a pod, without "pod"; "nodes" are judged for a pod without wishes of its own,
    "waiting" are the pods that a provider refuses: [{"name", "message"}].
    """
    found = [refusal for refusal in refusals.find(facts.events) if not refusal.is_over]
    parts = {
        "nodes": _nodes(facts, lambda node: whyspace.barred(facts, node)),
        "waiting": _waiting(facts.pending),
        "refusals": _told(found),
    }
    subject = f"namespace {facts.namespace}"
    return _answer("Namespace", subject, facts, whyspace.judge(facts), **parts)


def _answer(kind: str, subject: str, facts: Facts, finding: Finding, **parts: object) -> Object:
    return {
        "kind": kind,
        "name": subject.partition(" ")[2],
        "outcome": finding.outcome.value,
        "verdict": f"{subject} {finding.clause}",
        "namespace": whyspace.section(facts),
        **{name: part for name, part in parts.items() if part},
        "next": list(finding.cures),
        "notes": list(facts.notes),
    }


def _nodes(facts: Facts, judge: Callable[[Object], list[Obstacle]]) -> list[Object]:
    """Return the verdict on each node, virtual nodes first.

    Shape: [{"name", "virtual", "cluster", "matches", "obstacles": [{"rule", "text"}]}].
    """
    told = [_node(node, judge(node)) for node in facts.nodes or ()]
    return sorted(told, key=lambda node: (not node["virtual"], node["name"]))


def _node(node: Object, obstacles: Sequence[Obstacle]) -> Object:
    return {
        "name": objects.key_of(node).name,
        "virtual": placement.is_virtual(node),
        "cluster": objects.labels(node).get(keys.REMOTE_CLUSTER_ID, ""),
        "matches": not obstacles,
        "obstacles": [{"rule": one.rule.value, "text": one.text} for one in obstacles],
    }


def _staying(facts: Facts) -> list[Object]:
    """Return what the pod mentions and its provider has not, each with the reason."""
    fields = ("kind", "name", "state", "reason")
    return [{field: getattr(line, field) for field in fields} for line in facts.staying]


def _waiting(pods: Sequence[Object]) -> list[Object]:
    refused = [(pod, whypod.provider(Facts("", pod=pod))) for pod in pods]
    return [
        {"name": objects.key_of(pod).name, "message": said[-1]["message"]}
        for pod, said in refused
        if said
    ]


def _told(found: Sequence[Refusal]) -> list[Object]:
    return [
        {
            "owner": f"{refusal.kind} {refusal.owner}",
            "message": refusal.message,
            "webhook": refusal.webhook,
            "at": refusal.at,
            "count": refusal.count,
            "isOver": refusal.is_over,
        }
        for refusal in found
    ]
