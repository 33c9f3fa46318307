"""Which key is next, held against a slow and simple reference."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.queue import Queue, QueueClosedError
from kube.schedule import BURST, LINES, MAX_S, RETRIES_PER_S, WITHHELD_MAX_S, Schedule
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

    def add_at(self, key: int, when: float) -> None:
        self.count += 1
        if key not in self.later or when < self.later[key][0]:
            self.later[key] = (when, self.count)

    def retry(self, key: int, now: float) -> float:
        self.failures[key] = self.failures.get(key, 0) + 1
        own = 0.005
        for _ in range(self.failures[key] - 1):
            own = min(own * 2, 1000)
        delay = max(own, self._ration(now))
        self.add_at(key, now + delay)
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


def play_steps(schedule: Schedule[int], dice: random.Random, steps: int) -> None:
    """Do ``steps`` random things to a schedule and to the reference; they must always agree."""
    reference = Reference()
    now = 0.0
    for _ in range(steps):
        key = dice.randrange(4)
        move = dice.randrange(8)
        if move == 0:
            now += dice.choice((0.0, 0.001, 0.005, 0.1, 3.0))
        elif move == 1:
            schedule.add(key, now)
            reference.add(key)
        elif move == 2:
            when = now + dice.choice((0.0, 0.004, 0.1, 1.0))
            schedule.add_at(key, when)
            reference.add_at(key, when)
        elif move in {3, 4}:
            assert schedule.take(now) == reference.take(now)
        elif move == 5 and reference.working:
            finished = dice.choice(reference.working)
            schedule.done(finished)
            reference.done(finished)
        elif move == 6:
            assert schedule.retry(key, now) == pytest.approx(reference.retry(key, now))
        else:
            schedule.forget(key)
            reference.failures.pop(key, None)
        assert len(schedule) == len(reference.ready)
        assert len(set(reference.working)) == len(reference.working)
        assert schedule.is_idle == (not reference.ready + reference.working)


def test_thousands_of_random_schedules_agree_with_the_reference() -> None:
    chance = dice(20)
    for _ in range(SCHEDULES):
        play_steps(Schedule(), chance, 40)


@settings(max_examples=SCHEDULES // 20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 300))
def test_any_schedule_agrees_with_the_reference(dice: random.Random, steps: int) -> None:
    play_steps(Schedule(), dice, steps)


def test_the_same_key_waits_once() -> None:
    schedule: Schedule[str] = Schedule()
    for _ in range(3):
        schedule.add("a", 0)

    assert schedule.take(0) == "a"
    assert schedule.take(0) is None


def test_a_key_is_never_worked_on_twice_at_a_time_and_runs_again_if_it_changed() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0)
    schedule.take(0)
    schedule.add("a", 0)
    schedule.add("a", 0)
    assert schedule.take(0) is None

    schedule.done("a")

    assert schedule.take(0) == "a"
    schedule.done("a")
    assert schedule.take(0) is None


def test_back_off_doubles_from_5_ms_to_1000_s_and_is_forgotten() -> None:
    schedule: Schedule[str] = Schedule(per_s=1e9)
    delays = [schedule.retry("a", 0) for _ in range(25)]

    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == MAX_S == 1000
    assert schedule.failures("a") == 25
    schedule.forget("a")
    assert schedule.retry("a", 0) == 0.005


def test_retries_of_all_keys_share_a_ration() -> None:
    schedule: Schedule[int] = Schedule()
    delays = [schedule.retry(key, 0) for key in range(120)]

    assert (RETRIES_PER_S, BURST) == (10, 100)
    assert delays[:100] == [0.005] * 100
    assert delays[100:] == pytest.approx([0.1 * (n + 1) for n in range(20)])


def test_no_line_waits_for_the_retries_of_another() -> None:
    """A flood of keys that fail keeps no other tenant from its next try."""
    schedule: Schedule[tuple[str, int]] = Schedule(line=lambda key: key[0])
    flood = [schedule.retry(("rome", number), 0) for number in range(10_000)]

    assert flood[-1] == pytest.approx((10_000 - BURST) / RETRIES_PER_S)
    assert schedule.retry(("naples", 0), 0) == 0.005
    others = [schedule.retry((f"tenant-{number}", 0), 0) for number in range(LINES)]
    assert max(others) == 0.005


def test_keys_whose_server_is_away_wait_shortly_and_take_nobodys_ration() -> None:
    schedule: Schedule[int] = Schedule()
    for _ in range(8):
        waits = {schedule.await_server(key, 0.0) for key in range(5000)}

    assert waits == {5.0}
    assert schedule.retry(1, 0.0) == 0.005  # neither tokens nor its own back-off were touched
    assert schedule.next_due() == 0.005
    schedule.forget(1)
    assert schedule.await_server(1, 0.0) == 0.2


def resumed_s(keys: int, outage_s: float, *, keys_a_s: float) -> tuple[float, float]:
    """Play an outage in which no key is let; return the seconds until all are, and tries a second.

    The tries a second are those of the outage but for its first minute. Every key takes a worker
    the same time, whether it is let or not.
    """
    schedule: Schedule[int] = Schedule(dice=dice(34).random)
    left, now, tries = set(range(keys)), 0.0, 0
    for each in left:
        schedule.add(each, now)
    while left:
        if (key := schedule.take(now)) is None:
            now = max(now, schedule.next_due() or now)
            continue
        now += 1 / keys_a_s
        if now < outage_s:
            schedule.hold(key, now)
            tries += now > 60
        else:
            left.discard(key)
            if schedule.forget(key):
                schedule.let(now)
        schedule.done(key)
    return now - outage_s, tries / (outage_s - 60)


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
    schedule: Schedule[str] = Schedule(dice=lambda: 0.0)
    for _ in range(14):
        schedule.hold("one", 0.0)
        schedule.hold("other", 0.0)
    schedule.drop_delayed()
    assert [schedule.hold(key, 0.0) for key in ("one", "other")] == [20, 20]
    schedule.retry("own", 0.0, at_least_s=60)

    schedule.let(1.0)

    assert [schedule.take(1.0), schedule.take(1.0), schedule.take(1.0)] == ["one", "other", None]
    schedule.done("one")
    schedule.done("other")
    assert schedule.forget("one"), "it was let"
    assert not schedule.forget("one"), "it is held no more"
    assert schedule.hold("other", 1.0) == 20, "its own back-off goes on"
    schedule.let(2.0)
    assert schedule.take(20.9) is None, "it was called too early, and now waits in peace"
    assert schedule.take(21.0) == "other"
    schedule.done("other")
    schedule.hold("other", 21.0)
    schedule.let(22.0)
    assert schedule.take(22.0) == "other"


def test_what_is_held_takes_nobodys_ration_and_does_not_come_at_once() -> None:
    schedule: Schedule[int] = Schedule(dice=dice(5).random)
    delays = [schedule.hold(key, 0.0) for key in range(5000)]

    assert max(delays[:100]) <= 0.005
    assert max(delays) <= 20
    assert len({round(delay) for delay in delays[1000:]}) >= 5
    assert schedule.retry(-1, 0.0) == 0.005


def test_what_is_held_is_not_tried_before_the_server_said() -> None:
    schedule: Schedule[int] = Schedule(dice=lambda: 1.0)
    assert schedule.hold(1, 0.0, at_least_s=7) == 7


def test_when_the_server_is_back_the_keys_that_wait_for_it_are_due_and_no_others() -> None:
    schedule: Schedule[str] = Schedule()
    for _ in range(5):
        schedule.await_server("away", 0.0)
    schedule.retry("own", 0.0, at_least_s=60)

    schedule.server_is_back(1.0)

    assert schedule.take(1.0) == "away"
    assert schedule.take(1.0) is None
    assert schedule.next_due() == 60
    assert schedule.await_server("away", 1.0) == 0.2


@pytest.mark.parametrize("waiting", [10, 50_000])
def test_a_key_that_changes_while_it_is_worked_on_costs_the_same_among_many(waiting: int) -> None:
    schedule: Schedule[CountedKey] = Schedule()
    keys = [CountedKey(number) for number in range(waiting)]
    for key in keys:
        schedule.add(key, 0.0)
    taken = schedule.take(0.0)
    assert taken is keys[0]
    schedule.add(taken, 0.0)
    CountedKey.compared = 0

    schedule.done(taken)

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
    schedule: Schedule[int] = Schedule()
    for key in range(1000):
        schedule.add(key, 0)

    assert sum(schedule.take(0) is not None for _ in range(1001)) == 1000


def test_the_earlier_of_two_times_counts() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add_at("a", 10)
    schedule.add_at("a", 5)
    schedule.add_at("a", 20)

    assert schedule.next_due() == 5
    assert schedule.take(4) is None
    assert schedule.take(5) == "a"
    assert schedule.next_due() is None


def test_a_retry_is_not_before_what_the_server_asked_for() -> None:
    schedule: Schedule[str] = Schedule()

    assert schedule.retry("a", 0, at_least_s=7) == 7
    assert schedule.next_due() == 7


@pytest.mark.parametrize("others", [1, 3])
def test_a_flood_of_one_keeps_nobody_else_from_their_turn(others: int) -> None:
    """Turns, not seconds: 10,000 keys of one tenant are ready before those of others."""
    schedule: Schedule[tuple[str, int]] = Schedule(line=lambda key: key[0])
    for number in range(10_000):
        schedule.add(("flood", number), 0)
    wanted = {(f"tenant-{number}", 1) for number in range(others)}
    for key in wanted:
        schedule.add(key, 0)

    taken = {schedule.take(0) for _ in range(others + 1)}

    assert wanted < taken
    assert schedule.take(0) == ("flood", 1)


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
