"""Keeps the Node, its lease and its health: loops that do not wait for each other.

The lease is renewed in an event loop of its own: nothing that is done for a pod delays it. A node
whose lease is not renewed is NotReady, and the pods of all users are evicted from it.
Source: docs/parity.md § 5.3, 5.4; F-4, F-7; H22.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from apis.offloading import VirtualNode
from apis.resources import Resources
from kube import clock, errors, transport
from kube.client import ClusterClient
from kube.cluster import Cluster, LeaderOnlyCluster
from kube.controller import Runner
from kubelet import nodeobject
from kubelet.eventloop import Likeness, WorkerThread
from kubelet.nodeobject import Health, NodeIdentity
from kubelet.pods.state import Recorder

logger = logging.getLogger(__name__)

RENEWALS: Final = 3
"""How often a lease is renewed in its duration."""
RENEWAL_S: Final = 10.0
"""How long a renewal may take, before another is tried by a new connection."""
SILENT_S: Final = 2.0
"""Between pings of a provider that does not answer."""
PROVING_S: Final = 0.2
"""Between the first answers of a provider, until there are enough to believe it."""
_LOOK_S: Final = 60.0


class ProviderHealth:
    """What is known of the provider's health; ``on_change`` gets each verdict that differs."""

    def __init__(
        self,
        on_change: Callable[[Health], None],
        *,
        threshold: int = 3,
        successes: int = 1,
        is_pinged: bool = True,
    ) -> None:
        """One that is never pinged is taken for one that is there."""
        self.health = Health(threshold, successes=successes, is_proven=not is_pinged)
        self._on_change = on_change

    def record(self, failure: str, ahead: timedelta = timedelta()) -> None:
        """Take note of a ping; ``failure`` is empty when it was answered."""
        before, self.health = self.health, self.health.after(failure, ahead)
        if before.is_in_step != self.health.is_in_step:
            extra = {"ahead_s": ahead.total_seconds()}
            logger.warning("Clocks differ, or no longer do", extra=extra)
            self._on_change(self.health)
        if before.is_reachable != self.health.is_reachable:
            logger.warning(
                "Provider is reachable" if self.health.is_reachable else "Provider is silent",
                extra={"reason": failure},
            )
        if _verdict(before) != _verdict(self.health):
            self._on_change(self.health)


def _verdict(health: Health) -> tuple[bool, bool]:
    return health.is_reachable, health.is_proven


class PingReconciler:
    """Asks the provider for a sign of life, again and again; a silent one is no error here."""

    def __init__(
        self,
        ping: Callable[[], Awaitable[timedelta]],
        provider_health: ProviderHealth,
        *,
        interval_s: float,
    ) -> None:
        """``ping`` returns by how much the provider's clock is ahead."""
        self._ping, self._provider_health, self._interval_s = ping, provider_health, interval_s

    async def reconcile(self, key: Key) -> float | None:
        logger.debug("Pings the provider", extra={"node": key.name})
        try:
            self._provider_health.record("", await self._ping())
        except errors.ExhaustedError:
            raise  # we could not ask, which says nothing of the provider
        except (errors.KubeError, TimeoutError) as error:
            self._provider_health.record(_failure(error))
        health = self._provider_health.health
        if health.answers and not health.is_proven:
            return min(self._interval_s, PROVING_S)
        if health.is_reachable:
            return self._interval_s
        return min(self._interval_s, SILENT_S)  # its return is seen soon


def _failure(error: Exception) -> str:
    if isinstance(error, errors.TooMuchError):
        return f"the provider says more than is kept of it: {error}"
    return f"the provider's API server gives no sign of life: {error or 'timeout'}"


class LeaseReconciler:
    """Renews the Node's lease for as long as this process lives, whatever the provider does."""

    def __init__(self, cluster: Cluster, *, duration_s: int, clock: Callable[[], datetime]) -> None:
        self._cluster, self._duration_s, self._clock = cluster, duration_s, clock

    async def reconcile(self, key: Key) -> float | None:
        within_s = min(RENEWAL_S, self._duration_s / RENEWALS)
        async with transport.deadline(within_s, f"renew the lease of node {key.name}"):
            return await self._renew(key)

    async def _renew(self, key: Key) -> float:
        lease = Key(keys.NODE_LEASE_NAMESPACE, key.name)
        try:
            await self._cluster.patch(keys.LEASE, lease, {"spec": self._spec(key.name)})
        except errors.NotFoundError:
            return await self._create(lease)
        return self._duration_s / RENEWALS

    async def _create(self, key: Key) -> float:
        node = await self._cluster.get(keys.NODE, Key("", key.name))
        if node is None:
            return 1.0  # its owner comes first
        owner = {"apiVersion": "v1", "kind": "Node", "name": key.name, "uid": objects.uid(node)}
        lease = objects.named(
            keys.LEASE, key, metadata={"ownerReferences": [owner]}, spec=self._spec(key.name)
        )
        await self._cluster.create(keys.LEASE, lease)
        return self._duration_s / RENEWALS

    def _spec(self, holder: str) -> Object:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": objects.micro_timestamp(self._clock()),
        }


