"""Which changes may leave pods out of place."""

from collections.abc import Iterable

from apis.objects import Key, Object
from controllers import selections, views
from controllers.manager import Manager, Term
from controllers.offloading.namespaceoffloading.loop import by_node
from controllers.offloading.placement import forge
from controllers.offloading.placement.reconciler import Observed, PlacementReconciler
from controllers.offloading.placement.waiting import Waiting
from kube.informer import Change
from kube.process import Loop
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    offloadings = manager.informer(selections.OFFLOADINGS)
    nodes = manager.informer(selections.NODES)

    sources = [Source(offloadings, _by_offloading), Source(nodes, by_node(offloadings))]

    def loops() -> list[Loop]:
        waiting = Waiting(manager.live)
        observed = Observed(nodes=views.cached(nodes), are_shown=waiting.are_shown)
        reconciler = PlacementReconciler(
            manager.cached, observed, events=manager.events, clock=manager.clock
        )
        runner = Runner("placement", reconciler, sources, workers=manager.limits.workers)
        waiting.subscribe(runner.enqueue)
        return [runner, waiting]

    return loops


def _by_offloading(change: Change[Object]) -> Iterable[Key]:
    return [] if forge.is_same_question(change.old, change.new) else [change.key]
