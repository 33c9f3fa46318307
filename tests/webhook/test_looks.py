"""Looks at the server that reviews share, and none of them is older than its review."""

import asyncio

import pytest

from apis import keys
from apis.objects import Key, Kind, Object
from kube.errors import KubeError, NotReachableError
from webhook.looks import PATIENCE_S, Looks

SHOP, OTHER = Key("shop", "offloading"), Key("other", "offloading")


class Server:
    """Answers with what is there when a request comes, once ``answers`` lets it."""

    def __init__(self) -> None:
        self.revision = 0
        self.requests: list[Key] = []
        self.came = asyncio.Queue[Key]()
        self.answers = asyncio.Event()
        self.error: Exception | None = None
        self.looks = Looks(self.read)

    async def read(self, _kind: Kind, key: Key) -> Object | None:
        self.requests.append(key)
        self.came.put_nowait(key)
        seen = {"revision": self.revision}
        await self.answers.wait()
        if self.error:
            raise self.error
        return seen

    def ask(self, key: Key = SHOP, *, within_s: float = 60) -> asyncio.Task[Object | None]:
        until = asyncio.get_running_loop().time() + within_s
        return asyncio.create_task(self.looks.at(keys.NAMESPACE_OFFLOADING, key, until))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_burst_costs_two_requests_and_nobody_is_told_what_was_true_before_asking() -> None:
    server = Server()
    first = server.ask()
    await turns()

    server.revision = 1  # after the first look began
    rest = [server.ask() for _ in range(30)]
    await turns()
    server.answers.set()

    assert await first == {"revision": 0}
    assert await asyncio.gather(*rest) == [{"revision": 1}] * 30
    assert server.requests == [SHOP, SHOP]


async def test_looks_at_different_objects_do_not_wait_for_each_other() -> None:
    server = Server()

    asked = [server.ask(), server.ask(OTHER)]
    await turns()

    assert server.requests == [SHOP, OTHER]
    server.answers.set()
    await asyncio.gather(*asked)


async def test_who_gives_up_leaves_the_look_to_the_others() -> None:
    server = Server()
    impatient, patient = server.ask(), server.ask()
    await turns()

    impatient.cancel()
    await turns()
    server.answers.set()

    assert await patient == {"revision": 0}
    assert impatient.cancelled()
    assert server.requests == [SHOP]


async def test_a_look_ends_with_the_patience_of_all_who_share_it() -> None:
    server = Server()
    long, short = server.ask(within_s=0.2), server.ask(within_s=0)

    with pytest.raises(NotReachableError, match="in time"):
        await long
    assert isinstance(short.exception(), NotReachableError)
    assert server.requests == [SHOP]
    server.answers.set()
    assert await server.ask() == {"revision": 0}


async def test_a_failure_is_told_to_all_who_share_it_and_to_nobody_later() -> None:
    server = Server()
    server.answers.set()
    server.error = KubeError("etcd is away")
    failed = await asyncio.gather(server.ask(), server.ask(), return_exceptions=True)

    server.error = None

    assert [str(error) for error in failed] == ["etcd is away"] * 2
    assert await server.ask() == {"revision": 0}
    assert server.requests == [SHOP, SHOP]


async def test_a_look_that_hangs_does_not_keep_the_next_one() -> None:
    server = Server()
    hanging = server.ask()
    await turns()

    later = [server.ask(), server.ask()]
    async with asyncio.timeout(100 * PATIENCE_S):
        for _ in range(2):
            await server.came.get()

    assert server.requests == [SHOP, SHOP]
    server.answers.set()
    await asyncio.gather(hanging, *later)
    assert await server.ask() == {"revision": 0}
