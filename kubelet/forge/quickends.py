"""Which ends of pods come so soon after the start that their owner's next pod has to wait.

Source: docs/parity.md H16; § 5.5.5.
"""

from typing import Final

from apis import objects
from apis.objects import Object
from kubelet.forge import conditions, status
from kubelet.pods.sanitize import LocalContext

QUICK_S: Final = 10.0


def owner_of(local: Object, wanted: Object, age_s: float) -> str:
    """Return the UID of who makes another pod at once after ``wanted``; "" if nobody does.

    Pods of Jobs, and those that nobody owns, end by their own will: they are told at once.
    """
    always = local["spec"].get("restartPolicy", "Always") == "Always"
    is_end = wanted.get("phase") == "Failed" and not objects.is_finished(local)
    owner = objects.controller_of(local)
    if owner is None or not (always and is_end and age_s < QUICK_S):
        return ""
    return str(owner.get("uid") or "")


def held(local: Object, home: LocalContext) -> Object:
    """Return the status of ``local`` while its end is not told yet: not ready, and why."""
    message = (
        "the pod failed within 10 s of its start, as others of its owner did: that is told after a"
        " pause, which doubles up to 5 min"
    )
    listed = conditions.of(local)
    if status.has_started(local):
        listed = conditions.not_ready(local, status.OFFLOADING_BACK_OFF, message, home.now)
    return status.waiting(local, message, listed)
