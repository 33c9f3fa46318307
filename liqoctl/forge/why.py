"""The answer of ``liqoctl why``: what ``-o json`` prints, and its lines of text. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from apis import keys, objects, placement
from apis.objects import Object
from apis.placement import Obstacle
from liqoctl.forge import whynamespace, whypod
from liqoctl.forge.findings import Facts, Finding
from liqoctl.forge.tables import one_line
from liqoctl.forge.whynamespace import RefusedPods


def of_pod(facts: Facts, name: str) -> Object | None:
    """Return the answer for the pod ``name``; None if neither it nor a refusal is there.

    Shape: {"kind", "name", "outcome", "verdict", "namespace", "pod", "nodes", "provider",
    "staying", "refusals", "next", "notes"}; what is empty is left out, but for "next" and "notes".
    """
    subject = f"pod {facts.namespace}/{name}"
    if facts.pod is None:
        refused = whynamespace.find(facts.events, name)
        if not refused:
            return None
        finding = whypod.judge_refusal(refused)
        barred = _nodes(facts, lambda node: whynamespace.barred(facts, node))
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

    Shape: as of a pod, without "pod"; "nodes" are compared with a pod without wishes of its own,
    "waiting" are the pods that a provider refuses: [{"name", "message"}].
    """
    found = [refusal for refusal in whynamespace.find(facts.events) if not refusal.is_over]
    parts = {
        "nodes": _nodes(facts, lambda node: whynamespace.barred(facts, node)),
        "waiting": _waiting(facts.pending),
        "refusals": _told(found),
    }
    subject = f"namespace {facts.namespace}"
    return _answer("Namespace", subject, facts, whynamespace.judge(facts), **parts)


def _answer(kind: str, subject: str, facts: Facts, finding: Finding, **parts: object) -> Object:
    return {
        "kind": kind,
        "name": subject.partition(" ")[2],
        "outcome": finding.outcome.value,
        "verdict": f"{subject} {finding.clause}",
        "namespace": whynamespace.section(facts),
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


def _told(found: Sequence[RefusedPods]) -> list[Object]:
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


# An answer of ``liqoctl why`` as lines of text ----------------------------------------------------

_MOST_NAMES: Final = 4


def lines(answer: Object) -> list[str]:
    """Return ``answer`` as lines: the verdict, then what it rests on, then what to do.

    Others write what is shown, providers among them: only printable characters reach a terminal.
    """
    told = [str(answer["verdict"])]
    for title, part in _PARTS.items():
        inner = [f"  {line}" for line in part(answer)]
        told += ["", title, *inner] if inner else []
    return [one_line(line) for line in told]


def _namespace(answer: Object) -> Iterator[str]:
    told = answer["namespace"]
    if told["offloaded"]:
        yield f"{told['name']}: {told['strategy']}, clusters: {told['selector']}"
    else:
        label = ", but labelled for it" if told["schedulingEnabled"] else ""
        yield f"{told['name']}: not offloaded{label}"
    if "allowedClusters" in told:
        names = ", ".join(told["allowedClusters"]) or "none"
        yield f"clusters that its administrator allows ({keys.ALLOWED_CLUSTERS}): {names}"
    if told["offloaded"]:
        yield from _offloaded(told)


def _offloaded(told: Object) -> Iterator[str]:
    stale = "" if told["isCurrent"] else ", of an earlier generation"
    yield f"phase {told['phase'] or 'none yet'}{stale}"
    yield from filter(None, (told["misplaced"], told["policies"]))
    for one in told["clusters"]:
        state = "ready" if one["ready"] else "not ready" if one["selected"] else "not selected"
        name = f" as {told['remoteNamespace']}" if one["ready"] else ""
        yield f"on {one['cluster']}{name}: {state}, {whynamespace.because(one)}"


def _pod(answer: Object) -> Iterator[str]:
    told = answer.get("pod")
    if not told:
        return
    yield f"phase {told['phase']}, node {told['node'] or 'none yet'}"
    yield f"webhook: {_added(told['judged'])}"
    for name, value in sorted(told["admission"].items()):
        if name != keys.PLACEMENT or not told["judged"]:
            yield f"{name}: {value}"
    if told["scheduler"]:
        yield f"scheduler: {told['scheduler']}"


def _added(judged: Object) -> str:
    if not judged:
        return "added nothing to it"
    what = " and ".join(_ADDED[one] for one in judged["added"]) or "nothing"
    since = "" if judged["isCurrent"] else ", which has changed since"
    rule = f"strategy {judged['strategy']}, generation {judged['generation']}"
    return f"added {what} ({rule}{since})"


_ADDED: Final = {
    placement.TOLERATION: "the toleration of virtual nodes",
    placement.NODE_AFFINITY: "node affinity",
}


def _node_lines(answer: Object) -> Iterator[str]:
    """Yield one line for each sort of node: hundreds may share a reason."""
    sorts: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for node in answer.get("nodes") or []:
        texts = tuple(one["text"] for one in node["obstacles"])
        sorts.setdefault((node["virtual"], texts), []).append(node["name"])
    for (is_virtual, texts), names in sorts.items():
        kind = "virtual" if is_virtual else "this cluster"
        verdict = f"no, {'; '.join(texts)}" if texts else "matches"
        yield f"{_listed(names)} ({kind}): {verdict}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _provider(answer: Object) -> Iterator[str]:
    for one in answer.get("provider") or []:
        at = f" (since {one['at']})" if one["at"] else ""
        yield f"{one['reason']}: {one['message']}{at}"


def _staying_lines(answer: Object) -> Iterator[str]:
    for one in answer.get("staying") or []:
        yield f"{one['kind']} {one['name']}: {one['state']}, {one['reason']}"


def _waiting_lines(answer: Object) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for one in answer.get("waiting") or []:
        said.setdefault(one["message"], []).append(one["name"])
    for message, names in said.items():
        yield f"{_listed(names)}: {message}"


def _refusals(answer: Object) -> Iterator[str]:
    for one in answer.get("refusals") or []:
        by = f", by {one['webhook']}" if one["webhook"] else ""
        over = ", over since" if one["isOver"] else ""
        yield f"{one['owner']}: {one['message']} ({one['count']}x, last {one['at']}{by}{over})"


_PARTS: Final[dict[str, Callable[[Object], Iterable[str]]]] = {
    "Namespace": _namespace,
    "Pod": _pod,
    "Nodes": _node_lines,
    "The provider said": _provider,
    "Mentioned by the pod, and not reflected": _staying_lines,
    "Pods that a provider refuses": _waiting_lines,
    "Refused pods": _refusals,
    "What to do": itemgetter("next"),
    "Not known": itemgetter("notes"),
}
