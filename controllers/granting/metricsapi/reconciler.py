"""Deletes the APIService that nobody serves, and makes it again."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from apis import keys, objects
from apis.objects import Key, Object
from controllers.granting.metricsapi import forge
from controllers.granting.metricsapi.forge import Do
from controllers.manager import Controller
from controllers.watches import every
from controllers.writes import MANAGER
from kube.controller import WatchSource
from kube.informer import Change

REMOVED: Final = (
    "the API server does not reach the metric agent ({why}): APIService {name} is deleted, so that"
    " namespaces of this cluster can still end, and made again when an agent is ready. Until then"
    " consumers get no metrics of their pods. Look at the pods of the agent, and let the API"
    " server reach their port 8443"
)
MADE: Final = "a metric agent is ready: APIService {name} is there again"
NAME: Final = keys.METRICS_API.name
SERVICE: Final = every(keys.API_SERVICE, fields=f"metadata.name={NAME}")

logger = logging.getLogger(__name__)


class MetricsApiReconciler(Controller):
    """Its one key is that of the Deployment of the agent; the mark is on the cluster ID."""

    name = "metricsapi"

    def watches(self) -> Sequence[WatchSource[Any]]:
        namespace, field = self.manager.namespace, f"metadata.name={keys.METRIC_AGENT}"
        agents = every(keys.DEPLOYMENT, namespace=namespace, fields=field)
        return self.watch(SERVICE, self._agent), self.watch(agents, self._agent)

    def _agent(self, _: Change[Any]) -> Iterable[Key]:
        return [Key(self.manager.namespace, keys.METRIC_AGENT)]

    @property
    def _mark_at(self) -> Key:
        return Key(self.manager.namespace, keys.CLUSTER_ID_CONFIG_MAP)

    async def reconcile(self, key: Key) -> float | None:
        found = forge.MetricsServiceState(
            await self.live.get_live(keys.API_SERVICE, keys.METRICS_API),
            await self.live.get_live(keys.DEPLOYMENT, key),
            forge.marked(await self.live.get_live(keys.CONFIG_MAP, self._mark_at)),
        )
        step = forge.step(found, self.manager.namespace, self.clock())
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
        await self._mark(forge.mark(agent, self.clock()))
        await self.live.delete(keys.API_SERVICE, keys.METRICS_API, uid=objects.uid(service))
        self._tell(agent, "Warning", "MetricsAPIRemoved", REMOVED.format(why=why, name=NAME))

    async def _make(self, agent: Object | None) -> None:
        wanted = forge.wanted(self.manager.namespace)
        await self.live.apply(keys.API_SERVICE, wanted, manager=MANAGER)
        self._tell(agent, "Normal", "MetricsAPIRestored", MADE.format(name=NAME))

    async def _mark(self, text: str | None) -> None:
        changes = {"metadata": {"annotations": {keys.METRICS_API_AFTER: text}}}
        await self.live.patch(keys.CONFIG_MAP, self._mark_at, changes)

    def _tell(
        self, agent: Object | None, type_: Literal["Normal", "Warning"], reason: str, text: str
    ) -> None:
        if agent is not None:
            self.events.event(keys.DEPLOYMENT, agent, type_, reason, text)
