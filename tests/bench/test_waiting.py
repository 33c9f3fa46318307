"""Many things at once, but not more than the client's queue can bear."""

import asyncio

import pytest

from bench import waiting


async def test_all_is_done_and_never_more_than_a_couple_of_hundred_at_once() -> None:
    under_way, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done += 1

    await waiting.together(work() for _ in range(3 * waiting.AT_ONCE))

    assert done == 3 * waiting.AT_ONCE
    assert most == waiting.AT_ONCE


async def test_what_fails_is_told() -> None:
    async def fail() -> None:
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        await waiting.together([fail()])
