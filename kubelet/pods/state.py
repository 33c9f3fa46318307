"""What is known of the pods of a virtual node: one record of each, evidence of deletions, an index.

Source: docs/parity.md C-22; SEC-B9; F-17.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar

import msgspec

from apis import keys, objects
from apis.networks import PodNetworks
from apis.objects import Key, Kind, Object
from kube.clock import Deadline
from kube.informer import Change, Informer
from kube.ratelimit import Buckets
from kube.slim import Packed
from kubelet.api.usage import Measured
from kubelet.pods import decide, references, shadowpod
from kubelet.pods.apiserver import Issued, Token
from kubelet.pods.decide import NodeClaim
from kubelet.pods.mapping import NamespaceMapping
from kubelet.pods.references import FIRST_PAUSE_S, MAX_PAUSE_S, PATIENCE_S


class OffloadedNamespaces(Protocol):
    """Where the pods of a namespace go."""

    async def mapping(self, namespace: str) -> NamespaceMapping:
        """Return it; that a namespace is not offloaded is always the server's own word."""
        ...

    def is_synced(self, namespace: str) -> bool:
        """Whether all that the provider has of the namespace has been seen."""
        ...

    def withheld(self, namespace: str) -> str:
        """Return which right in the namespace's twin is missing, "" if none is."""
        ...


class Recorder(Protocol):
    """Tells users."""

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None: ...


@dataclass(frozen=True)
class VirtualNodeContext:
    """The virtual node whose pods these are; ``options`` may change with its VirtualNode."""

    name: str
    host_ip: str
    options: Callable[[], shadowpod.Options]
    is_provider_silent: Callable[[], bool] = lambda: False
    forbids: Callable[[Object], str] = lambda _local: ""
    """Why a pod's namespace does not let it run here, "" if it does."""
    lacks: Callable[[Object], str] = lambda _local: ""
    """Of which resource the node has not enough for a pod beside older ones, "" of none."""
    policy: references.Policy = lambda _kind, _namespace: None
    """By which policy what a pod reads is reflected."""
    addresses: Callable[[], PodNetworks | None] = PodNetworks
    """By which addresses its pods are reached now; None: nobody is told any."""
    offloading: Callable[[str], Object | None] = lambda _namespace: None
    """The NamespaceOffloading of a namespace."""


# What caches keep of a pod of the node, and what it asks for beside others ------------------------


class NodePod(Packed, gc=False, frozen=True):
    """A pod bound to the node; its claim is kept, so that nobody decodes all pods for one."""

    claim: NodeClaim | None = None
    """What it takes of the node; None of one that has ended."""
    measured: Measured | None = None
    """What its metrics need, of one that is kept in outline."""

    @classmethod
    def cached(cls, obj: Object) -> Self:
        made = msgspec.structs.replace(super().cached(obj), claim=decide.claim(obj))
        if not made.is_outline:
            return made
        return msgspec.structs.replace(made, measured=Measured.bounded(obj))


# What a virtual kubelet remembers of each pod: one record, which goes with the pod ----------------
# It is that of one UID. A pod of the same name that is made again inherits nothing.

REFUSED_S: Final = 1.0
"""The first pause of a pod that is refused."""
TAKEN_S: Final = 0.1
"""The first pause of a pod whose name is taken by what goes just now."""
LINGER_S: Final = 2.0
"""What a pod that ends says for that long is told; a kubelet takes as long to let go of it."""
MAX_LINGER_S: Final = 10.0
"""After what each change is told, of a pod that takes its time."""
CONFIRM_S: Final = 2.0
"""A provider sees by then itself that a pod has ended at the consumer."""


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
class PodState:
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

    owed_s: float | None = None
    """In how many seconds to look again, since a status waits to be written."""

    def age_s(self, now: float) -> float:
        """Return for how long the provider has its ShadowPod: since ``now``, if nobody knows."""
        self.begun = now if self.begun is None else self.begun
        return now - self.begun

    def owe(self, in_s: float) -> None:
        """Take note that a status waits to be written, which may be in ``in_s``."""
        self.owed_s = in_s if self.owed_s is None else min(in_s, self.owed_s)

    def hold(self, now: float) -> float | None:
        """Return how long a pod goes on waiting for what it reads; None after ``PATIENCE_S``."""
        if self.awaits_since is None:
            self.awaits_since = now
        if now - self.awaits_since >= PATIENCE_S:
            return None
        pause_s, self.awaits_s = self.awaits_s, min(self.awaits_s * 2, MAX_PAUSE_S)
        return pause_s

    def lingers_s(self, remote: Object, now: float) -> float:
        """Return the seconds until what ``remote`` says of its end is worth a write.

        Most pods that end are gone before that.
        """
        version = str(remote["metadata"]["resourceVersion"])
        known = self.lingering or Lingering(now, now, version)
        if known.version != version:
            known = replace(known, changed=now, version=version)
        self.lingering = known
        left_s = LINGER_S - (now - known.changed)
        return min(left_s, MAX_LINGER_S - (now - known.began))

    def confirms_s(self, now: float) -> float:
        """Return the seconds until the provider should have seen the end of the pod itself."""
        self.ended = now if self.ended is None else self.ended
        return CONFIRM_S - (now - self.ended)


