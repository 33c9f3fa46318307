"""One pod after another, and status changes of those that run: latencies of an idle system."""

import asyncio
import secrets
from collections.abc import Sequence
from time import monotonic
from typing import Final

from apis import keys
from apis.objects import Key, Object, named
from bench import arms, checks, leftovers, load
from bench.floor import Floor
from bench.observe import Story
from bench.settings import LIQO, Settings
from bench.stage import Draft, Stage
from bench.suites.burst import Place

SUITE: Final = "offload"
READING: Final = "offload-reading"
"""Pods that read a ConfigMap and a Secret."""
STATUS: Final = "status"
STATUS_LOAD: Final = "status-load"
ARMS: Final = ("floor", "ideal", "ours", *LIQO)
LOOPS: Final = ("ideal", "ours", *LIQO)
"""Arms in which something answers to a change of the remote status."""
PER_S: Final = 200
_FLIPS: Final = 50
_WITHIN_S: Final = 180.0


async def run(stage: Stage, settings: Settings) -> None:
    """Offload single pods with every arm, then change their remote status."""
    chosen = [arm for arm in ARMS if settings.has(arm)]
    for repetition, order in stage.plan.rounds(SUITE, chosen, settings.repetitions):
        for arm in order:
            await once(stage, settings, arm, repetition)


async def once(stage: Stage, settings: Settings, arm: str, repetition: int) -> None:
    """Run the blocks of one arm, and remove its pods."""
    await stage.enter(arm)
    stage.observer.story.forget()
    place, mark, size = Place.of(arm), secrets.token_hex(2), settings.creates
    names = [f"single-{mark}-{number}" for number in range(size)]
    reading = [f"reading-{mark}-{number}" for number in range(size)]
    warm_up = [f"warm-{mark}", f"warm-{mark}-reading"]  # opens connections, as first pods do
    try:
        await _one(stage, place, warm_up[0])
        async with stage.block(SUITE, arm, repetition, size) as draft:
            for name in names:
                await _one(stage, place, name)
            _judge(draft, place, stage.observer.look(), names)
        if arm in LOOPS:
            await _flips(stage, settings, place, repetition)
            await _read(stage, place, repetition, [warm_up[1], *reading])
    finally:
        await _remove(stage, place, [*warm_up, *names, *reading])


async def _read(stage: Stage, place: Place, repetition: int, names: Sequence[str]) -> None:
    """Run the block of pods that read; the first of ``names`` warms up."""
    read, kinds = Key(place.namespace, f"of-{names[0]}"), (keys.CONFIG_MAP, keys.SECRET)
    for kind in kinds:
        await stage.rome.create(kind, named(kind, read, data={"read": "aXQ="}))
    try:
        await _one(stage, place, names[0], read=read.name)
        async with stage.block(READING, place.arm, repetition, len(names) - 1) as draft:
            for name in names[1:]:
                await _one(stage, place, name, read=read.name)
            _judge(draft, place, stage.observer.look(), names[1:])
    finally:
        for kind in kinds:
            await leftovers.remove(stage.rome, kind, read)


async def _one(stage: Stage, place: Place, name: str, *, read: str = "") -> None:
    if place.arm == "floor":
        floor = Floor(stage.rome, stage.milan, place.namespace, place.twins)
        await floor.offload(name)
    else:
        pod = load.pod(place.namespace, name, read=read, **arms.scheduling(place.arm))
        await stage.rome.create(keys.POD, pod)

    def is_ready(story: Story) -> bool:
        life = place.local(story).get(name)
        return life is not None and life.ready is not None

    await stage.observer.until(is_ready, what=f"pod {name} ready", within_s=_WITHIN_S)


def _judge(draft: Draft, place: Place, story: Story, names: Sequence[str]) -> None:
    local = {name: life for name, life in place.local(story).items() if name in names}
    remote = {name: life for name, life in place.remote(story).items() if name in names}
    draft.pods = place.created * draft.size
    pairs = [(life, remote[name]) for name, life in local.items() if name in remote]
    draft.times["offload"] = [
        there.created - here.bound for here, there in pairs if here.bound is not None
    ]
    draft.times["ready"] = [
        life.ready - life.created for life in local.values() if life.ready is not None
    ]
    draft.violations += checks.arrived(draft.size, local, remote)
    draft.violations += checks.doubled([where.name for where in story.doubles])


