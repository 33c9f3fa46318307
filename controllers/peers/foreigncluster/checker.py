"""Asks the API server of each provider whether it answers: now and then, and when that may change.

A watch that never tells anything is kept open to each. When a server dies or breaks it off, that
is known at once and without a question. Pings on it find those that fall silent: then a question
is due, which is given up when no pong comes either. The questions in between are for what a pong
does not tell, and for ways on which none passes.

Source: docs/parity.md § 4.14.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from controllers.peers.foreigncluster.forge import ENDED, APIServerHealth
from kube import errors, peer
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.errors import KubeError
from kube.process import Runnable
from kube.reachability import SILENT_S

INTERVAL_S: Final = 5.0
TIMEOUT_S: Final = 5.0
_NOW_AND_THEN, _SELDOM = 12, 120
"""Every how many questions the versions are asked again: as long as one is missing, and later."""

_NOBODY: Final = "pyliqo-nobody"
"""No slice has this name: there is nothing to tell."""
_AGAIN_S: Final = 1.0
_WITHOUT_S: Final = 60.0
"""Before a watch with pings is tried again."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProviderSource:
    """Which providers there are."""

    wanted: Callable[[], Awaitable[Mapping[str, Key]]]
    """Returns the Secret with the kubeconfig of each, by cluster ID."""
    slice_of: Callable[[str], str]
    """Returns the name of a slice that we have of a provider; empty without one."""
    subscribe: Callable[[Callable[[], None]], Callable[[], None]]
    """Calls back when that may have changed; returns what ends this."""


