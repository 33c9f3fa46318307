"""Why a namespace is offloaded as it is, and which of its pods never came into being. Pure.

Source: docs/parity.md § 1.1, 3.1, 4.1; Kubernetes, events ``FailedCreate`` and
``SuccessfulCreate`` of the workload controllers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, placement
from apis.objects import Object
from apis.offloading import NamespaceOffloading
from apis.placement import Obstacle
from liqoctl.forge.findings import Facts, Finding, Outcome

_REMOVED: Final = "wait for the controllers, or see why the namespaces on the other clusters stay"


def section(facts: Facts) -> Object:
    """Return how the namespace is offloaded.

    Shape: {"name", "offloaded", "schedulingEnabled", "allowedClusters" (where an administrator
    says which), "strategy", "selector", "phase",
    "remoteNamespace", "isCurrent", "misplaced", "policies", "clusters": [{"cluster", "selected",
    "ready", "reason", "message"}]}; from "strategy" on only where there is a NamespaceOffloading.
    """
    offloading = facts.offloading
    told: Object = {
        "name": facts.namespace,
        "offloaded": offloading is not None,
        "schedulingEnabled": is_enabled(facts),
    }
    allowed = _allowed(facts)
    told |= {} if allowed is None else {"allowedClusters": allowed}
    if offloading is None:
        return told
    status = objects.status(offloading)
    generation = offloading["metadata"].get("generation")
    return {
        **told,
        "strategy": objects.spec(offloading).get("podOffloadingStrategy", "LocalAndRemote"),
        "selector": _selector(offloading),
        "phase": status.get("offloadingPhase") or "",
        "remoteNamespace": status.get("remoteNamespaceName") or "",
        "isCurrent": status.get("observedGeneration") == generation,
        "misplaced": _denied(status, keys.PODS_PLACED),
        "policies": _denied(status, keys.POLICIES_REFLECTED),
        "clusters": _clusters(status),
    }


def _allowed(facts: Facts) -> list[str] | None:
    """Return the clusters that it may be offloaded to at most; None: to any."""
    said = objects.annotations(facts.about).get(keys.ALLOWED_CLUSTERS)
    return None if said is None else [one.strip() for one in said.split(",") if one.strip()]


def _denied(status: Object, type_: str) -> str:
    """Return the message of a condition that is false; empty if it is not."""
    found = objects.find_condition(status.get("conditions"), type_) or {}
    return str(found.get("message") or "") if found.get("status") == "False" else ""


def parsed(facts: Facts) -> NamespaceOffloading | None:
    """Return how the namespace is offloaded; None if it is not, or if nobody can read it."""
    if facts.offloading is None or objects.is_terminating(facts.offloading):
        return None
    try:
        return NamespaceOffloading.parse(facts.offloading)
    except ValueError:
        return None


def is_enabled(facts: Facts) -> bool:
    """Whether API servers ask the webhook about the pods of the namespace."""
    return objects.labels(facts.about).get(keys.SCHEDULING_ENABLED) == "true"


def judge(facts: Facts) -> Finding:
    """Return the verdict on the namespace: the first rule that has something to say."""
    return next(found for rule in _RULES if (found := rule(facts)) is not None)


def barred(facts: Facts, node: Object) -> list[Obstacle]:
    """Return what keeps a pod without wishes of its own off ``node``."""
    return placement.barred(parsed(facts), node)


def _selector(offloading: Object) -> str:
    terms = (objects.spec(offloading).get("clusterSelector") or {}).get("nodeSelectorTerms")
    return placement.said(terms) if terms else "every cluster"


def _clusters(status: Object) -> list[Object]:
    found = status.get("remoteNamespacesConditions") or {}
    return [_cluster(name, found[name] or []) for name in sorted(found)]


def _cluster(name: str, have: list[Object]) -> Object:
    ready = objects.find_condition(have, "Ready")
    told = ready or objects.find_condition(have, "OffloadingRequired") or {}
    return {
        "cluster": name,
        "selected": objects.is_condition_true(have, "OffloadingRequired") or ready is not None,
        "ready": objects.is_condition_true(have, "Ready"),
        "reason": told.get("reason") or "",
        "message": told.get("message") or "",
    }


# The rules, first hit wins ------------------------------------------------------------------------


def _unknown(facts: Facts) -> Finding | None:
    if facts.offloading is not None or facts.is_offloading_known:
        return None
    return Finding(Outcome.UNKNOWN, "may be offloaded or not: you may not read its offloading")


def _ending_namespace(facts: Facts) -> Finding | None:
    if not objects.is_terminating(facts.about):
        return None
    return Finding(Outcome.ENDS, "is being deleted: no pods are created in it any more")


def _without(facts: Facts) -> Finding | None:
    if facts.offloading is not None:
        return None
    allowed = _allowed(facts)
    which = f" -l '{keys.REMOTE_CLUSTER_ID} in ({','.join(allowed)})'" if allowed else ""
    where = f"liqoctl offload namespace {facts.namespace}{which}"
    if not is_enabled(facts):
        message = "is not offloaded: its pods run on the nodes of this cluster"
        return Finding(Outcome.AT_HOME, message, (f"to offload it: {where}",))
    message = f"refuses pods because it has the label {keys.SCHEDULING_ENABLED} and no "
    undo = f"kubectl label namespace {facts.namespace} {keys.SCHEDULING_ENABLED}-"
    cures = (
        f"offload it: {where}",
        f"or remove the label, also from the manifest that sets it: {undo}",
    )
    return Finding(Outcome.REFUSES, f"{message}NamespaceOffloading", cures)


def _ending(facts: Facts) -> Finding | None:
    if not objects.is_terminating(facts.offloading or {"metadata": {}}):
        return None
    left = ", ".join(one["cluster"] for one in _of(facts) if one["reason"])
    still = f"; not gone yet: {left}" if left else ""
    return Finding(Outcome.ENDS, f"is being taken back{still}", (_REMOVED,))


def _unreadable(facts: Facts) -> Finding | None:
    try:
        NamespaceOffloading.parse(facts.offloading or {})
    except ValueError as error:
        message = f"refuses pods because its NamespaceOffloading cannot be read: {error}"
        cure = f"correct namespaceoffloading {facts.namespace}/{keys.OFFLOADING_NAME}"
        return Finding(Outcome.REFUSES, message, (cure,))
    return None


def _unobserved(facts: Facts) -> Finding | None:
    told = section(facts)
    if told["isCurrent"] and told["phase"]:
        return None
    what = "its last change" if told["phase"] else "it"
    message = f"is to be offloaded, and the controllers have not worked on {what} yet"
    cure = f"see the pods of deployment liqo-controller-manager in {keys.LIQO_NAMESPACE}"
    return Finding(Outcome.WAITS, message, (f"if this lasts, {cure}",))


def _unselected(facts: Facts) -> Finding | None:
    told = section(facts)
    if told["phase"] != "NoClusterSelected":
        return None
    nodes = [node for node in facts.nodes or () if placement.is_virtual(node)]
    if facts.nodes is not None and not nodes:
        because, cure = "there is no virtual node", "create one: liqoctl create virtualnode --help"
    else:
        because = f"no virtual node meets its selector ({told['selector']})"
        where = f"namespaceoffloading {facts.namespace}/{keys.OFFLOADING_NAME}"
        cure = f"correct spec.clusterSelector of {where}, or the labels of the virtual nodes"
    return Finding(Outcome.WAITS, f"is offloaded to no cluster because {because}", (cure,))


def _failing(facts: Facts) -> Finding | None:
    if section(facts)["phase"] == "Ready":
        return None
    lacking = [one for one in _of(facts) if one["selected"] and not one["ready"]]
    ready = [one["cluster"] for one in _of(facts) if one["ready"]]
    reasons = "; ".join(f"{one['cluster']}: {because(one)}" for one in lacking)
    far = f"is offloaded to {', '.join(ready)} only" if ready else "is not offloaded yet"
    cures = tuple(
        f"ask the administrator of {one['cluster']} about the namespace "
        f"{section(facts)['remoteNamespace']}"
        for one in lacking
        if one["reason"] == "CreationLoopBackOff"
    )
    cause = reasons or f"phase {section(facts)['phase']}"
    return Finding(Outcome.WAITS, f"{far} because of {cause}", cures)


def _offloaded(facts: Facts) -> Finding:
    told = section(facts)
    clusters = ", ".join(one["cluster"] for one in told["clusters"] if one["ready"])
    where = f"is offloaded to {clusters or 'its clusters'} as {told['remoteNamespace']}"
    cures = (full_names(facts.namespace, told["remoteNamespace"]),)
    clause = f"{where}: {_MAY_RUN[told['strategy']]}"
    return Finding(Outcome.OFFLOADED, clause, tuple(filter(None, cures)))


def full_names(namespace: str, remote: str) -> str:
    """Return what becomes of names such as ``web.NAMESPACE.svc`` there; "" if they resolve."""
    if not remote or remote == namespace:
        return ""
    return (
        f"pods there find Services by short names (web) and as web.{remote}.svc; "
        f"web.{namespace}.svc does not resolve there, unless the namespace is offloaded with "
        "--namespace-mapping-strategy EnforceSameName (unoffload it first)"
    )


_MAY_RUN: Final = {
    "LocalAndRemote": "pods may run there and on this cluster (LocalAndRemote)",
    "Remote": "pods run only there (Remote)",
    "Local": "Services and other objects are reflected, pods stay on this cluster (Local)",
}
_RULES: Final[Sequence[Callable[[Facts], Finding | None]]] = (
    _ending_namespace,
    _unknown,
    _without,
    _ending,
    _unreadable,
    _unobserved,
    _unselected,
    _failing,
    _offloaded,
)


def because(cluster: Object) -> str:
    reason = cluster["reason"] or "no reason told"
    return f"{reason} ({cluster['message']})" if cluster["message"] else str(reason)


def _of(facts: Facts) -> list[Object]:
    clusters: list[Object] = section(facts).get("clusters", [])
    return clusters


# Pods that never came into being: what their owners' events say -----------------------------------

FAILED: Final = "FailedCreate"
CREATED: Final = "SuccessfulCreate"

_OWNERS: Final = frozenset(
    {"ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController"}
)
_DENIED: Final = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_UNASKED: Final = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)
_PREFIX: Final = re.compile(r"^(?:Error creating|create Pod \S+ in StatefulSet \S+ failed error): ")
_ORDINAL: Final = re.compile(r"\d+")
_SUFFIX: Final = re.compile(r"(?:\d+-)?[a-z0-9]+")


@dataclass(frozen=True)
class RefusedPods:
    """That pods of ``owner`` were not created, and why."""

    kind: str
    owner: str
    message: str
    webhook: str = ""
    """Who refused; empty for the API server itself."""
    is_unasked: bool = False
    """The webhook gave no answer."""
    at: str = ""
    count: int = 1
    is_over: bool = False
    """The owner created a pod since."""


def find(events: Iterable[Object], pod: str = "") -> list[RefusedPods]:
    """Return the refusals in ``events``, the newest first, of whatever would own ``pod``.

    ``pod`` may also be the name of the owner, or of the Deployment or CronJob above it.
    """
    known = [event for event in events if _about(event).get("kind") in _OWNERS]
    created = _newest(known, CREATED, lambda _: "")
    failed = _newest(known, FAILED, lambda event: _message(event)[0])
    found = [
        _refusal(event, created.get((kind, name, "")))
        for (kind, name, _), event in failed.items()
        if not pod or is_named(kind, name, pod)
    ]
    return sorted(found, key=lambda refusal: refusal.at, reverse=True)


def is_named(kind: str, owner: str, asked: str) -> bool:
    """Whether ``asked`` is ``owner``, a pod that it would make, or what made it."""
    if asked == owner:
        return True
    if asked.startswith(f"{owner}-"):
        suffix = _ORDINAL if kind == "StatefulSet" else _SUFFIX
        return bool(suffix.fullmatch(asked.removeprefix(f"{owner}-")))
    made = kind in ("ReplicaSet", "Job") and owner.startswith(f"{asked}-")
    return made and "-" not in owner.removeprefix(f"{asked}-")


def time_of(event: Object) -> str:
    """Return when ``event`` happened last; the form of the API sorts by time."""
    series = event.get("series") or {}
    names = ("lastTimestamp", "eventTime", "firstTimestamp")
    times = [series.get("lastObservedTime"), *(event.get(name) for name in names)]
    return next((str(time)[:19] + "Z" for time in times if time), "")


def _newest(
    events: Iterable[Object], reason: str, apart: Callable[[Object], str]
) -> dict[tuple[str, str, str], Object]:
    found: dict[tuple[str, str, str], Object] = {}
    for event in sorted(events, key=time_of):
        if event.get("reason") == reason:
            about = _about(event)
            found[str(about["kind"]), str(about.get("name")), apart(event)] = event
    return found


def _about(event: Object) -> Object:
    return event.get("involvedObject") or {}


def _message(event: Object) -> tuple[str, str, bool]:
    """Return why, by which webhook, and whether that gave no answer."""
    text = str(event.get("message") or "no message")
    for pattern in (_DENIED, _UNASKED):
        if match := pattern.search(text):
            return match[2], match[1], pattern is _UNASKED
    return _PREFIX.sub("", text), "", False


def _refusal(event: Object, created: Object | None) -> RefusedPods:
    (message, webhook, is_unasked), at = _message(event), time_of(event)
    return RefusedPods(
        kind=_about(event)["kind"],
        owner=str(_about(event).get("name")),
        message=message,
        webhook=webhook,
        is_unasked=is_unasked,
        at=at,
        count=event.get("count") or (event.get("series") or {}).get("count") or 1,
        is_over=created is not None and time_of(created) > at,
    )