async def _flips(stage: Stage, settings: Settings, place: Place, repetition: int) -> None:
    remote = await _statuses(stage, place)
    names = list(remote)
    async with stage.block(STATUS, place.arm, repetition, _FLIPS) as draft:
        written = []
        for number in range(_FLIPS):
            name = names[number % len(names)]
            began = monotonic()
            await _flip(stage, place, name, remote[name], number)
            written.append((name, str(number), monotonic()))
            draft.times.setdefault("write", []).append(written[-1][2] - began)
            await _seen(stage, place, [written[-1]])
        _returned(draft, place, stage.observer.story, written)
    async with stage.block(STATUS_LOAD, place.arm, repetition, PER_S) as draft:
        written = await _flip_steadily(stage, place, remote, settings.load_s)
        last = {name: (name, number, t) for name, number, t in written}
        await _seen(stage, place, list(last.values()))
        _returned(draft, place, stage.observer.story, written)
        wanted = {name: number for name, number, _ in last.values()}
        draft.violations += checks.delivered(wanted, place.local(stage.observer.story))
        draft.figures["changes"] = len(written)


async def _flip_steadily(
    stage: Stage, place: Place, remote: dict[str, Object], seconds: float
) -> list[tuple[str, str, float]]:
    written: list[tuple[str, str, float]] = []

    async def flip(number: int) -> None:
        name = names[number % len(names)]
        async with turns[name]:  # in order, as one kubelet would
            await _flip(stage, place, name, remote[name], number)
        written.append((name, str(number), monotonic()))

    names = list(remote)
    turns = {name: asyncio.Lock() for name in names}
    began, number = monotonic(), _FLIPS
    async with asyncio.TaskGroup() as tasks:
        for number in range(_FLIPS, _FLIPS + round(PER_S * seconds)):
            await asyncio.sleep(max(0.0, began + (number - _FLIPS) / PER_S - monotonic()))
            tasks.create_task(flip(number))
    return written


async def _statuses(stage: Stage, place: Place) -> dict[str, Object]:
    found = {}
    for name in place.remote(stage.observer.story):
        pod = await stage.milan.get_live(keys.POD, Key(place.twins, name))
        if pod:
            found[name] = pod["status"]
    return found


async def _flip(stage: Stage, place: Place, name: str, status: Object, number: int) -> None:
    key = Key(place.twins, name)
    await stage.milan.patch_status(keys.POD, key, load.flip(status, number))


async def _seen(stage: Stage, place: Place, written: Sequence[tuple[str, str, float]]) -> None:
    def holds(story: Story) -> bool:
        local = place.local(story)
        return all(local[name].latest == number for name, number, _ in written)

    await stage.observer.until(holds, what="a remote status on the local pod", within_s=_WITHIN_S)


def _returned(
    draft: Draft, place: Place, story: Story, written: Sequence[tuple[str, str, float]]
) -> None:
    """Note how long each change took that became visible; one that a later overtook did not."""
    local, remote = place.local(story), place.remote(story)
    draft.times["return"] = [
        since(local[name].sequences[number], t, remote[name].sequences.get(number))
        for name, number, t in written
        if number in local[name].sequences
    ]


def since(seen: float, answered: float, seen_written: float | None) -> float:
    """Return the time from a write to its effect, ``seen``; pure.

    A write is done when it is answered, and at the latest when the observer saw it: a busy
    generator of load may read its answers late.
    """
    done = answered if seen_written is None else min(answered, seen_written)
    return max(seen - done, 0.0)


async def _remove(stage: Stage, place: Place, names: Sequence[str]) -> None:
    if place.arm == "floor":
        await Floor(stage.rome, stage.milan, place.namespace, place.twins).remove(names)
    else:
        await asyncio.gather(
            *(leftovers.remove(stage.rome, keys.POD, Key(place.namespace, name)) for name in names)
        )
    await stage.observer.until(
        lambda story: not checks.gone(place.local(story), place.remote(story)),
        what=f"the pods of {place.arm} gone",
    )
