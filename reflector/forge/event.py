"""The copy at the consumer of an Event on the provider, on the object of the same name."""

import hashlib
import re
from typing import Any, Final

from apis import keys, objects, reflection, reflectionpolicy, texts
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from apis.reflectionpolicy import NotReflected
from reflector.forge import configmap, podevents
from reflector.forge.contract import Asking, Forge, Input, Scene, nobody

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


def twin(remote: Object, scene: Scene) -> Object:
    """Return the copy at the consumer; ``stays`` has found the object that it is about.

    Its source is called as on a real node, since tools select Events by it (``source=kubelet``).
    That it is of the provider stands where the name of a node would.
    Source: docs/parity.md SEC-B7.
    """
    involved = remote["involvedObject"]
    kind, key = _home_of(involved, scene) or (keys.POD, Key("", ""))
    local = _found(kind, key, scene)
    reference = objects.reference(kind, key, _uid(local))
    if path := texts.clamp(involved.get("fieldPath"), _FIELD_PATH):
        reference["fieldPath"] = path
    where = objects.key_of(remote)
    source = (remote.get("source") or {}).get("component") or remote.get("reportingComponent")
    component = texts.clamp(source, _COMPONENT) or scene.pair.destination
    said = {name: texts.clamp(remote.get(name), most) for name, most in CLAMPED.items()}
    return named(
        keys.EVENT,
        Key(scene.pair.local_namespace, twin_name(where.name, scene.pair)),
        metadata={"labels": scene.pair.labels()},
        involvedObject=reference,
        source={"component": component, "host": f"{scene.pair.destination} (remote)"},
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


def twin_name(name: str, pair: MappedNamespace) -> str:
    """Return a name that no Event of this cluster has."""
    where = f"{pair.destination}/{pair.remote_namespace}/{name}"
    return f"{name[:200].rstrip('.-')}.{hashlib.sha256(where.encode()).hexdigest()[:16]}"


def stays(remote: Object, scene: Scene) -> NotReflected | None:
    """Return why an Event stays on the provider: it is about nothing that is here, or told not to.

    Nobody is told: its author is on the provider.
    """
    where = _home_of(remote.get("involvedObject") or {}, scene)
    local = _found(*where, scene) if where else None
    if where is None or local is None:
        return NotReflected("it is about nothing that is here", is_told=False)
    if where[0] == keys.POD and _is_judged(remote, scene) and not podevents.is_told(remote, local):
        return NotReflected("that a pod starts as it should is in its status", is_told=False)
    stay = reflectionpolicy.reason_to_stay(keys.EVENT, remote, scene.policy)
    return NotReflected(stay.reason, is_told=False) if stay else None


def _is_judged(remote: Object, scene: Scene) -> bool:
    """Whether it depends on its pod if an Event about one comes home."""
    return scene.policy is Policy.RELEVANT and remote.get("type") != WARNING


def _about(remote: Object, scene: Scene) -> Key | None:
    """Return the pod at the consumer that an Event is about which may come home."""
    kind, key = _home_of(remote.get("involvedObject") or {}, scene) or (None, None)
    if kind != keys.POD or reflectionpolicy.reason_to_stay(keys.EVENT, remote, scene.policy):
        return None
    return key


def _held_s(remote: Object, scene: Scene) -> float:
    return podevents.held_s(remote) if _is_judged(remote, scene) else 0.0


def _story(remote: Object) -> str:
    return str(remote["involvedObject"].get("uid") or pace(remote))


def _found(kind: Kind, key: Key, scene: Scene) -> Any:
    return scene.look.asked(key) if kind == keys.POD else scene.look.get(kind, key)


def pace(remote: Object) -> str:
    """Return the object that it is about: each has its share."""
    involved = remote["involvedObject"]
    return f"{involved.get('kind')}/{involved.get('name')}"


def _home_of(involved: Object, scene: Scene) -> tuple[Kind, Key] | None:
    kind = KINDS.get(str(involved.get("kind")))
    if kind is None or involved.get("namespace") != scene.pair.remote_namespace:
        return None
    name = str(involved.get("name") or "")
    if kind == keys.CONFIG_MAP:
        name = configmap.original_name(name, scene.pair)
    return kind, Key(scene.pair.local_namespace, name)


def _uid(local: Any) -> str:
    return objects.uid(local) if isinstance(local, dict) else str(local.metadata.uid)


FORGE: Final = Forge(
    reflection.EVENT,
    twin,
    stays=stays,
    twin_name=twin_name,
    pace=pace,
    inputs=tuple(Input(kind, nobody) for kind in dict.fromkeys(KINDS.values()) if kind != keys.POD),
    asking=Asking(keys.POD, podevents.Lived, _about, _held_s, podevents.suffices, _story),
)
