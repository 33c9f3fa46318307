"""Which changes concern the APIService of the metric agent."""

from collections.abc import Iterable
from typing import Any, Final

from apis import keys
from apis.objects import Key, Object
from controllers.granting.metricsapi.reconciler import MetricsApiReconciler
from controllers.manager import Manager, Term
from kube.cluster import Selection
from kube.informer import Change
from kube.runner import Runner, Source

SERVICE: Final = Selection(
    keys.API_SERVICE, Object, fields=f"metadata.name={keys.METRICS_API.name}"
)


def controller(manager: Manager) -> Term:
    where = Key(manager.namespace, keys.METRIC_AGENT)
    agents = Selection(
        keys.DEPLOYMENT,
        Object,
        namespace=manager.namespace,
        fields=f"metadata.name={keys.METRIC_AGENT}",
    )
    informers = manager.informer(SERVICE), manager.informer(agents)

    def one(_: Change[Any]) -> Iterable[Key]:
        return [where]

    def runner() -> Runner:
        reconciler = MetricsApiReconciler(
            manager.live, manager.events, manager.clock, manager.namespace
        )
        return Runner("metricsapi", reconciler, [Source(each, one) for each in informers])

    return lambda: [runner()]
