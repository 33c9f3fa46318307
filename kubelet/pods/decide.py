"""What to do next about one pod, given what is there on both sides, and whether it may be here.

Source: docs/parity.md § 3.1, 4.10, 5.5.1, the table, in its order; § 5.5.5; F-18, F-20; SEC-D5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from apis import keys, objects, placement, quotas, resources
from apis.objects import Object
from apis.offloading import MappedNamespace, NamespaceOffloading, PodOffloadingStrategy
from apis.placement import TOLERATION, PlacementAnnotation
from apis.resources import Quantity, Resources
from kubelet.pods import apiserver, shadowpod, status
from kubelet.pods.apiserver import ApiServer, Token
from kubelet.pods.mapping import MappingState
from kubelet.pods.sanitize import LocalContext

PATIENCE: Final = timedelta(seconds=10)
"""A namespace is offloaded that long after its first pods: before, they are not judged."""
OVERDUE: Final = timedelta(seconds=60)
"""So long after its grace a pod that ends is waited for without a word."""


class PodStep(Enum):
    """One step; the next event or the next look finds what is left to do."""

    REST = auto()
    """Nothing to do until something changes."""
    WAIT = auto()
    """Something of an older pod, or of another node, has to go first."""
    REFUSE = auto()
    """The name is taken on the provider by somebody else's object."""
    DELETE_SHADOW = auto()
    END_WITHIN = auto()
    """It is to end in another time than its spec says, which the provider has to know before."""
    DELETE_LOCAL = auto()
    """Nothing of the pod is left on the provider: its name may go."""
    OFFLOAD = auto()
    FOLLOW = auto()
    """Metadata goes to the provider, status comes from it."""
    WATCH_END = auto()
    """The pod is ending: what becomes of it is told if it takes its time, or if it is its work."""
    CONFIRM_END = auto()
    """The pod has ended here: the provider must know, lest it begins again there."""


DESTRUCTIVE = frozenset({PodStep.DELETE_SHADOW, PodStep.DELETE_LOCAL})
DELETIONS = DESTRUCTIVE | {PodStep.END_WITHIN}


@dataclass(frozen=True)
class PodSnapshot:
    """What there is of one pod; ``local`` is None unless it is bound to ``node``."""

    local: Object | None
    shadow: Object | None
    remote: Object | None
    pair: MappedNamespace
    node: str

    def mine(self, twin: Object | None) -> Object | None:
        """Return ``twin`` if this node made it."""
        made = twin is not None and self.pair.reflects(twin)
        return twin if made and self._names_node(twin) else None

    def is_taken(self) -> bool:
        """Whether an object stands there that no reflection of this mapping made."""
        twins = [twin for twin in (self.shadow, self.remote) if twin is not None]
        return any(not self.pair.reflects(twin) for twin in twins)

    def is_shared(self) -> bool:
        """Whether another virtual node of the same mapping made what stands there."""
        twins = [twin for twin in (self.shadow, self.remote) if twin is not None]
        return any(not self._names_node(twin) for twin in twins)

    def _names_node(self, twin: Object | None) -> bool:
        return twin is not None and objects.labels(twin).get(keys.NODE_NAME) == self.node


def decide(observed: PodSnapshot) -> PodStep:
    """Return what to do; an object that is not ours is never touched.

    A terminating pod whose name is taken on the provider is let go: nothing of it is there.
    """
    if observed.local is None:
        return _orphan(observed)
    if objects.is_terminating(observed.local):
        return _ending(observed)
    if status.is_aborted(observed.local):
        return _orphan(observed)
    if objects.is_finished(observed.local):
        return _finished(observed, observed.local)
    if observed.is_taken():
        return PodStep.REFUSE
    return PodStep.WAIT if observed.is_shared() else _living(observed, observed.local)


def rests_on_absence(step: PodStep, observed: PodSnapshot) -> bool:
    """Whether ``step`` writes for ever what a cache only does not show.

    That is an end of which the ShadowPod alone tells. What deletes rests on what was seen to go,
    or on live reads (``DESTRUCTIVE``); a create needs neither, for the server tells of a taken
    name. Source: docs/parity.md C-22, C-30.
    """
    is_followed = step is PodStep.FOLLOW and observed.remote is None
    return is_followed and objects.is_finished(observed.shadow or {})


