"""What of a pod is deleted, here and on the provider, and on which evidence.

Source: behaviour.md 5.5.1; controllers.md 22; security.md B9.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from kube import errors
from kube.cluster import Cluster
from kubelet.departures import Departures
from kubelet.forge import shadowpod
from kubelet.forge.decisions import Observed, Step

logger = logging.getLogger(__name__)

HURRY_S: Final = 5.0
"""A provider that knows of it lets a Pod end in the time that was asked for before that."""
_NOTHING: Final[Object] = {"metadata": {}}


class Deletions:
    """Deletes what a step says, by its UID, and once: caches show it for a while after that."""

    def __init__(
        self,
        local: Cluster,
        remote: Cluster,
        departures: Departures,
        clock: Callable[[], datetime],
    ) -> None:
        self._local, self._remote, self._departures = local, remote, departures
        self._clock = clock
        self._deleted: dict[Key, str] = {}
        self._hurried: dict[Key, datetime] = {}

    def is_proven(self, step: Step, key: Key, observed: Observed) -> bool:
        """Whether what ``step`` deletes rests on what was seen, not on what a cache lacks."""
        if step is Step.DELETE_LOCAL and observed.local is not None:
            twin = observed.pair.twin_of(key)
            return self._departures.are_twins_gone(twin, objects.uid(observed.local))
        uid = objects.annotations(observed.shadow or _NOTHING).get(keys.LOCAL_POD_UID, "")
        if observed.local is None:
            return self._departures.is_local_gone(key, uid)
        return objects.is_terminating(observed.local) and objects.uid(observed.local) == uid

    async def do(self, step: Step, observed: Observed) -> float | None:
        """Delete what ``step`` says, most delete nothing; return in how many seconds to look again.

        Units: seconds, None for no need.
        """
        local, shadow = observed.local, observed.shadow
        if step is Step.DELETE_SHADOW and shadow is not None:
            await self._delete_shadow(shadow)
        if step is Step.DELETE_LOCAL and local is not None:
            await self.delete_local(local)
        if step is Step.END_WITHIN and local is not None and shadow is not None:
            return await self._end_within(local, shadow)
        return None

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
        self._hurried.pop(key, None)

    async def _end_within(self, local: Object, shadow: Object) -> float | None:
        """Let the provider end the Pod in the time that was asked for; it does so, or has had time.

        A ShadowPod has no grace period: what the garbage collector deletes has that of its spec.
        """
        now = self._clock()
        since = self._hurried.setdefault(objects.key_of(local), now)
        left_s = HURRY_S - (now - since).total_seconds()
        if left_s > 0 and await self._is_told(local, shadow):
            return left_s
        await self._delete_shadow(shadow)
        return None

    async def _is_told(self, local: Object, shadow: Object) -> bool:
        """Tell the provider in what time the pod is to end, unless it knows; it may refuse that."""
        wanted = {keys.DELETION_GRACE: str(shadowpod.hurry_s(local))}
        if wanted.items() <= objects.annotations(shadow).items():
            return True
        changes = {"metadata": {"uid": objects.uid(shadow), "annotations": wanted}}
        try:
            await self._remote.patch(keys.SHADOW_POD, objects.key_of(shadow), changes)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            fields = {"shadowpod": str(objects.key_of(shadow)), "error": str(error)}
            logger.warning("ends in the time of its spec", extra=fields)
            return False
        return True

    async def _delete_shadow(self, shadow: Object) -> None:
        key = objects.key_of(shadow)
        self._departures.asked(key, objects.annotations(shadow).get(keys.LOCAL_POD_UID, ""))
        await self._remote.delete(keys.SHADOW_POD, key, uid=objects.uid(shadow))
        logger.info("Deleted shadowpod", extra={"shadowpod": str(key)})
