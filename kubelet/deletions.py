"""What of a pod is deleted, here and on the provider, and on which evidence.

Source: behaviour.md 5.5.1; controllers.md 22; security.md B9.
"""

import logging
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from kube.cluster import Cluster
from kubelet.departures import Departures
from kubelet.forge.decisions import Observed, Step

logger = logging.getLogger(__name__)

_NOTHING: Final[Object] = {"metadata": {}}


class Deletions:
    """Deletes what a step says, by its UID, and once: caches show it for a while after that."""

    def __init__(self, local: Cluster, remote: Cluster, departures: Departures) -> None:
        self._local, self._remote, self._departures = local, remote, departures
        self._deleted: dict[Key, str] = {}

    def is_proven(self, step: Step, key: Key, observed: Observed) -> bool:
        """Whether what ``step`` deletes rests on what was seen, not on what a cache lacks."""
        if step is Step.DELETE_LOCAL and observed.local is not None:
            twin = observed.pair.twin_of(key)
            return self._departures.are_twins_gone(twin, objects.uid(observed.local))
        uid = objects.annotations(observed.shadow or _NOTHING).get(keys.LOCAL_POD_UID, "")
        if observed.local is None:
            return self._departures.is_local_gone(key, uid)
        return objects.is_terminating(observed.local) and objects.uid(observed.local) == uid

    async def do(self, step: Step, observed: Observed) -> None:
        """Delete what ``step`` says; all other steps delete nothing."""
        if step is Step.DELETE_SHADOW and observed.shadow is not None:
            await self._delete_shadow(observed.shadow)
        if step is Step.DELETE_LOCAL and observed.local is not None:
            await self.delete_local(observed.local)

    async def delete_local(self, local: Object) -> None:
        """Delete the local pod for good: nothing of it is left on the provider."""
        key, uid = objects.key_of(local), objects.uid(local)
        if self._deleted.get(key) == uid:
            return
        await self._local.delete(keys.POD, key, uid=uid, grace_s=0)
        self._deleted[key] = uid
        logger.info("Deleted pod", extra={"pod": str(key)})

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone."""
        self._deleted.pop(key, None)

    async def _delete_shadow(self, shadow: Object) -> None:
        key = objects.key_of(shadow)
        self._departures.asked(key, objects.annotations(shadow).get(keys.LOCAL_POD_UID, ""))
        await self._remote.delete(keys.SHADOW_POD, key, uid=objects.uid(shadow))
        logger.info("Deleted shadowpod", extra={"shadowpod": str(key)})
