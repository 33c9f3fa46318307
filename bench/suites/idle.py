"""What a system at rest costs: requests, CPU and memory of our processes, by virtual nodes.

Each virtual node is a Deployment of ours with its two processes; all go to the simulated nodes of
the one provider.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from apis import keys, naming
from apis.objects import Key
from bench import arms, counters, leftovers, waiting
from bench.settings import LIQO, Settings
from bench.stage import PROVIDER, Stage
from bench.suites import memory

SUITE: Final = "idle"
ARM: Final = "ours"
KUBELETS: Final = ("kubelet", "liqo-kubelet")
_AT_ONCE: Final = 5
"""So many virtual nodes start together: each is two interpreters that want a core."""
_LEAD_S: Final = 20.0


async def run(stage: Stage, settings: Settings) -> None:
    """Watch each system do nothing; pyliqo with each number of virtual nodes."""
    for arm in (ARM, *LIQO):
        if settings.has(arm):
            await stage.enter(arm)
            await (_ours(stage, settings) if arm == ARM else _rest(stage, arm, 1, settings.rest_s))


async def _ours(stage: Stage, settings: Settings) -> None:
    made: list[str] = []
    before = _kubelets(stage)
    try:
        for count in settings.virtual_nodes:
            names = [f"{arms.VIRTUAL_NODE}-{number}" for number in range(1 + len(made), count)]
            try:
                for few in batched(names, _AT_ONCE):
                    made += few
                    await _ready(stage, few)
            except RuntimeError as error:  # a small machine may have no room for that many
                stage.plan.cut.append(f"{SUITE} with {count} virtual nodes: {error}")
                break
            await _rest(stage, ARM, count, settings.rest_s)
    finally:
        await _remove(stage, made, before)


async def _ready(stage: Stage, names: Sequence[str]) -> None:
    """Make virtual nodes, and wait for all of them even if one does not come."""
    made = await asyncio.gather(
        *(arms.virtual_node(stage, name) for name in names), return_exceptions=True
    )
    for failure in filter(None, made):
        raise failure


def batched(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return ``names`` in parts of at most ``size``."""
    return [names[first : first + size] for first in range(0, len(names), size)]


async def _rest(stage: Stage, arm: str, count: int, seconds: float) -> None:
    """Judge a rest after another, in which what the last load left comes to its end."""
    await asyncio.sleep(min(seconds, _LEAD_S))
    async with stage.block(SUITE, arm, 0, count) as draft:
        draft.figures["virtual_nodes"] = _kubelets(stage)
        memory.note(draft, await memory.sampled(stage, seconds))


def _kubelets(stage: Stage) -> int:
    return sum(one.name in KUBELETS for one in counters.system(stage.components()))


async def _remove(stage: Stage, names: Sequence[str], left: int) -> None:
    """Remove the virtual nodes ``names``; return when only so many processes are ``left``."""
    tenant = naming.tenant_namespace(PROVIDER)
    for name in names:
        await leftovers.remove(stage.rome, keys.VIRTUAL_NODE, Key(tenant, name))
    for name in names:
        await leftovers.gone(stage.rome, keys.VIRTUAL_NODE, Key(tenant, name))
    await waiting.until(
        lambda: asyncio.to_thread(_kubelets, stage), lambda found: found <= left,
        what="the processes of removed virtual nodes gone",
    )  # fmt: skip