class NodeReconciler:
    """Makes the Node what the VirtualNode and the health of the provider say."""

    def __init__(  # noqa: PLR0913  # what it looks at, and whom it tells
        self,
        cluster: Cluster,
        identity: NodeIdentity,
        *,
        virtual_nodes: Callable[[], Mapping[Key, Object]],
        health: Callable[[], Health],
        version: Callable[[], Awaitable[str]],
        recorder: Recorder,
        clock: Callable[[], datetime],
        held_back: Callable[[], Resources] = dict,
    ) -> None:
        """``version`` returns that of the cluster, "" if it says none.

        ``held_back`` returns what pods of the node ask for that never run.
        """
        self._cluster, self._identity, self._version = cluster, identity, version
        self._recorder, self._held_back = recorder, held_back
        self._virtual_nodes, self._health, self._clock = virtual_nodes, health, clock

    async def reconcile(self, key: Key) -> float | None:
        virtual = self._virtual_node()
        if virtual is None:
            return None  # not there yet, or going: anybody who deletes it deletes the Node
        parsed = VirtualNode.parse(virtual)
        if parsed.create_node is False:
            return None
        node = await self._node(key, parsed)
        now = self._clock()
        if nodeobject.is_heartbeat_due(node, now):
            await self._follow_version()
        want = nodeobject.status(
            node, self._identity, parsed, self._health(), now, held_back=self._held_back()
        )
        if changes := nodeobject.status_changes(node, want, now):
            await self._cluster.patch_status(keys.NODE, key, changes)
            if alarm := nodeobject.alarm(node, want):
                self._recorder.event(
                    keys.VIRTUAL_NODE, virtual, "Warning", nodeobject.ABSENCE, alarm
                )
        return _LOOK_S

    async def _follow_version(self) -> None:
        """Take up the version of this cluster, which an upgrade changes."""
        with contextlib.suppress(errors.KubeError):  # then with the next heartbeat
            if version := await self._version():
                self._identity = replace(self._identity, version=version)

    def _virtual_node(self) -> Object | None:
        found = next(iter(self._virtual_nodes().values()), None)
        return None if found is None or objects.is_terminating(found) else found

    async def _node(self, key: Key, virtual: VirtualNode) -> Object:
        want = nodeobject.wanted(self._identity, virtual)
        node = await self._cluster.get(keys.NODE, key)
        if node is None:
            logger.info("Creating node", extra={"node": key.name})
            return await self._cluster.create(keys.NODE, nodeobject.fresh(self._identity, want))
        if changes := nodeobject.changes(node, want):
            logger.info("Updating node", extra={"node": key.name})
            return await self._cluster.patch(keys.NODE, key, changes)
        return node


# The lease of the node, renewed in a loop of its own ----------------------------------------------
# A node whose lease is not renewed is NotReady, and the pods of all users are evicted from it.
# Source: docs/parity.md § 5.4; H22.


class Heartbeat:
    """Fulfils process.Loop; what ``may_write`` forbids is not written from the other loop either.

    Units: ``duration_s`` is how long a lease lasts.
    """

    name = "lease"

    def __init__(
        self, home: ClusterClient, node: str, *, duration_s: int, may_write: Callable[[], bool]
    ) -> None:
        self._node, self._duration_s, self._may_write = node, duration_s, may_write
        self._apart = WorkerThread("node-lease")
        self._likeness = Likeness(home)
        self._runner: Runner | None = None

    async def run(self) -> None:
        """Renew for ever; cancel to stop."""
        try:
            await self._apart.run(self._renew())
        finally:
            self._runner = None
            await self._apart.run(self._likeness.close())
            await self._apart.close()

    def is_alive(self) -> bool:
        runner = self._runner
        return runner is None or runner.is_alive()

    async def drain(self) -> None:
        if runner := self._runner:
            await self._apart.run(runner.drain())

    async def _renew(self) -> None:
        runner = Runner("lease", self, [], back_off_s=self._duration_s / RENEWALS)
        runner.enqueue(Key("", self._node))
        stop = self._likeness().reach.subscribe(runner.server_is_back)
        self._runner = runner
        try:
            await runner.run()
        finally:
            stop()

    async def reconcile(self, key: Key) -> float | None:
        """Renew the lease of the node ``key``, in the name that we have now."""
        cluster = LeaderOnlyCluster(self._likeness(), self._may_write)
        lease = LeaseReconciler(cluster, duration_s=self._duration_s, clock=clock.now)
        return await lease.reconcile(key)
