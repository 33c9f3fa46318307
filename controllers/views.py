"""All objects of a selection at once: out of an informer in the process, by a list in a test."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from apis import whose
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.informer import Informer

T = TypeVar("T")

View: TypeAlias = Callable[[], Awaitable[Mapping[Key, Object]]]
"""Read only. What a view lacks may exist: anybody who deletes for that reason asks the server."""


def cached(informer: Informer[Object]) -> View:
    """Return the view that an informer keeps: no request at all."""

    async def items() -> Mapping[Key, Object]:
        return informer.items()

    return items


def each_of(informers: Mapping[Kind, Informer[T]]) -> Iterator[tuple[Kind, T]]:
    """Yield each object of several kinds, and of which kind it is."""
    for kind, informer in informers.items():
        for item in informer.items().values():
            yield kind, item


def consumers(namespaces: Informer[Object]) -> Callable[[str], str]:
    """Return what tells whose pods run in the namespace of a name; empty where it is no twin."""
    return lambda name: whose.consumer_of(namespaces.get(Key("", name)))


def live(cluster: Cluster, of: Selection[Object]) -> View:
    """Return the view that lists each time it is asked."""

    async def items() -> Mapping[Key, Object]:
        return (await cluster.list(of)).items

    return items
