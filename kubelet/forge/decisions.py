"""What to do next about one pod, given what is there on both sides.

Source: docs/parity.md § 5.5.1, the table, in its order; F-18, F-20.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from apis import keys, objects
from apis.objects import Object
from apis.offloading import MappedNamespace
from apis.placement import TOLERATION, PlacementAnnotation
from kubelet.forge import shadowpod, status
from kubelet.forge.mapping import MappingState

PATIENCE: Final = timedelta(seconds=10)
"""A namespace is offloaded that long after its first pods: before, they are not judged."""
OVERDUE: Final = timedelta(seconds=60)
"""So long after its grace a pod that ends is waited for without a word."""


class Step(Enum):
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


DESTRUCTIVE = frozenset({Step.DELETE_SHADOW, Step.DELETE_LOCAL})


@dataclass(frozen=True)
class Observed:
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
        """Whether an object stands there that no reflection of this pair made."""
        twins = [twin for twin in (self.shadow, self.remote) if twin is not None]
        return any(not self.pair.reflects(twin) for twin in twins)

    def is_shared(self) -> bool:
        """Whether another virtual node of the same pair made what stands there."""
        twins = [twin for twin in (self.shadow, self.remote) if twin is not None]
        return any(not self._names_node(twin) for twin in twins)

    def _names_node(self, twin: Object | None) -> bool:
        return twin is not None and objects.labels(twin).get(keys.NODE_NAME) == self.node


def decide(observed: Observed) -> Step:
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
        return Step.REFUSE
    return Step.WAIT if observed.is_shared() else _living(observed, observed.local)


def rests_on_absence(step: Step, observed: Observed) -> bool:
    """Whether ``step`` writes for ever what a cache only does not show.

    That is an end of which the ShadowPod alone tells. What deletes rests on what was seen to go,
    or on live reads (``DESTRUCTIVE``); a create needs neither, for the server tells of a taken
    name. Source: docs/parity.md C-22, C-30.
    """
    is_followed = step is Step.FOLLOW and observed.remote is None
    return is_followed and objects.is_finished(observed.shadow or {})


def _orphan(observed: Observed) -> Step:
    shadow = observed.mine(observed.shadow)
    if shadow is None or objects.is_terminating(shadow):
        return Step.REST
    return Step.DELETE_SHADOW


def _finished(observed: Observed, local: Object) -> Step:
    """Terminal is final on both sides. Source: docs/parity.md F-23."""
    shadow = observed.mine(observed.shadow)
    if shadow is None or objects.is_terminating(shadow) or not shadowpod.is_for(shadow, local):
        return Step.REST
    is_known = objects.is_finished(shadow) or keys.FINISHED in objects.annotations(shadow)
    return Step.REST if is_known else Step.CONFIRM_END


def _ending(observed: Observed) -> Step:
    shadow = observed.mine(observed.shadow)
    if shadow is None and observed.mine(observed.remote) is None:
        return Step.DELETE_LOCAL
    if shadow is None or objects.is_terminating(shadow):
        return Step.WATCH_END
    return Step.END_WITHIN if _is_hurried(observed, shadow) else Step.DELETE_SHADOW


def _is_hurried(observed: Observed, shadow: Object) -> bool:
    """Whether the Pod of ``shadow`` runs, and is to end in another time than its spec says."""
    local, remote = observed.local, observed.mine(observed.remote)
    if local is None or remote is None:
        return False
    is_of_it = objects.annotations(shadow).get(keys.LOCAL_POD_UID) == objects.uid(local)
    return is_of_it and not is_over(remote) and shadowpod.hurry_s(local) is not None


def is_over(remote: Object) -> bool:
    """Whether the Pod of the provider has ended, or is about to."""
    return objects.is_terminating(remote) or objects.is_finished(remote)


def _living(observed: Observed, local: Object) -> Step:
    twins = [twin for twin in (observed.shadow, observed.remote) if twin is not None]
    is_old = any(not shadowpod.is_for(twin, local) for twin in twins)
    if observed.shadow is None:
        return Step.WAIT if is_old else Step.OFFLOAD
    if objects.is_terminating(observed.shadow):
        return Step.WAIT
    if not shadowpod.is_for(observed.shadow, local):
        return Step.DELETE_SHADOW
    return Step.WAIT if is_old else Step.FOLLOW


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
    """Return the seconds until a pod that never started is judged; not above 0 when it is."""
    created = local["metadata"].get("creationTimestamp")
    if not created:
        return 0.0
    return (datetime.fromisoformat(created) + PATIENCE - now).total_seconds()


def has_ended(local: Object) -> bool:
    """Whether it has ended, and stays."""
    return objects.is_finished(local) and not objects.is_terminating(local)


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
    """Whether the webhook let it onto virtual nodes, and will judge another that its owner makes.

    It was on its way when its namespace was unoffloaded. One that tolerates virtual nodes by itself
    would only come back here, for ever.
    """
    judged = PlacementAnnotation.of(local)
    return judged is not None and TOLERATION in judged.added and _is_made_anew(local)


def _is_made_anew(local: Object) -> bool:
    """Whether its owner makes another; that of a DaemonSet would be on this very node again."""
    owner = objects.controller_of(local)
    return owner is not None and owner.get("kind") != "DaemonSet"
