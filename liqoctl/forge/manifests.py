"""From what there is to what is wanted, for objects that users write too. Pure."""

from collections.abc import Mapping

from apis import objects
from apis.objects import Key, Kind, Object


def made(kind: Kind, key: Key, spec: Object, metadata: Mapping[str, Mapping[str, str]]) -> Object:
    """Return the object ``key`` with the labels and annotations ``metadata``, in reading order."""
    named = {"name": key.name, "namespace": key.namespace}
    added = {field: dict(values) for field, values in metadata.items() if values}
    return objects.named(kind, key) | {"metadata": {**named, **added}, "spec": spec}


def changes(existing: Object, wanted: Object) -> Object:
    """Return the merge patch that gives ``existing`` the spec of ``wanted``; {} when it has it.

    Labels and annotations are added, never removed: others may have set theirs.
    """
    spec = objects.merge_patch(objects.spec(existing), wanted["spec"])
    patch: Object = {"spec": spec} if spec else {}
    for field in ("labels", "annotations"):
        have = existing["metadata"].get(field) or {}
        more = wanted["metadata"].get(field) or {}
        new = {name: value for name, value in more.items() if have.get(name) != value}
        if new:
            patch.setdefault("metadata", {})[field] = new
    return patch
