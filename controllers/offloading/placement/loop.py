"""Which changes may leave pods out of place, or policies where they hold for a part of them."""

from collections.abc import Iterable
from typing import Any

from apis import keys, objects
from apis.objects import Key, Object
from controllers import concerns, selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.namespaceoffloading.loop import by_node
from controllers.offloading.placement import forge
from controllers.offloading.placement.policies import SELECTIONS, Policies
from controllers.offloading.placement.reconciler import Observed, PlacementReconciler
from controllers.offloading.placement.waiting import Waiting
from kube.informer import Change, Informer
from kube.process import Loop
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    offloadings = manager.informer(selections.OFFLOADINGS)
    nodes = manager.informer(selections.NODES)
    virtual_nodes = manager.informer(selections.VIRTUAL_NODES)
    of_templates = selections.every(keys.VK_OPTIONS_TEMPLATE, namespace=manager.namespace)
    templates = manager.informer(of_templates)
    policies = Policies(manager.cached, manager.namespace)
    sources: list[Source[Any]] = [
        Source(offloadings, _by_offloading),
        Source(nodes, by_node(offloadings)),
        Source(virtual_nodes, _by_spec(offloadings)),
        Source(templates, concerns.all_of(offloadings)),
        *(policies.source(manager.informer(each), offloadings) for each in SELECTIONS),
    ]

    def loops() -> list[Loop]:
        waiting = Waiting(manager.live)
        observed = Observed(
            nodes=views.cached(nodes),
            virtual_nodes=views.cached(virtual_nodes),
            are_shown=waiting.are_shown,
            policies=policies.found,
        )
        reconciler = PlacementReconciler(
            manager.cached, observed, events=manager.events, clock=manager.clock
        )
        runner = Runner("placement", reconciler, sources, workers=manager.limits.workers)
        waiting.subscribe(runner.enqueue)
        return [runner, waiting]

    return loops


def _by_spec(offloadings: Informer[Object]) -> Keys:
    """Return whom a VirtualNode concerns, which says what of a template is reflected where."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        is_same = objects.spec(change.old) == objects.spec(change.new)
        return [] if is_same else list(offloadings.items())

    return keys_of


def _by_offloading(change: Change[Object]) -> Iterable[Key]:
    return [] if forge.is_same_question(change.old, change.new) else [change.key]