class PodStates:
    """The records of all pods of the node."""

    def __init__(self) -> None:
        self._of: dict[Key, PodState] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, local: Object) -> PodState:
        """Return the record of that very pod; what a namesake left is dropped."""
        key, uid = objects.key_of(local), objects.uid(local)
        found = self._of.get(key)
        if found is None or found.uid != uid:
            found = self._of[key] = PodState(uid)
        return found

    def forget(self, key: Key) -> None:
        self._of.pop(key, None)

    def sooner(self, key: Key, again_s: float | None) -> float | None:
        """Return in how many seconds to look again: what waits to be told may be sooner."""
        found = self._of.get(key)
        if found is None or (owed_s := found.owed_s) is None:
            return again_s
        found.owed_s = None
        return min(again_s or owed_s, owed_s)

    def unanswered(self) -> int:
        """Return how many pods the provider took, and made nothing of."""
        return sum(one.is_unanswered for one in self._of.values())


# What was seen to go, by DELETED events: what rests on that needs no read of a server -------------
# What a list only lacks was not seen. Source: docs/parity.md C-22; SEC-B9; F-17.

K = TypeVar("K")
T = TypeVar("T")
P = TypeVar("P", bound=Packed)

MOST_DELETED: Final = 4096
"""More than go at once; of what is forgotten the servers are asked."""
MOST_ENDS: Final = 512
"""Whole Pods that had ended: a pod that goes is looked at soon after them."""


