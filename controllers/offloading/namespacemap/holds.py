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
_STUCK: Final = frozenset({"NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"})
_OF_KUBERNETES: Final = "^[^/]*[.](kubernetes[.]io|k8s[.]io)/"
"""With a word before it: ``kubernetes.io/pvc-protection`` is of claims alone."""
_OF_CLAIMS: Final = f"{_OF_KUBERNETES}|^kubernetes[.]io/"
_OF_SERVICES: Final = f"(?!kubernetes[.]io/)({_OF_KUBERNETES}|{orders.SERVICES})"
_OF_PROVIDERS: Final[Mapping[Kind, str]] = {
    keys.SERVICE: _OF_SERVICES,
    keys.INGRESS: _OF_SERVICES,
    keys.PERSISTENT_VOLUME_CLAIM: _OF_CLAIMS,
}
"""Those of load balancers and volumes, whose controllers have something to clean up first."""

FULL: Final = 2**20
"""Characters of an object that may have no room for its own deletion: etcd takes 1.5 MiB."""
_UNNOTED: Final[Object] = {"labels": None, "annotations": None, **objects.UNTRACKED}
"""Metadata of a patch that makes room. Nothing reads it any more: the twin goes."""

logger = logging.getLogger(__name__)


def foreign_finalizers(kind: Kind, obj: Object) -> list[str]:
    """Return the finalizers of an object in a twin that no controller of a provider sets."""
    theirs = _OF_PROVIDERS.get(kind, "^$")
    return [
        each
        for each in objects.finalizers(obj)
        if each not in _OF_THE_SERVER and not re.search(theirs, each)
    ]


def is_stuck(twin: Object) -> bool:
    """Whether the namespace is being deleted, and something in it cannot be."""
    found = objects.status(twin).get("conditions") or []
    return any(
        one.get("type") in _STUCK and one.get("status") == "True" for one in found
    ) and objects.is_terminating(twin)


async def release(cluster: Cluster, twin: str) -> int:
    """Take off what the consumer set on its objects in ``twin``; return how many had it.

    Whoever filled an object to the last byte keeps it from being deleted, so that is emptied: X4.
    What this process may not change stays; the condition of the Tenant names it.
    """
    released = list[Key]()

    async def let_go(kind: Kind, obj: Object) -> None:
        key = objects.key_of(obj)
        if objects.is_outlined(obj):
            obj = await cluster.get_live(kind, key) or obj
        foreign = foreign_finalizers(kind, obj)
        kept = [each for each in objects.finalizers(obj) if each not in foreign]
        try:
            if _is_full(obj):
                metadata = {"uid": objects.uid(obj), **_UNNOTED}
                obj = await cluster.patch(kind, key, {"metadata": metadata})
            if foreign:
                await upkeep.set_finalizers(cluster, kind, obj, kept)
        except NotFoundError:
            return
        except ForbiddenError as error:
            logger.warning(
                "Finalizers stay", extra={"kind": str(kind), "key": str(key), "why": str(error)}
            )
            return
        released.append(key)
        logger.info("Released", extra={"kind": str(kind), "key": str(key), "held": foreign})

    async def let_all_go(kind: Kind) -> None:
        of = Selection(kind, Object, twin, whole_up_to=FULL)
        found = (await cluster.list(of)).items.values()
        held = [obj for obj in found if foreign_finalizers(kind, obj) or _is_full(obj)]
        failures.extend(await upkeep.each(held, partial(let_go, kind)))

    failures = list[Exception]()
    failures += await upkeep.each(KINDS, let_all_go)
    upkeep.raise_all(failures)
    return len(released)


def _is_full(obj: Object) -> bool:
    """Whether a finalizer keeps what is too large to be marked as deleted."""
    if objects.is_outlined(obj):
        return True
    metadata = obj["metadata"]
    has_notes = metadata.get("labels") or metadata.get("annotations")
    return bool(has_notes and objects.finalizers(obj)) and len(objects.canonical(obj)) > FULL
