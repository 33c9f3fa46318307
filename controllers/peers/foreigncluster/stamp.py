"""Writes on each slice which version of pyliqo looks after it, for the peer to read.

The consumer's goes there with the slice; the provider's stays on the replica, which the consumer
may read. Nothing else of a peer is readable on both sides.
"""

import logging
from dataclasses import dataclass
from typing import Final

from apis import keys, objects, whose
from apis.objects import Key
from kube import errors
from kube.cluster import Cluster
from kube.errors import KubeError

KIND: Final = keys.RESOURCE_SLICE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StampReconciler:
    """One slice, on either side."""

    cluster: Cluster
    version: str

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(KIND, key)
        if obj is None or objects.is_terminating(obj):
            return None
        name = keys.PROVIDER_VERSION if whose.is_foreign(obj) else keys.CONSUMER_VERSION
        if objects.annotations(obj).get(name) != self.version:
            annotations = {"annotations": {name: self.version}}
            try:
                await self.cluster.patch(KIND, key, {"metadata": annotations})
            except KubeError as error:
                if not errors.is_too_large(error):
                    raise
                # Its peer has filled it: nothing to do until that changes it again.
                logger.warning("No room", extra={"slice": str(key), "error": str(error)})
        return None
