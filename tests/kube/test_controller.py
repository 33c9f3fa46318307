"""A runner calls its reconciler for what changed, again after errors, and never stops."""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from apis import keys
from apis.objects import Key, Object, uid
from kube import errors, logs, metrics
from kube.cluster import Cluster, Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.informer import Change, Informer
from kube.queue import Queue
from tests.factories import config_map
from tests.fakes import FakeCluster
from tests.kube.running import Time, dice, running, turns, until

A, B = Key("default", "a"), Key("default", "b")


@dataclass
class Recording:
    """A reconciler that remembers, and does what it is told."""

    answers: list[Exception | float | None] = field(default_factory=list)
    seen: list[Key] = field(default_factory=list)

    async def reconcile(self, key: Key) -> float | None:
        self.seen.append(key)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def configs(namespace: str = "") -> Informer[Object]:
    return Informer(Selection(keys.CONFIG_MAP, Object, namespace))


def outcomes(name: str) -> dict[str, float]:
    values = {
        outcome: metrics.REGISTRY.get_sample_value(
            "pyliqo_reconciles_total", {"controller": name, "outcome": outcome}
        )
        for outcome in ("done", "again", "conflict", "busy", "terminal", "error")
    }
    return {outcome: value for outcome, value in values.items() if value}


async def test_each_object_is_looked_at() -> None:
    cluster, informer, recording = FakeCluster(), configs(), Recording()
    for name in ("a", "b"):
        await cluster.create(keys.CONFIG_MAP, config_map("default", name))
    runner = Runner("each", recording, [WatchSource(informer)])
    async with running(informer.run(cluster), runner.run()):
        await until(lambda: len(recording.seen) == 2)
        await cluster.patch(keys.CONFIG_MAP, A, {"data": {"x": "y"}})
        await until(lambda: len(recording.seen) == 3)

    assert sorted(recording.seen) == [A, A, B]
    assert outcomes("each") == {"done": 3}


async def test_whatever_else_runs_has_its_turn_between_two_keys() -> None:
    cluster, informer, recording = FakeCluster(), configs(), Recording()
    for number in range(20):
        await cluster.create(keys.CONFIG_MAP, config_map("default", str(number)))
    seen: list[int] = []

    async def look_on() -> None:
        while True:
            seen.append(len(recording.seen))
            await asyncio.sleep(0)

    runner = Runner("turns", recording, [WatchSource(informer)])
    async with running(informer.run(cluster), runner.run(), look_on()):
        await until(lambda: len(recording.seen) == 20)

    assert max(after - before for before, after in itertools.pairwise(seen)) == 1


async def test_a_source_says_whom_a_change_concerns() -> None:
    def owner(change: Change[Object]) -> Iterable[Key]:
        return [Key("", f"owner-of-{change.key.name}")]

    cluster, informer, recording = FakeCluster(), configs(), Recording()
    runner = Runner("owner", recording, [WatchSource(informer, owner)])
    async with running(informer.run(cluster), runner.run()):
        await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
        await until(lambda: recording.seen)

    assert recording.seen == [Key("", "owner-of-a")]


async def test_a_source_that_fails_stops_neither_informer_nor_runner() -> None:
    def broken(change: Change[Object]) -> Iterable[Key]:
        raise KeyError(change.key.name)

    cluster, informer, recording = FakeCluster(), configs(), Recording()
    runner = Runner("broken", recording, [WatchSource(informer, broken), WatchSource(informer)])
    async with running(informer.run(cluster), runner.run()):
        await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
        await until(lambda: recording.seen)


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1)]
)
async def test_no_worker_runs_before_all_informers_have_synced(order: tuple[int, ...]) -> None:
    cluster, recording = FakeCluster(), Recording()
    await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
    informers = [configs(), configs("default"), configs("other")]
    sources = [WatchSource(informer) for informer in informers[:2]]
    runner = Runner("barrier", recording, sources, wait_for=informers[2:])
    async with running(runner.run()) as tasks:
        for number in order:
            await turns()
            assert recording.seen == []
            assert not runner.is_synced()
            tasks.append(asyncio.ensure_future(informers[number].run(cluster)))
        await until(lambda: recording.seen)

    assert runner.is_synced()


