"""What caches keep of objects is small, and comes out as it went in."""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import memory
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.dynamicinformer import DynamicInformers, InformerFeed
from kube.informer import Informer
from kube.slim import Packed, PackedState, ReadYourWrites
from kube.untrusted.decode import Decoder, Reader
from kube.wire import UntrustedBytes
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running, until


def sized_map(size: int) -> Object:
    metadata = {"uid": "u-1", "resourceVersion": "7"}
    return named(keys.CONFIG_MAP, Key("shop", "web"), metadata=metadata, data={"ä": "x" * size})


@pytest.mark.parametrize("size", [0, 1000, 2**15, 2**20])
def test_whatever_its_size_an_object_is_what_it_was(size: int) -> None:
    packed = Packed.of(sized_map(size))
    assert packed.whole() == sized_map(size)
    assert msgspec.json.decode(packed.json(), type=dict[str, Any]) == sized_map(size)
    assert (packed.metadata.uid, packed.metadata.resource_version) == ("u-1", "7")


def test_a_pod_is_kept_as_half_its_json_at_most_and_a_large_object_as_it_is() -> None:
    metadata = {"uid": "0b4cf1d0-6f0e-4b8a-9df0-62f2f1fb8a11", "resourceVersion": "123456"}
    condition = {"status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {"phase": "Running", "conditions": [{"type": kind, **condition} for kind in kinds]}
    pod = factories.pod("shop", "web", metadata=metadata, status=status)
    for packed in (Packed.of(pod), PackedState.of(pod)):
        assert len(packed.packed) * 2 < len(packed.json())
    large = Packed.of(sized_map(2**20))
    assert large.packed is large.json(), "milliseconds are not spent on it"


@pytest.mark.parametrize("shape", [Packed, PackedState])
def test_of_a_large_object_a_cache_keeps_little(shape: type[Packed]) -> None:
    pod = factories.pod("shop", "web", metadata={"uid": "u-1", "resourceVersion": "7"})
    pod["metadata"]["annotations"] = {keys.LOCAL_POD_UID: "u-0", "note": "x" * 2**18}
    pod["metadata"]["labels"] = {f"of-a-user/{n}": "x" * 60 for n in range(1000)}
    pod["spec"]["nodeName"] = "milan"
    pod["spec"]["containers"][0]["args"] = ["x" * 2**20]
    pod["status"] = {"phase": "Running", "conditions": [{"message": "x" * 2**15}]}

    kept = shape.cached(pod)

    assert kept.is_outline
    assert len(kept.packed) < 2**10
    said = kept.whole()
    assert said["metadata"]["annotations"] == {keys.LOCAL_POD_UID: "u-0"}
    assert said["metadata"]["uid"] == "u-1"
    assert said["status"] == {"phase": "Running"}
    assert ("spec" in said) is (shape is Packed)
    assert said.get("spec", {}).get("nodeName") == ("milan" if shape is Packed else None)


def test_what_is_not_large_a_cache_keeps_whole() -> None:
    kept = Packed.cached(sized_map(2**14))
    assert not kept.is_outline
    assert kept.whole() == sized_map(2**14)


# What was written last is known while the cache is behind, and no longer --------------------------


def versioned(version: str, **data: str) -> Object:
    made = factories.config_map("shop", "web", **data)
    return {**made, "metadata": {**made["metadata"], "uid": "u-1", "resourceVersion": version}}


def test_while_the_cache_is_behind_what_was_written_is_the_newest() -> None:
    old, new, newer = versioned("1"), versioned("2", a="1"), versioned("3", a="2")
    key, written = objects.key_of(old), ReadYourWrites()
    assert written.newest(key, old) is old
    written.add(old, new)
    assert written.newest(key, old) == new
    written.add(new, newer)
    assert [written.newest(key, cached) for cached in (old, new)] == [newer, newer]
    assert written.newest(key, newer) is newer
    assert written.newest(key, old) is old, "once the cache has shown it, its word counts"


def test_what_is_gone_or_of_another_version_is_forgotten() -> None:
    old, new = versioned("1"), versioned("2", a="1")
    key, written = objects.key_of(old), ReadYourWrites()
    for cached in (None, versioned("7")):
        written.add(old, new)
        written.newest(key, cached)
        assert written.newest(key, old) is old
    written.add(old, new)
    written.forget(key)
    assert written.newest(key, old) is old


# What ended is not kept until hundreds of others have ended, too.


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


def test_of_parts_that_objects_have_in_common_one_is_kept() -> None:
    parts = {"roleRef": {"name": "edit"}, "subjects": [{"kind": "Group", "name": "rome"}]}
    bindings = [
        named(
            keys.ROLE_BINDING,
            Key(space, "rome"),
            metadata={"uid": space, "labels": {"a": "b"}},
            **parts,
        )
        for space in ("one", "two")
    ]
    said = UntrustedBytes(msgspec.json.encode({"metadata": {}, "items": bindings}))
    alike = Selection(keys.ROLE_BINDING, Object, is_alike=True)
    found = Reader(alike, Decoder()).page(said).items
    assert found == Reader(replace(alike, is_alike=False), Decoder()).page(said).items
    one, two = found.values()
    assert [one[name] is two[name] for name in parts] == [True, True]
    assert one["metadata"]["labels"] is two["metadata"]["labels"]


@pytest.mark.parametrize("length", [300, 30_000])
def test_what_is_kept_for_many_is_bounded(length: int) -> None:
    tracemalloc.start()
    try:
        for number in range(20_000_000 // length):
            objects.shared([f"{number:0{length}}"])
        assert tracemalloc.get_traced_memory()[0] < 6 * 2**20
    finally:
        tracemalloc.stop()
