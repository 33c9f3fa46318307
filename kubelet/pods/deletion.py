"""What of a pod is deleted, here and on the provider, and on which evidence.

Source: docs/parity.md § 5.5.1; C-22; SEC-B9.
"""

import logging
from collections.abc import Callable
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from apis.offloading import MappedNamespace
from kube import errors
from kube.cluster import Cluster
from kubelet.pods import decide, shadowpod
from kubelet.pods.decide import PodSnapshot, PodStep
from kubelet.pods.report import PodStatuses
from kubelet.pods.state import DeletionEvidence, PodStates

logger = logging.getLogger(__name__)

HURRY_S: Final = 5.0
"""A provider that knows of it lets a Pod end in the time that was asked for before that."""
_ENDS: Final = frozenset({PodStep.DELETE_SHADOW, PodStep.END_WITHIN})
_NOTHING: Final[Object] = {"metadata": {}}


class PodDeletions:
    """Deletes what a step says, by its UID, and once: caches show it for a while after that."""

    def __init__(  # noqa: PLR0913  # two clusters, who remembers and tells, and a clock
        self,
        local: Cluster,
        remote: Cluster,
        *,
        departures: DeletionEvidence,
        memories: PodStates,
        statuses: PodStatuses,
        monotonic: Callable[[], float],
    ) -> None:
        self._local, self._remote, self._departures = local, remote, departures
        self._statuses = statuses
        self._memories, self._monotonic = memories, monotonic

    def is_proven(
        self, step: PodStep, key: Key, observed: PodSnapshot, *, is_ending: bool = False
    ) -> bool:
        """Whether what ``step`` deletes rests on what was seen, not on what a cache lacks.

        ``is_ending`` says that the twin namespace is being deleted.
        """
        if step is PodStep.DELETE_LOCAL and observed.local is not None:
            twin, uid = observed.pair.twin_of(key), objects.uid(observed.local)
            return self._departures.are_twins_gone(twin, uid, is_ending=is_ending)
        uid = objects.annotations(observed.shadow or _NOTHING).get(keys.LOCAL_POD_UID, "")
        if observed.local is None:
            return self._departures.is_local_gone(key, uid)
        return objects.is_terminating(observed.local) and objects.uid(observed.local) == uid

    async def do(self, step: PodStep, observed: PodSnapshot) -> float | None:
        """Delete what ``step`` says; return in how many seconds to look again.

        Units: seconds, None for no need.
        """
        local, shadow = observed.local, observed.shadow
        if step in _ENDS and shadow is not None:
            hurry_s = self._hurry_s(step, observed, shadow)
            return await self._end_within(hurry_s, shadow)
        if step is PodStep.DELETE_LOCAL and local is not None:
            await self.delete_local(local, observed.pair)
        return None

    def _hurry_s(self, step: PodStep, observed: PodSnapshot, shadow: Object) -> int | None:
        """Return in how many seconds the Pod of ``shadow`` is to end; None: in those of its spec.

        Of a pod that was deleted by force the last that was seen of it tells.
        """
        if step is PodStep.END_WITHIN:
            return shadowpod.hurry_s(observed.local) if observed.local else None
        remote = observed.mine(observed.remote)
        if remote is None or decide.is_over(remote):
            return None
        key = observed.pair.original_of(objects.key_of(shadow))
        uid = objects.annotations(shadow).get(keys.LOCAL_POD_UID, "")
        return self._departures.hurry_s(key, uid)

    async def delete_local(self, local: Object, pair: MappedNamespace | None = None) -> None:
        """Delete the local pod for good: nothing of it is left on the provider.

        Its phase is final before that. Source: Kubernetes, "Pod Lifecycle", pod phase.
        """
        key, uid = objects.key_of(local), objects.uid(local)
        memory = self._memories.of(local)
        if memory.is_deleted:
            return
        phase, remote = self._departures.end_of(pair.twin_of(key), uid) if pair else ("", None)
        await self._statuses.end(local, phase, remote)
        await self._local.delete(keys.POD, key, uid=uid, grace_s=0)
        memory.is_deleted = True
        logger.info("Deleted pod", extra={"pod": str(key)})

    async def _end_within(self, hurry_s: int | None, shadow: Object) -> float | None:
        """Let the provider end the Pod in the time that was asked for; it does so, or has had time.

        A ShadowPod has no grace period: what the garbage collector deletes has that of its spec.
        """
        if hurry_s is not None:
            now = self._monotonic()
            since = self._departures.hurried_since(objects.uid(shadow), now)
            left_s = HURRY_S - (now - since)
            if left_s > 0 and await self._is_told(hurry_s, shadow):
                return left_s
        key = objects.key_of(shadow)
        self._departures.asked(key, objects.annotations(shadow).get(keys.LOCAL_POD_UID, ""))
        await self._remote.delete(keys.SHADOW_POD, key, uid=objects.uid(shadow))
        logger.info("Deleted shadowpod", extra={"shadowpod": str(key)})
        return None

    async def _is_told(self, hurry_s: int, shadow: Object) -> bool:
        """Tell the provider in what time the pod is to end, unless it knows; it may refuse that."""
        wanted = {keys.DELETION_GRACE: str(hurry_s)}
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