async def test_a_source_that_comes_later_waits_for_its_own_informers() -> None:
    cluster, recording = FakeCluster(), Recording()
    await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
    early, needed = configs("default"), configs("other")
    runner = Runner("late", recording, [])
    source = WatchSource(early)
    async with running(runner.run(), early.run(cluster)) as tasks:
        await until(early.synced.is_set)
        runner.attach(source, wait_for=[needed])
        await turns()
        assert recording.seen == []
        tasks.append(asyncio.ensure_future(needed.run(cluster)))
        await until(lambda: recording.seen)
        runner.detach(source)
        await cluster.patch(keys.CONFIG_MAP, A, {"data": {"x": "y"}})
        await turns()

    assert recording.seen == [A]


async def test_a_source_may_leave_before_it_was_ready_or_the_runner_runs() -> None:
    cluster, recording, informer = FakeCluster(), Recording(), configs()
    await cluster.create(keys.CONFIG_MAP, config_map("default", "a"))
    runner = Runner("leaves", recording, [])
    one, two = WatchSource(informer), WatchSource(informer)
    runner.attach(one)
    runner.detach(one)
    runner.detach(one)
    async with running(runner.run()) as tasks:
        runner.attach(two)
        await turns()
        runner.detach(two)
        tasks.append(asyncio.ensure_future(informer.run(cluster)))
        await until(informer.synced.is_set)
        await turns()

    assert recording.seen == []


async def test_any_failure_parks_its_key_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording([ValueError("one"), RecursionError("two"), errors.InvalidError("three")])
    runner = Runner("failing", recording, [])
    with caplog.at_level(logging.WARNING):
        async with running(runner.run()):
            runner.enqueue(A)
            await until(lambda: len(recording.seen) == 4)

    assert recording.seen == [A] * 4
    logged = [record for record in caplog.records if record.name == "kube.controller"]
    assert [vars(record)["error"] for record in logged] == ["one", "two", "three"]
    assert [vars(record)["retry_in_s"] for record in logged] == [0.005, 0.01, 0.02]
    assert outcomes("failing") == {"error": 3, "done": 1}


