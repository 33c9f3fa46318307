"""One object of one kind between this cluster and one peer."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from apis import keys, objects, ownership
from apis.objects import Key, Kind, Object
from controllers import writes
from controllers.peers.replication import forge
from controllers.peers.replication.forge import Peering
from kube.cluster import Cluster
from kube.controller import TerminalError
from kube.errors import ForbiddenError, InvalidError
from kube.events import EventRecorder
from kube.ratelimit import Buckets, LargeWriteLimit

FINALIZER: Final = keys.REPLICATION_FINALIZER
GOING_POLL_S: Final = 10.0
LOOKS_A_SECOND: Final = 10.0
"""Looks here at what a peer has a replica of and this cluster does not know, of one peer."""

logger = logging.getLogger(__name__)


def looks(clock: Callable[[], float] = time.monotonic) -> Buckets:
    """Return how often a peer may have this cluster look for what it does not know."""
    return Buckets(clock, per_second=LOOKS_A_SECOND, burst=LOOKS_A_SECOND)


@dataclass(frozen=True)
class ReplicationReconciler:
    """The local object decides spec and existence, the replica's status comes back."""

    kind: Kind
    peering: Peering
    local: Cluster
    remote: Cluster
    events: EventRecorder
    out: LargeWriteLimit = field(default_factory=LargeWriteLimit)
    back: LargeWriteLimit = field(default_factory=LargeWriteLimit)
    looks: Buckets = field(default_factory=looks)

    async def reconcile(self, key: Key) -> float | None:
        original = await self.local.get(self.kind, key)
        if original is None:
            return await self._sweep(key)
        if objects.is_terminating(original):
            return await self.withdraw(original)
        if not ownership.is_for(original, self.peering.remote_cluster_id):
            return None
        original = await writes.add_finalizer(self.local, self.kind, original, FINALIZER)
        out_s, back_s = self.out.left_s(key), self.back.left_s(key)
        try:
            replica = await self._replicate(original, may_change=out_s is None)
        except (ForbiddenError, InvalidError) as error:
            message = f"cluster {self.peering.remote_cluster_id} refuses its replica: {error}"
            self.events.event(self.kind, original, "Warning", "ReplicationRefused", message)
            raise
        if back_s is None:
            await self._bring_back(original, objects.status(replica))
        return min((left_s for left_s in (out_s, back_s) if left_s is not None), default=None)

    async def _bring_back(self, original: Object, status: Object) -> None:
        made = await writes.write_status(self.local, self.kind, original, status)
        if made is not original:
            self.back.wrote(objects.key_of(original), forge.size(original))

    async def _replicate(self, original: Object, *, may_change: bool) -> Object:
        where = self.peering.replica_of(objects.key_of(original))
        found = await self.remote.get(self.kind, where)
        if found is None:
            logger.info("Creating replica", extra={"kind": str(self.kind), "key": str(where)})
            wanted = forge.replica(self.kind, original, self.peering)
            return await self.remote.create(self.kind, wanted)
        if not forge.is_replica(found, self.peering):
            message = f"{self.kind} {where} on {self.peering.remote_cluster_id} is not our replica"
            raise TerminalError("ReplicationConflict", message)
        if objects.is_terminating(found):
            return found  # gone, it is created again
        changes = forge.changes(self.kind, original, found, self.peering)
        if not changes or not may_change:
            return found
        logger.info("Updating replica", extra={"kind": str(self.kind), "key": str(where)})
        made = await self.remote.patch(self.kind, where, changes)
        self.out.wrote(objects.key_of(original), forge.size(original))
        return made

    async def withdraw(self, original: Object) -> float | None:
        """Let ``original`` go once its replica has gone, or the peer lets us see none any more."""
        if FINALIZER not in objects.finalizers(original):
            return None
        if not await self._removed(objects.key_of(original)):
            return GOING_POLL_S
        await writes.remove_finalizer(self.local, self.kind, original, FINALIZER)
        return None

    async def _sweep(self, key: Key) -> float | None:
        """Remove a replica whose original is gone: by the server's word, not by the cache's.

        A peer may invent any number of them, so looks are paced for it. Source: docs/parity.md H13.
        """
        if left_s := self.looks.left_s(self.peering.remote_cluster_id):
            return left_s
        found = await self.remote.get(self.kind, self.peering.replica_of(key))
        if found is None or not forge.is_replica(found, self.peering):
            return None
        if await self.local.get_live(self.kind, key) is None:
            await self._removed(key)
        return None

    async def _removed(self, key: Key) -> bool:
        where = self.peering.replica_of(key)
        try:
            return await writes.remove(
                self.remote,
                self.kind,
                where,
                is_ours=lambda found: forge.is_replica(found, self.peering),
            )
        except ForbiddenError:
            # A drained tenant has no rights any more: what it left behind is the provider's.
            logger.warning("peer refuses us: replica left to it", extra={"key": str(where)})
            return True


@dataclass(frozen=True)
class RemovalReconciler:
    """One local object that is to go, while the peer does not list its replicas.

    It lists none to a tenant that it drained or deleted: who waited for the list waited for ever.
    """

    replication: ReplicationReconciler
    is_listed: Callable[[], bool]

    async def reconcile(self, key: Key) -> float | None:
        if self.is_listed():
            return None  # the other reconciler sees to it
        original = await self.replication.local.get(self.replication.kind, key)
        if original is None or not objects.is_terminating(original):
            return None
        return await self.replication.withdraw(original)


@dataclass(frozen=True)
class ReleaseReconciler:
    """One local object whose peer cannot be asked: its deletion waits no longer for the replica.

    An Event says what is left on the peer.
    """

    kind: Kind
    local: Cluster
    events: EventRecorder
    is_signed_out: Callable[[], Awaitable[bool]] | None = None
    """Whether there is no identity for the peer; None where the peer is gone for good."""

    async def reconcile(self, key: Key) -> float | None:
        original = await self.local.get(self.kind, key)
        if original is None:
            return None
        if self.kind == keys.NAMESPACE_MAP and self.is_signed_out is None:
            await self._forget_twins(original)
        if objects.is_terminating(original) and FINALIZER in objects.finalizers(original):
            if self.is_signed_out is not None and not await self.is_signed_out():
                return GOING_POLL_S  # its Secret goes unseen where our rights went first
            self._tell(original, "ReplicaAbandoned", f"its replica {key.name}")
            await writes.remove_finalizer(self.local, self.kind, original, FINALIZER)
        return None

    async def _forget_twins(self, original: Object) -> None:
        left = forge.abandoned(original)
        if not left:
            return
        self._tell(original, "NamespacesAbandoned", f"namespaces {', '.join(left.values())}")
        status = {"currentMapping": dict.fromkeys(left)}
        where = {"uid": objects.uid(original)}
        key = objects.key_of(original)
        await self.local.patch_status(self.kind, key, status, metadata=where)

    def _tell(self, original: Object, reason: str, what: str) -> None:
        peer = ownership.destination(original)
        why = "is given up" if self.is_signed_out is None else "cannot be asked without an identity"
        message = f"cluster {peer} {why}; it may still have {what}"
        self.events.event(self.kind, original, "Warning", reason, message)
        logger.warning("Left something to a peer that is gone", extra={"left": what})
