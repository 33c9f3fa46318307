"""All objects of a selection at once: out of an informer in the process, by a list in a test."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from apis import whose
from apis.objects import Key, Object
from kube.cluster import Cluster, Selection
from kube.informer import Informer

View: TypeAlias = Callable[[], Awaitable[Mapping[Key, Object]]]
"""Read only. What a view lacks may exist: anybody who deletes for that reason asks the server."""


def cached(informer: Informer[Object]) -> View:
    """Return the view that an informer keeps: no request at all."""

    async def items() -> Mapping[Key, Object]:
        return informer.items()

    return items


def consumers(namespaces: Informer[Object]) -> Callable[[str], str]:
    """Return what tells whose pods run in the namespace of a name; empty where it is no twin."""
    return lambda name: whose.consumer_of(namespaces.get(Key("", name)))


def live(cluster: Cluster, of: Selection[Object]) -> View:
    """Return the view that lists each time it is asked."""

    async def items() -> Mapping[Key, Object]:
        return (await cluster.list(of)).items

    return items
