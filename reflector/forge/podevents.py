"""Which Normal Events about a pod say what its status at the consumer does not. Pure.

Four or so tell that a pod starts, which all do and the status says; a pod that waits, is killed or
restarts is explained by them. So of a pod that was Ready soon the first seconds stay.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from apis import keys, objects
from apis.objects import Meta, Object

PROMPT: Final = timedelta(seconds=10)
"""What happens to a pod until then is its start, and a pod that is Ready then has started well."""
LINGER_S: Final = 5.0
"""Most pods that are killed are gone by then, and with them who would look at their Events."""
HELD_S: Final[Mapping[str, float]] = {
    **dict.fromkeys(
        ("Scheduled", "Pulling", "Pulled", "Created", "Started"), PROMPT.total_seconds()
    ),
    "Killing": LINGER_S,
}
"""How long Events of a reason wait before they are judged. Source: Kubernetes, kubelet/events."""


class PodMeta(Meta, gc=False, frozen=True):
    """Which pod it is, and for which of the provider."""

    annotations: dict[str, str] | None = None


class Condition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """What holds of a pod, and since when."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class Status(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """How far a pod has come."""

    phase: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None


class Lived(msgspec.Struct, gc=False, frozen=True):
    """What Events have to know of a local pod: its times are those of the provider's clock."""

    metadata: PodMeta
    status: Status = Status()

    @property
    def remote_uid(self) -> str:
        """Return the UID of the provider's Pod that its status tells of, "" for none yet."""
        return (self.metadata.annotations or {}).get(keys.REMOTE_POD, "").split(" ")[0]


def held_s(remote: Object) -> float:
    """Return how long to wait before the Event ``remote`` is judged: the first of its kind does."""
    is_first = (remote.get("count") or 1) == 1 and not remote.get("series")
    return HELD_S.get(str(remote.get("reason")), 0.0) if is_first else 0.0


def is_told(remote: Object, pod: Lived) -> bool:
    """Whether a Normal Event says more than the status: all but those of a start that went well.

    A pod that has ended says it all, since it will not say more.
    """
    involved = remote["involvedObject"]
    is_of_pod = involved.get("kind") == keys.POD.kind
    if is_of_pod and pod.remote_uid not in ("", involved.get("uid")):
        return False
    began, ready = _time(pod.status.start_time), _ready_since(pod)
    if pod.status.phase in objects.FINAL_PHASES or began is None or ready is None:
        return True
    happened = _happened(remote)
    is_of_start = happened is None or happened <= began + PROMPT
    return not is_of_start or ready > began + PROMPT


def suffices(remote: Object, pod: Lived) -> bool:
    """Whether ``pod`` was Ready, as the very one of which ``remote`` tells: more is not needed."""
    is_it = pod.remote_uid and pod.remote_uid == remote["involvedObject"].get("uid")
    return bool(is_it and pod.status.start_time and _ready_since(pod))


def _ready_since(pod: Lived) -> datetime | None:
    found = (one for one in pod.status.conditions or [] if one.type == "Ready")
    return next((_time(one.last_transition_time) for one in found if one.status == "True"), None)


def _happened(remote: Object) -> datetime | None:
    series = remote.get("series") or {}
    said = (remote.get("lastTimestamp"), series.get("lastObservedTime"), remote.get("eventTime"))
    return _time(next(filter(None, said), None))


def _time(text: Any) -> datetime | None:
    """Return the time, None if ``text`` is not a time."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None
