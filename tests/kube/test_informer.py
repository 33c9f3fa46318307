"""An informer has what the cluster has, tells each change once, and survives what servers do."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any, TypeVar, cast

import pytest

from apis import keys
from apis.objects import Key, Object, uid
from kube import errors, metrics
from kube.cluster import Event, Listing, Selection
from kube.informer import AWAY_S, PIECE, Change, Index, Informer, by_namespace
from kube.slim import Partial, Slim
from tests.factories import config_map, pod
from tests.fakes import FakeCluster
from tests.kube.running import Time, dice, running, turns, until
from tests.world import remove

T = TypeVar("T")
A, B = Key("default", "a"), Key("default", "b")


def watched_map(name: str = "a", **data: str) -> Object:
    return config_map("default", name, **data)


def followed_informer(**chance: Any) -> tuple[Informer[Object], list[Change[Object]]]:
    told: list[Change[Object]] = []
    informer = Informer(Selection(keys.CONFIG_MAP, Object), **chance)
    informer.subscribe(told.append)
    return informer, told


def change_kinds(told: Iterable[Change[Object]]) -> list[str]:
    names = {(False, True): "add", (True, True): "update", (True, False): "delete"}
    return [names[change.old is not None, change.new is not None] for change in told]


def refused(code: int, reason: str = "") -> errors.KubeError:
    return errors.refusal(code, {"reason": reason, "message": "so it is"})


class Script:
    """A cluster that plays what a test wrote: a list or an error, then events or an error."""

    def __init__(self, *acts: Any) -> None:
        self._acts = list(acts)
        self.asked: list[str] = []

    async def list(self, of: Selection[T]) -> Listing[T]:
        self.asked.append("list")
        act: Any = self._acts.pop(0) if self._acts else await asyncio.Event().wait()
        if isinstance(act, Exception):
            raise act
        listing: Listing[T] = act
        return listing

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        self.asked.append(f"watch from {since}")
        act: Any = self._acts.pop(0) if self._acts else await asyncio.Event().wait()
        for event in act:
            if isinstance(event, Exception):
                raise event
            yield event

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"an informer must not {name}")


def listed(version: str, *objects: Object) -> Listing[Object]:
    items = {Key("default", obj["metadata"]["name"]): obj for obj in objects}
    return Listing(items, version)


def at(version: str, name: str = "a", uid_: str = "u") -> Object:
    metadata = {"namespace": "default", "name": name, "uid": uid_, "resourceVersion": version}
    return {"metadata": metadata}


def event(type_: str, obj: Object) -> Event[Object]:
    metadata = obj["metadata"]
    return Event(type_, Key("default", metadata["name"]), metadata["resourceVersion"], obj)


async def play(*acts: Any, end: int) -> tuple[Script, Time, Informer[Object], list[str]]:
    """Run an informer until it has asked ``end`` times."""
    time = Time()
    informer, told = followed_informer(clock=time, dice=lambda: 1.0, sleep=time.sleep)
    script = Script(*acts)
    async with running(informer.run(script)):
        await until(lambda: len(script.asked) >= end)
        await turns()
    return script, time, informer, change_kinds(told)


async def test_a_list_then_a_watch_from_its_version() -> None:
    script, _, informer, told = await play(
        listed("5", at("3")), [event("ADDED", at("6", "b")), event("MODIFIED", at("7"))], end=3
    )

    assert script.asked == ["list", "watch from 5", "watch from 7"]
    assert told == ["add", "add", "update"]
    assert set(informer.items()) == {A, B}


async def test_what_cannot_be_read_is_listed_again_and_ends_nothing() -> None:
    bad: Object = {"metadata": []}
    script, time, informer, _ = await play(
        listed("5", at("3")), [Event("ADDED", A, "6", bad)],
        ValueError("no such number"), listed("9", at("8", "b")), end=5,
    )  # fmt: skip

    assert script.asked == ["list", "watch from 5", "list", "list", "watch from 9"]
    assert time.slept, "it is not asked again at once"
    assert set(informer.items()) == {B}


async def test_a_handler_that_raises_takes_a_change_from_no_other() -> None:
    cluster, told = FakeCluster(), list[Change[Object]]()

    def broken(change: Change[Object]) -> None:
        raise AttributeError(change.key.name)

    informer = Informer(Selection(keys.CONFIG_MAP, Object))
    informer.subscribe(broken)
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await cluster.create(keys.CONFIG_MAP, watched_map("a"))
        await until(lambda: told)
        informer.subscribe(broken)
        await cluster.create(keys.CONFIG_MAP, watched_map("b"))
        await until(lambda: len(told) == 2)

    assert change_kinds(told) == ["add", "add"]


async def test_versions_are_opaque() -> None:
    script, _, _, _ = await play(listed("zz-9", at("x")), [event("MODIFIED", at("#a/é"))], end=3)

    assert script.asked == ["list", "watch from zz-9", "watch from #a/é"]


async def test_a_bookmark_moves_the_version_and_tells_nothing() -> None:
    bookmark: Event[Object] = Event("BOOKMARK", Key("", ""), "99", {})

    script, _, _, told = await play(listed("5"), [bookmark, refused(500)], end=3)

    assert script.asked[-1] == "watch from 99"
    assert told == []


@pytest.mark.parametrize(
    "expired",
    [
        [refused(410, "Expired")],
        [event("ADDED", at("6", "b")), refused(410, "Gone")],
        [errors.ExpiredError("unreadable event")],
        [refused(400, "BadRequest")],
    ],
    ids=["as a status", "as an event", "unreadable event", "version refused"],
)
async def test_a_version_of_no_use_means_list_again(expired: list[Any]) -> None:
    script, time, _, _ = await play(listed("5"), expired, listed("50"), end=4)

    assert script.asked == ["list", "watch from 5", "list", "watch from 50"]
    assert time.slept == [0.8]


async def test_a_page_that_expires_means_list_again() -> None:
    script, _, _, _ = await play(errors.ExpiredError("token"), listed("50"), end=3)

    assert script.asked == ["list", "list", "watch from 50"]


async def test_a_version_ahead_of_the_server_means_list_again() -> None:
    script, _, _, _ = await play(listed("5"), [refused(504, "Timeout")], listed("3"), end=4)

    assert script.asked == ["list", "watch from 5", "list", "watch from 3"]


async def test_a_list_that_is_older_than_what_was_known_means_a_restored_store() -> None:
    _, _, informer, _ = await play(listed("5"), [refused(410)], listed("9"), end=4)
    assert not informer.went_back

    acts = listed("5"), [refused(410)], listed("3"), [refused(410)], listed("9")
    _, _, informer, _ = await play(*acts, end=6)

    assert informer.went_back


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_busy_server_is_asked_later_from_the_same_version(code: int) -> None:
    busy = refused(code)

    script, _, _, _ = await play(listed("5"), [busy], [busy], end=4)

    assert script.asked == ["list", "watch from 5", "watch from 5", "watch from 5"]


async def test_a_lost_connection_goes_on_from_the_same_version() -> None:
    lost = errors.NotReachableError("reset")

    script, _, _, _ = await play(listed("5"), [event("ADDED", at("6")), lost], end=3)

    assert script.asked == ["list", "watch from 5", "watch from 6"]


async def test_a_right_that_is_missing_is_told_once_and_so_is_that_it_came() -> None:
    forbidden, time, said = refused(403), Time(), list[str]()
    informer, _ = followed_informer(clock=time, dice=lambda: 1.0, sleep=time.sleep)
    informer.on_withheld = said.append
    back = listed("6", at("6", "b"))
    script = Script(*[forbidden] * 4, listed("5"), [forbidden], forbidden, back)
    async with running(informer.run(script)):
        await until(lambda: B in informer.items())

    assert said == ["so it is (403)", "", "so it is (403)", ""]


async def test_a_right_that_comes_a_moment_later_is_not_told_of() -> None:
    time, said = Time(), list[str]()
    informer, _ = followed_informer(clock=time, dice=lambda: 1.0, sleep=time.sleep)
    informer.on_withheld = said.append
    async with running(informer.run(Script(refused(403), refused(403), listed("5")))):
        await until(informer.synced.is_set)
        await turns()

    assert said == []


async def test_retry_after_is_the_least() -> None:
    busy = errors.refusal(429, {}, retry_after_s=20)

    _, time, _, _ = await play(listed("5"), [busy], end=3)

    assert time.slept == [20]


async def test_back_off_doubles_up_to_half_a_minute() -> None:
    busy = errors.refusal(500, {}, retry_after_s=0)

    _, time, _, _ = await play(*[busy] * 9, end=10)

    assert time.slept == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]


async def test_back_off_is_short_while_a_server_is_away() -> None:
    """It may be back at any moment, and what changed meanwhile is to be known within seconds."""
    lost = errors.NotReachableError("reset")

    _, time, _, _ = await play(*[lost] * 9, end=10)

    assert time.slept == [0.8, 1.6, *[AWAY_S] * 7]


async def test_back_off_is_full_jitter() -> None:
    time = Time()
    rolls = itertools.cycle([0.0, 0.5])
    informer, _ = followed_informer(clock=time, dice=lambda: next(rolls), sleep=time.sleep)
    script = Script(*[errors.refusal(500, {}, retry_after_s=0)] * 4)
    async with running(informer.run(script)):
        await until(lambda: len(script.asked) == 5)

    assert time.slept == [0, 0.8, 0, 3.2]


async def test_two_good_minutes_reset_the_back_off() -> None:
    time = Time()

    def good() -> Iterable[Any]:
        time.now += 121
        yield errors.NotReachableError("reset")

    informer, _ = followed_informer(clock=time, dice=lambda: 1.0, sleep=time.sleep)
    lost = errors.NotReachableError("reset")
    script = Script(lost, lost, listed("5"), good(), [lost])
    async with running(informer.run(script)):
        await until(lambda: len(script.asked) == 6)

    assert time.slept == [0.8, 1.6, 0.8, 1.6]


async def test_a_watch_that_ends_in_time_is_opened_at_once() -> None:
    time = Time()

    def minutes() -> Iterable[Any]:
        time.now += 400
        yield event("ADDED", at("6"))

    informer, _ = followed_informer(clock=time, dice=lambda: 1.0, sleep=time.sleep)
    script = Script(listed("5"), minutes(), minutes())
    async with running(informer.run(script)):
        await until(lambda: len(script.asked) == 4)

    assert time.slept == []


async def test_a_server_that_ends_every_watch_at_once_does_not_keep_us_busy() -> None:
    _, time, _, _ = await play(listed("5"), [], [], [], end=5)

    assert time.slept == [0.8, 1.6, 3.2]


async def test_what_a_list_lacks_is_told_as_deleted_with_its_last_state() -> None:
    time = Time()
    informer, told = followed_informer(clock=time, sleep=time.sleep)
    cluster = FakeCluster()
    await cluster.create(keys.CONFIG_MAP, watched_map(data="last words"))
    async with running(informer.run(cluster)):
        await until(informer.synced.is_set)
        cluster.fail("watch", refused(503), times=1)
        cluster.cut()
        await remove(cluster, keys.CONFIG_MAP, A)
        cluster.expire()
        await until(lambda: len(told) == 2)

    assert change_kinds(told) == ["add", "delete"]
    assert told[1].old
    assert told[1].old["data"] == {"data": "last words"}
    assert informer.items() == {}


async def test_a_deletion_that_was_seen_is_told_from_what_a_list_lacks() -> None:
    time = Time()
    informer, told = followed_informer(clock=time, sleep=time.sleep)
    script = Script(
        listed("5", at("3"), at("4", "b"), at("4", "c")),
        [event("DELETED", at("6")), refused(410)],
        listed("50", at("30", "c", uid_="other")),
    )
    async with running(informer.run(script)):
        await until(lambda: len(told) == 7)

    gone = {change.key.name: change.was_seen for change in told if change.new is None}
    assert gone == {"a": True, "b": False, "c": True}  # a namesake of c stands there
    assert all(change.was_seen for change in told if change.new)


async def test_another_object_of_that_name_is_a_delete_and_an_add() -> None:
    _, _, informer, told = await play(
        listed("5", at("3")), [refused(410)], listed("50", at("30", uid_="other")), end=4
    )

    assert told == ["add", "delete", "add"]
    assert informer.items()[A]["metadata"]["uid"] == "other"


async def test_another_object_of_that_name_in_a_watch() -> None:
    _, _, _, told = await play(
        listed("5", at("3")), [event("MODIFIED", at("30", uid_="other"))], end=3
    )

    assert told == ["add", "delete", "add"]


async def test_the_same_version_again_tells_nothing() -> None:
    same = event("MODIFIED", at("6"))

    _, _, _, told = await play(
        listed("5", at("6")), [*[same] * 1000, refused(410)], listed("6", at("6")), end=4
    )

    assert told == ["add"]


async def test_resync_tells_everything_again() -> None:
    informer, told = followed_informer()
    cluster = FakeCluster()
    await cluster.create(keys.CONFIG_MAP, watched_map())
    async with running(informer.run(cluster)):
        await until(lambda: told)
        informer.resync()

    assert change_kinds(told) == ["add", "update"]
    assert told[1].old is told[1].new


class Mute:
    """A cluster whose first watch tells ``events``, and then nothing, as if its peer were gone."""

    def __init__(self, *events: Event[Object]) -> None:
        self._events = events
        self.since: list[str] = []

    async def list(self, of: Selection[T]) -> Listing[T]:
        return Listing({}, "5")

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        self.since.append(since)
        if len(self.since) == 1:
            for told in self._events:
                yield cast("Event[T]", told)
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("events", "limits", "since"),
    [
        ([event("BOOKMARK", at("7"))], (0.02, 1000.0), ["5", "7"]),
        ([event("ADDED", at("6"))], (1000.0, 0.02), ["5", "6"]),
    ],
    ids=["no more bookmarks", "never a bookmark"],
)
async def test_a_silent_watch_is_opened_anew_from_where_it_was(
    events: list[Event[Object]], limits: tuple[float, float], since: list[str]
) -> None:
    time, cluster = Time(), Mute(*events)
    informer, told = followed_informer(sleep=time.sleep, silent_s=limits)
    async with running(informer.run(cluster)):
        await until(lambda: len(cluster.since) > 1)

    assert cluster.since[:2] == since
    assert change_kinds(told) == ["add"] * (events[0].type == "ADDED")


async def test_what_leaves_the_selection_leaves_the_cache_and_lives_on() -> None:
    cluster = FakeCluster()
    obj = watched_map()
    obj["metadata"]["labels"] = {"app": "a"}
    await cluster.create(keys.CONFIG_MAP, obj)
    informer = Informer(Selection(keys.CONFIG_MAP, Object, labels="app=a"))
    told: list[Change[Object]] = []
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await until(lambda: told)
        await cluster.patch(keys.CONFIG_MAP, A, {"metadata": {"labels": {"app": "b"}}})
        await until(lambda: len(told) == 2)

    assert change_kinds(told) == ["add", "delete"]
    assert informer.get(A) is None
    assert await cluster.get_live(keys.CONFIG_MAP, A)


async def test_a_late_subscriber_is_told_what_is_there() -> None:
    informer, _ = followed_informer()
    cluster = FakeCluster()
    await cluster.create(keys.CONFIG_MAP, watched_map())
    told: list[Change[Object]] = []
    async with running(informer.run(cluster)):
        await until(informer.synced.is_set)
        unsubscribe = informer.subscribe(told.append)
        unsubscribe()
        unsubscribe()
        await cluster.create(keys.CONFIG_MAP, watched_map("b"))
        await until(lambda: informer.get(B))

    assert [change.key for change in told] == [A]


async def test_the_whole_store_is_there_before_the_first_news() -> None:
    informer, _ = followed_informer()
    cluster = FakeCluster()
    for name in ("a", "b"):
        await cluster.create(keys.CONFIG_MAP, watched_map(name))
    seen: list[int] = []
    informer.subscribe(lambda _: seen.append(len(informer.items())))
    async with running(informer.run(cluster)):
        await until(lambda: len(seen) == 2)

    assert seen == [2, 2]


# The first list is told in pieces: others have a turn between them.

MANY = 3 * PIECE + 1


def long_list(version: str, count: int = MANY) -> Listing[Object]:
    return listed(version, *(at(version, f"n-{number}", f"u{number}") for number in range(count)))


@contextlib.asynccontextmanager
async def amid_a_long_list(
    informer: Informer[Object], told: list[Change[Object]], *acts: Any
) -> AsyncIterator[list[asyncio.Task[Any]]]:
    async with running(informer.run(Script(long_list("5"), *acts))) as tasks:
        while len(told) < PIECE:  # noqa: ASYNC110  # the turn counts
            await asyncio.sleep(0)
        assert len(told) == PIECE
        yield tasks


async def test_a_long_first_list_leaves_others_their_turns_and_is_synced_once_all_is_told() -> None:
    informer, told = followed_informer()
    script, seen = Script(long_list("5")), [0]
    async with running(informer.run(script)):
        while not informer.synced.is_set():  # turns are counted
            assert len(informer.items()) == (MANY if told else 0), "the store is there as a whole"
            assert script.asked in ([], ["list"]), "no watch before all is told"
            await asyncio.sleep(0)
            seen.append(len(told))
        assert len(told) == MANY
        await until(lambda: len(script.asked) == 2)

    assert max(after - before for before, after in itertools.pairwise(seen)) == PIECE
    assert [change.key for change in told] == list(informer.items())
    assert set(change_kinds(told)) == {"add"}
    assert script.asked == ["list", "watch from 5"]


async def test_who_subscribes_amid_a_long_first_list_is_told_each_object_once() -> None:
    informer, told = followed_informer()
    late: list[Change[Object]] = []
    async with amid_a_long_list(informer, told):
        informer.subscribe(late.append)
        await until(informer.synced.is_set)
        await turns()

    for heard in (told, late):
        assert [change.key for change in heard] == list(informer.items())
        assert set(change_kinds(heard)) == {"add"}


async def test_a_resync_amid_a_long_first_list_follows_what_each_object_was_told_as_first() -> None:
    informer, told = followed_informer()
    async with amid_a_long_list(informer, told):
        informer.resync()
        await until(informer.synced.is_set)
        await turns()

    assert change_kinds(told) == ["add"] * MANY + ["update"] * MANY


async def test_who_ends_amid_a_long_first_list_has_told_what_is_in_the_store() -> None:
    informer, told = followed_informer()
    async with amid_a_long_list(informer, told) as tasks:
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert len(told) == len(informer.items()) == MANY
        assert not informer.synced.is_set()

    async with running(informer.run(Script(long_list("5", MANY - 1)))):
        await until(informer.synced.is_set)
    assert change_kinds(told[MANY:]) == ["delete"]


async def test_what_a_later_list_brings_is_told_before_anybody_looks_at_the_store() -> None:
    informer, told = followed_informer(clock=Time(), sleep=Time().sleep)
    async with amid_a_long_list(informer, told, [refused(410)], long_list("9", MANY - PIECE)):
        await until(informer.synced.is_set)
        while len(told) == MANY:  # noqa: ASYNC110  # the first turn in which it is told counts
            await asyncio.sleep(0)
        assert change_kinds(told[MANY:]) == ["delete"] * PIECE + ["update"] * (MANY - PIECE)


async def test_what_is_cached_cannot_be_changed() -> None:
    informer, _ = followed_informer()
    cluster = FakeCluster()
    await cluster.create(keys.CONFIG_MAP, watched_map(a="1"))
    async with running(informer.run(cluster)):
        await until(informer.synced.is_set)
    cached = informer.get(A)
    assert cached

    with pytest.raises(TypeError):
        cached["data"]["a"] = "2"
    with pytest.raises(TypeError):
        cached["metadata"].setdefault("labels", {})
    with pytest.raises(TypeError):
        informer.items()[A] = cached  # type: ignore[index]  # it must not be possible


async def test_structs_are_cached_too() -> None:
    cluster = FakeCluster()
    await cluster.create(keys.POD, pod("default", "a"))
    slim = Informer(Selection(keys.POD, Slim))
    partial = Informer(Selection(keys.POD, Partial))
    async with running(slim.run(cluster), partial.run(cluster)):
        await until(lambda: slim.get(A) and partial.get(A))
        await cluster.patch(keys.POD, A, {"metadata": {"labels": {"x": "y"}}})
        await until(lambda: _labels(slim) == _labels(partial) == {"x": "y"})


def _labels(informer: Informer[Any]) -> dict[str, str] | None:
    item: Any = informer.get(A)
    labels: dict[str, str] | None = item.metadata.labels
    return labels


async def test_the_age_is_that_of_the_last_sign_of_life() -> None:
    time = Time()
    informer, _ = followed_informer(clock=time)
    cluster = FakeCluster()
    async with running(informer.run(cluster)):
        await until(informer.synced.is_set)
        time.now += 70
        assert informer.age_s() == 70
        await cluster.create(keys.CONFIG_MAP, watched_map())
        await until(lambda: informer.get(A))

    assert informer.age_s() == 0


async def test_lists_objects_and_watches_are_counted() -> None:
    def value(name: str, **labels: str) -> float:
        return metrics.REGISTRY.get_sample_value(name, {"resource": "leases.x", **labels}) or 0

    kind = keys.LEASE.__class__("x", "v1", "Lease", "leases")
    informer = Informer(Selection(kind, Object))
    script = Script(listed("5", at("3")), [refused(410)], listed("50", at("30"), at("31", "b")))
    async with running(informer.run(script)):
        await until(lambda: len(script.asked) == 4)
        assert value("pyliqo_informer_watches") == 1
        assert value("pyliqo_informer_objects") == 2

    assert value("pyliqo_informer_lists_total", cause="start") == 1
    assert value("pyliqo_informer_lists_total", cause="expired") == 1
    assert value("pyliqo_informer_failures_total") == 1
    assert value("pyliqo_informer_last_sign_of_life_timestamp_seconds") > 0
    assert value("pyliqo_informer_watches") == value("pyliqo_informer_objects") == 0


@pytest.mark.parametrize("seed", range(30))
async def test_any_mishap_ends_in_what_the_cluster_has(seed: int) -> None:
    chance = dice(seed)
    time = Time()
    cluster = FakeCluster()
    informer, told = followed_informer(clock=time, dice=chance.random, sleep=time.sleep)
    names = [f"n{number}" for number in range(6)]
    mishaps: list[Callable[[], None]] = [
        cluster.cut,
        lambda: cluster.cut(refused(500)),
        cluster.expire,
        lambda: cluster.fail("watch", refused(410, "Expired")),
        lambda: cluster.fail("list", errors.NotReachableError("reset")),
        lambda: None,
    ]
    async with running(informer.run(cluster)):
        for step in range(200):
            key = Key("default", chance.choice(names))
            if await cluster.get(keys.CONFIG_MAP, key) is None:
                await cluster.create(keys.CONFIG_MAP, watched_map(key.name))
            elif chance.random() < 0.5:
                await cluster.patch(keys.CONFIG_MAP, key, {"data": {"step": str(step)}})
            else:
                await remove(cluster, keys.CONFIG_MAP, key)
            chance.choice(mishaps)()
            await turns(chance.randrange(4))
        there = {key: obj for (_, key), obj in cluster.everything().items()}
        await until(lambda: dict(informer.items()) == there)

    assert _replayed(told) == there


def _replayed(told: Iterable[Change[Object]]) -> dict[Key, Object]:
    """Apply what was told, holding each change to what was told before."""
    seen: dict[Key, Object] = {}
    for change in told:
        if change.old is None:
            assert change.key not in seen
        else:
            assert uid(seen[change.key]) == uid(change.old)
        if change.new is None:
            del seen[change.key]
        else:
            assert change.old is None or uid(change.old) == uid(change.new)
            seen[change.key] = change.new
    return seen


async def test_of_what_has_no_end_the_newest_are_kept_and_each_is_told() -> None:
    told: list[Change[Object]] = []
    cluster, informer = FakeCluster(), Informer(Selection(keys.CONFIG_MAP, Object, most=3))
    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        for number in range(20):
            await cluster.create(keys.CONFIG_MAP, watched_map(f"c{number}"))
        await until(lambda: len(told) == 20)

    assert [key.name for key in informer.items()] == ["c17", "c18", "c19"]


async def test_another_error_than_may_be_lacking_leaves_it_unsynced() -> None:
    cluster, time = FakeCluster(), Time()
    cluster.fail("list", refused(403), times=10**6)
    informer = Informer(
        Selection(keys.CONFIG_MAP, Object),
        clock=time,
        sleep=time.sleep,
        may_lack=(errors.NotFoundError,),
    )
    async with running(informer.run(cluster)):
        await until(lambda: cluster.requests["list", "configmaps"] >= 4)
        assert not informer.synced.is_set()
        cluster.heal()
        await informer.synced.wait()


async def test_of_a_kind_that_goes_nothing_is_left_and_what_comes_with_it_again_is_told() -> None:
    time, unknown = Time(), refused(404)
    informer, told = followed_informer(
        clock=time, sleep=time.sleep, dice=lambda: 1.0, may_lack=(errors.NotFoundError,)
    )
    script = Script(
        listed("5", at("3")), [unknown], unknown, unknown, listed("9", at("8", uid_="v"))
    )
    async with running(informer.run(script)):
        await until(lambda: len(told) == 3)

    assert change_kinds(told) == ["add", "delete", "add"]
    assert [change.was_seen for change in told] == [True, False, True]
    assert script.asked[:5] == ["list", "watch from 5", "list", "list", "list"]


async def test_an_index_has_what_each_object_says_now() -> None:
    cluster, informer = FakeCluster(), Informer(Selection(keys.CONFIG_MAP, Object))
    index = Index(informer, lambda _, obj: obj["data"].values())
    async with running(informer.run(cluster)):
        await cluster.create(keys.CONFIG_MAP, config_map(*A, x="1", y="2"))
        await cluster.create(keys.CONFIG_MAP, config_map(*B, x="1"))
        await until(lambda: index.keys("1") == [A, B])
        late = Index(informer, by_namespace)
        await cluster.patch(keys.CONFIG_MAP, A, {"data": {"x": "3"}})
        await until(lambda: index.keys("1") == [B])

        assert (index.keys("2"), index.keys("3"), index.keys("4")) == ([A], [A], [])
        assert late.keys(A.namespace) == [A, B]
        await remove(cluster, keys.CONFIG_MAP, A)
        await until(lambda: index.keys("3") == index.keys("2") == [])
    assert late.keys(A.namespace) == [B]
