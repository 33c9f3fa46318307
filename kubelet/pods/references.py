"""What a pod reads is on the provider as new as it is here, before its ShadowPod is sent.

The reflector sends ConfigMaps, Secrets and Services; this process compares what both API servers
say. A container that starts with old settings in its environment keeps them for good.
Source: Kubernetes, "Configure a Pod to Use a ConfigMap": a kubelet reads them as it starts the pod.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apis import claims, keys, objects, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace, ReflectionPolicy
from kube import errors
from kube.cluster import Cluster
from kubelet.pods import shadowpod

PATIENCE_S: Final = 10.0
"""After which a pod is sent all the same; the provider's kubelet then waits for what is absent."""
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 1.0
MOST_NAMED: Final = 5
"""Objects that a message names."""
_READ: Final[Mapping[Kind, tuple[str, ...]]] = {
    keys.CONFIG_MAP: ("data", "binaryData"),
    keys.SECRET: ("data",),
    keys.SERVICE: (),
}
"""What containers read of an object; of a Service, that it is there."""

Policy = Callable[[Kind, str], ReflectionPolicy | None]
"""By which policy a kind is reflected in a namespace; None where it is not."""


@dataclass
class _Slot:
    """Reads of one object from one server, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: "asyncio.Task[Object | None] | None" = None


class Reads:
    """Reads each object once for all who ask before that read begins; never an older answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._slots: defaultdict[tuple[Kind, Key], _Slot] = defaultdict(_Slot)

    async def get(self, kind: Kind, key: Key) -> Object | None:
        """Return what the server says of ``key``, by a read that begins from now on."""
        slot = self._slots[kind, key]
        if slot.waiting is None:
            slot.waiting = asyncio.ensure_future(self._next(slot, kind, key))
        return await asyncio.shield(slot.waiting)

    async def _next(self, slot: _Slot, kind: Kind, key: Key) -> Object | None:
        try:
            async with slot.lock:
                slot.waiting = None
                return await self._cluster.get_live(kind, key)
        finally:
            if slot.waiting is None:
                self._slots.pop((kind, key), None)


class References:
    """Compares what pods read here with what there is of it on the provider."""

    def __init__(self, local: Cluster, remote: Cluster, policy: Policy) -> None:
        self._local, self._remote, self._policy = Reads(local), Reads(remote), policy

    async def behind(self, pod: Object, pair: MappedNamespace) -> list[str]:
        """Return which objects, in words, the provider lacks or has only as they were.

        Objects that are not here, and those that are not reflected, are not among them.
        """
        namespace = objects.key_of(pod).namespace
        wanted = {
            (kind, Key(namespace, name))
            for kind, name in reflectionpolicy.mentioned(pod["spec"])
            | reflectionpolicy.mentioned_services(pod["spec"])
            if (kind, name) != (keys.CONFIG_MAP, keys.ROOT_CA_CONFIG_MAP)
            and self._policy(kind, namespace) is not None
        }
        found = await asyncio.gather(*(self._is_behind(*one, pair) for one in wanted))
        return sorted(
            f"{kind} {key}" for (kind, key), is_so in zip(wanted, found, strict=True) if is_so
        )

    async def ephemeral(self, pod: Object) -> frozenset[str]:
        """Return which claims of ephemeral volumes of ``pod`` are reflected."""
        namespace = objects.key_of(pod).namespace
        names = [
            shadowpod.ephemeral_claim(pod, volume)
            for volume in pod["spec"].get("volumes") or []
            if "ephemeral" in volume
        ]
        found = await asyncio.gather(
            *(self._local.get(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, name)) for name in names)
        )
        return frozenset(
            name
            for name, claim in zip(names, found, strict=True)
            if claim is not None and claims.is_provisioned(claim)
        )

    async def _is_behind(self, kind: Kind, key: Key, pair: MappedNamespace) -> bool:
        here, there = await asyncio.gather(self._here(kind, key), self._there(kind, key, pair))
        if here is None or (there is not None and not pair.reflects(there)):
            return False
        return there is None or any(_differ(here, there, name) for name in _READ[kind])

    async def _here(self, kind: Kind, key: Key) -> Object | None:
        """Return what is reflected of that name; a right that is missing hides what is not."""
        policy = self._policy(kind, key.namespace)
        try:
            found = await self._local.get(kind, key)
            stays = (
                found is None
                or policy is None
                or reflectionpolicy.reason_to_stay(kind, found, policy)
            )
        except (errors.ForbiddenError, reflectionpolicy.ContradictionError):
            return None
        return None if stays else found

    async def _there(self, kind: Kind, key: Key, pair: MappedNamespace) -> Object | None:
        """Return the reflected object; what cannot be read counts as absent."""
        try:
            return await self._remote.get(kind, pair.twin_of(key))
        except errors.KubeError:
            return None


def _differ(here: Object, there: Object, name: str) -> bool:
    mine: Any = here.get(name) or {}
    return bool(mine != (there.get(name) or {}))


def in_words(behind: list[str], pair: MappedNamespace) -> str:
    """Return what an Event says of a pod that was sent before ``behind`` came."""
    more = f" and {len(behind) - MOST_NAMED} more" if len(behind) > MOST_NAMED else ""
    return (
        f"sent to cluster {pair.destination}, which after {PATIENCE_S:.0f} s does not have as it "
        f"is here: {', '.join(behind[:MOST_NAMED])}{more}; its containers may wait for it, or "
        "start with older values: see the Events of these objects"
    )
