"""What a system at rest costs: requests and CPU of our processes, by virtual nodes."""

import asyncio
from typing import Final

from apis import keys, naming
from apis.objects import Key
from bench import arms, counters, leftovers
from bench.settings import Settings
from bench.stage import PROVIDER, Stage

SUITE: Final = "idle"
ARM: Final = "ours"


async def run(stage: Stage, settings: Settings) -> None:
    """Watch the system do nothing, with each number of virtual nodes."""
    if not settings.has(ARM):
        return
    made: list[str] = []
    try:
        for count in settings.virtual_nodes:
            for number in range(1 + len(made), count):
                made.append(f"{arms.VIRTUAL_NODE}-{number}")
                await arms.virtual_node(stage, made[-1])
            await _rest(stage, count, settings.rest_s)
    finally:
        await _remove(stage, made)


async def _rest(stage: Stage, count: int, seconds: float) -> None:
    """Judge a rest after another, in which what the last load left comes to its end."""
    await asyncio.sleep(min(seconds, 20.0))
    async with stage.block(SUITE, ARM, 0, count) as draft:
        ours = counters.ours(stage.components())
        draft.figures["virtual_nodes"] = sum(one.name == "kubelet" for one in ours)
        await asyncio.sleep(seconds)


async def _remove(stage: Stage, names: list[str]) -> None:
    tenant = naming.tenant_namespace(PROVIDER)
    for name in names:
        await leftovers.remove(stage.rome, keys.VIRTUAL_NODE, Key(tenant, name))
    for name in names:
        await leftovers.gone(stage.rome, keys.VIRTUAL_NODE, Key(tenant, name))
