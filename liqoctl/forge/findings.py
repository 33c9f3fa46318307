"""What ``liqoctl why`` knows, and what it makes of that. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from apis.objects import Object
from liqoctl.forge.reflections import Line


class Outcome(Enum):
    """What the verdict comes to, in a word that scripts can rely on."""

    RUNS = "Runs"
    STARTS = "Starts"
    WAITS = "Waits"
    REFUSED = "Refused"
    ENDS = "Ends"
    ENDED = "Ended"
    OFFLOADED = "Offloaded"
    AT_HOME = "AtHome"
    REFUSES = "Refuses"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Finding:
    """A verdict: ``clause`` goes on after the name of the subject; ``cures`` say what to do."""

    outcome: Outcome
    clause: str
    cures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What the cluster said about one namespace, and perhaps about one pod."""

    namespace: str
    about: Object = field(default_factory=lambda: {"metadata": {}})
    """The Namespace itself."""
    offloading: Object | None = None
    is_offloading_known: bool = True
    """Whether None means that there is no NamespaceOffloading."""
    nodes: Sequence[Object] | None = None
    """None: who asks may not list them."""
    pod: Object | None = None
    events: Sequence[Object] = ()
    """Of the pod, or of what creates pods in the namespace."""
    claims: Sequence[Object] = ()
    """That the pod mounts and that are not bound; a name without a UID is of one that is not there.
    """
    claim_events: Sequence[Object] = ()
    """About these."""
    staying: Sequence[Line] = ()
    """What the pod mentions and the cluster of its virtual node has not."""
    pending: Sequence[Object] = ()
    """Pods of the namespace that wait; asked for namespaces only."""
    notes: Sequence[str] = ()
    """What could not be found out."""
