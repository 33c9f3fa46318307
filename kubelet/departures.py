"""What was seen to go, by DELETED events: what rests on that needs no read of a server.

What a list only lacks was not seen. Source: docs/parity.md C-22; SEC-B9; F-17.
"""

from typing import Final, NamedTuple, TypeVar

from apis import keys, objects
from apis.objects import Key, Object
from kube.informer import Change
from kube.slim import Packed
from kubelet.pods import shadowpod, status

K = TypeVar("K")
T = TypeVar("T")
P = TypeVar("P", bound=Packed)

MOST: Final = 4096
"""More than go at once; of what is forgotten the servers are asked."""
MOST_ENDS: Final = 512
"""Whole Pods that had ended: a pod that goes is looked at soon after them."""


class Departures:
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
            end = _End(_uid_of(last), status.status_of(last)["phase"], whole)
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
        """Whether that very pod was seen to go."""
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
        """Forget the local pod."""
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
    while len(notes) > (most or MOST):
        notes.pop(next(iter(notes)))
