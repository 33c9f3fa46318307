"""Of which Pod of the provider a local pod tells, and how often the provider made it again.

Both are noted on the local pod, in the write of the status that counts them. So anybody who comes
next goes on from there, at whatever moment the one before it was killed.

Source: docs/parity.md § 5.5.5.
"""

from typing import Final, NamedTuple

from apis import keys, objects, texts
from apis.objects import Object
from kubelet.forge import status

_UID_LIMIT: Final = 64
_MOST: Final = 2**31 - 1


class _Life(NamedTuple):
    """``uid`` is that of the Pod on the provider, ``restarts`` how many there were before it."""

    uid: str
    restarts: int = 0


def restarts(local: Object, remote: Object) -> int:
    """Return how often the provider made the pod again, up to ``remote``.

    A Pod that went before it was told to run does not count. Where nothing is noted, as an older
    virtual kubelet wrote the status, it is what ``local`` counts more than ``remote``.
    """
    return _of(local, remote).restarts


def note(local: Object, remote: Object | None) -> dict[str, str]:
    """Return the annotation to write with a status that tells of ``remote``; {} for none."""
    if remote is None:
        return {}
    uid, count = _of(local, remote)
    wanted = {keys.REMOTE_POD: f"{uid} {count}"}
    return {} if objects.annotations(local).items() >= wanted.items() else wanted


def _of(local: Object, remote: Object) -> _Life:
    uid = texts.clamp(objects.uid(remote))[:_UID_LIMIT]
    if not status.has_started(local):
        return _Life(uid)
    noted = _noted(local)
    if noted is None:
        return _Life(uid, max(0, status.restart_count(local) - status.restart_count(remote)))
    return noted if noted.uid == uid else _Life(uid, min(noted.restarts + 1, _MOST))


def _noted(local: Object) -> _Life | None:
    uid, _, count = objects.annotations(local).get(keys.REMOTE_POD, "").rpartition(" ")
    is_count = count.isascii() and count.isdecimal() and len(count) <= len(str(_MOST))
    return _Life(uid, min(int(count), _MOST)) if uid and is_count else None
