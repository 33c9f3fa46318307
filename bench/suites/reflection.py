"""ConfigMaps, Secrets and Services that follow their originals: one by one, and all at once."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from apis import keys, objects
from apis.objects import Key, Kind
from bench import arms, figures, leftovers, load, machine, waiting
from bench.observe import Story
from bench.phases import Written
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, PROVIDER, Draft, Stage
from bench.suites.burst import client_of
from bench.suites.offload import since
from kube.client import ClusterClient

SUITE: Final = "reflection"
BULK: Final = "reflection-bulk"
BARE, FLOOR = "bare", "floor"
ARMS: Final = (BARE, FLOOR, "ours", *LIQO)
"""``floor`` writes home and provider itself, one after the other: less no reflection can do."""
KINDS: Final = (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE)
SERVICES: Final = 5
"""One Service for so many ConfigMaps and so many Secrets."""
SLOW_SYNCS: Final = "slow_syncs_"
"""Figures of a block: syncs of a cluster's etcd of more than 16 ms."""
_EACH: Final = 34
"""Of each kind: with 102 samples a single one is not the P99."""
_WITHIN_S: Final = 300.0
_DRIFTED: Final = -1


@dataclass(frozen=True)
class Side:
    """Where an arm writes, and where what it wrote is to be seen in milan."""

    cluster: str
    namespace: str
    seen: str
    is_replayed: bool = False
    """Whether nobody reflects, and what is written here is written there as well."""

    @property
    def is_reflected(self) -> bool:
        """Whether a system does the rest."""
        return self.cluster == CONSUMER and not self.is_replayed

    @classmethod
    def of(cls, arm: str) -> "Side":
        """Return the side of ``arm``; ``bare`` writes straight to the provider."""
        there = arms.remote_namespace(arm)
        if arm == BARE:
            return cls(PROVIDER, there, there)
        return cls(CONSUMER, arms.local_namespace(arm), there, is_replayed=arm == FLOOR)


async def run(stage: Stage, settings: Settings) -> None:
    """Reflect objects one by one, then all at once."""
    chosen = [arm for arm in ARMS if settings.has(arm)]
    for repetition, order in stage.plan.rounds(SUITE, chosen, settings.repetitions):
        for arm in order:
            await stage.enter(arm)
            stage.observer.story.forget()
            await _one_by_one(stage, arm, repetition)
            await _bulk(stage, arm, repetition, settings.objects)


async def _one_by_one(stage: Stage, arm: str, repetition: int) -> None:
    side, mark = Side.of(arm), secrets.token_hex(2)
    async with stage.block(SUITE, arm, repetition, _EACH * len(KINDS)) as draft:
        before = await _slow_syncs(stage)
        for kind in KINDS:
            for number in range(_EACH):
                await _life(stage, side, kind, f"single-{mark}-{number}", draft)
        draft.figures |= figures.added(await _slow_syncs(stage), before)


async def _slow_syncs(stage: Stage) -> dict[str, float]:
    names = list(stage.sites)
    counts = [await asyncio.to_thread(machine.slow_syncs, stage.sites[name]) for name in names]
    return {f"{SLOW_SYNCS}{name}": count for name, count in zip(names, counts, strict=True)}


async def _life(stage: Stage, side: Side, kind: Kind, name: str, draft: Draft) -> None:
    """Create, change and delete one object; note when each was seen, and what the write took."""
    cluster, key = client_of(stage, side.cluster), Key(side.namespace, name)
    there = Key(side.seen, name)
    began = monotonic()
    made = await cluster.create(kind, load.item(kind, *key, 1))
    write = began, monotonic(), "create"
    twin = await _replay(stage, side, lambda to: to.create(kind, load.item(kind, *there, 1)))
    await _note(stage, side, kind, name, "1", write, draft)
    began = monotonic()
    await cluster.patch(kind, key, load.changed(kind, 2))
    write = began, monotonic(), "update"
    await _replay(stage, side, lambda to: to.patch(kind, there, load.changed(kind, 2)))
    await _note(stage, side, kind, name, "2", write, draft)
    if side.is_reflected and kind == keys.CONFIG_MAP:
        draft.times.setdefault("drift", []).append(await _drift(stage, side, kind, name))
    began = monotonic()
    await cluster.delete(kind, key, uid=made["metadata"]["uid"])
    write = began, monotonic(), "delete"
    await _replay(stage, side, lambda to: to.delete(kind, there, uid=objects.uid(twin)))
    await _note(stage, side, kind, name, "", write, draft)


async def _replay(
    stage: Stage, side: Side, write: Callable[[ClusterClient], Awaitable[Any]]
) -> Any:
    """Do in milan what was done in rome, where nobody else does; return what it answers."""
    return await write(stage.milan) if side.is_replayed else None