def _orphan(observed: PodSnapshot) -> PodStep:
    shadow = observed.mine(observed.shadow)
    if shadow is None or objects.is_terminating(shadow):
        return PodStep.REST
    return PodStep.DELETE_SHADOW


def _finished(observed: PodSnapshot, local: Object) -> PodStep:
    """Terminal is final on both sides. Source: docs/parity.md F-23."""
    shadow = observed.mine(observed.shadow)
    if shadow is None or objects.is_terminating(shadow) or not shadowpod.is_for(shadow, local):
        return PodStep.REST
    is_known = objects.is_finished(shadow) or keys.FINISHED in objects.annotations(shadow)
    return PodStep.REST if is_known else PodStep.CONFIRM_END


def _ending(observed: PodSnapshot) -> PodStep:
    shadow = observed.mine(observed.shadow)
    if shadow is None and observed.mine(observed.remote) is None:
        return PodStep.DELETE_LOCAL
    if shadow is None or objects.is_terminating(shadow):
        return PodStep.WATCH_END
    return PodStep.END_WITHIN if _is_hurried(observed, shadow) else PodStep.DELETE_SHADOW


def _is_hurried(observed: PodSnapshot, shadow: Object) -> bool:
    """Whether the Pod of ``shadow`` runs, and is to end in another time than its spec says."""
    local, remote = observed.local, observed.mine(observed.remote)
    if local is None or remote is None:
        return False
    is_of_it = objects.annotations(shadow).get(keys.LOCAL_POD_UID) == objects.uid(local)
    return is_of_it and not is_over(remote) and shadowpod.hurry_s(local) is not None


def is_over(remote: Object) -> bool:
    """Whether the Pod of the provider has ended, or is about to."""
    return objects.is_terminating(remote) or objects.is_finished(remote)


def _living(observed: PodSnapshot, local: Object) -> PodStep:
    twins = [twin for twin in (observed.shadow, observed.remote) if twin is not None]
    is_old = any(not shadowpod.is_for(twin, local) for twin in twins)
    if observed.shadow is None:
        return PodStep.WAIT if is_old else PodStep.OFFLOAD
    if objects.is_terminating(observed.shadow):
        return PodStep.WAIT
    if not shadowpod.is_for(observed.shadow, local):
        return PodStep.DELETE_SHADOW
    return PodStep.WAIT if is_old else PodStep.FOLLOW


# The namespace is not offloaded, or no longer -----------------------------------------------------


class FallBack(Enum):
    """What becomes of a pod on this node whose namespace is not offloaded now."""

    REST = auto()
    LET_GO = auto()
    """It is ending: its name goes once nothing of it can be left on the provider."""
    BE_PATIENT = auto()
    """It is young, and its namespace's entry may only be on its way."""
    ABORT = auto()
    """It has failed: its owner makes another, to be placed again."""
    ABORT_UNLESS_WANTED = auto()
    """As ``ABORT``, unless somebody wants the namespace offloaded, if not (yet) to this cluster."""
    BACK_OFF = auto()
    """It stays Pending and says why."""


def fall_back(local: Object, state: MappingState, now: datetime) -> FallBack:
    """Return what becomes of ``local``; only a namespace that was withdrawn ends a pod.

    Source: docs/parity.md § 5.5.4; F-21, F-22.
    """
    if objects.is_terminating(local):
        return FallBack.LET_GO
    if objects.is_finished(local):
        return FallBack.REST
    is_withdrawn = state is MappingState.WITHDRAWN
    if status.has_started(local) or is_replaced(local):
        return FallBack.ABORT if is_withdrawn else FallBack.REST
    if patience_s(local, now) > 0:
        return FallBack.BE_PATIENT
    is_stranded = is_withdrawn and is_judged_anew(local)
    return FallBack.ABORT_UNLESS_WANTED if is_stranded else FallBack.BACK_OFF


def patience_s(local: Object, now: datetime) -> float:
    """Return the seconds until a pod that never started is decided; not above 0 when it is."""
    created = local["metadata"].get("creationTimestamp")
    if not created:
        return 0.0
    return (datetime.fromisoformat(created) + PATIENCE - now).total_seconds()


def is_overdue(local: Object, now: datetime) -> bool:
    """Whether a pod that is being deleted should have ended a while ago."""
    ends = datetime.fromisoformat(local["metadata"]["deletionTimestamp"])
    return now > ends + OVERDUE


def is_labelled(local: Object) -> bool:
    return objects.labels(local).get(keys.SHADOW_POD_LABEL) == "true"


