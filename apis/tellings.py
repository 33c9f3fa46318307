"""What reflectors tell authors of their objects, as Events keep it for a while."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from apis import keys, ownership
from apis.objects import Object

SUCCESSFUL: Final = "SuccessfulReflection"


class About(NamedTuple):
    """Of what a reflector tells: an object, or by its name in ``apis.reflection`` all of a kind."""

    cluster: str
    kind: str
    name: str = ""
    uid: str = ""


class Said(NamedTuple):
    """What was said, and when; of what was said in one second, success is the last."""

    at: str
    reason: str
    message: str


def component(name: str) -> str:
    """Return as who the reflector tells of the kind with that name in ``apis.reflection``."""
    return f"{_PREFIX}{name}{_SUFFIX}"


def last(events: Iterable[Object]) -> dict[About, Said]:
    """Return what ``events`` of one namespace say last of each object.

    The reflector of each provider says what of its own twins, and nothing of the others'.
    """
    told: dict[About, Said] = {}
    for event in events:
        if about := _about(event):
            texts = (str(event.get(name) or "") for name in ("lastTimestamp", "reason", "message"))
            said = Said(*texts)
            told[about] = max(told.get(about, said), said)
    return told


_PREFIX: Final = "liqo-"
_SUFFIX: Final = "-reflection"


def _about(event: Object) -> About | None:
    """Return of what a reflector tells; None for the Events of others."""
    who = str(event.get("reportingComponent", ""))
    cluster = ownership.cluster_named_by(event)
    if not cluster or not who.endswith(_SUFFIX):
        return None
    about = event.get("involvedObject") or {}
    if about.get("kind") == keys.NAMESPACE_OFFLOADING.kind:
        return About(cluster, who.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    return About(cluster, *(str(about.get(name) or "") for name in ("kind", "name", "uid")))
