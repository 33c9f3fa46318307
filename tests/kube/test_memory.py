"""What ended is not kept until hundreds of others have ended, too."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from apis import keys
from apis.objects import Object
from kube import memory
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.dynamicinformer import DynamicInformers, InformerFeed
from kube.informer import Informer
from tests.fakes import FakeCluster
from tests.kube.running import running, until


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Let nothing be collected but what the module collects."""
    memory.settle()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


async def came_and_went() -> weakref.ref[Informer[Object]]:
    """Follow something as that of a namespace is followed; return what leads to it."""
    informer = Informer(Selection(keys.CONFIG_MAP, Object, "shop"))
    scope = DynamicInformers([InformerFeed(informer, CachedCluster(FakeCluster()))])
    async with running(scope.run(begin=lambda: None, end=lambda: None)):
        await until(informer.synced.is_set)
    return weakref.ref(informer)


async def test_what_was_followed_is_collected_soon_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "GIVE_BACK_S", 0.01)
    gone = await came_and_went()

    async with running(memory.give_back_for_ever()):
        await until(lambda: gone() is None)

    assert not memory.owes()


async def test_what_was_there_when_caches_were_filled_is_collected_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "GIVE_BACK_S", 0.01)
    informer = Informer(Selection(keys.CONFIG_MAP, Object, "shop"))
    scope = DynamicInformers([InformerFeed(informer, CachedCluster(FakeCluster()))])
    async with running(scope.run(begin=lambda: None, end=lambda: None)):
        await until(informer.synced.is_set)
        memory.settle()
        gone = weakref.ref(informer)
        del informer, scope

    async with running(memory.give_back_for_ever()):
        await until(lambda: gone() is None)


async def test_while_nothing_ends_nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep = 0, asyncio.sleep

    async def hurry(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == memory.GIVE_BACK_S
        await sleep(min(seconds, 0.001))

    monkeypatch.setattr(asyncio, "sleep", hurry)
    runs = sum(generation["collections"] for generation in gc.get_stats())

    async with running(memory.give_back_for_ever()):
        await until(lambda: pauses > 2)

    assert sum(generation["collections"] for generation in gc.get_stats()) == runs
