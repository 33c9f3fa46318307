"""What a virtual kubelet remembers of each pod: one record, which goes with the pod.

It is that of one UID. A pod of the same name that is made again inherits nothing.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apis import objects
from apis.objects import Key, Object
from kube.clock import Deadline
from kube.ratelimit import Buckets
from kubelet.pods.apiserver import Issued, Token
from kubelet.references import FIRST_PAUSE_S, MAX_PAUSE_S, PATIENCE_S

REFUSED_S: Final = 1.0
"""The first pause of a pod that is refused."""
TAKEN_S: Final = 0.1
"""The first pause of a pod whose name is taken by what goes just now."""


@dataclass(frozen=True)
class Lingering:
    """Of a pod that ends: since when, and since when the remote one is of this version."""

    began: float
    changed: float
    version: str


@dataclass(frozen=True)
class Due:
    """When the tokens of a pod are looked at again."""

    at: Deadline
    renewal: Deadline | None = None
    """When they are asked for again, whatever the provider shows; None as long as it is unknown."""
    remote_uid: str = ""
    """Of the Pod on the provider: one that is made again mounts them again."""
    failures: int = 0


class Granted(NamedTuple):
    """A token that was issued, and when it is asked for again."""

    issued: Issued
    renewal: Deadline


@dataclass(slots=True)
class Writes:
    """How often the status of a pod was written."""

    pace: Buckets
    free: Buckets
    """What counts for this pod alone."""
    turn: float | None = None
    """When it may be written, beyond that: its turn among all pods of the provider."""


@dataclass(slots=True)
class Memory:
    """Of one pod; nothing of it is lost that a look at both clusters would not tell again.

    Units: times are of a monotonic clock, so that no clock that is set holds anything up.
    """

    uid: str
    begun: float | None = None
    """When the provider was first seen to have, or was given, its ShadowPod."""
    refused_s: float = REFUSED_S
    taken_s: float = TAKEN_S
    """The next pause while the provider says that its name is taken, and shows nothing there."""
    awaits_since: float | None = None
    """When it was first held back for what it reads."""
    awaits_s: float = FIRST_PAUSE_S
    """The next pause of that."""
    is_unanswered: bool = False
    """Whether the provider took it a minute ago, and made no Pod of it."""
    is_deleted: bool = False
    """Whether we deleted it; caches show it for a while after that."""
    lingering: Lingering | None = None
    ended: float | None = None
    """Since when it was seen to have ended here."""
    writes: Writes | None = None
    held_until: float | None = None
    """Until when a quick end is not told."""
    tokens: Due | None = None
    granted: dict[Token, Granted] = field(default_factory=dict)
    """Tokens that were issued, and do not lie on the provider yet."""
    has_left_tokens: bool = False
    """Whether it ends, and its tokens stay until its Pod on the provider goes."""
    has_no_tokens: bool = False
    """Whether it has ended, and nothing of its tokens is left on the provider."""

    def hold(self, now: float) -> float | None:
        """Return the next pause of a pod that waits for what it reads; None: it waits no more."""
        if self.awaits_since is None:
            self.awaits_since = now
        if now - self.awaits_since >= PATIENCE_S:
            return None
        pause_s, self.awaits_s = self.awaits_s, min(self.awaits_s * 2, MAX_PAUSE_S)
        return pause_s


class Memories:
    """The records of all pods of the node."""

    def __init__(self) -> None:
        self._of: dict[Key, Memory] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, local: Object) -> Memory:
        """Return the record of that very pod; what a namesake left is dropped."""
        key, uid = objects.key_of(local), objects.uid(local)
        found = self._of.get(key)
        if found is None or found.uid != uid:
            found = self._of[key] = Memory(uid)
        return found

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone."""
        self._of.pop(key, None)

    def unanswered(self) -> int:
        """Return how many pods the provider took, and made nothing of."""
        return sum(one.is_unanswered for one in self._of.values())
