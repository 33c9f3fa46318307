"""Entries of a NamespaceMap go together while a write of it is on its way, and none is lost."""

import asyncio
from collections.abc import Callable

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object
from controllers.offloading.namespaceoffloading.reconciler import MappingWriter
from kube.errors import ConflictError, InvalidError
from tests.controllers.support import ensure_namespace, local_map, there
from tests.fakes import FakeCluster
from tests.kube.running import until

MAP = Key("liqo-tenant-milan", "milan")


class Slow(FakeCluster):
    """Each patch is held until it is let go, by its number, and may fail then."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[dict[str, str | None]] = []
        self.refused: dict[int, Exception] = {}
        self._passed = asyncio.Semaphore(0)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        number = len(self.patches)
        self.patches.append(dict(changes["spec"]["desiredMapping"]))
        await self._passed.acquire()
        if number in self.refused:
            raise self.refused[number]
        return await super().patch(kind, key, changes, subresource=subresource)

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._passed.release()

    async def desired(self) -> dict[str, str]:
        found = await there(self, keys.NAMESPACE_MAP, MAP)
        return found["spec"].get("desiredMapping") or {}


class Asking:
    """Those who want entries, each in a task of its own."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._entries = MappingWriter(cluster)
        self._asked = 0

    async def ask(self, namespace: str, wanted: str | None) -> asyncio.Task[Object]:
        """Return when it is certain that the entry waits for its turn, or is on its way."""
        before = self._asked
        task = asyncio.create_task(self._write(namespace, wanted))
        await until(lambda: self._asked > before)
        return task

    async def _write(self, namespace: str, wanted: str | None) -> Object:
        self._asked += 1  # and from here on to the first wait nobody else gets a turn
        return await self._entries.write(MAP, namespace, wanted)


@pytest.fixture
async def slow() -> Slow:
    fake = Slow()
    await ensure_namespace(fake, MAP.namespace)
    await fake.create(keys.NAMESPACE_MAP, local_map(MAP.namespace, MAP.name, old="old-rome"))
    return fake


@pytest.fixture
def asking(slow: Slow) -> Asking:
    return Asking(slow)


def has_patches(slow: Slow, count: int) -> Callable[[], bool]:
    return lambda: len(slow.patches) == count


async def test_ten_entries_asked_at_once_are_two_writes(slow: Slow, asking: Asking) -> None:
    tasks = [await asking.ask(f"n{number}", f"n{number}-rome") for number in range(10)]
    slow.let_go(2)

    answers = await asyncio.gather(*tasks)

    assert [len(each) for each in slow.patches] == [1, 9]
    for number, answer in enumerate(answers):
        assert answer["spec"]["desiredMapping"][f"n{number}"] == f"n{number}-rome"
    assert len(await slow.desired()) == 11


async def test_what_the_server_refuses_is_told_to_all_of_the_group(
    slow: Slow, asking: Asking
) -> None:
    first = await asking.ask("first", "first-rome")
    others = [await asking.ask(f"n{number}", "x") for number in range(3)]
    slow.refused[1] = ConflictError("not now")
    slow.let_go(2)

    told = await asyncio.gather(first, *others, return_exceptions=True)

    assert isinstance(told[0], dict)
    assert [str(each) for each in told[1:]] == ["not now"] * 3
    assert await slow.desired() == {"old": "old-rome", "first": "first-rome"}

    again = await asking.ask("n0", "x")
    slow.let_go()
    assert (await again)["spec"]["desiredMapping"]["n0"] == "x"


async def test_an_entry_that_is_invalid_takes_no_other_along(slow: Slow, asking: Asking) -> None:
    first = await asking.ask("first", "x")
    others = [await asking.ask(name, "x") for name in ("a", "bad", "c")]
    refusal = InvalidError("spec.desiredMapping[bad]: no name")
    slow.refused = {1: refusal, 3: refusal}
    slow.let_go(5)

    told = await asyncio.gather(first, *others, return_exceptions=True)

    assert [len(each) for each in slow.patches] == [1, 3, 1, 1, 1]
    assert [isinstance(each, InvalidError) for each in told] == [False, False, True, False]
    assert (await slow.desired()).keys() == {"old", "first", "a", "c"}


async def test_a_removal_and_an_addition_are_written_in_their_order(
    slow: Slow, asking: Asking
) -> None:
    removal = await asking.ask("old", None)
    addition = await asking.ask("old", "new-rome")
    slow.let_go(2)
    await asyncio.gather(removal, addition)
    assert slow.patches == [{"old": None}, {"old": "new-rome"}]
    assert await slow.desired() == {"old": "new-rome"}

    tasks = [
        await asking.ask(*each) for each in (("first", "x"), ("old", None), ("old", "last-rome"))
    ]
    slow.let_go(2)
    await asyncio.gather(*tasks)
    assert slow.patches[2:] == [{"first": "x"}, {"old": "last-rome"}]
    assert (await slow.desired())["old"] == "last-rome"


async def test_whoever_is_cancelled_takes_nobody_along(slow: Slow, asking: Asking) -> None:
    first = await asking.ask("first", "x")
    leaves, stays = await asking.ask("leaves", "x"), await asking.ask("stays", "x")
    slow.let_go()
    await first
    await until(has_patches(slow, 2))

    leaves.cancel()
    await until(has_patches(slow, 3))
    slow.let_go()

    assert (await stays)["spec"]["desiredMapping"]["stays"] == "x"
    assert leaves.cancelled()
    assert (await slow.desired())["stays"] == "x"


async def test_maps_do_not_wait_for_each_other() -> None:
    fake, entries = Slow(), None
    keys_ = [Key(f"liqo-tenant-{name}", name) for name in ("milan", "turin")]
    for key in keys_:
        await ensure_namespace(fake, key.namespace)
        await fake.create(keys.NAMESPACE_MAP, local_map(key.namespace, key.name))
    entries = MappingWriter(fake)
    tasks = [asyncio.create_task(entries.write(key, "shop", "shop-rome")) for key in keys_]
    await until(has_patches(fake, 2))
    fake.let_go(2)
    answers = await asyncio.gather(*tasks)
    assert [objects.key_of(each) for each in answers] == keys_
