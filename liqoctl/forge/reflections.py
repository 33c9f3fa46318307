"""What of a namespace is reflected to which cluster, and why not: decided as by the reflector."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apis import claims, keys, objects, ownership, reflection, reflectionpolicy
from apis.claims import Storage
from apis.objects import Kind, Object
from apis.offloading import MappingPhase, NamespaceMap, VkOptionsTemplate
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import ReflectedKind
from apis.reflectionpolicy import NotReflected, ReflectionSubject

SHOWN: Final = tuple(row for row in reflection.KINDS if row.is_outward)
_POLICIES: Final = tuple(reflection.custom(kind) for kind in reflection.POLICIES)
"""What is not reflected, and users take for granted."""
HEAD: Final = ("CLUSTER", "REMOTE NAMESPACE", "KIND", "NAME", "STATE", "REASON")
REFLECTED, STAYS, FAILED, OFF = "reflected", "stays", "failed", "off"
UNKNOWN: Final = "unknown"
"""Of a kind that was opted in and has no CRD in this cluster."""


class Line(NamedTuple):
    """One object and one cluster."""

    cluster: str
    remote_namespace: str
    kind: str
    name: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Peer:
    """A cluster to which the namespace goes, or would go, and by which rules."""

    cluster: str
    remote_namespace: str
    options: VkOptionsTemplate
    nodes: frozenset[str] = frozenset()
    """Its virtual nodes."""
    with_storage: frozenset[str] = frozenset()
    """Those of them that offer storage."""


@dataclass(frozen=True)
class Contents:
    """What is in the namespace."""

    asked: Policy | None
    """By which policy its NamespaceOffloading lets go what pods mention."""
    by_kind: Mapping[Kind, Iterable[Object]]
    """Without those that this cluster does not know."""
    pods: Sequence[Object] = ()
    volumes: Mapping[str, Object] = field(default_factory=dict)
    """Those that its claims are bound to, by name."""
    failures: Mapping[ReflectionSubject, str] = field(default_factory=dict)
    """What the reflectors said last that they could not do."""


def lines(contents: Contents, peers: Iterable[Peer]) -> list[Line]:
    return [line for peer in peers for row in rows(peer) for line in _lines(contents, peer, row)]


def rows(peer: Peer) -> Iterable[ReflectedKind]:
    """Return the kinds that are shown of ``peer``, those that were opted in last."""
    opted_in = list(map(reflection.opted_in, peer.options.custom_resources))
    known = {row.kind for row in opted_in}
    return [*SHOWN, *(row for row in _POLICIES if row.kind not in known), *opted_in]


def policies(contents: Contents, peers: Iterable[Peer]) -> list[tuple[str, str]]:
    lines = (
        line
        for peer in peers
        for row in rows(peer)
        if row.kind in reflection.POLICIES
        for line in _lines(contents, peer, row)
    )
    return sorted({(line.kind, line.name) for line in lines if line.state == STAYS})


def staying(contents: Contents, peer: Peer) -> list[Line]:
    found = lines(contents, [peer])
    return [line for line in found if line.name and line.state != REFLECTED]


def peers_of(namespace: str, maps: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Yield the clusters to which ``namespace`` is offloaded, and its name there."""
    for found in maps:
        parsed = NamespaceMap.parse(found)
        current = parsed.current.get(namespace)
        is_ours = not ownership.is_foreign(found)
        if is_ours and current and current.phase is MappingPhase.ACCEPTED:
            yield parsed.remote_cluster_id, current.remote_namespace


def failures(events: Iterable[Object]) -> dict[ReflectionSubject, str]:
    """Return what ``events`` say last, where that is a failure."""
    return {
        about: said.message
        for about, said in reflectionpolicy.last_events(events).items()
        if said.reason == keys.FAILED_REFLECTION
    }


