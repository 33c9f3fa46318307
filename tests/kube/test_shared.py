"""One read for all who come at a time; what is old, forgotten or failed is read again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kube.ratelimit import SingleFlightRead


def reader(answers: list[object]) -> Callable[[], Awaitable[object]]:
    async def read() -> object:
        await asyncio.sleep(0)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return read


async def test_who_comes_while_it_is_read_or_soon_after_shares_the_answer() -> None:
    now = [0.0]
    shared = SingleFlightRead(reader(["a", "b"]), good_s=10, clock=lambda: now[0])

    assert await asyncio.gather(*(shared.get() for _ in range(100))) == ["a"] * 100
    now[0] = 10
    assert await shared.get() == "a"
    now[0] = 11
    assert await shared.get() == "b"


async def test_what_is_forgotten_while_it_is_read_is_read_anew_for_who_comes_then() -> None:
    shared = SingleFlightRead(reader(["old", "new"]), good_s=10)
    before = asyncio.ensure_future(shared.get())
    await asyncio.sleep(0)

    shared.forget()

    assert await shared.get() == "new"
    assert await before == "old"


async def test_a_failure_is_that_of_all_who_waited_and_of_nobody_else() -> None:
    shared = SingleFlightRead(reader([OSError("away"), "b"]), good_s=10)

    found = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)

    assert [str(one) for one in found] == ["away"] * 3
    assert await shared.get() == "b"


async def test_who_gives_up_takes_nobody_along() -> None:
    shared = SingleFlightRead(reader(["a"]), good_s=10)
    one, other = (asyncio.ensure_future(shared.get()) for _ in range(2))
    await asyncio.sleep(0)

    one.cancel()

    assert await other == "a"
    with pytest.raises(asyncio.CancelledError):
        await one
