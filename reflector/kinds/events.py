"""How Events on the provider are copied to the object of the same name at the consumer, and which.

Four or so tell that a pod starts, which all do and its status says; a pod that waits, is killed or
restarts is explained by them. So of a pod that was Ready soon the first seconds stay.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from apis import keys, objects, reflection, reflectionpolicy, texts
from apis.objects import Key, Kind, Meta, Object, named
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from apis.reflectionpolicy import NotReflected
from reflector.kinds import configuration
from reflector.kinds.contract import (
    Input,
    KindReflection,
    RateLimitedRead,
    ReflectionContext,
    nobody,
)

WARNING: Final = "Warning"
CLAMPED: Final = {"reason": 128, "message": 1024, "action": 128}
"""Characters of a text that are kept: the provider may write anything."""
_FIELD_PATH: Final = 256
_COMPONENT: Final = 200
_MOST_COUNTED: Final = 2**31 - 1
_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
KINDS: Final[dict[str, Kind]] = {
    **{
        kind.kind: kind
        for kind in (
            keys.CONFIG_MAP,
            keys.SECRET,
            keys.SERVICE,
            keys.ENDPOINT_SLICE,
            keys.INGRESS,
            keys.PERSISTENT_VOLUME_CLAIM,
            keys.POD,
        )
    },
    keys.SHADOW_POD.kind: keys.POD,
    keys.SHADOW_ENDPOINT_SLICE.kind: keys.ENDPOINT_SLICE,
}
"""Of the objects at the consumer that Events may come to, by what they are about on the
provider."""


def local_event(remote: Object, context: ReflectionContext) -> Object:
    """Return the copy at the consumer; ``stays`` has found the object that it is about.

    Its source is called as on a real node, since tools select Events by it (``source=kubelet``).
    That it is of the provider stands where the name of a node would.
    Source: docs/parity.md SEC-B7.
    """
    involved = remote["involvedObject"]
    kind, key = _home_of(involved, context) or (keys.POD, Key("", ""))
    local = _found(kind, key, context)
    reference = objects.reference(kind, key, _uid(local))
    if path := texts.clamp(involved.get("fieldPath"), _FIELD_PATH):
        reference["fieldPath"] = path
    where = objects.key_of(remote)
    source = (remote.get("source") or {}).get("component") or remote.get("reportingComponent")
    component = texts.clamp(source, _COMPONENT) or context.pair.destination
    said = {name: texts.clamp(remote.get(name), most) for name, most in CLAMPED.items()}
    return named(
        keys.EVENT,
        Key(context.pair.local_namespace, local_event_name(where.name, context.pair)),
        metadata={"labels": context.pair.labels()},
        involvedObject=reference,
        source={"component": component, "host": f"{context.pair.destination} (remote)"},
        type=WARNING if remote.get("type") == WARNING else "Normal",
        **_times(remote),
        **{name: text for name, text in said.items() if text},
    )


def _times(remote: Object) -> Object:
    """Return when and how often it happened: newer Events say so in other fields."""
    series = remote.get("series") or {}
    began = remote.get("firstTimestamp") or remote.get("eventTime")
    last = remote.get("lastTimestamp") or series.get("lastObservedTime") or began
    shown = {"firstTimestamp": began, "lastTimestamp": last}
    times = {name: f"{found[0]}Z" for name, time in shown.items() if (found := _second(time))}
    count = remote.get("count") or series.get("count")
    is_count = isinstance(count, int) and 0 < count <= _MOST_COUNTED
    return {**times, "count": count if is_count else 1}


def _second(time: Any) -> re.Match[str] | None:
    return _SECONDS.match(time) if isinstance(time, str) else None


def local_event_name(name: str, pair: MappedNamespace) -> str:
    """Return a name that no Event of this cluster has."""
    where = f"{pair.destination}/{pair.remote_namespace}/{name}"
    return f"{name[:200].rstrip('.-')}.{hashlib.sha256(where.encode()).hexdigest()[:16]}"


def event_stays(remote: Object, context: ReflectionContext) -> NotReflected | None:
    """Return why an Event stays on the provider: it is about nothing that is here, or told not to.

    Nobody is told: its author is on the provider.
    """
    where = _home_of(remote.get("involvedObject") or {}, context)
    local = _found(*where, context) if where else None
    if where is None or local is None:
        return NotReflected("it is about nothing that is here", is_told=False)
    if where[0] == keys.POD and _is_judged(remote, context) and not is_told(remote, local):
        return NotReflected("that a pod starts as it should is in its status", is_told=False)
    stay = reflectionpolicy.reason_to_stay(keys.EVENT, remote, context.policy)
    return NotReflected(stay.reason, is_told=False) if stay else None


def _is_judged(remote: Object, context: ReflectionContext) -> bool:
    """Whether it depends on its pod if an Event about one comes home."""
    return context.policy is Policy.RELEVANT and remote.get("type") != WARNING


def _about(remote: Object, context: ReflectionContext) -> Key | None:
    """Return the pod at the consumer that an Event is about which may come home."""
    kind, key = _home_of(remote.get("involvedObject") or {}, context) or (None, None)
    if kind != keys.POD or reflectionpolicy.reason_to_stay(keys.EVENT, remote, context.policy):
        return None
    return key


def _held_s(remote: Object, context: ReflectionContext) -> float:
    return held_s(remote) if _is_judged(remote, context) else 0.0


def _story(remote: Object) -> str:
    return str(remote["involvedObject"].get("uid") or pace(remote))


def _found(kind: Kind, key: Key, context: ReflectionContext) -> Any:
    return context.lister.recent(key) if kind == keys.POD else context.lister.get(kind, key)


def pace(remote: Object) -> str:
    """Return the object that it is about: each has its share."""
    involved = remote["involvedObject"]
    return f"{involved.get('kind')}/{involved.get('name')}"


def _home_of(involved: Object, context: ReflectionContext) -> tuple[Kind, Key] | None:
    kind = KINDS.get(str(involved.get("kind")))
    if kind is None or involved.get("namespace") != context.pair.remote_namespace:
        return None
    name = str(involved.get("name") or "")
    if kind == keys.CONFIG_MAP:
        name = configuration.local_config_map_name(name, context.pair)
    return kind, Key(context.pair.local_namespace, name)


def _uid(local: Any) -> str:
    return objects.uid(local) if isinstance(local, dict) else str(local.metadata.uid)


# Which Normal Events about a pod say what its status at the consumer does not ---------------------

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


class PodCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """What holds of a pod, and since when."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodProgress(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """How far a pod has come."""

    phase: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] | None = None


class Lived(msgspec.Struct, gc=False, frozen=True):
    """What Events have to know of a local pod: its times are those of the provider's clock."""

    metadata: PodMeta
    status: PodProgress = PodProgress()

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


EVENT_REFLECTION: Final = KindReflection(
    reflection.EVENT,
    local_event,
    stays=event_stays,
    twin_name=local_event_name,
    pace=pace,
    inputs=tuple(Input(kind, nobody) for kind in dict.fromkeys(KINDS.values()) if kind != keys.POD),
    rate_limited_read=RateLimitedRead(keys.POD, Lived, _about, _held_s, suffices, _story),
)
