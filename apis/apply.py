"""Whether what was found is as it was applied; metadata that others write to, too.

The annotation ``keys.APPLIED_META`` records which keys of the metadata were written last. A
recorded key that is no longer wanted is removed. A key that others added stays.
Source: Kubernetes, "How kubectl apply calculates differences".
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from apis import keys, objects
from apis.objects import Object


def stamped(wanted: Object) -> Object:
    """Return ``wanted`` with the digest of all that is sent."""
    text = objects.canonical(wanted)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), keys.APPLIED: digest}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def is_current(wanted: Object, shown: Object, found: Object) -> bool:
    """Whether applying ``wanted``, which is stamped, would change nothing.

    The digest tells that nothing else was sent last, and so that nothing has to be taken back;
    ``shown``, the part of ``wanted`` that servers leave as it is, that nobody has changed it since.
    What others added stays theirs.
    """
    sent = objects.annotations(wanted)[keys.APPLIED]
    return objects.annotations(found).get(keys.APPLIED) == sent and keeps(found, shown)


def keeps(found: Any, wanted: Any) -> bool:
    """Whether every field of ``wanted`` is in ``found`` with that value.

    Fields that a server filled in, or somebody else added, do not count. Lists have to be equally
    long, and each item keeps its counterpart. A wanted empty map or list may be absent.
    """
    if isinstance(wanted, Mapping):
        return _keeps_map(found, wanted)
    if isinstance(wanted, list):
        return _keeps_list(found or [], wanted)
    return bool(found == wanted)


def _keeps_map(found: Any, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return found is None or isinstance(found, Mapping)
    if not isinstance(found, Mapping):
        return False
    return all(keeps(found.get(name), value) for name, value in wanted.items())


def _keeps_list(found: Any, wanted: list[Any]) -> bool:
    if not isinstance(found, list) or len(found) != len(wanted):
        return False
    return all(keeps(have, want) for have, want in zip(found, wanted, strict=True))


# Metadata that others write to, too ---------------------------------------------------------------

FIELDS = "labels", "annotations"
Names: TypeAlias = Mapping[str, Collection[str]]
"""What was written, by field."""


def record(**names: Iterable[str]) -> str:
    """Return what is remembered of a write: the names of what was written, by field."""
    kept = {field: sorted(each) for field, each in names.items()}
    return objects.canonical(kept)


def recorded(obj: Object) -> Names | None:
    """Return what was written last to ``obj``; None where nobody says."""
    try:
        found = json.loads(objects.annotations(obj).get(keys.APPLIED_META, ""))
    except ValueError:
        return None
    return {
        field: [name for name in names if isinstance(name, str)]
        for field, names in (found.items() if isinstance(found, dict) else ())
        if isinstance(names, list)
    }


def noted(wanted: Object) -> Object:
    """Return the metadata ``wanted`` with the record of what is written.

    Shape: labels and annotations, both there.
    """
    note = record(**{field: wanted[field] for field in FIELDS})
    return {**wanted, "annotations": {**wanted["annotations"], keys.APPLIED_META: note}}


def patch(existing: Object, wanted: Object, unrecorded: Names) -> Object:
    """Return the merge patch that brings the metadata of ``existing`` to ``wanted``, {} if none.

    What others added to it stays. Where it is not recorded what was written, that is
    ``unrecorded``.
    """
    before, changes = recorded(existing), Object()
    written = unrecorded if before is None else before
    for field in FIELDS:
        have: dict[str, str] = existing["metadata"].get(field) or {}
        if part := three_way(have, written.get(field, ()), wanted[field]):
            changes[field] = part
    if not changes:
        return changes
    note = noted(wanted)["annotations"][keys.APPLIED_META]
    if objects.annotations(existing).get(keys.APPLIED_META) != note:
        changes["annotations"] = {**changes.get("annotations", {}), keys.APPLIED_META: note}
    return changes


def taken_off(changes: Object) -> frozenset[str]:
    parts = (changes.get(field) or {} for field in FIELDS)
    return frozenset(name for part in parts for name, value in part.items() if value is None)


def three_way(have: Mapping[str, str], before: Iterable[str], new: Mapping[str, str]) -> Object:
    """Return the merge patch that makes ``have`` into ``new``; only what was ``before`` goes."""
    gone = {name: None for name in before if name in have and name not in new}
    return {**gone, **{name: value for name, value in new.items() if have.get(name) != value}}
