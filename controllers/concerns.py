"""Which keys of a controller a change concerns, in the ways that several controllers share."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from apis import objects
from apis.objects import Key, Object
from kube.informer import Change, Informer
from kube.runner import own_key

Keys: TypeAlias = Callable[[Change[Any]], Iterable[Key]]

_VERSIONS: Final = frozenset({"resourceVersion", "managedFields"})
_BOOKED: Final = frozenset({"ledger", "round", "keeper", "grants", "cordoned"})
"""Fields of the status of Tenants and ProviderPolicies: see ``controllers.granting.grants``."""


def but_booked(keys_of: Keys = own_key) -> Keys:
    """Return what answers as ``keys_of``, and with nothing where only what is booked changed."""

    def keys_but_booked(change: Change[Any]) -> Iterable[Key]:
        is_same = change.old is not change.new and _unbooked(change.old) == _unbooked(change.new)
        return () if is_same else keys_of(change)

    return keys_but_booked


def _unbooked(obj: Object | None) -> Object | None:
    if obj is None:
        return None
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _VERSIONS}
    status = {name: value for name, value in objects.status(obj).items() if name not in _BOOKED}
    return {**obj, "metadata": metadata, "status": status}


def all_of(those: Informer[Any]) -> Keys:
    def keys_of(_: Change[Any]) -> Iterable[Key]:
        return list(those.items())

    return keys_of


def beside(those: Informer[Any]) -> Keys:
    """Return what answers with the keys of ``those`` in the namespace of what changed."""

    def keys_of(change: Change[Any]) -> Iterable[Key]:
        return _within(those, change.key.namespace)

    return keys_of


def inside(those: Informer[Any]) -> Keys:
    """Return what answers with the keys of ``those`` in the Namespace that changed."""

    def keys_of(change: Change[Any]) -> Iterable[Key]:
        return _within(those, change.key.name)

    return keys_of


def _within(those: Informer[Any], namespace: str) -> list[Key]:
    return [key for key in those.items() if key.namespace == namespace]
