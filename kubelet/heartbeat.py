"""The lease of the node, renewed in a loop of its own: nothing that is done for a pod delays it.

A node whose lease is not renewed is NotReady, and the pods of all users are evicted from it.
Source: docs/parity.md § 5.4; H22.
"""

from collections.abc import Callable

from apis.objects import Key
from kube import clock
from kube.client import ClusterClient
from kube.cluster import LeaderOnlyCluster
from kube.controller import Runner
from kubelet.eventloop import Likeness, WorkerThread
from kubelet.node import RENEWALS, LeaseReconciler


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
        """Whether no renewal is stuck."""
        runner = self._runner
        return runner is None or runner.is_alive()

    async def drain(self) -> None:
        """Take no more renewals."""
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
