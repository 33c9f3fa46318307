"""Removes what ends on a node that failed, so that its ShadowPod makes it again on another one."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis import keys, objects
from apis.objects import Key
from controllers.offloading.nodefailure import forge
from kube.cluster import Cluster
from kube.events import Recorder

FORCED: Final = "ForcedDeletion"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeFailureReconciler:
    """One Pod, judged by live reads: both are the servers' word, and the delete names the UID."""

    cluster: Cluster
    events: Recorder
    clock: Callable[[], datetime]

    async def reconcile(self, key: Key) -> float | None:
        pod = await self.cluster.get_live(keys.POD, key)
        if pod is None or not forge.is_ending(pod):
            return None
        name = pod["spec"]["nodeName"]
        node = await self.cluster.get_live(keys.NODE, Key("", name))
        if node is None or not forge.has_failed(node):
            return None  # a change of the node brings us back
        if (left_s := forge.grace_left_s(pod, self.clock())) > 0:
            return left_s
        logger.warning("Deleting pod by force", extra={"pod": str(key), "node": name})
        message = f"node {name} is not Ready, so nothing says whether its containers have ended"
        self.events.event(keys.POD, pod, "Warning", FORCED, message)
        await self.cluster.delete(keys.POD, key, uid=objects.uid(pod), grace_s=0)
        return None
