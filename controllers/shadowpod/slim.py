"""The parts of ShadowPods and Pods that are needed at every look: caches keep nothing else.

A spec is read from the server once, when its Pod is created; 10,000 whole pods take 460 MiB.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from apis import keys
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster
from kube.informer import Informer

Find: TypeAlias = Callable[[Kind, Key], Awaitable[Object | None]]
"""As ``Cluster.get``; what is found may lack its spec."""


class Meta(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The metadata that decides; the names are those of the wire."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815  # as on the wire
    deletionTimestamp: str | None = None  # noqa: N815  # as on the wire
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[dict[str, Any]] | None = None  # noqa: N815  # as on the wire


class PodStatus(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """How far a Pod is."""

    phase: str = ""


class ShadowStatus(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a ShadowPod shows."""

    phase: str = ""
    conditions: list[dict[str, Any]] | None = None


class SlimPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A Pod without its spec."""

    metadata: Meta
    status: PodStatus = PodStatus()


class SlimShadow(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A ShadowPod without its spec."""

    metadata: Meta
    status: ShadowStatus = ShadowStatus()


def find(cluster: Cluster, shadows: Informer[SlimShadow], pods: Informer[SlimPod]) -> Find:
    """Return a lookup whose hits come from the two caches; on a miss the server is asked."""

    async def found(kind: Kind, key: Key) -> Object | None:
        cached = pods.get(key) if kind == keys.POD else shadows.get(key)
        if cached is None:
            return await cluster.get_live(kind, key)
        built: Object = msgspec.to_builtins(cached)
        return built

    return found
