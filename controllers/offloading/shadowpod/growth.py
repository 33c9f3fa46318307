"""Brings a Pod that exists to a specification that changed: what it takes more is booked before.

Source: docs/parity.md § 4.10.
"""

import contextlib
import logging

from apis import keys, objects, quotas
from apis.objects import Object
from apis.quotas import Refusal
from controllers.offloading.shadowpod import forge
from controllers.offloading.shadowpod.contract import Ledger
from kube.cluster import Cluster
from kube.errors import ForbiddenError, InvalidError, NotFoundError

logger = logging.getLogger(__name__)


class Growth:
    """Without a ``ledger`` every Pod may grow."""

    def __init__(self, cluster: Cluster, ledger: Ledger | None) -> None:
        self._cluster, self._ledger = cluster, ledger

    def may_become(self, shadow: Object, existing: Object) -> tuple[bool, Refusal | None]:
        """Return whether the Pod may be as ``shadow`` says now, or why not, once that is judged.

        What it takes more has to be booked before.
        """
        if refusal := forge.unreadable(shadow):
            return False, refusal
        if self._ledger is None:
            return True, None
        try:
            demand = forge.grown(shadow, existing)
        except ValueError as error:
            return False, Refusal(quotas.UNREADABLE, str(error))
        if demand is None or self._ledger.covers(shadow, demand.usage):
            return True, None
        return False, self._ledger.refusal(shadow)

    async def change(self, shadow: Object, existing: Object) -> Refusal | None:
        """Make the Pod as ``shadow`` says while its booking is kept; return why it was refused."""
        ledger = self._ledger
        with ledger.creating(objects.uid(shadow)) if ledger else contextlib.nullcontext():
            return await self._change(shadow, existing)

    async def _change(self, shadow: Object, existing: Object) -> Refusal | None:
        """Make one request after the other."""
        key = objects.key_of(existing)
        while missing := forge.pod_changes(shadow, existing):
            part, patch = missing[0]
            logger.info("Updating pod", extra={"pod": str(key), "part": part or "spec"})
            try:
                made = await self._cluster.patch(keys.POD, key, patch, subresource=part)
            except (ForbiddenError, InvalidError) as error:
                return Refusal(forge.FAILED_UPDATE, str(error))
            except NotFoundError:
                if not part or not await self._is_there(existing):
                    raise
                lack = f"the Kubernetes of this cluster has no pods/{part}"
                return Refusal(forge.FAILED_UPDATE, f"pod {key} stays as it is: {lack}")
            if made["metadata"]["resourceVersion"] == existing["metadata"]["resourceVersion"]:
                return Refusal(forge.FAILED_UPDATE, f"pod {key} stays as it is: {part or 'spec'}")
            existing = made
        return None

    async def _is_there(self, pod: Object) -> bool:
        found = await self._cluster.get_live(keys.POD, objects.key_of(pod))
        return found is not None and objects.uid(found) == objects.uid(pod)
