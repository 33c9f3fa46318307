"""Deletes the APIService that nobody serves, and makes it again."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Literal

from apis import keys, objects
from apis.objects import Key, Object
from controllers.granting.metricsapi import forge
from controllers.granting.metricsapi.forge import Do
from controllers.manager import Manager, Setup
from controllers.writes import MANAGER
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Change

REMOVED: Final = (
    "the API server does not reach the metric agent ({why}): APIService {name} is deleted, so that"
    " namespaces of this cluster can still end, and made again when an agent is ready. Until then"
    " consumers get no metrics of their pods. Look at the pods of the agent, and let the API"
    " server reach their port 8443"
)
MADE: Final = "a metric agent is ready: APIService {name} is there again"
NAME: Final = keys.METRICS_API.name

logger = logging.getLogger(__name__)


class MetricsApiReconciler:
    """Its one key is that of the Deployment of the agent; the mark is on the cluster ID."""

    def __init__(
        self, live: Cluster, events: EventRecorder, clock: Callable[[], datetime], namespace: str
    ) -> None:
        self._live, self._events, self._clock = live, events, clock
        self._namespace = namespace
        self._where = Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)

    async def reconcile(self, key: Key) -> float | None:
        found = forge.MetricsServiceState(
            await self._live.get_live(keys.API_SERVICE, keys.METRICS_API),
            await self._live.get_live(keys.DEPLOYMENT, key),
            forge.marked(await self._live.get_live(keys.CONFIG_MAP, self._where)),
        )
        step = forge.step(found, self._namespace, self._clock())
        if step.do is Do.REMOVE and found.service is not None:
            await self._remove(found.service, found.agent)
        elif step.do is Do.MAKE:
            await self._make(found.agent)
        elif step.do is Do.FORGET:
            await self._mark(None)
        return step.again_s

    async def _remove(self, service: Object, agent: Object | None) -> None:
        why = forge.why(service)
        logger.warning("Removing the APIService that nobody serves", extra={"reason": why})
        # The mark before the deletion: nothing else says that it was taken away here.
        await self._mark(forge.mark(agent, self._clock()))
        await self._live.delete(keys.API_SERVICE, keys.METRICS_API, uid=objects.uid(service))
        self._tell(agent, "Warning", "MetricsAPIRemoved", REMOVED.format(why=why, name=NAME))

    async def _make(self, agent: Object | None) -> None:
        wanted = forge.wanted(self._namespace)
        await self._live.apply(keys.API_SERVICE, wanted, manager=MANAGER)
        self._tell(agent, "Normal", "MetricsAPIRestored", MADE.format(name=NAME))

    async def _mark(self, text: str | None) -> None:
        changes = {"metadata": {"annotations": {keys.METRICS_API_AFTER: text}}}
        await self._live.patch(keys.CONFIG_MAP, self._where, changes)

    def _tell(
        self, agent: Object | None, type_: Literal["Normal", "Warning"], reason: str, text: str
    ) -> None:
        if agent is not None:
            self._events.event(keys.DEPLOYMENT, agent, type_, reason, text)


# Which changes concern the APIService of the metric agent ----------------------------------------


SERVICE: Final = Selection(
    keys.API_SERVICE, Object, fields=f"metadata.name={keys.METRICS_API.name}"
)


def controller(manager: Manager) -> Setup:
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
        return Runner("metricsapi", reconciler, [WatchSource(each, one) for each in informers])

    return lambda: [runner()]