class DeletionEvidence:
    """Remembers which local pods went, and which of their twins, in which order."""

    def __init__(self) -> None:
        self._asked: dict[Key, str] = {}
        self._locals: dict[Key, str] = {}
        self._hurries: dict[Key, tuple[str, int]] = {}
        self._shadows: dict[Key, _Gone] = {}
        self._pods: dict[Key, _Gone] = {}
        self._hurried: dict[str, float] = {}
        self._ends: dict[Key, _End] = {}

    def on_local(self, change: Change[P]) -> None:
        """Take note of a pod on this node: which node it is on never changes."""
        if change.new is None and change.was_seen and change.old is not None:
            uid = change.old.metadata.uid
            _note(self._locals, change.key, uid)
            hurry_s = shadowpod.hurry_s(change.old.whole())
            if hurry_s is not None:
                _note(self._hurries, change.key, (uid, hurry_s))

    def asked(self, twin: Key, uid: str) -> None:
        """Take note that the ShadowPod of the local pod with that UID was asked to go."""
        _note(self._asked, twin, uid)

    def on_shadow(self, change: Change[Packed]) -> None:
        """Take note of a ShadowPod that went: surely if it was asked to, and not by its labels."""
        if pod := self._pods.get(change.key):
            self._pods[change.key] = _Gone(pod.uid, is_sure=False)
        if last := _departed(change):
            gone = _uid_of(last)
            is_sure = self._asked.get(change.key) == gone
            _note(self._shadows, change.key, _Gone(gone, is_sure))
            self._note_end(change.key, last)
        else:
            self._shadows.pop(change.key, None)

    def on_remote(self, change: Change[Packed]) -> None:
        """Take note of a Pod that went: surely for good if its ShadowPod went before."""
        if last := _departed(change):
            gone = _uid_of(last)
            is_sure = self._shadows.get(change.key) == _Gone(gone, is_sure=True)
            _note(self._pods, change.key, _Gone(gone, is_sure))
            self._note_end(change.key, last, change.old)
        else:
            self._pods.pop(change.key, None)

    def _note_end(self, twin: Key, last: Object, pod: Packed | None = None) -> None:
        if objects.is_finished(last):
            whole = None if pod is None or pod.is_outline else pod
            end = _End(_uid_of(last), objects.status(last)["phase"], whole)
            _note(self._ends, twin, end, most=MOST_ENDS)

    def end_of(self, twin: Key, uid: str) -> tuple[str, Object | None]:
        """Return how the twins of that local pod had ended when they went, and its Pod there.

        "" and None if they had not, or were not seen to.
        """
        end = self._ends.get(twin)
        if end is None or end.uid != uid:
            return "", None
        return end.phase, end.pod.whole() if end.pod else None

    def is_local_gone(self, key: Key, uid: str) -> bool:
        return bool(uid) and self._locals.get(key) == uid

    def hurry_s(self, key: Key, uid: str) -> int | None:
        """Return in how many seconds that pod, which went first, was to end: it was forced.

        None if in the time of its spec, or if it was not seen to go.
        """
        gone, hurry_s = self._hurries.get(key, ("", None))
        return hurry_s if uid and gone == uid else None

    def hurried_since(self, shadow_uid: str, now: float) -> float:
        """Return since when that ShadowPod is hurried: since ``now``, if nobody asked before.

        Units: seconds of a monotonic clock.
        """
        if shadow_uid not in self._hurried:
            _note(self._hurried, shadow_uid, now)
        return self._hurried[shadow_uid]

    def are_twins_gone(self, twin: Key, uid: str, *, is_ending: bool = False) -> bool:
        """Whether both twins of the local pod with that UID were seen to go, for good.

        In a namespace that ``is_ending`` whatever goes does so for good, in whatever order.
        """
        seen = self._shadows.get(twin), self._pods.get(twin)
        return bool(uid) and all(
            one is not None and one.uid == uid and (one.is_sure or is_ending) for one in seen
        )

    def forget(self, key: Key) -> None:
        self._locals.pop(key, None)
        self._hurries.pop(key, None)


class _Gone(NamedTuple):
    """The UID of the local pod whose twin went, and whether no other can follow."""

    uid: str
    is_sure: bool


class _End(NamedTuple):
    """The UID of the local pod whose twin went, in which final phase, and the Pod itself."""

    uid: str
    phase: str
    pod: Packed | None


def _departed(change: Change[Packed]) -> Object | None:
    """Return the twin that was seen to go, None if it was not, or is nobody's."""
    if change.new is not None or not change.was_seen or change.old is None:
        return None
    last = change.old.whole()
    return last if _uid_of(last) else None


def _uid_of(twin: Object) -> str:
    """Return the UID of the local pod that it stands for."""
    return objects.annotations(twin).get(keys.LOCAL_POD_UID, "")


def _note(notes: dict[K, T], key: K, what: T, *, most: int = 0) -> None:
    notes[key] = what
    while len(notes) > (most or MOST_DELETED):
        notes.pop(next(iter(notes)))


# The pods of this node by namespace, so that nobody looks through all of them for a few -----------


class PodsByNamespace:
    """The keys of what ``pods`` has; it changes as that does."""

    def __init__(self, pods: Informer[Any]) -> None:
        self._keys: dict[str, dict[Key, None]] = {}
        self._handlers: list[Callable[[], None]] = []
        self.may_have = pods.may_have
        """Whether a pod is here, as far as is known."""
        pods.subscribe(self._on_pod)

    def on_namespace(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` whenever a namespace gets its first pod here, or loses its last."""
        self._handlers.append(handler)

    def of(self, namespace: str) -> Iterable[Key]:
        return list(self._keys.get(namespace, ()))

    def all(self) -> Iterable[Key]:
        return [key for keys in self._keys.values() for key in keys]

    def namespaces(self) -> Iterable[str]:
        return list(self._keys)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._keys

    def _on_pod(self, change: Change[Any]) -> None:
        namespace = change.key.namespace
        was_there = namespace in self._keys
        if change.new is not None:
            self._keys.setdefault(namespace, {})[change.key] = None
        elif was_there:
            self._keys[namespace].pop(change.key, None)
            if not self._keys[namespace]:
                del self._keys[namespace]
        if was_there != (namespace in self._keys):
            for handler in self._handlers:
                handler()
