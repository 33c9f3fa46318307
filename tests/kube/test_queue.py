"""Which key is next, held against a slow and simple reference."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.queue import (
    BURST,
    LINES,
    MAX_S,
    RETRIES_PER_S,
    WITHHELD_MAX_S,
    Queue,
    QueueClosedError,
)
from tests.conftest import size_of
from tests.kube.running import Time, dice, running, turns, until

SCHEDULES: Final = size_of("PYLIQO_SCHEDULES", 2000, 100_000)


@dataclass
class Reference:
    """What a work queue promises, in lists and by looking at everything each time."""

    ready: list[int] = field(default_factory=list)
    working: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    later: dict[int, tuple[float, int]] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    retries: list[float] = field(default_factory=list)
    count: int = 0

    def add(self, key: int) -> None:
        waiting = self.again if key in self.working else self.ready
        if key not in waiting:
            waiting.append(key)

    def add_after(self, key: int, now: float, seconds: float) -> None:
        if not seconds:
            self.add(key)
            return
        when = now + seconds
        self.count += 1
        if key not in self.later or when < self.later[key][0]:
            self.later[key] = (when, self.count)

    def retry(self, key: int, now: float) -> float:
        self.failures[key] = self.failures.get(key, 0) + 1
        own = 0.005
        for _ in range(self.failures[key] - 1):
            own = min(own * 2, 1000)
        delay = max(own, self._ration(now))
        self.add_after(key, now, delay)
        return delay

    def take(self, now: float) -> int | None:
        due = sorted((when, count, key) for key, (when, count) in self.later.items())
        for when, _, key in due:
            if when <= now:
                del self.later[key]
                self.add(key)
        if not self.ready:
            return None
        self.working.append(self.ready[0])
        return self.ready.pop(0)

    def done(self, key: int) -> None:
        self.working.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append(key)

    def _ration(self, now: float) -> float:
        # Played again from the start: 100 tokens, 10 a second, a debt is a delay.
        self.retries.append(now)
        tokens, at = 100.0, self.retries[0]
        for moment in self.retries:
            tokens = min(100.0, tokens + (moment - at) * 10) - 1
            at = moment
        return max(0.0, -tokens / 10)


def play_steps(dice: random.Random, steps: int) -> None:
    """Do ``steps`` random things to a queue and to the reference; they must always agree."""
    reference, time = Reference(), Time(0)
    queue: Queue[int] = Queue(clock=time)
    for _ in range(steps):
        key = dice.randrange(4)
        move = dice.randrange(8)
        if move == 0:
            time.now += dice.choice((0.0, 0.001, 0.005, 0.1, 3.0))
        elif move == 1:
            queue.add(key)
            reference.add(key)
        elif move == 2:
            after_s = dice.choice((0.0, 0.004, 0.1, 1.0))
            queue.add_after(key, after_s)
            reference.add_after(key, time.now, after_s)
        elif move in {3, 4}:
            assert queue.take() == reference.take(time.now)
        elif move == 5 and reference.working:
            finished = dice.choice(reference.working)
            queue.done(finished)
            reference.done(finished)
        elif move == 6:
            assert queue.retry(key) == pytest.approx(reference.retry(key, time.now))
        else:
            queue.forget(key)
            reference.failures.pop(key, None)
        assert len(queue) == len(reference.ready)
        assert len(set(reference.working)) == len(reference.working)
        assert queue.is_idle == (not reference.ready + reference.working)


def test_thousands_of_random_schedules_agree_with_the_reference() -> None:
    chance = dice(20)
    for _ in range(SCHEDULES):
        play_steps(chance, 40)


@settings(max_examples=SCHEDULES // 20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 300))
def test_any_schedule_agrees_with_the_reference(dice: random.Random, steps: int) -> None:
    play_steps(dice, steps)


def test_the_same_key_waits_once() -> None:
    queue: Queue[str] = Queue()
    for _ in range(3):
        queue.add("a")

    assert queue.take() == "a"
    assert queue.take() is None


def test_a_key_is_never_worked_on_twice_at_a_time_and_runs_again_if_it_changed() -> None:
    queue: Queue[str] = Queue()
    queue.add("a")
    queue.take()
    queue.add("a")
    queue.add("a")
    assert queue.take() is None

    queue.done("a")

    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None


def test_back_off_doubles_from_5_ms_to_1000_s_and_is_forgotten() -> None:
    queue: Queue[str] = Queue(clock=Time(0))
    delays = [queue.retry("a") for _ in range(25)]

    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == MAX_S == 1000
    assert queue.failures("a") == 25
    queue.forget("a")
    assert queue.retry("a") == 0.005


def test_retries_of_all_keys_share_a_ration() -> None:
    queue: Queue[int] = Queue(clock=Time(0))
    delays = [queue.retry(key) for key in range(120)]

    assert (RETRIES_PER_S, BURST) == (10, 100)
    assert delays[:100] == [0.005] * 100
    assert delays[100:] == pytest.approx([0.1 * (n + 1) for n in range(20)])


def test_no_line_waits_for_the_retries_of_another() -> None:
    """A flood of keys that fail keeps no other tenant from its next try."""
    queue: Queue[tuple[str, int]] = Queue(clock=Time(0), line=lambda key: key[0])
    flood = [queue.retry(("rome", number)) for number in range(10_000)]

    assert flood[-1] == pytest.approx((10_000 - BURST) / RETRIES_PER_S)
    assert queue.retry(("naples", 0)) == 0.005
    others = [queue.retry((f"tenant-{number}", 0)) for number in range(LINES)]
    assert max(others) == 0.005


def test_keys_whose_server_is_away_wait_shortly_and_take_nobodys_ration() -> None:
    queue: Queue[int] = Queue(clock=Time(0))
    for _ in range(8):
        waits = {queue.await_server(key) for key in range(5000)}

    assert waits == {5.0}
    assert queue.retry(1) == 0.005  # neither tokens nor its own back-off were touched
    assert queue.next_due() == 0.005
    queue.forget(1)
    assert queue.await_server(1) == 0.2


def resumed_s(keys: int, outage_s: float, *, keys_a_s: float) -> tuple[float, float]:
    """Play an outage in which no key is let; return the seconds until all are, and tries a second.

    The tries a second are those of the outage but for its first minute. Every key takes a worker
    the same time, whether it is let or not.
    """
    time = Time(0)
    queue: Queue[int] = Queue(clock=time, dice=dice(34).random)
    left, tries = set(range(keys)), 0
    for each in left:
        queue.add(each)
    while left:
        if (key := queue.take()) is None:
            time.now = max(time.now, queue.next_due() or time.now)
            continue
        time.now += 1 / keys_a_s
        if time.now < outage_s:
            queue.hold(key)
            tries += time.now > 60
        else:
            left.discard(key)
            queue.forget(key)
        queue.done(key)
    return time.now - outage_s, tries / (outage_s - 60)


@pytest.mark.parametrize("outage_s", [100.0, 1000.0])
@pytest.mark.parametrize("keys", [1, 100, 1000, 5000])
def test_what_a_server_does_not_let_goes_on_within_30_s_of_its_leave(
    keys: int, outage_s: float
) -> None:
    """Once one is let all are tried, so workers need their time for each, and no more."""
    keys_a_s = 500.0
    after_s, tries_a_s = resumed_s(keys, outage_s, keys_a_s=keys_a_s)

    assert after_s <= min(WITHHELD_MAX_S + 1, 20) + keys / keys_a_s
    assert after_s < 30
    assert tries_a_s <= keys / (0.75 * WITHHELD_MAX_S) + RETRIES_PER_S


def test_one_that_is_let_calls_those_that_are_held_once_and_no_others() -> None:
    time = Time(0)
    queue: Queue[str] = Queue(clock=time, dice=lambda: 0.0)
    for _ in range(14):
        queue.hold("one")
        queue.hold("other")
        time.now += 20
        for key in ("one", "other"):
            assert queue.take() == key
            queue.done(key)
    assert [queue.hold(key) for key in ("one", "other")] == [20, 20]
    queue.retry("own", at_least_s=60)
    time.now += 1

    queue.server_is_back()

    assert [queue.take(), queue.take(), queue.take()] == ["one", "other", None]
    queue.done("one")
    queue.done("other")
    queue.forget("one")
    assert queue.hold("other") == 20, "its own back-off goes on"
    time.now += 1
    queue.server_is_back()
    time.now += 18.9
    assert queue.take() is None, "it was called too early, and now waits in peace"
    time.now += 0.1
    assert queue.take() == "other"
    queue.done("other")
    queue.hold("other")
    time.now += 1
    queue.server_is_back()
    assert queue.take() == "other"


def test_only_one_that_was_held_calls_others_when_it_is_let() -> None:
    queue: Queue[str] = Queue(clock=Time(0))
    for key in ("one", "other"):
        queue.hold(key, at_least_s=60)

    queue.forget("one")

    assert [queue.take(), queue.take()] == ["other", None], "it was let"
    queue.hold("third", at_least_s=60)
    queue.forget("one")
    assert queue.take() is None, "it is held no more"


def test_what_is_held_takes_nobodys_ration_and_does_not_come_at_once() -> None:
    queue: Queue[int] = Queue(clock=Time(0), dice=dice(5).random)
    delays = [queue.hold(key) for key in range(5000)]

    assert max(delays[:100]) <= 0.005
    assert max(delays) <= 20
    assert len({round(delay) for delay in delays[1000:]}) >= 5
    assert queue.retry(-1) == 0.005


def test_what_is_held_is_not_tried_before_the_server_said() -> None:
    queue: Queue[int] = Queue(clock=Time(0), dice=lambda: 1.0)
    assert queue.hold(1, at_least_s=7) == 7


def test_when_the_server_is_back_the_keys_that_wait_for_it_are_due_and_no_others() -> None:
    time = Time(0)
    queue: Queue[str] = Queue(clock=time)
    for _ in range(5):
        queue.await_server("away")
    queue.retry("own", at_least_s=60)
    time.now += 0.1

    queue.server_is_back()

    assert queue.take() == "away"
    assert queue.take() is None
    assert queue.next_due() == 60
    assert queue.await_server("away") == 0.2


@pytest.mark.parametrize("waiting", [10, 50_000])
def test_a_key_that_changes_while_it_is_worked_on_costs_the_same_among_many(waiting: int) -> None:
    queue: Queue[CountedKey] = Queue()
    keys = [CountedKey(number) for number in range(waiting)]
    for key in keys:
        queue.add(key)
    taken = queue.take()
    assert taken is keys[0]
    queue.add(taken)
    CountedKey.compared = 0

    queue.done(taken)

    assert CountedKey.compared < 5


class CountedKey:
    """A key that counts how often it was compared."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return self is other


