"""ConfigMaps, Secrets and Services that follow their originals: one by one, and all at once."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from apis import keys
from apis.objects import Key, Kind
from bench import arms, leftovers, load, waiting
from bench.observe import Story
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, PROVIDER, Stage
from bench.suites.burst import client_of
from bench.suites.offload import since

SUITE: Final = "reflection"
BULK: Final = "reflection-bulk"
ARMS: Final = ("bare", "ours", *LIQO)
KINDS: Final = (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE)
SERVICES: Final = 5
"""One Service for so many ConfigMaps and so many Secrets."""
_EACH: Final = 10
_WITHIN_S: Final = 300.0
_DRIFTED: Final = -1


@dataclass(frozen=True)
class Side:
    """Where an arm writes, and where what it wrote is to be seen in milan."""

    cluster: str
    namespace: str
    seen: str

    @classmethod
    def of(cls, arm: str) -> "Side":
        """Return the side of ``arm``; ``bare`` writes straight to the provider."""
        if arm == "bare":
            there = arms.remote_namespace(arm)
            return cls(PROVIDER, there, there)
        return cls(CONSUMER, arms.local_namespace(arm), arms.remote_namespace(arm))


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
        for kind in KINDS:
            for number in range(_EACH):
                await _life(stage, side, kind, f"single-{mark}-{number}", draft.times)


async def _life(
    stage: Stage, side: Side, kind: Kind, name: str, times: dict[str, list[float]]
) -> None:
    """Create, change and delete one object; note when each was seen, and what the write took."""
    cluster, key = client_of(stage, side.cluster), Key(side.namespace, name)
    began = monotonic()
    made = await cluster.create(kind, load.item(kind, *key, 1))
    await _note(stage, side, kind, name, "1", (began, monotonic(), "create"), times)
    began = monotonic()
    await cluster.patch(kind, key, load.changed(kind, 2))
    await _note(stage, side, kind, name, "2", (began, monotonic(), "update"), times)
    if side.cluster == CONSUMER and kind == keys.CONFIG_MAP:
        times.setdefault("drift", []).append(await _drift(stage, side, kind, name))
    began = monotonic()
    await cluster.delete(kind, key, uid=made["metadata"]["uid"])
    await _note(stage, side, kind, name, "", (began, monotonic(), "delete"), times)


async def _note(  # noqa: PLR0913, PLR0917  # one write: where, what, when
    stage: Stage,
    side: Side,
    kind: Kind,
    name: str,
    sequence: str,
    write: tuple[float, float, str],
    times: dict[str, list[float]],
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
    times.setdefault(f"{verb}-write", []).append(answered - began)
    times.setdefault(verb, []).append(
        since(seen, answered, when(story, side.cluster, side.namespace))
    )


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
    cluster = client_of(stage, side.cluster)
    await waiting.together(
        cluster.create(kind, load.item(kind, side.namespace, name, 1))
        for kind, of_kind in wanted.items()
        for name in of_kind
    )
    return await stage.observer.until(
        lambda story: _have(story, side, wanted), what="all objects", within_s=_WITHIN_S
    )


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
    cluster = client_of(stage, side.cluster)
    await waiting.together(
        leftovers.remove(cluster, kind, Key(side.namespace, name))
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
