"""A Deployment of many pods at once, up to all of them Ready, and away again."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from apis import keys
from apis.objects import Key
from bench import arms, checks, delay, leftovers, load
from bench.floor import Floor
from bench.observe import Life, Story
from bench.result import Block
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, PROVIDER, Draft, Stage
from kube.client import ClusterClient

SUITE: Final = "burst"
DELETION: Final = "deletion"
ARMS: Final = ("vanilla", "floor", "ideal", "ours", *LIQO)
FAR: Final = ("ideal", "ours", *LIQO)
"""Arms in which something speaks to both clusters, from the consumer's."""
PATIENCE_S: Final = 600.0
_FAR_BY: Final = "+"
_OF_ONE_SIDE: Final = ("vanilla",)


@dataclass(frozen=True)
class Place:
    """Where an arm's pods are made, and where their twins are."""

    arm: str
    cluster: str
    namespace: str
    twins: str

    @property
    def created(self) -> int:
        """How many pods the audit logs show as created for each; Liqo applies its remote ones."""
        return 2 if self.twins and self.arm not in LIQO else 1

    @classmethod
    def of(cls, arm: str) -> "Place":
        """Return the place of ``arm``."""
        if arm in _OF_ONE_SIDE:
            return cls(arm, PROVIDER, arms.remote_namespace(arm), "")
        return cls(arm, CONSUMER, arms.local_namespace(arm), arms.remote_namespace(arm))

    def local(self, story: Story) -> dict[str, Life]:
        """Return the pods that the user sees."""
        return story.of(self.cluster, keys.POD, self.namespace)

    def remote(self, story: Story) -> dict[str, Life]:
        """Return their twins on the provider."""
        return story.of(PROVIDER, keys.POD, self.twins) if self.twins else {}


async def run(stage: Stage, settings: Settings) -> None:
    """Burst with every arm and size."""
    chosen = [arm for arm in ARMS if settings.has(arm)]
    for size in settings.sizes:
        what = f"{SUITE} of {size} pods"
        for repetition, order in stage.plan.rounds(what, chosen, settings.repetitions):
            for arm in order:
                await stage.enter(arm)
                for delay_ms in (0, *(settings.delays if arm in FAR else ())):
                    await once(stage, arm, repetition, size, delay_ms)


def far(suite: str, delay_ms: int) -> str:
    """Return what the suite is called where so much round trip is added between the clusters."""
    return f"{suite}{_FAR_BY}{delay_ms}ms" if delay_ms else suite


def delays(blocks: Iterable[Block]) -> list[int]:
    """Return the milliseconds of round trip that were added in some of ``blocks``."""
    parts = (block.suite.partition(_FAR_BY) for block in blocks)
    return sorted({int(told.removesuffix("ms")) for suite, _, told in parts if told})


async def once(stage: Stage, arm: str, repetition: int, size: int, delay_ms: int = 0) -> None:
    """Make ``size`` pods with ``arm``, wait until they run, and remove them: two blocks."""
    async with _apart(stage, delay_ms) as lost:
        await _once(stage, (arm, repetition, size), delay_ms, lost)


@contextlib.asynccontextmanager
async def _apart(stage: Stage, delay_ms: int) -> AsyncIterator[Callable[[], int]]:
    """Have the clusters so far apart, if at all; yield who tells how many packets were lost."""
    if not delay_ms:
        yield lambda: 0
        return
    slots = (stage.sites[CONSUMER].slot, stage.sites[PROVIDER].slot)
    async with delay.between(*slots, delay_ms) as lost:
        yield lost


async def _once(
    stage: Stage, what: tuple[str, int, int], delay_ms: int, lost: Callable[[], int]
) -> None:
    arm, _, size = what
    stage.observer.story.forget()
    place = Place.of(arm)
    burst = _floor(stage, place, size) if arm == "floor" else _deployment(stage, place, size)
    try:
        async with stage.block(far(SUITE, delay_ms), *what, cross_check=True) as draft:
            await burst.make()
            story = await stage.observer.until(
                lambda story: _all_ready(place.local(story), size),
                what=f"{size} pods of {arm} ready", within_s=PATIENCE_S,
            )  # fmt: skip
            _judge(draft, place, story, size)
            draft.violations += checks.lost(lost())
        async with stage.block(far(DELETION, delay_ms), *what, cross_check=True) as draft:
            await burst.remove()
            await _emptied(stage, place)
            draft.violations += checks.lost(lost())
    finally:
        await burst.remove()
    await _emptied(stage, place)


@dataclass(frozen=True)
class _Burst:
    make: Callable[[], Awaitable[object]]
    remove: Callable[[], Awaitable[object]]


def _deployment(stage: Stage, place: Place, size: int) -> _Burst:
    cluster = client_of(stage, place.cluster)
    key = Key(place.namespace, f"burst-{secrets.token_hex(2)}")
    made = load.deployment(*key, size, **arms.scheduling(place.arm))
    return _Burst(
        lambda: cluster.create(keys.DEPLOYMENT, made),
        lambda: leftovers.remove(cluster, keys.DEPLOYMENT, key),
    )


def _floor(stage: Stage, place: Place, size: int) -> _Burst:
    floor = Floor(stage.rome, stage.milan, place.namespace, place.twins)
    mark = secrets.token_hex(2)
    names = [f"floor-{mark}-{number}" for number in range(size)]
    return _Burst(lambda: floor.replay(names), lambda: floor.remove(names))


def client_of(stage: Stage, cluster: str) -> ClusterClient:
    """Return the client of a cluster by name."""
    return stage.rome if cluster == CONSUMER else stage.milan


async def _emptied(stage: Stage, place: Place) -> None:
    await stage.observer.until(
        lambda story: not checks.gone(place.local(story), place.remote(story)),
        what=f"the pods of {place.arm} gone", within_s=PATIENCE_S,
    )  # fmt: skip


def _all_ready(lives: dict[str, Life], size: int) -> bool:
    return sum(life.ready is not None for life in lives.values()) >= size


def _judge(draft: Draft, place: Place, story: Story, size: int) -> None:
    local, remote = _alive(place.local(story)), _alive(place.remote(story))
    first = min(life.created for life in local.values())
    readies = [life.ready - first for life in local.values() if life.ready is not None]
    draft.times["ready"] = readies
    draft.pods = size * place.created
    draft.figures["burst_s"] = max(readies)
    draft.figures["pods_per_s"] = size / max(readies)
    draft.violations += checks.arrived(size, local, remote if place.twins else None)
    draft.violations += checks.doubled([where.name for where in story.doubles])


def _alive(lives: dict[str, Life]) -> dict[str, Life]:
    return {name: life for name, life in lives.items() if life.gone is None}
