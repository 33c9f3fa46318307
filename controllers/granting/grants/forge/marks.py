"""Cordon and drain of slices, kept where their consumers cannot take them away. Pure.

They are annotations of the replica, as Liqo has them, and go with it when its consumer deletes it.
So the ledger of the tenant notes them with the UID of the replica: one of another UID was made
again and gets them back, one of the same UID without them was taken back by the provider.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from apis import keys, objects, slices
from apis.objects import Key, Object
from controllers.granting.grants.forge import applications

_FIELDS: Final = {"cordoned": keys.CORDON, "drained": keys.DRAIN}


class Mark(NamedTuple):
    """What the provider said of a slice, and which object it said it of."""

    uid: str
    names: frozenset[str]
    """The annotations that are there and say yes."""


def parsed(listed: Iterable[Object], namespace: str = "") -> dict[Key, Mark]:
    """Return what ``cordoned`` of the ledger of the tenant in ``namespace`` says.

    Without that, of the ledger of all tenants, as was kept before: its marks name theirs.
    """
    return {
        Key(namespace or one["namespace"], one["name"]): Mark(
            one["uid"], frozenset(name for field, name in _FIELDS.items() if one.get(field))
        )
        for one in listed
    }


def shown(marks: Mapping[Key, Mark]) -> list[Object]:
    """Return the ``marks`` of one tenant as they stand there; ``parsed`` is the inverse."""
    return [
        {
            "name": key.name,
            "uid": mark.uid,
            **{field: True for field, name in _FIELDS.items() if name in mark.names},
        }
        for key, mark in sorted(marks.items())
    ]


def lost(obj: Object, known: Mapping[Key, Mark]) -> dict[str, str]:
    """Return the annotations that the slice ``obj`` lacks since its consumer made it again."""
    mark = known.get(objects.key_of(obj))
    if mark is None or mark.uid == objects.uid(obj) or objects.is_terminating(obj):
        return {}
    return dict.fromkeys(mark.names - _names(obj), "true")


def current(
    known: Mapping[Key, Mark], found: Mapping[Key, Object], tenants: Mapping[Key, Object]
) -> dict[Key, Mark]:
    """Return the marks to be kept, once all that were ``lost`` are back.

    Those of slices that are away are kept as long as their tenant is there. Of a drained tenant
    the provider takes the slices away itself: who activates it again has them as if never marked.
    """
    away = {
        key: mark
        for key, mark in known.items()
        if key not in found and _may_return(applications.tenant_of(tenants, key.namespace))
    }
    marked = {key: Mark(objects.uid(obj), _names(obj)) for key, obj in found.items()}
    return away | {key: mark for key, mark in marked.items() if mark.names}


def _may_return(tenant: Object | None) -> bool:
    """Whether a consumer may bring its slices back by itself."""
    return tenant is not None and applications.condition_of(tenant) != applications.DRAINED


def _names(obj: Object) -> frozenset[str]:
    return frozenset(name for name in _FIELDS.values() if slices.says_yes(obj, name))
