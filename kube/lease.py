"""Who of several works: one holder of a Lease at a time, and none a moment too long.

Durations are monotonic; a foreign holder's clock is never believed, only that its record
stops changing. Source: docs/parity.md C-31 to C-32; client-go, ``tools/leaderelection``.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import clock as clock_
from kube import errors, metrics
from kube.cluster import Cluster

logger = logging.getLogger(__name__)

_JITTER: Final = 0.2
_RENEWAL_JITTER: Final = 0.1
_AGAIN: Final = 0.2
"""After such a part of an attempt's time a renewal that failed is tried again."""
_RELEASE_S: Final = 3.0


class Election:
    """One candidate for the lease at ``key``.

    ``identity`` is the pod's name, so that a container that restarts resumes its own lease. With
    the object that ``owner`` returns the lease goes, too, once its last holder was that one's.
    """

    def __init__(  # noqa: PLR0913  # five figures of the protocol, three sources of chance
        self,
        cluster: Cluster,
        key: Key,
        identity: str,
        *,
        duration_s: float = 15,
        renew_s: float = 10,
        every_s: float = 5,
        attempt_s: float = 2.5,
        retry_s: float = 2,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], dt.datetime] = clock_.now,
        dice: Callable[[], float] = random.random,
        owner: Callable[[], Awaitable[Object | None]] | None = None,
    ) -> None:
        """Who leads renews every ``every_s``, and has to within ``renew_s``, or no longer leads.

        Who waits looks every ``retry_s``, whether the lease did not change for ``duration_s``.
        """
        least_s = min(every_s, attempt_s, retry_s)
        if not duration_s > renew_s > every_s + attempt_s > least_s > 0:
            needed = "duration_s > renew_s > every_s + attempt_s, and each above 0"
            raise ValueError(f"a lease needs {needed}")
        self._every_s, self._attempt_s = every_s, attempt_s
        self._cluster, self._key, self._identity = cluster, key, identity
        self._duration_s, self._renew_s, self._retry_s = duration_s, renew_s, retry_s
        self._clock, self._now, self._dice = clock, now, dice
        self._owner = owner
        self._renewed: float | None = None
        self._seen: Object = {}
        self._seen_at = clock()
        self._lease: Object | None = None
        self.is_first = False
        """Whether nobody led before us: there was no lease."""
        self._gauge = metrics.LEADER.labels(str(key))

    @property
    def is_leader(self) -> bool:
        """Whether we may write: true until the renew deadline, before anybody can take over."""
        return self._left_s() > 0

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` whenever we are elected; return when it returns.

        It is cancelled when the lease is lost, and begun again with the next. The lease is
        released when we are cancelled or done, so that another candidate need not wait.
        """
        while True:
            await self._acquire()
            logger.info("leads", extra={"lease": str(self._key)})
            try:
                if await self._hold(work):
                    return
            finally:
                self._gauge.set(0)
                await self._release()

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> bool:
        self._gauge.set(1)
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(renewing)
            is_done = working.done()
            await _end(working)
        if is_done:
            working.result()
            return True
        logger.warning("no longer leads", extra={"lease": str(self._key)})
        return False

    async def _acquire(self) -> None:
        self.is_first = False
        while True:
            try:
                async with asyncio.timeout(2 * self._attempt_s):  # it reads before it writes
                    if await self._try():
                        return
            except (errors.KubeError, TimeoutError) as error:
                self._log(error)
            await self._pause()

    async def _renew(self) -> None:
        """Return when the lease is lost.

        One request that hangs takes no more than half of the time between two renewals; the next
        attempt goes by a new connection (``kube.transport``).
        """
        pause_s = self._every_s
        while self._renewed is not None:
            pause_s *= 1 + _RENEWAL_JITTER * self._dice()
            await asyncio.sleep(min(pause_s, max(self._left_s(), 0)))
            left_s = self._left_s()
            if left_s <= 0:
                return
            try:
                async with asyncio.timeout(min(left_s, self._attempt_s)):
                    if not await self._try():
                        return
                pause_s = self._every_s
            except (errors.KubeError, TimeoutError) as error:
                self._log(error)
                pause_s = self._attempt_s * _AGAIN

    def _left_s(self) -> float:
        return 0.0 if self._renewed is None else self._renewed + self._renew_s - self._clock()

    async def _try(self) -> bool:
        """Take or renew the lease by compare-and-swap; whether it is ours now."""
        began = self._clock()
        lease = self._lease or await self._read()
        self._lease = None
        if lease is None:
            made = named(keys.LEASE, self._key, metadata=await self._taken({}), spec=self._spec({}))
            self._lease = await self._cluster.create(keys.LEASE, made)
            self.is_first = True
        else:
            spec = objects.spec(lease)
            if not self._may_take(spec):
                return False
            metadata = {"resourceVersion": lease["metadata"]["resourceVersion"]}
            metadata |= await self._taken(spec)
            changes = {"metadata": metadata, "spec": self._spec(spec)}
            self._lease = await self._cluster.patch(keys.LEASE, self._key, changes)
        self._renewed = began
        return True

    async def _taken(self, before: Object) -> Object:
        """Return the metadata of a lease that was another's, or nobody's; {} of one to renew."""
        if self._owner is None or before.get("holderIdentity") == self._identity:
            return {}
        owner = await self._owner()
        return {"ownerReferences": [_reference(owner)]} if owner else {}

    async def _read(self) -> Object | None:
        lease = await self._cluster.get_live(keys.LEASE, self._key)
        spec = objects.spec(lease)
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()
        return lease

    def _may_take(self, spec: Object) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self._identity:
            return True
        self._renewed = None
        lasts_s = float(spec.get("leaseDurationSeconds") or self._duration_s)
        return self._clock() >= self._seen_at + lasts_s

    def _spec(self, before: Object) -> Object:
        now = objects.micro_timestamp(self._now())
        is_ours = before.get("holderIdentity") == self._identity
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._duration_s) or 1,
            "acquireTime": (is_ours and before.get("acquireTime")) or now,
            "renewTime": now,
            "leaseTransitions": transitions + (not is_ours and bool(before)),
        }

    async def _release(self) -> None:
        lease, self._lease, self._renewed = self._lease, None, None
        with contextlib.suppress(errors.KubeError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                while not await self._is_freed(lease or await self._read()):
                    lease = None

    async def _is_freed(self, lease: Object | None) -> bool:
        """Let ``lease`` go if it is ours; False if it has changed: a renewal was on its way yet."""
        if not lease or lease["spec"].get("holderIdentity") != self._identity:
            return True
        try:
            await self._cluster.patch(keys.LEASE, self._key, self._freed(lease))
        except errors.ConflictError:
            return False
        return True

    def _freed(self, lease: Object) -> Object:
        now = objects.micro_timestamp(self._now())
        return {
            "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now},
        }

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry_s * (1 + _JITTER * self._dice()))

    def _log(self, error: Exception) -> None:
        fields = {"lease": str(self._key), "error": str(error) or "no answer in time"}
        logger.debug("could not have the lease", extra=fields)


def _reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        **{name: owner[name] for name in ("apiVersion", "kind")},
        **{name: metadata[name] for name in ("name", "uid")},
    }


async def _end(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait({task})
