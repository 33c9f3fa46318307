"""Which policies of offloaded namespaces are not reflected, and hold in this cluster only.

Of all policies of the cluster only the names are cached, and what tells whether one may have come
to be reflected, or no longer is. One that an administrator opted in is read when its namespace is
looked at. Source: docs/what-is-reflected.md, "Policies".
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from apis import keys, objects, reflection, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import VirtualNode, VkOptionsTemplate
from apis.reflection import ReflectedKind
from kube.cluster import Cluster, Selection
from kube.controller import WatchSource
from kube.informer import Change, Informer


class _PolicyAnnotations(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={"skip": keys.SKIP_REFLECTION, "allow": keys.ALLOW_REFLECTION},
):
    skip: str | None = None
    allow: str | None = None


class _PolicyMeta(objects.Meta, gc=False, frozen=True):
    generation: int = 0
    annotations: _PolicyAnnotations | None = None


class Outline(msgspec.Struct, gc=False, frozen=True):
    """A policy without its rules."""

    metadata: _PolicyMeta


SELECTIONS: Final = tuple(Selection(kind, Outline) for kind in reflection.POLICIES)


@dataclass(frozen=True)
class PolicySummary:
    """What there is in a namespace: anything at all, and by kind and name what is not reflected."""

    is_any: bool = False
    here: tuple[tuple[str, str], ...] = ()


NONE: Final = PolicySummary()


class Policies:
    """The names of all policies by their namespace, as the informers say."""

    def __init__(self, cluster: Cluster, system: str) -> None:
        self._cluster, self._system = cluster, system
        self._there: dict[str, set[tuple[Kind, str]]] = {}

    def source(
        self, informer: Informer[Outline], offloadings: Informer[Object]
    ) -> WatchSource[Outline]:
        informer.subscribe(functools.partial(self._saw, informer.selection.kind))

        def keys_of(change: Change[Outline]) -> Iterable[Key]:
            key = Key(change.key.namespace, keys.OFFLOADING_NAME)
            is_known = offloadings.get(key) is not None
            return [key] if is_known and _is_news(change.old, change.new) else []

        return WatchSource(informer, keys_of)

    def _saw(self, kind: Kind, change: Change[Outline]) -> None:
        namespace, name = change.key
        there = self._there.setdefault(namespace, set())
        (there.discard if change.new is None else there.add)((kind, name))
        if not there:
            del self._there[namespace]

    async def found(self, namespace: str, nodes: Iterable[VirtualNode]) -> PolicySummary:
        """Return what is in ``namespace``, which is offloaded to ``nodes``."""
        there = self._there.get(namespace, set())
        if not there:
            return NONE
        here: set[tuple[Kind, str]] = set()
        for key in sorted({node.template_in(self._system) for node in nodes}):
            rows = await self._opted_in(key)
            here |= {one for one in there if one[0] not in rows}
            for row in rows.values():
                here |= await self._staying(namespace, row)
        return PolicySummary(
            is_any=True, here=tuple(sorted((kind.kind, name) for kind, name in here))
        )

    async def _opted_in(self, key: Key) -> dict[Kind, ReflectedKind]:
        found = await self._cluster.get(keys.VK_OPTIONS_TEMPLATE, key)
        try:
            options = VkOptionsTemplate.parse(found) if found else None
        except ValueError:  # told of the virtual node
            options = None
        rows = map(reflection.opted_in, options.custom_resources if options else ())
        return {row.kind: row for row in rows if row.kind in reflection.OPTIONAL}

    async def _staying(self, namespace: str, row: ReflectedKind) -> set[tuple[Kind, str]]:
        found = await self._cluster.list(Selection(row.kind, Object, namespace))
        return {(row.kind, key.name) for key, obj in found.items.items() if _stays(row, obj)}


def _stays(row: ReflectedKind, obj: Object) -> bool:
    try:
        return reflectionpolicy.reason_to_stay(row.kind, obj, row.default) is not None
    except reflectionpolicy.ContradictionError:
        return True


def _is_news(old: Outline | None, new: Outline | None) -> bool:
    """Whether it came, went, or may be reflected otherwise now: a status changes often."""
    if old is None or new is None:
        return True
    was, is_ = old.metadata, new.metadata
    return (was.generation, was.annotations) != (is_.generation, is_.annotations)
