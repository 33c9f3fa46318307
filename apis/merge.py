"""Metadata that others write to as well, merged three ways against what was written last.

The annotation ``keys.APPLIED_META`` records which keys were written last. A recorded key that is no
longer wanted is removed. A key that others added stays.
Source: Kubernetes, "How kubectl apply calculates differences".
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from apis import keys, objects
from apis.objects import Object

FIELDS = "labels", "annotations"


def record(**names: Iterable[str]) -> str:
    """Return what is remembered of a write: the names of what was written, by field."""
    kept = {field: sorted(each) for field, each in names.items()}
    return objects.canonical(kept)


def recorded(obj: Object) -> Mapping[str, Sequence[str]] | None:
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


def three_way(have: Mapping[str, str], before: Iterable[str], new: Mapping[str, str]) -> Object:
    """Return the merge patch that makes ``have`` into ``new``; only what was ``before`` goes."""
    gone = {name: None for name in before if name in have and name not in new}
    return {**gone, **{name: value for name, value in new.items() if have.get(name) != value}}
