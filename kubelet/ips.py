"""Keeps an IP object for each offloaded pod, where an IP fabric joins the clusters."""

import logging
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from kube import errors
from kube.cache import CachedCluster
from kubelet.pods import ip

logger = logging.getLogger(__name__)

UNKNOWN_RETRY_S: Final = 60.0
"""The fabric may bring its kinds later; nobody tells when."""
TAKEN_RETRY_S: Final = 60.0


class IpReconciler:
    """Fulfils Reconciler; keys are those of local pods.

    An address cannot be changed in an IP object: for another one it is made again.
    """

    def __init__(self, home: CachedCluster) -> None:
        self._home = home
        self._kept: dict[Key, Object] = {}
        """What is known to be there, so that a pod's other changes cost no look."""

    async def reconcile(self, key: Key) -> float | None:
        pod = await self._home.seen(keys.POD, key)
        wanted = ip.of(pod) if pod else None
        if wanted is None:
            self._kept.pop(key, None)  # the object goes with its owner
            return None
        if self._kept.get(key) == wanted:
            return None
        try:
            return await self._keep(key, wanted)
        except errors.NotFoundError:
            logger.debug("No IP object can be made here yet", extra={"pod": str(key)})
            return UNKNOWN_RETRY_S

    async def _keep(self, key: Key, wanted: Object) -> float | None:
        found = await self._home.get_live(keys.IP, key)
        if found and not ip.is_for(found, wanted):
            if not ip.is_of_a_pod(found):
                logger.warning("Left a foreign IP object alone", extra={"ip": str(key)})
                return TAKEN_RETRY_S
            await self._home.delete(keys.IP, key, uid=objects.uid(found))
            found = None
        if found is None:
            await self._home.create(keys.IP, wanted)
        self._kept[key] = wanted
        return None
