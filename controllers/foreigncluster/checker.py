"""Asks the API server of each provider, every now and then, whether it answers.

Source: behaviour.md 4.14.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apis import clocks
from apis.objects import Key
from controllers.foreigncluster.forge import Reach
from kube import peer
from kube.client import ClusterClient
from kube.cluster import Cluster
from kube.errors import KubeError

INTERVAL_S: Final = 15.0
TIMEOUT_S: Final = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Which providers there are."""

    wanted: Callable[[], Awaitable[Mapping[str, Key]]]
    """Returns the Secret with the kubeconfig of each, by cluster ID."""
    subscribe: Callable[[Callable[[], None]], Callable[[], None]]
    """Calls back when that may have changed; returns what ends this."""


class Checker:
    """One task a provider; what breaks one of them does not break the others."""

    def __init__(  # noqa: PLR0913  # whom to ask, how, and whom to tell
        self,
        live: Cluster,
        source: Source,
        *,
        tell: Callable[[str], None],
        clock: Callable[[], datetime],
        user_agent: str,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.name = "foreigncluster-checker"
        self._live = live
        self._source = source
        self._tell = tell
        self._clock = clock
        self._user_agent = user_agent
        self._interval_s = interval_s
        self._tasks: dict[tuple[str, Key], asyncio.Task[None]] = {}
        self._found: dict[str, Reach] = {}

    def reach(self, cluster_id: str) -> Reach | None:
        """Return what the API server of ``cluster_id`` last said; None if nobody has asked."""
        return self._found.get(cluster_id)

    def is_alive(self) -> bool:
        """Whether it can go on: each of its questions has a deadline."""
        return True

    async def drain(self) -> None:
        """Do nothing: no question has to be finished."""

    async def run(self) -> None:
        """Ask for ever; cancel to stop."""
        changed = asyncio.Event()
        stop = self._source.subscribe(changed.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    changed.clear()
                    self._adjust(set((await self._source.wanted()).items()), tasks)
                    await changed.wait()
        finally:
            stop()
            self._tasks.clear()

    def _adjust(self, wanted: set[tuple[str, Key]], tasks: asyncio.TaskGroup) -> None:
        for one in self._tasks.keys() - wanted:
            self._tasks.pop(one).cancel()
            self._found.pop(one[0], None)
        for one in wanted - self._tasks.keys():
            self._tasks[one] = tasks.create_task(self._follow(*one))

    async def _follow(self, cluster_id: str, secret: Key) -> None:
        while True:
            try:
                async with peer.follow(self._live, secret, user_agent=self._user_agent) as remote:
                    while True:
                        await self._ask(cluster_id, remote)
                        await asyncio.sleep(self._interval_s)
            except KubeError as error:  # its own API server, when it reads the Secret
                fields = {"cluster": cluster_id, "error": str(error)}
                logger.warning("cannot check the API server of a peer", extra=fields)
                await asyncio.sleep(self._interval_s)

    async def _ask(self, cluster_id: str, remote: ClusterClient) -> None:
        before = self._found.get(cluster_id)
        after = await self._answer(remote, before)
        if after != before:
            self._found[cluster_id] = after
            self._tell(cluster_id)

    async def _answer(self, remote: ClusterClient, before: Reach | None) -> Reach:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                ahead = await self._ping(remote)
                version = before.version if before and before.is_answering else ""
                version = version or str((await remote.version()).get("gitVersion", ""))
        except TimeoutError:
            return _silent(before, f"no answer within {TIMEOUT_S:g} s")
        except KubeError as error:
            return _silent(before, str(error.__cause__ or error))
        return Reach.answering(version, ahead, before)

    async def _ping(self, remote: ClusterClient) -> timedelta:
        # A stream, since it does not queue behind the bulk of other requests.
        async with remote.stream("GET", "/livez") as answer:
            await answer.read()
            return clocks.ahead(answer.headers.get("Date", ""), self._clock())


def _silent(before: Reach | None, why: str) -> Reach:
    return Reach(
        is_answering=False,
        message=before.message if before and not before.is_answering else why,
        version=before.version if before else "",
        ahead_s=before.ahead_s if before else None,
    )