class Checker(Runnable):
    """One task a provider; what breaks one of them does not break the others."""

    def __init__(  # noqa: PLR0913  # whom to ask, how, and whom to tell
        self,
        live: Cluster,
        source: ProviderSource,
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
        self._found: dict[str, APIServerHealth] = {}

    def reach(self, cluster_id: str) -> APIServerHealth | None:
        """Return what the API server of ``cluster_id`` last said; None if nobody has asked."""
        return self._found.get(cluster_id)

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
                async with (
                    peer.follow(self._live, secret, user_agent=self._user_agent) as remote,
                    _asking(remote) as question,
                ):
                    for count in itertools.count():
                        question.due.clear()
                        await self._ask(cluster_id, remote, question, count)
                        await self._rest(question)
            except Exception:  # its own API server, or what nobody thought of: the others go on
                logger.exception("cannot check a peer", extra={"cluster": cluster_id})
                await asyncio.sleep(self._interval_s)

    async def _rest(self, question: "Question") -> None:
        again_s = min(_AGAIN_S, self._interval_s) if question.unanswered else self._interval_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(again_s):
                await question.due.wait()

    async def _ask(
        self, cluster_id: str, remote: ClusterClient, question: "Question", count: int
    ) -> None:
        before = self._found.get(cluster_id)
        if before and not before.is_answering and remote.reach.is_lost:
            return  # its client looks every second whether it is back
        try:
            after = await self._answer(cluster_id, remote, question, before, count)
        except errors.ExhaustedError as error:
            logger.warning("cannot ask", extra={"cluster": cluster_id, "error": str(error)})
            return
        if after != before:
            self._found[cluster_id] = after
            self._tell(cluster_id)

    async def _answer(
        self,
        cluster_id: str,
        remote: ClusterClient,
        question: "Question",
        before: APIServerHealth | None,
        count: int,
    ) -> APIServerHealth:
        known = before if before and before.is_answering else None
        try:
            async with question.within(TIMEOUT_S):
                ahead = await self._ping(remote)
                version, pyliqo = await self._versions(cluster_id, remote, known, count)
        except TimeoutError:
            remote.reach.doubt()
            return _silent(before, question.unanswered)
        except errors.ExhaustedError:
            raise  # that says nothing of the peer
        except errors.UnauthorizedError as error:
            return _silent(before, f"{error}: {ENDED}")
        except KubeError as error:
            return _silent(before, str(error))
        return APIServerHealth.answering(version, pyliqo, ahead, before)

    async def _versions(
        self, cluster_id: str, remote: ClusterClient, known: APIServerHealth | None, count: int
    ) -> tuple[str, str]:
        """Return the versions of its Kubernetes and of its pyliqo; what is known for a while."""
        often = _SELDOM if known and known.pyliqo else _NOW_AND_THEN
        if known and count % often:
            return known.version, known.pyliqo
        version = str((await remote.version()).get("gitVersion", ""))
        pyliqo = await _pyliqo(remote, self._source.slice_of(cluster_id))
        return version, pyliqo or (known.pyliqo if known else "")

    async def _ping(self, remote: ClusterClient) -> timedelta:
        return objects.clock_skew(await remote.ping(), self._clock())


class Question:
    """Whether it is time to ask one provider, and how long the question that is asked may take."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.unanswered = ""
        """Why the last one was given up; empty when it was answered."""
        self._limit: asyncio.Timeout | None = None
        self._why = ""

    @contextlib.asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Ask inside; raises TimeoutError once that has taken too long, or is given up."""
        self.unanswered, self._why = "", f"no answer within {seconds:g} s"
        try:
            async with asyncio.timeout(seconds) as self._limit:
                yield
        except TimeoutError:
            self.unanswered = self._why
            raise
        finally:
            self._limit = None

    def give_up(self, why: str) -> None:
        """Stop waiting for an answer, if one is waited for."""
        if self._limit is not None and not self._limit.expired():
            self._why = why
            self._limit.reschedule(0)


@contextlib.asynccontextmanager
async def _asking(remote: ClusterClient) -> AsyncIterator[Question]:
    """Yield a question that is due whenever an outage of ``remote`` begins, ends or is likely."""
    question = Question()
    due = question.due.set
    stops = (remote.reach.subscribe(due), remote.reach.subscribe_to_loss(due))
    holding = asyncio.create_task(_hold(remote, question))
    try:
        yield question
    finally:
        for stop in stops:
            stop()
        holding.cancel()
        await asyncio.wait([holding])


async def _hold(remote: ClusterClient, question: Question) -> None:
    """Keep a watch open for ever; the client looks whether the server answers when one breaks."""
    nothing = Selection(
        keys.RESOURCE_SLICE, Object, remote.access.namespace, fields=f"metadata.name={_NOBODY}"
    )
    while True:
        try:
            await _beat(remote, nothing, question)
            await asyncio.sleep(_AGAIN_S)
        except KubeError as error:  # perhaps this may not be watched: the questions remain
            await asyncio.sleep(_AGAIN_S if errors.is_away(error) else INTERVAL_S)
        except Exception:  # an answer that nobody can read
            logger.exception("cannot follow a peer", extra={"server": remote.access.server})
            await asyncio.sleep(INTERVAL_S)


async def _beat(remote: ClusterClient, nothing: Selection[Object], question: Question) -> None:
    """Follow the pings of a watch until its end; one without for a while where it has none."""
    try:
        async with remote.pulse(nothing) as pulse:
            if await pulse.follow(question.due.set):
                question.give_up(f"no sign of life for {SILENT_S:g} s")
            elif pulse.is_current():
                remote.reach.doubt()
            return
    except errors.InvalidError:
        logger.debug("no WebSocket passes", extra={"server": remote.access.server})
    with contextlib.suppress(TimeoutError):  # perhaps a proxy lets none through
        async with asyncio.timeout(_WITHOUT_S):
            await _watch(remote, nothing)


async def _watch(remote: ClusterClient, nothing: Selection[Object]) -> None:
    async with contextlib.aclosing(remote.watch(nothing, "")) as events:
        async for _ in events:
            pass


async def _pyliqo(remote: ClusterClient, slice_: str) -> str:
    """Return what the provider wrote on the replica of ``slice_``, which may not be there yet."""
    where = Key(remote.access.namespace, slice_)
    found = await remote.get_live(keys.RESOURCE_SLICE, where) if all(where) else None
    return objects.annotations(found).get(keys.PROVIDER_VERSION, "") if found else ""


def _silent(before: APIServerHealth | None, why: str) -> APIServerHealth:
    return APIServerHealth(
        is_answering=False,
        message=before.message if before and not before.is_answering else why,
        version=before.version if before else "",
        pyliqo=before.pyliqo if before else "",
        ahead_s=before.ahead_s if before else None,
    )
