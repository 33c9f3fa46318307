"""Which changes concern which NamespaceOffloading."""

from collections.abc import Iterable
from typing import Final

from apis import keys, whose
from apis.objects import Key, Object
from controllers import selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.namespaceoffloading import forge
from controllers.offloading.namespaceoffloading.reconciler import (
    NamespaceOffloadingReconciler,
    Observed,
)
from controllers.offloading.virtualnode.forge import rights
from kube.informer import Change, Informer
from kube.runner import Runner, Source

AT_ONCE: Final = 16
"""So many namespaces at once, at least: their entries go into a map together."""


def controller(manager: Manager) -> Term:
    offloadings = manager.informer(selections.OFFLOADINGS)
    enabled = manager.informer(selections.ENABLED_NAMESPACES)
    namespace_maps = manager.informer(selections.NAMESPACE_MAPS)
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    nodes = manager.informer(selections.NODES)
    bindings = manager.informer(selections.ROLE_BINDINGS)
    observed = Observed(
        namespace_maps=views.cached(namespace_maps),
        virtual_nodes=views.cached(virtual_nodes),
        nodes=views.cached(nodes),
        bindings=views.cached(bindings),
    )
    sources = [
        Source(offloadings),
        Source(enabled, lambda change: [_offloading_in(change.key.name)]),
        Source(namespace_maps, _by_map(offloadings)),
        Source(virtual_nodes, by_node(offloadings)),
        Source(nodes, by_node(offloadings)),
        Source(bindings, _by_binding),
    ]

    def runner() -> Runner:
        reconciler = NamespaceOffloadingReconciler(
            manager.cached,
            observed,
            cluster_id=manager.cluster_id,
            events=manager.events,
            clock=manager.clock,
        )
        workers = max(manager.limits.workers, AT_ONCE)
        return Runner("namespaceoffloading", reconciler, sources, workers=workers)

    return lambda: [runner()]


def _by_map(offloadings: Informer[Object]) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        if not any(whose.destination(obj) for obj in (change.old, change.new) if obj):
            return []  # a replica, which is for the provider in us
        touched = forge.touched(change.old, change.new)
        if touched is None:
            return list(offloadings.items())
        wanted = map(_offloading_in, touched)
        # A peer may name any namespace, and only offloaded ones are this controller's.
        return [key for key in wanted if offloadings.get(key) is not None]

    return keys_of


def by_node(offloadings: Informer[Object]) -> Keys:
    """Return whom a VirtualNode or Node concerns: all, if a selector may judge it again."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        is_same = forge.is_same_choice(change.old, change.new)
        return [] if is_same else list(offloadings.items())

    return keys_of


def _by_binding(change: Change[Object]) -> Iterable[Key]:
    binding = change.new or change.old
    concerns = binding is not None and rights.is_for_offloading(binding)
    return [_offloading_in(change.key.namespace)] if concerns else []


def _offloading_in(namespace: str) -> Key:
    return Key(namespace, keys.OFFLOADING_NAME)
