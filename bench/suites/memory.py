"""What a system's processes keep in memory: at rest, over pods and objects, over a long time."""

import asyncio
import itertools
import secrets
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final

from apis import keys, naming
from apis.objects import Key, Object
from bench import arms, checks, counters, figures, leftovers, load, waiting
from bench.observe import Story
from bench.settings import LIQO, Settings
from bench.stage import PROVIDER, Draft, Stage
from bench.suites import reflection
from bench.suites.burst import Place
from kube.client import ClusterClient
from kube.cluster import Selection

SUITE: Final = "memory"
OBJECTS: Final = "memory-objects"
SOAK: Final = "soak"
ARM: Final = "ours"
CHURNED: Final = 50
"""Pods that come and go at once in a soak."""
PROCESSES: Final = "processes_"
ALL: Final = "all"
"""The series of all components together."""
_SAMPLE_S: Final = 1.0
_LEVEL_S: Final = 10.0
_SAMPLES_TO_JUDGE: Final = 40


async def run(stage: Stage, settings: Settings) -> None:
    """Look at the memory without load and with each number of pods; of ours also what else is."""
    for arm in (ARM, *LIQO):
        if settings.has(arm):
            await stage.enter(arm, anew=True)
            await _over_pods(stage, settings, arm)
            await _ours_besides(stage, settings, arm)


async def _over_pods(stage: Stage, settings: Settings, arm: str) -> None:
    if arm == ARM:
        await _restart(stage)
    await _level(stage, SUITE, arm, 0, settings.rest_s)
    for size in settings.sizes:
        await _with_pods(stage, arm, size)


async def _ours_besides(stage: Stage, settings: Settings, arm: str) -> None:
    """Look at the memory with reflected objects, and during a soak."""
    if arm != ARM:
        return
    await _restart(stage)
    await _with_objects(stage, settings.kept)
    if settings.soak_min:
        await _restart(stage)
        await _soak(stage, settings.soak_min * 60)


async def _restart(stage: Stage) -> None:
    """Start every process of ours anew: one that had many pods before keeps the room for them."""
    stage.say("starting all processes of pyliqo anew")
    homes = [
        (stage.rome, keys.LIQO_NAMESPACE),
        (stage.rome, naming.tenant_namespace(PROVIDER)),
        (stage.milan, keys.LIQO_NAMESPACE),
    ]
    for cluster, namespace in homes:
        pods = await _pods(cluster, namespace)
        for key in pods:
            await leftovers.remove(cluster, keys.POD, key)
        await waiting.until(
            partial(_pods, cluster, namespace), partial(_replaced, pods),
            what=f"new pods in {namespace}",
        )  # fmt: skip


async def _pods(cluster: ClusterClient, namespace: str) -> dict[Key, Object]:
    return (await cluster.list(Selection(keys.POD, dict, namespace))).items


def _replaced(before: Mapping[Key, Object], now: Mapping[Key, Object]) -> bool:
    """Whether as many pods are ready as there were, and none of those is left; pure."""
    are_ready = all(
        any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        for pod in now.values()
        for conditions in [pod.get("status", {}).get("conditions", [])]
    )
    return are_ready and len(now) == len(before) and not before.keys() & now.keys()


async def _level(stage: Stage, suite: str, arm: str, size: int, seconds: float) -> None:
    async with stage.block(suite, arm, 0, size) as draft:
        note(draft, await sampled(stage, seconds))
        names = [name for one in counters.system(stage.components()) for name in (one.name, ALL)]
        draft.figures |= {f"{PROCESSES}{name}": names.count(name) for name in set(names)}


async def _with_pods(stage: Stage, arm: str, size: int) -> None:
    place = Place.of(arm)
    key = Key(place.namespace, f"memory-{secrets.token_hex(2)}")
    stage.observer.story.forget()
    try:
        await stage.rome.create(
            keys.DEPLOYMENT, load.deployment(*key, size, **arms.scheduling(arm))
        )
        await stage.observer.until(
            lambda story: _ready(story, place) >= size, what=f"{size} pods", within_s=600
        )
        await _level(stage, SUITE, arm, size, _LEVEL_S)
    finally:
        await leftovers.remove(stage.rome, keys.DEPLOYMENT, key)
        await _emptied(stage, place)


async def _with_objects(stage: Stage, count: int) -> None:
    """Look at our memory without and with so many reflected ConfigMaps."""
    side, wanted = reflection.Side.of(ARM), {keys.CONFIG_MAP: reflection.names(count)}
    stage.observer.story.forget()
    await _level(stage, OBJECTS, ARM, 0, _LEVEL_S)
    try:
        await reflection.make(stage, side, wanted)
        await _level(stage, OBJECTS, ARM, count, _LEVEL_S)
    finally:
        await reflection.remove(stage, side, wanted)


async def _soak(stage: Stage, seconds: float) -> None:
    """Create and delete pods all the time; judge the growth after the first tenth."""
    place = Place.of(ARM)
    async with stage.block(SOAK, ARM, 0, CHURNED) as draft:
        churn = asyncio.create_task(_churn(stage, place, draft))
        try:
            samples = await sampled(stage, seconds, while_runs=churn)
        finally:
            churn.cancel()
            ended = (await asyncio.gather(churn, return_exceptions=True))[0]
        if isinstance(ended, Exception):
            raise ended
        note(draft, samples)
        for name, values in draft.series.items():
            if len(values) >= _SAMPLES_TO_JUDGE:
                draft.figures[f"growth_percent_{name}"] = figures.growth(values) * 100
    await _emptied(stage, place)


async def _churn(stage: Stage, place: Place, draft: Draft) -> None:
    for done in itertools.count(1):
        key = Key(place.namespace, f"soak-{secrets.token_hex(2)}")
        stage.observer.story.forget()
        try:
            await stage.rome.create(
                keys.DEPLOYMENT, load.deployment(*key, CHURNED, **arms.scheduling(ARM))
            )
            await stage.observer.until(
                lambda story: _ready(story, place) >= CHURNED, what=f"{CHURNED} pods"
            )
        finally:
            await leftovers.remove(stage.rome, keys.DEPLOYMENT, key)
        await _emptied(stage, place)
        draft.figures["pods"] = float(done * CHURNED)


async def _emptied(stage: Stage, place: Place) -> None:
    await stage.observer.until(
        lambda story: not checks.gone(place.local(story), place.remote(story)),
        what="all pods gone", within_s=600,
    )  # fmt: skip


def _ready(story: Story, place: Place) -> int:
    return sum(life.ready is not None and life.gone is None for life in place.local(story).values())


async def sampled(
    stage: Stage, seconds: float, *, while_runs: asyncio.Task[None] | None = None
) -> list[dict[str, float]]:
    """Return the PSS of the system's processes in MiB, by component, once a second."""
    samples = []
    end = monotonic() + seconds
    while monotonic() < end and not (while_runs and while_runs.done()):
        began = monotonic()
        found = counters.system(stage.components())
        samples.append(counters.by_name(counters.pss_mib(found)))
        await asyncio.sleep(max(0.0, began + _SAMPLE_S - monotonic()))
    return samples


def note(draft: Draft, samples: Sequence[Mapping[str, float]]) -> None:
    """Note what was ``sampled``: all together, and each component."""
    whole = [sum(sample.values()) for sample in samples]
    draft.figures["pss_mib"] = statistics.median(whole)
    draft.figures["pss_peak_mib"] = max(whole)
    names = sorted({name for sample in samples for name in sample})
    draft.series |= {ALL: whole} | {
        name: [sample.get(name, 0.0) for sample in samples] for name in names
    }
