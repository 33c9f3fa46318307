"""What to do next about one pod, given what is there on both sides.

Source: behaviour.md 5.5.1, the table, in its order; faults.md F18, F20.
"""

from dataclasses import dataclass
from enum import Enum, auto

from apis import keys, objects
from apis.objects import Object
from apis.pairs import Pair
from kubelet.forge import shadowpod, status


class Step(Enum):
    """One step; the next event or the next look finds what is left to do."""

    REST = auto()
    """Nothing to do until something changes."""
    WAIT = auto()
    """Something of an older pod, or of another node, has to go first."""
    REFUSE = auto()
    """The name is taken on the provider by somebody else's object."""
    DELETE_SHADOW = auto()
    DELETE_LOCAL = auto()
    """Nothing of the pod is left on the provider: its name may go."""
    OFFLOAD = auto()
    FOLLOW = auto()
    """Metadata goes to the provider, status comes from it."""
    WATCH_END = auto()
    """The pod is ending: only its final status matters."""


DESTRUCTIVE = frozenset({Step.DELETE_SHADOW, Step.DELETE_LOCAL})


@dataclass(frozen=True)
class Sight:
    """What there is of one pod; ``local`` is None unless it is bound to ``node``."""

    local: Object | None
    shadow: Object | None
    remote: Object | None
    pair: Pair
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


def decide(sight: Sight) -> Step:
    """Return what to do; an object that is not ours is never touched.

    A terminating pod whose name is taken on the provider is let go: nothing of it is there.
    """
    if sight.local is None:
        return _orphan(sight)
    if objects.is_terminating(sight.local):
        return _ending(sight)
    if status.is_aborted(sight.local):
        return _orphan(sight)
    if status.is_finished(sight.local):
        return Step.REST
    if sight.is_taken():
        return Step.REFUSE
    return Step.WAIT if sight.is_shared() else _living(sight, sight.local)


def rests_on_absence(step: Step, sight: Sight) -> bool:
    """Whether ``step`` makes or writes something because a cache does not show something else.

    What deletes is decided on live reads anyway (``DESTRUCTIVE``); of all other steps the worst is
    that they have to be taken once more. Source: house.md section 3; controllers.md 30.
    """
    if step is Step.FOLLOW:  # an end that only the ShadowPod tells of is written for ever
        return sight.remote is None and status.is_finished(sight.shadow or {})
    return step is Step.OFFLOAD


def _orphan(sight: Sight) -> Step:
    shadow = sight.mine(sight.shadow)
    if shadow is None or objects.is_terminating(shadow):
        return Step.REST
    return Step.DELETE_SHADOW


def _ending(sight: Sight) -> Step:
    shadow = sight.mine(sight.shadow)
    if shadow is None and sight.mine(sight.remote) is None:
        return Step.DELETE_LOCAL
    if shadow is None or objects.is_terminating(shadow):
        return Step.WATCH_END
    return Step.DELETE_SHADOW


def _living(sight: Sight, local: Object) -> Step:
    twins = [twin for twin in (sight.shadow, sight.remote) if twin is not None]
    is_old = any(not shadowpod.is_for(twin, local) for twin in twins)
    if sight.shadow is None:
        return Step.WAIT if is_old else Step.OFFLOAD
    if objects.is_terminating(sight.shadow):
        return Step.WAIT
    if not shadowpod.is_for(sight.shadow, local):
        return Step.DELETE_SHADOW
    return Step.WAIT if is_old else Step.FOLLOW