def _lines(contents: Contents, peer: Peer, row: ReflectedKind) -> Iterator[Line]:
    config = peer.options.reflectors.get(row.name)
    policy = reflectionpolicy.in_namespace(row, _policy(peer, row), contents.asked)
    if row.kind not in contents.by_kind:
        reason = f"this cluster has no such kind: install the CRD {row.kind.resource}"
        yield Line(peer.cluster, peer.remote_namespace, row.kind.kind, "", UNKNOWN, reason)
    withheld = contents.failures.get(ReflectionSubject(peer.cluster, row.name), "")
    if withheld:
        yield Line(peer.cluster, peer.remote_namespace, row.kind.kind, "", FAILED, withheld)
    for obj in contents.by_kind.get(row.kind, ()):
        name = objects.key_of(obj).name
        about = ReflectionSubject(peer.cluster, row.kind.kind, name, objects.uid(obj))
        line = Line(peer.cluster, peer.remote_namespace, row.kind.kind, name, REFLECTED)
        if config is not None and config.workers == 0:
            yield line._replace(state=OFF, reason=f"{row.name} has 0 workers")
        elif reason := _reason(contents, peer, row, policy, obj):
            yield line._replace(state=STAYS, reason=reason)
        elif failure := contents.failures.get(about, withheld):
            yield line._replace(state=FAILED, reason=failure)
        else:
            yield line


def _policy(peer: Peer, row: ReflectedKind) -> Policy:
    by = reflection.BY_NAME[row.like] if row.like else row
    config = peer.options.reflectors.get(by.name)
    return (config and config.policy) or by.default


def _reason(contents: Contents, peer: Peer, row: ReflectedKind, policy: Policy, obj: Object) -> str:
    judge = _JUDGES.get(row, _as_policies_say)
    try:
        stay = judge(contents, peer, row, policy, obj)
    except (reflectionpolicy.ContradictionError, reflectionpolicy.NotYetError) as error:
        return str(error)
    return stay.reason if stay else ""


def _as_policies_say(
    contents: Contents, peer: Peer, row: ReflectedKind, policy: Policy, obj: Object
) -> NotReflected | None:
    stay = reflectionpolicy.reason_to_stay(row.kind, obj, policy)
    if stay is not None or policy is not Policy.REFERENCED:
        return stay
    wanted = (row.kind, objects.key_of(obj).name)
    offloaded = (pod for pod in contents.pods if pod["spec"].get("nodeName") in peer.nodes)
    if any(wanted in reflectionpolicy.mentioned(pod["spec"]) for pod in offloaded):
        return None
    return NotReflected(reflectionpolicy.UNMENTIONED)


def _as_its_service(
    contents: Contents, peer: Peer, _row: ReflectedKind, policy: Policy, obj: Object
) -> NotReflected | None:
    where = reflectionpolicy.service_of(obj)
    services = contents.by_kind.get(keys.SERVICE, ())
    service = next((each for each in services if objects.key_of(each) == where), None)
    is_needed = any(one.get("nodeName") not in peer.nodes for one in obj.get("endpoints") or [])
    return reflectionpolicy.slice_stays(obj, service, policy, is_needed=is_needed)


def _with_its_data(
    contents: Contents, peer: Peer, _row: ReflectedKind, _policy: Policy, obj: Object
) -> NotReflected | None:
    is_offered, is_node = peer.with_storage.__contains__, peer.nodes.__contains__
    storage = Storage(peer.cluster, is_offered, is_node, contents.volumes.get)
    return claims.reason_to_stay(obj, storage)


def _as_not_opted_in(
    _contents: Contents, _peer: Peer, row: ReflectedKind, _policy: Policy, _obj: Object
) -> NotReflected | None:
    if row.kind in reflection.NEVER:
        return NotReflected(
            "it holds in this cluster only: there it would change or refuse remote pods"
        )
    return NotReflected(
        f"it holds in this cluster only: spec.customResources of the VkOptionsTemplate does not "
        f"name {row.kind.resource}"
    )


_JUDGES: Final = {
    reflection.ENDPOINT_SLICE: _as_its_service,
    reflection.CLAIM: _with_its_data,
    **dict.fromkeys(_POLICIES, _as_not_opted_in),
}
"""How kinds are judged that go by more than policies."""
