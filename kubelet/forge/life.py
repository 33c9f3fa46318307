"""Of which Pod of the provider a local pod tells, and how often the provider made it again.

Both are noted on the local pod, in the write of the status that counts them, and whether the Pod
had the condition ``DisruptionTarget``: it may be set here, too, and only the provider's goes with
its Pod. So anybody who comes next goes on from there, at whatever moment the one before it was
killed.

Source: docs/parity.md § 5.5.5.
"""

from typing import Final, NamedTuple

from apis import keys, objects, texts
from apis.objects import Object
from kubelet.forge import conditions, status

_UID_LIMIT: Final = 64
_DISRUPTED: Final = f" {conditions.DISRUPTION}"
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
    mark = _DISRUPTED if conditions.says(remote, conditions.DISRUPTION) else ""
    wanted = {keys.REMOTE_POD: f"{uid} {count}{mark}"}
    return {} if objects.annotations(local).items() >= wanted.items() else wanted


def was_disrupted(local: Object) -> bool:
    """Whether the provider said ``DisruptionTarget`` of the Pod that ``local`` tells of."""
    return objects.annotations(local).get(keys.REMOTE_POD, "").endswith(_DISRUPTED)


def _of(local: Object, remote: Object) -> _Life:
    uid = texts.clamp(objects.uid(remote))[:_UID_LIMIT]
    if not status.has_started(local):
        return _Life(uid)
    noted = _noted(local)
    if noted is None:
        return _Life(uid, max(0, status.restart_count(local) - status.restart_count(remote)))
    return noted if noted.uid == uid else _Life(uid, min(noted.restarts + 1, _MOST))


def _noted(local: Object) -> _Life | None:
    note = objects.annotations(local).get(keys.REMOTE_POD, "")
    uid, _, count = note.removesuffix(_DISRUPTED).rpartition(" ")
    is_count = count.isascii() and count.isdecimal() and len(count) <= len(str(_MOST))
    return _Life(uid, min(int(count), _MOST)) if uid and is_count else None
