"""Which keys of a controller a change concerns, in the ways that several controllers share."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from apis.objects import Key
from kube.informer import Change, Informer

Keys: TypeAlias = Callable[[Change[Any]], Iterable[Key]]


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
