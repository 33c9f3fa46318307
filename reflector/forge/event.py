"""The copy at home of an Event on the provider, on the object of the same name."""

import hashlib
from typing import Any, Final

from apis import keys, leaving, objects, reflection
from apis.leaving import Stay
from apis.objects import Key, Kind, Object, named
from apis.pairs import Pair
from reflector.forge import configmap, shapes
from reflector.forge.contract import Forge, Input, Scene, nobody

WARNING: Final = "Warning"
CLAMPED: Final = {"reason": 128, "message": 1024, "action": 128}
"""How much of a text comes home: the provider may write anything."""
_SECONDS: Final = len("2025-01-31T12:00:00")
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
"""Of the objects at home that Events may come to, by what they are about on the provider."""


def twin(remote: Object, scene: Scene) -> Object:
    """Return the copy at home; ``stays`` has found the object that it is about.

    Source: behaviour.md 6.10; security.md B7.
    """
    involved = remote["involvedObject"]
    kind, key = _home_of(involved, scene) or (keys.POD, Key("", ""))
    local = scene.look.get(kind, key)
    reference = objects.reference(kind, key, _uid(local))
    if involved.get("fieldPath"):
        reference["fieldPath"] = involved["fieldPath"]
    where = objects.key_of(remote)
    source = (remote.get("source") or {}).get("component") or remote.get("reportingComponent")
    component = f"{str(source or scene.pair.destination)[:200]} (remote)"
    texts = {name: str(remote[name])[:most] for name, most in CLAMPED.items() if remote.get(name)}
    return named(
        keys.EVENT,
        Key(scene.pair.local_namespace, twin_name(where.name, scene.pair)),
        metadata={"labels": scene.pair.labels()},
        involvedObject=reference,
        source={"component": component},
        type=WARNING if remote.get("type") == WARNING else "Normal",
        **_times(remote),
        **texts,
    )


def _times(remote: Object) -> Object:
    """Return when and how often it happened: newer Events say so in other fields."""
    series = remote.get("series") or {}
    began = remote.get("firstTimestamp") or remote.get("eventTime")
    last = remote.get("lastTimestamp") or series.get("lastObservedTime") or began
    shown = {"firstTimestamp": began, "lastTimestamp": last}
    times = {name: f"{time[:_SECONDS]}Z" for name, time in shown.items() if time}
    return {**times, "count": remote.get("count") or series.get("count") or 1}


def twin_name(name: str, pair: Pair) -> str:
    """Return a name that no Event of this cluster has."""
    where = f"{pair.destination}/{pair.remote_namespace}/{name}"
    return f"{name[:200].rstrip('.-')}.{hashlib.sha256(where.encode()).hexdigest()[:16]}"


def stays(remote: Object, scene: Scene) -> Stay | None:
    """Return why an Event stays on the provider: it is about nothing that is here, or told not to.

    Nobody is told: its author is on the provider.
    """
    where = _home_of(remote.get("involvedObject") or {}, scene)
    if where is None or scene.look.get(*where) is None:
        return Stay("it is about nothing that is here", is_told=False)
    if where[0] == keys.POD and remote.get("type") != WARNING:
        return Stay("that a pod starts as it should is in its status", is_told=False)
    stay = leaving.reason_to_stay(keys.EVENT, remote, scene.policy)
    return Stay(stay.reason, is_told=False) if stay else None


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
    inputs=(
        Input(keys.POD, nobody, shape=shapes.Placed),
        *(Input(kind, nobody) for kind in dict.fromkeys(KINDS.values()) if kind != keys.POD),
    ),
)