def test_what_is_added_and_not_retried_is_not_rationed() -> None:
    queue: Queue[int] = Queue()
    for key in range(1000):
        queue.add(key)

    assert sum(queue.take() is not None for _ in range(1001)) == 1000


def test_the_earlier_of_two_times_counts() -> None:
    time = Time(0)
    queue: Queue[str] = Queue(clock=time)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)

    assert queue.next_due() == 5
    time.now = 4
    assert queue.take() is None
    time.now = 5
    assert queue.take() == "a"
    assert queue.next_due() is None


def test_a_retry_is_not_before_what_the_server_asked_for() -> None:
    queue: Queue[str] = Queue(clock=Time(0))

    assert queue.retry("a", at_least_s=7) == 7
    assert queue.next_due() == 7


@pytest.mark.parametrize("others", [1, 3])
def test_a_flood_of_one_keeps_nobody_else_from_their_turn(others: int) -> None:
    """Turns, not seconds: 10,000 keys of one tenant are ready before those of others."""
    queue: Queue[tuple[str, int]] = Queue(line=lambda key: key[0])
    for number in range(10_000):
        queue.add(("flood", number))
    wanted = {(f"tenant-{number}", 1) for number in range(others)}
    for key in wanted:
        queue.add(key)

    taken = {queue.take() for _ in range(others + 1)}

    assert wanted < taken
    assert queue.take() == ("flood", 1)


# Workers that wait for keys, and leave.


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