async def _note(  # noqa: PLR0913, PLR0917  # one write: where, what, when
    stage: Stage,
    side: Side,
    kind: Kind,
    name: str,
    sequence: str,
    write: tuple[float, float, str],
    draft: Draft,
) -> None:
    began, answered, verb = write
    told = load.told(kind, sequence) if sequence else ""

    def when(story: Story, cluster: str, namespace: str) -> float | None:
        life = story.of(cluster, kind, namespace).get(name)
        if life is None:
            return None
        return life.sequences.get(told) if told else life.gone

    story = await stage.observer.until(
        lambda story: when(story, PROVIDER, side.seen) is not None,
        what=f"{verb} of {kind} {name}", within_s=_WITHIN_S,
    )  # fmt: skip
    seen = when(story, PROVIDER, side.seen) or answered
    took = since(seen, answered, when(story, side.cluster, side.namespace))
    draft.times.setdefault(f"{verb}-write", []).append(answered - began)
    draft.times.setdefault(verb, []).append(took)
    wall = time.time() - monotonic()
    draft.written.append(Written(verb, kind.plural, name, seen - took + wall, seen + wall))


async def _drift(stage: Stage, side: Side, kind: Kind, name: str) -> float:
    """Change the twin behind the back of the system; return how long it stayed so."""
    life = stage.observer.story.of(PROVIDER, kind, side.seen)[name]
    wanted, foreign = life.latest, load.told(kind, _DRIFTED)
    await stage.milan.patch(kind, Key(side.seen, name), load.changed(kind, _DRIFTED))
    drifted = monotonic()
    await stage.observer.until(
        lambda _: foreign in life.sequences and life.latest == wanted,
        what=f"repair of {kind} {name}", within_s=_WITHIN_S,
    )  # fmt: skip
    return max(life.changed - drifted, 0.0)


async def _bulk(stage: Stage, arm: str, repetition: int, objects: int) -> None:
    side = Side.of(arm)
    wanted = {
        keys.CONFIG_MAP: names(objects),
        keys.SECRET: names(objects),
        keys.SERVICE: names(objects // SERVICES),
    }
    size = sum(map(len, wanted.values()))
    try:
        async with stage.block(BULK, arm, repetition, size) as draft:
            began = monotonic()
            story = await make(stage, side, wanted)
            draft.figures["bulk_s"] = max(_created(story, side, wanted)) - began
            draft.violations += [f"made twice: {where.name}" for where in story.doubles]
    finally:
        await remove(stage, side, wanted)


def names(count: int) -> list[str]:
    """Return that many names that nobody has used."""
    mark = secrets.token_hex(3)
    return [f"bulk-{mark}-{number}" for number in range(count)]


async def make(stage: Stage, side: Side, wanted: dict[Kind, list[str]]) -> Story:
    """Create all objects at once; return once they are seen in milan."""
    await waiting.together(
        _make_one(stage, side, kind, name) for kind, of_kind in wanted.items() for name in of_kind
    )
    return await stage.observer.until(
        lambda story: _have(story, side, wanted), what="all objects", within_s=_WITHIN_S
    )


async def _make_one(stage: Stage, side: Side, kind: Kind, name: str) -> None:
    cluster = client_of(stage, side.cluster)
    await cluster.create(kind, load.item(kind, side.namespace, name, 1))
    await _replay(stage, side, lambda to: to.create(kind, load.item(kind, side.seen, name, 1)))


def _have(story: Story, side: Side, wanted: dict[Kind, list[str]]) -> bool:
    return all(
        story.of(PROVIDER, kind, side.seen).keys() >= set(of_kind)
        for kind, of_kind in wanted.items()
    )


def _created(story: Story, side: Side, wanted: dict[Kind, list[str]]) -> Sequence[float]:
    return [
        story.of(PROVIDER, kind, side.seen)[name].created
        for kind, of_kind in wanted.items()
        for name in of_kind
    ]


async def remove(stage: Stage, side: Side, wanted: dict[Kind, list[str]]) -> None:
    """Delete the objects; return once none is seen in milan."""
    places = [(client_of(stage, side.cluster), side.namespace)]
    places += [(stage.milan, side.seen)] if side.is_replayed else []
    await waiting.together(
        leftovers.remove(cluster, kind, Key(namespace, name))
        for cluster, namespace in places
        for kind, of_kind in wanted.items()
        for name in of_kind
    )
    await stage.observer.until(
        lambda story: all(
            life.gone is not None
            for kind in wanted
            for life in story.of(PROVIDER, kind, side.seen).values()
        ),
        what="all objects gone", within_s=_WITHIN_S,
    )  # fmt: skip
