"""Workers that wait for keys, and leave."""

import asyncio

import pytest

from kube.queue import Queue, QueueClosedError
from tests.kube.running import Time, dice, running, turns, until


async def test_a_waiting_worker_gets_what_is_added() -> None:
    queue: Queue[str] = Queue()
    worker = asyncio.ensure_future(queue.get())
    await turns()
    queue.add("a")

    assert await worker == "a"


async def test_a_delayed_key_comes_in_its_time() -> None:
    queue: Queue[str] = Queue()
    queue.add_after("late", 0.02)
    queue.add_after("early", 0.01)

    assert [await queue.get(), await queue.get()] == ["early", "late"]


async def test_a_worker_that_waits_for_a_late_key_gets_an_earlier_one() -> None:
    queue: Queue[str] = Queue()
    queue.add_after("late", 3600)
    worker = asyncio.ensure_future(queue.get())
    await turns()
    queue.add_after("early", 0.001)

    assert await worker == "early"


async def test_a_worker_that_leaves_takes_no_key_with_it() -> None:
    queue: Queue[str] = Queue()
    one = asyncio.ensure_future(queue.get())
    two = asyncio.ensure_future(queue.get())
    await turns()
    queue.add("a")
    one.cancel()

    assert await two == "a"
    await asyncio.wait({one})


async def test_many_workers_do_each_key_alone_and_all_of_them() -> None:
    queue: Queue[int] = Queue()
    working: set[int] = set()
    finished: list[int] = []
    chance = dice(1)

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in working
            working.add(key)
            await turns(chance.randrange(5))
            working.discard(key)
            finished.append(key)
            queue.done(key)

    async with running(*(work() for _ in range(8))):
        for _ in range(2000):
            queue.add(chance.randrange(50))
            await turns(chance.randrange(2))
        await until(lambda: queue.is_idle)

    assert set(finished) == set(range(50))


async def test_a_closed_queue_is_emptied_and_then_ends_its_workers() -> None:
    queue: Queue[str] = Queue()
    queue.add("a")
    queue.add("b")
    queue.add_after("later", 3600)
    queue.shutdown()
    queue.add("c")

    done = [await queue.get(), await queue.get()]
    waiting = asyncio.ensure_future(queue.get())
    await turns()
    assert not waiting.done()
    for key in done:
        queue.done(key)

    assert done == ["a", "b"]
    with pytest.raises(QueueClosedError):
        await waiting
    await queue.idle()


async def test_the_age_is_that_of_the_oldest_key() -> None:
    time = Time()
    queue: Queue[str] = Queue(clock=time)
    assert queue.oldest_age_s() == 0
    queue.add("a")
    time.now += 5
    queue.add("b")

    assert queue.oldest_age_s() == 5
    await queue.get()
    assert queue.oldest_age_s() == 0
