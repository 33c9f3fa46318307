"""Whatever comes in which order: Pods, and what is booked by name and ahead, are within the Quota.

Keepers are replaced at any moment, and who was replaced creates Pods out of the reserve for as long
as a successor reckons with it.
"""

import contextlib
import random

from apis import keys, resources
from apis.objects import Key, Object
from apis.resources import Quantity
from controllers.offloading.quota.reconciler import HELD_S
from kube.cluster import Selection
from kube.errors import KubeError
from tests.conftest import size_of
from tests.controllers.quotaworld import World, following, sized
from tests.controllers.test_quota_under_fire import ahead
from tests.fakes import FakeCluster

GRANTED = 16
STEPS = 100
FEW = 2
SEEDS = size_of("PYLIQO_SEEDS", 12, 1000)


class Game:
    """One order of events; ``worlds`` are all keepers so far, the last one is it now."""

    def __init__(self, seed: int, stack: contextlib.AsyncExitStack, first: World) -> None:
        self.dice = random.Random(seed)  # noqa: S311  # an order, no secret
        self.stack, self.worlds = stack, [first]
        self.names: list[str] = []
        self.replaced_at = 0.0
        self.drawn = 0

    @property
    def keeper(self) -> World:
        return self.worlds[-1]

    async def play(self) -> None:
        moves = [self.ask] * 5 + [self.remove] * 2 + [self.end] * 2 + [self.replace, self.wait]
        moves += [self.grow] * 2 + [self.book] * 5 + [self.create] * 2 + [self.late] * 3
        for _ in range(STEPS):
            await self.dice.choice(moves)()
            await self.check()

    async def ask(self) -> None:
        name = f"pod-{len(self.names)}"
        self.names.append(name)
        await self.keeper.ask(name, str(self.dice.randint(1, 2)))

    async def grow(self) -> None:
        """Let one ask for another size: for more, or less, whether its Pod exists or not."""
        for name in self.names[-FEW:]:
            changes = {"spec": {"pod": sized(str(self.dice.randint(1, 3)))}}
            with contextlib.suppress(KubeError):
                key = Key(self.keeper.namespace, name)
                await self.keeper.cluster.patch(keys.SHADOW_POD, key, changes)

    async def remove(self) -> None:
        if self.names:
            await self.keeper.remove(self.dice.choice(self.names))

    async def end(self) -> None:
        for name in (await self.keeper.running())[:1]:
            key = Key(self.keeper.namespace, name)
            await self.keeper.cluster.patch_status(keys.POD, key, {"phase": "Succeeded"})

    async def book(self) -> None:
        if self.dice.random() < 0.7:  # else by caches that are behind
            await self.keeper.caught_up()
        with contextlib.suppress(KubeError):
            await self.keeper.quota.reconcile(self.keeper.key)
        self.drawn += len(self.keeper.quota._drawn.get(self.keeper.key, {}))  # noqa: SLF001

    async def create(self) -> None:
        await self.create_by(self.keeper)

    async def late(self) -> None:
        """Let a predecessor create, for as long as it may."""
        if len(self.worlds) > 1 and self.keeper.now - self.replaced_at < HELD_S:
            await self.create_by(self.worlds[-2])

    async def create_by(self, world: World) -> None:
        await world.caught_up()
        waiting = list(world.shadows.items())
        for key in self.dice.sample(waiting, min(FEW, len(waiting))):
            with contextlib.suppress(KubeError):
                await world.loop.reconcile(key)

    async def replace(self) -> None:
        before = self.keeper
        if len(self.worlds) > 1 and before.now - self.replaced_at < HELD_S:
            return  # one predecessor at a time: the one before it is over by then
        made = World(before.cluster, before.namespace, term=f"term-{len(self.worlds)}")
        made.now = before.now
        self.worlds.append(await self.stack.enter_async_context(following(made)))
        self.replaced_at = made.now

    async def wait(self) -> None:
        for world in self.worlds:
            world.now += 1.0

    async def check(self) -> None:
        world = self.keeper
        pods = (await world.cluster.list(Selection(keys.POD, Object, world.namespace))).items
        alive = [
            pod for pod in pods.values() if (pod.get("status") or {}).get("phase") != "Succeeded"
        ]
        taken = resources.total(resources.usage(pod["spec"]) for pod in alive)
        assert taken.get("cpu", Quantity()) <= resources.parse_quantity(GRANTED)
        status = await world.status()
        booked = resources.total(
            map(resources.parse_resources, (status.get("booked"), ahead(status)))
        )
        assert booked.get("cpu", Quantity()) <= resources.parse_quantity(GRANTED)


def resizes(world: World) -> int:
    """Return how many requests changed a Pod."""
    return [write[:2] for write in world.ledger.writes].count(("patch", str(keys.POD)))


async def test_nothing_is_above_the_quota_in_any_order() -> None:
    drawn = resized = 0
    for seed in range(SEEDS):
        async with contextlib.AsyncExitStack() as stack:
            first = World(FakeCluster(), "pool")
            await first.grant(str(GRANTED))
            game = Game(seed, stack, await stack.enter_async_context(following(first)))
            await game.play()
            drawn += game.drawn
            resized += sum(map(resizes, game.worlds))
            for _ in range(round(HELD_S) + 1):
                await game.wait()
            await game.keeper.settle()
            await game.check()
    assert resized, "no Pod ever changed its size"
    assert drawn, "nothing was ever drawn from the reserve"
