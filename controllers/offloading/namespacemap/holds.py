"""What a consumer wrote into its twin keeps it from no end. Pure, but for ``release``.

A policy lets a consumer set no finalizer. What stands from before that policy, or from while it was
away, is taken off when the twin is dissolved.
Source: docs/parity.md SEC-A20.
"""

import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from apis import keys, objects, orders
from apis.objects import Key, Kind, Object
from controllers import upkeep
from kube.cluster import Cluster, Selection
from kube.errors import ForbiddenError, NotFoundError

KINDS: Final = (
    keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE, keys.SERVICE, keys.INGRESS,
    keys.PERSISTENT_VOLUME_CLAIM, keys.CONFIG_MAP,
)  # fmt: skip
"""What a consumer may write in a twin, as its role there has it, but for Secrets.

The controller manager reads none of these outside of tenant namespaces (R5): one that is held from
before the policy is named by the condition of the Tenant.
"""
_OF_THE_SERVER: Final = frozenset({"foregroundDeletion", "orphan"})
"""Those that the garbage collector takes away itself. Source: Kubernetes, "Finalizers"."""
_OF_KUBERNETES: Final = "^[^/]*[.](kubernetes[.]io|k8s[.]io)/"
"""With a word before it: ``kubernetes.io/pvc-protection`` is of claims alone."""
_OF_CLAIMS: Final = f"{_OF_KUBERNETES}|^kubernetes[.]io/"
_OF_PROVIDERS: Final[Mapping[Kind, str]] = {
    keys.SERVICE: f"{_OF_KUBERNETES}|{orders.SERVICES}",
    keys.INGRESS: f"{_OF_KUBERNETES}|{orders.SERVICES}",
    keys.PERSISTENT_VOLUME_CLAIM: _OF_CLAIMS,
}
"""Those of load balancers and volumes, whose controllers have something to clean up first."""

logger = logging.getLogger(__name__)


def foreign_finalizers(kind: Kind, obj: Object) -> list[str]:
    """Return the finalizers of an object in a twin that no controller of a provider sets."""
    theirs = _OF_PROVIDERS.get(kind, "^$")
    return [
        each
        for each in objects.finalizers(obj)
        if each not in _OF_THE_SERVER and not re.search(theirs, each)
    ]


async def release(cluster: Cluster, twin: str) -> int:
    """Take off what the consumer set on its objects in ``twin``; return how many had it.

    What this process may not change stays; the condition of the Tenant names it.
    """
    released = list[Key]()

    async def let_go(kind: Kind, obj: Object) -> None:
        key, foreign = objects.key_of(obj), foreign_finalizers(kind, obj)
        kept = [each for each in objects.finalizers(obj) if each not in foreign]
        try:
            await upkeep.set_finalizers(cluster, kind, obj, kept)
        except NotFoundError:
            return
        except ForbiddenError as error:
            logger.warning(
                "Finalizers stay", extra={"kind": str(kind), "key": str(key), "why": str(error)}
            )
            return
        released.append(key)
        logger.info("Removed foreign finalizers", extra={"kind": str(kind), "key": str(key)})

    failures = list[Exception]()
    for kind in KINDS:
        found = (await cluster.list(Selection(kind, Object, twin))).items.values()
        held = [obj for obj in found if foreign_finalizers(kind, obj)]
        failures += await upkeep.each(held, partial(let_go, kind))
    upkeep.raise_all(failures)
    return len(released)
