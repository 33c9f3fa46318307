"""What all twins share: name, ownership labels, filtered metadata, the fields that are copied."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apis import objects
from apis.objects import Kind, Object
from apis.pairs import Pair
from reflector.policy import Filter


@dataclass(frozen=True)
class Settings:
    """What a virtual node says about its twins."""

    hidden: Filter = field(default_factory=Filter)
    enable_load_balancer: bool = False
    load_balancer_class: str = ""


def of(
    kind: Kind,
    local: Object,
    pair: Pair,
    settings: Settings,
    *,
    keep: Iterable[str] = (),
    **rest: object,
) -> Object:
    """Return the twin of ``local``: its fields ``keep`` as they are, and ``rest``.

    Owners and finalizers mean something in their own cluster only and are left out.
    Source: behaviour.md 6.1.
    """
    labels = {**settings.hidden.labels(local), **pair.labels()}
    metadata: Object = {"labels": labels}
    annotations = settings.hidden.annotations(local)
    if annotations:
        metadata["annotations"] = annotations
    where = pair.twin_of(objects.key_of(local))
    kept = {name: local[name] for name in keep if local.get(name) is not None}
    return objects.named(kind, where, metadata=metadata, **kept, **rest)


def is_current(wanted: Object, twin: Mapping[str, object], exact: Iterable[str]) -> bool:
    """Whether applying ``wanted`` would change nothing, judged by its fields ``exact``.

    A yes is certain; a no may also mean that somebody else added labels, and then the server
    decides. Kinds whose fields the server completes have no ``exact`` and are never certain.
    """
    fields = tuple(exact)
    if not fields:
        return False
    same_metadata = objects.labels(wanted) == objects.labels(twin) and objects.annotations(
        wanted
    ) == objects.annotations(twin)
    return same_metadata and all(wanted.get(name) == twin.get(name) for name in fields)
