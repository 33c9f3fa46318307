"""What was seen to go, by DELETED events: what rests on that needs no read of a server.

What a list only lacks was not seen. Source: controllers.md 22; security.md B9; faults.md F17.
"""

from typing import Final

from apis import keys, objects
from apis.objects import Key
from kube.informer import Change
from kube.slim import Packed

MOST: Final = 4096
"""More than go at once; of what is forgotten the servers are asked."""


class Departures:
    """Remembers which local pods went, and which of their twins, in which order."""

    def __init__(self) -> None:
        self._asked: dict[Key, str] = {}
        self._locals: dict[Key, str] = {}
        self._shadows: dict[Key, str] = {}
        self._pods: dict[Key, str] = {}

    def on_local(self, change: Change[Packed]) -> None:
        """Take note of a pod on this node: which node it is on never changes."""
        if change.new is None and change.was_seen and change.old is not None:
            _note(self._locals, change.key, change.old.metadata.uid)

    def asked(self, twin: Key, uid: str) -> None:
        """Take note that the ShadowPod of the local pod with that UID was asked to go."""
        _note(self._asked, twin, uid)

    def on_shadow(self, change: Change[Packed]) -> None:
        """Take note of a ShadowPod that went as it was asked to, and not from our selection."""
        self._pods.pop(change.key, None)
        gone = _uid_of_departed(change)
        if gone and self._asked.get(change.key) == gone:
            _note(self._shadows, change.key, gone)
        else:
            self._shadows.pop(change.key, None)

    def on_remote(self, change: Change[Packed]) -> None:
        """Take note of a Pod that goes after its ShadowPod: no other follows."""
        gone = _uid_of_departed(change)
        if gone and self._shadows.get(change.key) == gone:
            _note(self._pods, change.key, gone)
        else:
            self._pods.pop(change.key, None)

    def is_local_gone(self, key: Key, uid: str) -> bool:
        """Whether that very pod was seen to go."""
        return bool(uid) and self._locals.get(key) == uid

    def are_twins_gone(self, twin: Key, uid: str) -> bool:
        """Whether both twins of the local pod with that UID were seen to go."""
        seen = self._shadows.get(twin), self._pods.get(twin)
        return bool(uid) and seen == (uid, uid)

    def forget(self, key: Key) -> None:
        """Forget the local pod."""
        self._locals.pop(key, None)


def _uid_of_departed(change: Change[Packed]) -> str:
    """Return the UID of the local pod whose twin was seen to go; empty if it was not."""
    if change.new is not None or not change.was_seen or change.old is None:
        return ""
    return objects.annotations(change.old.whole()).get(keys.LOCAL_POD_UID, "")


def _note(notes: dict[Key, str], key: Key, uid: str) -> None:
    notes[key] = uid
    while len(notes) > MOST:
        notes.pop(next(iter(notes)))