def is_replaced(local: Object) -> bool:
    """Whether it was offloaded and its owner makes another one, to be placed again.

    Left Pending on this node it would keep a Deployment from ever being whole again.
    """
    return is_labelled(local) and _is_made_anew(local)


def is_judged_anew(local: Object) -> bool:
    """Whether the webhook let it onto virtual nodes, and will admit another that its owner makes.

    It was on its way when its namespace was unoffloaded. One that tolerates virtual nodes by itself
    would only come back here, for ever.
    """
    judged = PlacementAnnotation.of(local)
    return judged is not None and TOLERATION in judged.added and _is_made_anew(local)


def _is_made_anew(local: Object) -> bool:
    """Whether its owner makes another; that of a DaemonSet would be on this very node again."""
    owner = objects.controller_of(local)
    return owner is not None and owner.get("kind") != "DaemonSet"


# Which pods a virtual node rejects as a kubelet does ----------------------------------------------
# A pod that came with ``spec.nodeName`` counts against the node for all users while it is
# Pending. One that a scheduler bound has the condition PodScheduled, which its binding sets: it
# waits. Source: docs/decisions/0013 (8); Kubernetes, pkg/kubelet/lifecycle, predicates.

DISABLED: Final = "OffloadingDisabled"
OUT_OF: Final = "OutOf"
_SCHEDULED: Final = "PodScheduled"
_PODS: Final = "pods"