@pytest.mark.parametrize(
    "error",
    [
        errors.NotReachableError("no answer"),
        errors.refusal(503, {}),
        ExceptionGroup("both", [errors.NotReachableError("a"), errors.NotReachableError("b")]),
    ],
    ids=["no answer", "gateway", "several"],
)
async def test_a_server_that_is_away_costs_a_key_neither_ration_nor_back_off(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    queue: Queue[Key] = Queue()
    recording = Recording([error, error])
    with caplog.at_level(logging.WARNING):
        async with running(Runner("away", recording, [], queue=queue).run()):
            queue.add(A)
            await until(lambda: len(recording.seen) == 3)
            assert queue.failures(A) == 0

    logged = [record for record in caplog.records if record.name == "kube.controller"]
    assert [vars(record)["retry_in_s"] for record in logged] == [0.2, 0.4]
    assert not any(record.exc_info for record in logged)


@pytest.mark.parametrize(
    ("error", "most_s"),
    [
        (errors.ForbiddenError("no right"), 20),
        (errors.NotFoundError("no such kind"), 20),
        (errors.refusal(401, {"message": "credentials have ended"}), 20),
        (errors.refusal(500, {"message": "failed calling webhook"}), 20),
        (ExceptionGroup("both", [errors.ForbiddenError("a"), errors.NotFoundError("b")]), 20),
        (errors.InvalidError("wrong"), 1000),
    ],
)
async def test_what_was_taken_away_is_tried_soon_enough_to_go_on_by_itself(
    error: Exception, most_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """F34, F26: the log says which right or kind is missing, and nothing runs hot meanwhile."""
    queue: Queue[Key] = Queue()
    for _ in range(31):
        queue.retry(A)
    recording = Recording([error])
    with caplog.at_level(logging.WARNING):
        async with running(Runner("withheld", recording, [], queue=queue).run()):
            queue.add(A)
            await until(lambda: recording.seen and caplog.records)

    logged, *_ = [record for record in caplog.records if record.name == "kube.controller"]
    assert 0.75 * most_s <= vars(logged)["retry_in_s"] <= most_s
    assert vars(logged)["error"] == str(error)


async def test_what_is_not_let_is_told_while_its_back_off_grows_and_then_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording([errors.ForbiddenError("no right") for _ in range(70)])
    runner = Runner("told", recording, [])
    with caplog.at_level(logging.WARNING):
        async with running(runner.run()):
            for seen in range(70):
                runner.enqueue(A)
                await until(lambda seen=seen: len(recording.seen) > seen)  # type: ignore[misc]

    logged = [record for record in caplog.records if record.name == "kube.controller"]
    assert len(logged) == 13 + len([16, 32, 64])


async def test_other_credentials_wake_all_that_are_held() -> None:
    """F26: as when a certificate was renewed."""
    queue: Queue[Key] = Queue()
    recording = Recording([errors.refusal(401, {}), errors.ForbiddenError("no right")])
    runner = Runner("woken", recording, [], queue=queue)
    for key in (A, B):
        for _ in range(30):
            queue.hold(key, at_least_s=3600)
    async with running(runner.run()):
        runner.enqueue(A)
        runner.enqueue(B)
        await until(lambda: recording.seen == [A, B])
        runner.server_is_back()
        await until(lambda: len(recording.seen) == 4)
        await turns()

    assert sorted(recording.seen[2:]) == [A, B]


async def test_a_loop_may_say_how_long_its_keys_wait_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lease that is renewed too late is lost, whatever kept the server busy."""
    queue: Queue[Key] = Queue()
    for _ in range(31):
        queue.retry(A)
    recording = Recording([errors.refusal(500, {})])
    with caplog.at_level(logging.WARNING):
        async with running(Runner("lease", recording, [], queue=queue, back_off_s=10).run()):
            queue.add(A)
            await until(lambda: recording.seen and caplog.records)

    logged, *_ = [record for record in caplog.records if record.name == "kube.controller"]
    assert 7.5 <= vars(logged)["retry_in_s"] <= 10


async def test_a_conflict_is_retried_silently(caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording([errors.ConflictError("faster")])
    runner = Runner("conflict", recording, [])
    with caplog.at_level(logging.INFO):
        async with running(runner.run()):
            runner.enqueue(A)
            await until(lambda: len(recording.seen) == 2)

    assert [record for record in caplog.records if record.name == "kube.controller"] == []
    assert outcomes("conflict") == {"conflict": 1, "done": 1}


async def test_a_busy_server_is_not_asked_before_it_said() -> None:
    time = Time()
    queue: Queue[Key] = Queue(clock=time)
    recording = Recording([errors.refusal(429, {}, retry_after_s=20)])
    runner = Runner("busy", recording, [], queue=queue)
    async with running(runner.run()):
        runner.enqueue(A)
        await until(lambda: recording.seen)
        time.now += 19
        runner.enqueue(B)
        await until(lambda: recording.seen == [A, B])
        time.now += 1
        runner.enqueue(B)
        await until(lambda: len(recording.seen) == 4)

    assert recording.seen in ([A, B, A, B], [A, B, B, A])


async def test_what_cannot_be_helped_is_forgotten() -> None:
    recording = Recording([ValueError("x"), TerminalError("NoSuchThing", "there is none")])
    queue: Queue[Key] = Queue()

    runner = Runner("terminal", recording, [], queue=queue)
    async with running(runner.run()):
        runner.enqueue(A)
        await until(lambda: len(recording.seen) == 2 and queue.is_idle)
        assert queue.failures(A) == 0
        runner.enqueue(B)
        await until(lambda: B in recording.seen)

    assert outcomes("terminal")["terminal"] == 1
    assert recording.seen == [A, A, B]


async def test_what_cannot_be_helped_is_looked_at_after_a_while_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it rests on may have changed unseen, as an object of which no informer tells."""
    error = TerminalError("NameTaken", "it is somebody else's")
    recording = Recording([error, error, None])
    runner = Runner("unseen", recording, [], given_up_s=0.001)
    with caplog.at_level(logging.WARNING):
        async with running(runner.run()):
            runner.enqueue(A)
            await until(lambda: len(recording.seen) == 3)

    assert [one.levelname for one in caplog.records] == ["WARNING"]


async def test_a_reconciler_says_when_to_look_again() -> None:
    recording = Recording([0.001, None])
    runner = Runner("again", recording, [])
    async with running(runner.run()):
        runner.enqueue(A)
        await until(lambda: len(recording.seen) == 2)

    assert outcomes("again") == {"again": 1, "done": 1}


async def test_a_reconcile_that_hangs_is_cut_off() -> None:
    class Hanging:
        count = 0

        async def reconcile(self, key: Key) -> float | None:
            self.count += 1
            if self.count == 1:
                await asyncio.Event().wait()
            return None

    hanging = Hanging()
    runner = Runner("hanging", hanging, [], deadline_s=0.01)
    async with running(runner.run()):
        runner.enqueue(A)
        await until(lambda: hanging.count == 2)


async def test_a_stuck_worker_shows() -> None:
    time = Time()
    release = asyncio.Event()

    class Stuck:
        async def reconcile(self, key: Key) -> float | None:
            await release.wait()
            return None

    runner = Runner("stuck", Stuck(), [], clock=time)
    async with running(runner.run()):
        runner.enqueue(A)
        await turns()
        time.now += 599
        assert runner.is_alive()
        time.now += 2
        assert not runner.is_alive()
        release.set()
        await until(runner.is_alive)


async def test_log_lines_say_what_was_worked_on() -> None:
    seen: list[dict[str, object]] = []

    class Logging:
        async def reconcile(self, key: Key) -> float | None:
            record = logging.makeLogRecord({"msg": "created pod", "pod": key})
            seen.append(logs.fields_of(record))
            return None

    runner = Runner("logging", Logging(), [])
    async with running(runner.run()):
        runner.enqueue(A)
        await until(lambda: seen)

    expected = {"controller": "logging", "key": "default/a", "reconcile": 1, "pod": "default/a"}
    assert seen == [expected]


async def test_draining_finishes_what_waits_and_takes_no_more() -> None:
    cluster, informer, recording = FakeCluster(), configs(), Recording()
    runner = Runner("draining", recording, [WatchSource(informer)])
    async with running(informer.run(cluster), runner.run()):
        await until(informer.synced.is_set)
        await turns()
        runner.enqueue(A)
        await runner.drain()
        runner.enqueue(B)
        await cluster.create(keys.CONFIG_MAP, config_map("default", "b"))
        await turns()

    assert recording.seen == [A]


async def test_draining_does_not_wait_for_ever() -> None:
    class Hanging:
        async def reconcile(self, key: Key) -> float | None:
            await asyncio.Event().wait()
            return None

    runner = Runner("endless", Hanging(), [])
    async with running(runner.run()):
        runner.enqueue(A)
        await turns()
        await runner.drain(within_s=0.01)


async def test_depth_and_age_of_the_queue_are_measured() -> None:
    time = Time()
    runner = Runner("depth", Recording(), [], queue=Queue(clock=time))
    runner.enqueue(A)
    runner.enqueue(B)
    time.now += 3

    def value(name: str) -> float | None:
        return metrics.REGISTRY.get_sample_value(name, {"controller": "depth"})

    assert value("pyliqo_queue_depth") == 2
    assert value("pyliqo_queue_oldest_seconds") == 3
    assert value("pyliqo_queue_retries_total") == 0


class Copying:
    """A reconciler as they should be: what ``source`` says, ``copy`` becomes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def reconcile(self, key: Key) -> float | None:
        source = await self._cluster.get(keys.CONFIG_MAP, Key("source", key.name))
        copied = await self._cluster.get_live(keys.CONFIG_MAP, Key("copy", key.name))
        if source is not None:
            made = config_map("copy", key.name, **source.get("data", {}))
            await self._cluster.apply(keys.CONFIG_MAP, made, manager="copying")
        elif copied is not None:
            await self._cluster.delete(keys.CONFIG_MAP, Key("copy", key.name), uid=uid(copied))
        return None


async def change_at_random(cluster: FakeCluster, dice: random.Random) -> None:
    key = Key("source", dice.choice("abcd"))
    there = await cluster.get(keys.CONFIG_MAP, key)
    if there is None:
        await cluster.create(keys.CONFIG_MAP, config_map(*key, x="0"))
    elif dice.random() < 0.6:
        changes = {"data": {"x": str(dice.random())}}
        await cluster.patch(keys.CONFIG_MAP, key, changes)
    else:
        await cluster.delete(keys.CONFIG_MAP, key, uid=uid(there))


def data_in(cluster: FakeCluster, namespace: str) -> dict[str, Object]:
    return {
        key.name: obj.get("data", {})
        for (_, key), obj in cluster.everything().items()
        if key.namespace == namespace
    }


async def copy_through(seed: int, mishap: Callable[[FakeCluster, random.Random], None]) -> None:
    chance = dice(seed)
    cluster, time = FakeCluster(), Time()
    informer: Informer[Object] = Informer(
        Selection(keys.CONFIG_MAP, Object), clock=time, dice=chance.random, sleep=time.sleep
    )
    queue: Queue[Key] = Queue()
    runner = Runner("copying", Copying(cluster), [WatchSource(informer)], workers=3, queue=queue)

    def is_settled() -> bool:
        known = {(keys.CONFIG_MAP, key): obj for key, obj in informer.items().items()}
        is_copied = data_in(cluster, "source") == data_in(cluster, "copy")
        return is_copied and known == cluster.everything() and queue.is_idle

    async with running(informer.run(cluster), runner.run()):
        for _ in range(15):
            await change_at_random(cluster, chance)
            mishap(cluster, chance)
            await turns(chance.randrange(3))
        await until(is_settled)
        versions = cluster.everything()
        informer.resync()
        await turns(200)
        await until(is_settled)

    assert cluster.everything() == versions


@pytest.mark.parametrize("seed", range(10))
async def test_fifty_interleavings_each_end_in_one_state(seed: int) -> None:
    def mishap(cluster: FakeCluster, dice: random.Random) -> None:
        match dice.randrange(5):
            case 0:
                cluster.cut(errors.NotReachableError("reset"))
            case 1:
                cluster.fail("apply", errors.refusal(409, {"reason": "Conflict"}))
            case 2:
                cluster.fail("apply", errors.NotReachableError("answer lost"), after=True)
            case 3:
                cluster.expire()
                cluster.cut()

    for number in range(50):
        await copy_through(50 * seed + number, mishap)


@pytest.mark.parametrize("seed", range(10))
async def test_all_events_replaced_by_one_resync_end_in_the_same_state(seed: int) -> None:
    chance = dice(seed)
    cluster = FakeCluster()
    for _ in range(40):
        await change_at_random(cluster, chance)
        if chance.random() < 0.3:
            await Copying(cluster).reconcile(Key("source", chance.choice("abcd")))
    informer = configs()
    runner = Runner("resync", Copying(cluster), [WatchSource(informer)])
    async with running(informer.run(cluster), runner.run()):
        await until(lambda: data_in(cluster, "source") == data_in(cluster, "copy"))
