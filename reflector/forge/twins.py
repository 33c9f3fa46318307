"""What all twins share: name, ownership labels, filtered metadata, the fields that are copied."""

from collections.abc import Iterable

from apis import marks, objects
from apis.objects import Kind, Object
from reflector.forge.contract import Scene


def of(
    kind: Kind, local: Object, scene: Scene, *, keep: Iterable[str] = (), **rest: object
) -> Object:
    """Return the twin of ``local``: its fields ``keep`` as they are, and ``rest``.

    Owners and finalizers mean something in their own cluster only and are left out.
    Source: behaviour.md 6.1.
    """
    hidden = scene.settings.hidden
    labels = marks.labels_of_shadow(hidden.labels(local))
    metadata: Object = {"labels": {**labels, **scene.pair.labels()}}
    annotations = hidden.annotations(local)
    if annotations:
        metadata["annotations"] = annotations
    where = scene.pair.twin_of(objects.key_of(local))
    kept = {name: local[name] for name in keep if local.get(name) is not None}
    return objects.named(kind, where, metadata=metadata, **kept, **rest)


def is_immutable(found: Object, wanted: Object, fields: Iterable[str]) -> bool:
    """Whether ``found`` says that it is immutable, and ``fields`` differ."""
    is_other = any((found.get(name) or None) != (wanted.get(name) or None) for name in fields)
    return bool(found.get("immutable")) and is_other