class Rejection(NamedTuple):
    """Why a pod has failed before it began."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """What a pod on the node asks for; those that came first have it."""

    age: tuple[str, str]
    amounts: Mapping[str, Quantity]
    is_held_back: bool = False
    """Whether a DaemonSet keeps it here and it does not run, so that the node offers it beside."""


def claim(pod: Object) -> NodeClaim | None:
    """Return what ``pod`` takes of its node; None for one that has ended."""
    if objects.is_finished(pod):
        return None
    amounts = resources.usage_of_stored(pod["spec"])
    is_waiting = objects.status(pod).get("reason") == status.OFFLOADING_BACK_OFF
    is_held_back = is_waiting and bool(placement.is_pinned(pod))
    return NodeClaim(_age(pod), {**amounts, _PODS: resources.parse_quantity(1)}, is_held_back)


def held_back(claims: Iterable[NodeClaim | None]) -> Resources:
    """Return what those of ``claims`` ask for that are held back, together."""
    return resources.total(one.amounts for one in claims if one and one.is_held_back)


def came_by_name(local: Object) -> bool:
    """Whether nobody scheduled the pod, and nothing was made of it yet."""
    listed = objects.status(local).get("conditions")
    is_new = not (status.has_started(local) or is_labelled(local))
    return is_new and not objects.is_condition_true(listed, _SCHEDULED)


def lacking(local: Object, node: Object | None, others: Iterable[NodeClaim]) -> str:
    """Return the resource of which ``node`` has not enough beside what older pods ask for.

    "" if it has, or where nobody says what it has.
    """
    allocatable: Mapping[str, Any] = objects.status(node or {}).get("allocatable") or {}
    own = claim(local)
    if not allocatable or own is None:
        return ""
    older = [one.amounts for one in others if one.age < own.age]
    free = resources.less(resources.readable(allocatable), resources.total(older))
    wanted = {
        name: amount
        for name, amount in own.amounts.items()
        if amount and (name != _PODS or name in allocatable)
    }
    return next(iter(sorted(resources.lacking(wanted, free))), "")


def rejection(local: Object, disabled: str, missing: str, now: datetime) -> Rejection | None:
    """Return why ``local`` is rejected, None if it is not, or not yet.

    ``disabled`` says why its namespace does not come here, ``missing`` what the node lacks.
    """
    if not came_by_name(local):
        return None
    if missing:
        said = f"the node has not enough {missing} beside the pods that are older"
        return Rejection(f"{OUT_OF}{missing}", f"Pod was rejected: {said}: let it be scheduled")
    if disabled and patience_s(local, now) <= 0:
        return Rejection(DISABLED, f"Pod was rejected: {disabled}")
    return None


def _age(pod: Object) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp") or ""), objects.uid(pod)


# What the provider says about a pod with its ShadowPod and its Pod --------------------------------
# Source: docs/parity.md § 4.10, 5.5.5.


def remote_refusal(shadow: Object, type_: str = "Admitted") -> str:
    """Return why the provider does not admit the pod, or a change of it; "" if it does."""
    found = objects.find_condition(objects.status(shadow).get("conditions"), type_) or {}
    if found.get("status") != "False":
        return ""
    return str(found.get("message") or found.get("reason") or "refused")


def remote_deferral(shadow: Object) -> str:
    """Return why the pod may not grow yet; "" if nothing of it waits for room."""
    listed = objects.status(shadow).get("conditions")
    found = objects.find_condition(listed, keys.UPDATED_CONDITION) or {}
    waits = found.get("status") == "False" and found.get("reason") == quotas.EXCEEDED
    return str(found.get("message") or "") if waits else ""


def is_remade_remotely(shadow: Object, remote: Object) -> bool:
    """Whether the provider ends the pod to make it again: how its containers end then is no end.

    A kubelet reports Succeeded or Failed of any pod that is deleted. Work that was finished
    before is finished for the ShadowPod too.
    """
    ended = objects.is_terminating(remote) and objects.is_finished(remote)
    return ended and not objects.is_finished(shadow)


def has_ended_remotely(shadow: Object, remote: Object | None) -> bool:
    """Whether the pod has ended on the provider, and is not made again there."""
    if objects.is_finished(shadow):
        return True
    return (
        remote is not None
        and objects.is_finished(remote)
        and not is_remade_remotely(shadow, remote)
    )


class RemoteState(NamedTuple):
    """What is told of a pod whose ShadowPod is there."""

    refusal: str
    """Why the provider does not admit it, "" if it does."""
    tokens: list[Token]
    """Those that it mounts; none once it has ended on the provider."""
    is_awaited: bool
    """Whether nothing came of the ShadowPod yet: neither a Pod nor an end."""
    status: Object
    is_labelled: bool
    """Whether a write said before whose pod it is."""


def remote_state(
    local: Object, shadow: Object, remote: Object | None, server: ApiServer, home: LocalContext
) -> RemoteState:
    has_begun = remote is not None or status.has_started(local)
    return RemoteState(
        remote_refusal(shadow),
        [] if has_ended_remotely(shadow, remote) else apiserver.tokens(local, server),
        not (has_begun or objects.is_finished(shadow)),
        remote_status(local, shadow, remote, home),
        is_labelled(local),
    )


def remote_status(
    local: Object, shadow: Object, remote: Object | None, home: LocalContext
) -> Object:
    """Return the status of ``local`` by what there is on the provider."""
    phase = objects.status(shadow).get("phase", "")
    if remote is not None:
        home = status.with_note(home, local, remote)
        if is_remade_remotely(shadow, remote):
            return status.ending(local, remote, home)
        return status.mirrored(local, remote, home, remote_deferral(shadow))
    if phase in objects.FINAL_PHASES:
        return status.vanished(local, phase, home.now)
    return status.accepted(local, home)


def is_counted(local: Object) -> bool:
    always = local["spec"].get("restartPolicy", "Always") == "Always"
    return not always or bool(objects.finalizers(local))


# Whether the namespace of a pod lets it run on this virtual node ----------------------------------
# Admission says it earlier, where it is asked; this holds however the pod came to be bound.
# Source: docs/parity.md § 3.1; SEC-D5.

_VIRTUAL: Object = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}


def forbids(local: Object, offloading: Object | None, node: Object | None) -> str:
    """Return why ``offloading``, that of its namespace, keeps ``local`` off ``node``; "" if not.

    Who owns the pod is not asked, nor what it says of itself, but for the runtime class: its pods
    belong on virtual nodes under every strategy. Without ``offloading`` another rule decides; where
    ``node`` is not known, only the strategy is compared.
    """
    if offloading is None or objects.is_terminating(offloading):
        return ""
    name = f"namespaceoffloading {objects.key_of(offloading)}"
    try:
        asked = NamespaceOffloading.parse(offloading)
    except ValueError as error:
        return f"{name} cannot be read: {error}: correct it"
    if placement.is_forced(local):
        asked = replace(asked, strategy=PodOffloadingStrategy.REMOTE)
    if node is None:
        asked = replace(asked, cluster_selector=())
    obstacles = placement.forbidden(asked, node or _VIRTUAL)
    if not obstacles:
        return ""
    return f"{name}: {obstacles[0].text}: change it, or delete the pod and let it be placed again"
