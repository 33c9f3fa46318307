"""From what there is to what is wanted, for objects that users write too. Pure."""

import copy
from collections.abc import Collection, Mapping

from apis import objects
from apis.objects import Key, Kind, Object


def made(kind: Kind, key: Key, spec: Object, metadata: Mapping[str, Mapping[str, str]]) -> Object:
    """Return the object ``key`` with the labels and annotations ``metadata``, in reading order."""
    named = {"name": key.name, "namespace": key.namespace}
    added = {field: dict(values) for field, values in metadata.items() if values}
    return objects.named(kind, key) | {"metadata": {**named, **added}, "spec": spec}


def changes(existing: Object, named: Object, whole: Collection[str] = ()) -> Object:
    """Return the merge patch that gives ``existing`` what ``named`` names; {} when it has it.

    Whoever set something else meant it: no field is taken away, and maps (labels, amounts) are
    added to, but for those in ``whole``, by their path in the spec, which are replaced.
    """
    spec = _added(objects.spec(existing), named.get("spec") or {}, whole)
    patch: Object = {"spec": spec} if spec else {}
    for field in ("labels", "annotations"):
        have = existing["metadata"].get(field) or {}
        more = named["metadata"].get(field) or {}
        new = {name: value for name, value in more.items() if have.get(name) != value}
        if new:
            patch.setdefault("metadata", {})[field] = new
    return patch


def _added(old: Object, new: Object, whole: Collection[str], path: str = "") -> Object:
    patch: Object = {}
    for name, value in new.items():
        before, here = old.get(name), f"{path}{name}"
        if isinstance(before, dict) and isinstance(value, dict):
            if here in whole:
                inner = objects.merge_patch(before, value)
            else:
                inner = _added(before, value, whole, f"{here}.")
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = copy.deepcopy(value)
    return patch
