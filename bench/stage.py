"""The stage of a run: both clusters, the observer, and the counters around each block."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from bench import checks, counters, crosscheck, figures, phases
from bench.counters import Component
from bench.observe import Observer
from bench.phases import Written
from bench.plan import Plan
from bench.result import Block
from kube.client import ClusterClient
from sandbox import audit, cluster
from sandbox.layout import Site

CONSUMER: Final = "rome"
PROVIDER: Final = "milan"
REST_S: Final = 30.0
"""How long what a block began may go on after its end: all of it counts."""
SETTLE_S: Final = 1.0
"""After what a block waits for, so that what its last write causes still counts: in all arms."""
OFF: Final = "log_off_percent"
"""Figure of a block: how far audit log and API server are apart."""
_MS: Final = 1000.0


@dataclass
class Draft:
    """What a block says of itself while it runs; times in seconds."""

    suite: str
    arm: str
    repetition: int
    size: int
    times: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    """Whose way to the provider is told, by the provider's log."""
    pods: int = 0
    """How many creations of pods the audit logs have to show."""


async def _as_it_is(_arm: str, *, anew: bool = False) -> None:  # one signature
    """Leave the one system that there is."""


@dataclass
class Stage:
    """What every suite works with."""

    rome: ClusterClient
    milan: ClusterClient
    sites: Mapping[str, Site]
    observer: Observer
    plan: Plan
    tell: Callable[[str], None]
    others: dict[int, str] = field(default_factory=lambda: {os.getpid(): counters.LOAD})
    """Processes of the run itself that are counted, by id."""
    blocks: list[Block] = field(default_factory=list)
    enter: Callable[..., Awaitable[None]] = _as_it_is
    """``enter(arm)`` has the system on that the arm needs; ``anew=True`` starts Liqo's anew."""

    def say(self, what: str) -> None:
        """Tell what happens now."""
        self.tell(f"{self.plan.told()}: {what}")

    def components(self) -> list[Component]:
        """Return every process that is counted."""
        return counters.components(self.sites, self.others)

    @contextlib.asynccontextmanager
    async def block(
        self, suite: str, arm: str, repetition: int, size: int, *, cross_check: bool = False
    ) -> AsyncIterator[Draft]:
        """Count what happens inside and keep it as a block; one that fails is not kept.

        With ``cross_check`` the logs are held against what the API servers have counted.
        """
        draft = Draft(suite, arm, repetition, size)
        self.say(f"{suite}: {arm}, size {size}, repetition {repetition + 1}")
        totals = await self._totals() if cross_check else {}
        found = self.components()
        logs = {name: audit.Log(site.files.audit) for name, site in self.sites.items()}
        wire, cpu_s, began = counters.wire(found), counters.cpu_s(found), monotonic()
        yield draft
        calls = await (_at_rest(logs) if cross_check else asyncio.sleep(SETTLE_S, {}))
        seconds = monotonic() - began
        after = self.components()
        used = _grown(counters.cpu_s(after), cpu_s)
        moved = figures.added(counters.wire(after), wire)
        pss_mib = counters.pss_mib(after)
        draft.violations += checks.restarts(found, after)
        last = await self._calls(logs)
        calls = {name: [*calls.get(name, ()), *more] for name, more in last.items()}
        if cross_check:
            _cross_check(draft, calls, totals, await self._totals())
        found_ways = phases.ways(draft.written, calls.get(PROVIDER, ()))
        draft.times |= phases.times(found_ways)
        draft.figures |= phases.slowest(found_ways)
        self.blocks.append(_finished(draft, calls, seconds, used, moved, pss_mib))

    async def _calls(self, logs: Mapping[str, audit.Log]) -> dict[str, list[audit.Call]]:
        """Return what came into the logs, once all that was answered is in them."""
        found = await asyncio.gather(
            *(
                asyncio.to_thread(log.settled, cluster.admin(self.sites[name]))
                for name, log in logs.items()
            )
        )
        return dict(zip(logs, found, strict=True))

    async def _totals(self) -> dict[str, crosscheck.Totals]:
        texts = await asyncio.gather(
            *(server.get_text("/metrics") for server in (self.rome, self.milan))
        )
        return dict(zip((CONSUMER, PROVIDER), map(crosscheck.counted, texts), strict=True))


async def _at_rest(logs: Mapping[str, audit.Log]) -> dict[str, list[audit.Call]]:
    """Return what came into the logs up to when nobody asks for pods any more."""
    found: dict[str, list[audit.Call]] = {name: [] for name in logs}
    until, is_busy = monotonic() + REST_S, True
    while is_busy and monotonic() < until:  # what comes later counts too, and is told
        await asyncio.sleep(SETTLE_S)
        new = {name: await asyncio.to_thread(log.read) for name, log in logs.items()}
        for name, calls in new.items():
            found[name] += calls
        is_busy = any(crosscheck.logged(calls) for calls in new.values())
    return found


def _cross_check(
    draft: Draft,
    calls: Mapping[str, Sequence[audit.Call]],
    before: Mapping[str, crosscheck.Totals],
    after: Mapping[str, crosscheck.Totals],
) -> None:
    found = {
        name: crosscheck.differences(crosscheck.logged(calls[name]), before[name], after[name])
        for name in before
    }
    part, wrong = crosscheck.judged(found)
    draft.figures[OFF] = part * 100
    draft.violations += wrong


def _grown(
    after: Mapping[Component, float], before: Mapping[Component, float]
) -> dict[Component, float]:
    return {component: used - before.get(component, 0.0) for component, used in after.items()}


def _finished(  # noqa: PLR0913, PLR0917  # all that was counted in a block
    draft: Draft,
    calls: Mapping[str, Sequence[audit.Call]],
    seconds: float,
    cpu_s: Mapping[Component, float],
    wire: dict[str, float],
    pss_mib: Mapping[Component, float],
) -> Block:
    requests = [request for name in calls for request in counters.requests(name, calls[name])]
    return Block(
        draft.suite,
        draft.arm,
        draft.repetition,
        draft.size,
        seconds=round(seconds, 3),
        times={
            name: figures.quantiles([sample * _MS for sample in samples])
            for name, samples in draft.times.items()
        },
        figures={name: round(value, 4) for name, value in draft.figures.items()},
        series={name: [round(one, 2) for one in values] for name, values in draft.series.items()},
        requests=requests,
        cpu_s=counters.by_name(cpu_s),
        pss_mib=counters.by_name(pss_mib),
        wire=wire,
        no_ops=[line for of_one in calls.values() for line in counters.no_ops(of_one)],
        violations=[
            *draft.violations,
            *checks.refusals(requests),
            *checks.logged(draft.pods, requests),
        ],
    )
