"""The stage of a run: both clusters, the observer, and the counters around each block."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from bench import checks, counters, figures
from bench.counters import Component
from bench.observe import Observer
from bench.result import Block
from kube.client import ClusterClient
from sandbox import audit
from sandbox.layout import Site

CONSUMER: Final = "rome"
PROVIDER: Final = "milan"
SETTLE_S: Final = 1.0
"""After what a block waits for, so that what its last write causes still counts: in all arms."""
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
    violations: list[str] = field(default_factory=list)
    pods: int = 0
    """How many creations of pods the audit logs have to show."""


@dataclass
class Stage:
    """What every suite works with."""

    rome: ClusterClient
    milan: ClusterClient
    sites: Mapping[str, Site]
    observer: Observer
    say: Callable[[str], None]
    others: dict[int, str] = field(default_factory=lambda: {os.getpid(): counters.LOAD})
    """Processes of the run itself that are counted, by id."""
    blocks: list[Block] = field(default_factory=list)

    def components(self) -> list[Component]:
        """Return every process that is counted."""
        return counters.components(self.sites, self.others)

    @contextlib.asynccontextmanager
    async def block(self, suite: str, arm: str, repetition: int, size: int) -> AsyncIterator[Draft]:
        """Count what happens inside and keep it as a block; one that fails is not kept."""
        draft = Draft(suite, arm, repetition, size)
        self.say(f"{suite}: {arm}, size {size}, repetition {repetition + 1}")
        found = self.components()
        logs = {name: audit.Log(site.files.audit) for name, site in self.sites.items()}
        wire, cpu_s, began = counters.wire(found), counters.cpu_s(found), monotonic()
        yield draft
        await asyncio.sleep(SETTLE_S)
        seconds = monotonic() - began
        after = self.components()
        used = _grown(counters.cpu_s(after), cpu_s)
        moved = figures.added(counters.wire(after), wire)
        draft.violations += checks.restarts(found, after)
        self.blocks.append(_finished(draft, logs, seconds, used, moved, counters.pss_mib(after)))


def _grown(
    after: Mapping[Component, float], before: Mapping[Component, float]
) -> dict[Component, float]:
    return {component: used - before.get(component, 0.0) for component, used in after.items()}


def _finished(  # noqa: PLR0913, PLR0917  # all that was counted in a block
    draft: Draft,
    logs: Mapping[str, audit.Log],
    seconds: float,
    cpu_s: Mapping[Component, float],
    wire: dict[str, float],
    pss_mib: Mapping[Component, float],
) -> Block:
    calls = {cluster: log.read() for cluster, log in logs.items()}
    requests = [
        request for cluster in calls for request in counters.requests(cluster, calls[cluster])
    ]
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
        requests=requests,
        cpu_s=counters.by_name(cpu_s),
        pss_mib=counters.by_name(pss_mib),
        wire=wire,
        no_ops=[line for cluster in calls for line in counters.no_ops(calls[cluster])],
        violations=[
            *draft.violations,
            *checks.refusals(requests),
            *checks.logged(draft.pods, requests),
        ],
    )
