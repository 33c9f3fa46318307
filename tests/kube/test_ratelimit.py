"""How often something may be done: buckets, reads that are shared, writes of large objects."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from apis import keys
from apis.objects import Key, Object, named
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.reconciler import ReplicationReconciler
from kube.breaker import HOLD_S, Breaker
from kube.cluster import Listing, Selection
from kube.informer import Informer
from kube.ratelimit import Buckets, LargeWriteLimit, SingleFlightRead
from tests import factories
from tests.controllers.support import Ledger, Told, ensure_namespace, local_map, there
from tests.fakes import FakeCluster
from tests.kube.running import Time


def test_a_flood_about_one_name_does_not_drown_the_others() -> None:
    now = [0.0]
    pace = Buckets(lambda: now[0])

    flood = sum(pace.allows("Pod/web") for _ in range(100_000))
    others = pace.allows("Pod/api")
    now[0] = 10.0
    later = sum(pace.allows("Pod/web") for _ in range(1_000))

    assert (flood, others, later) == (25, True, 10)


def test_it_says_when_the_next_token_comes() -> None:
    now = [0.0]
    pace = Buckets(lambda: now[0], per_second=4, burst=2)

    assert [pace.left_s("x") for _ in range(3)] == [0, 0, 0.25]
    now[0] = 0.25
    assert pace.left_s("x") == 0


# One read for all; what is old, forgotten or failed is read again ---------------------------------


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


# A burst of changes of a large map is a few writes ------------------------------------------------

KEY = Key("liqo-tenant-milan", "milan")
KIND = keys.NAMESPACE_MAP


@pytest.mark.parametrize(
    ("entries", "pause_s"), [(99, None), (100, 0.1), (400, 0.4), (1000, 1.0), (5000, 1.0)]
)
def test_the_pause_grows_with_the_entries_up_to_a_second(
    entries: int, pause_s: float | None
) -> None:
    clock = Time()
    pace = LargeWriteLimit(clock)
    assert pace.left_s(KEY) is None
    pace.wrote(KEY, entries)
    assert pace.left_s(KEY) == (None if pause_s is None else pytest.approx(pause_s))
    assert pace.left_s(Key("liqo-tenant-turin", "turin")) is None
    clock.now += 1.0
    assert pace.left_s(KEY) is None


class Replicating:
    """A map of 400 entries that is replicated, at times of the test's choice."""

    def __init__(self) -> None:
        self.clock = Time()
        self.fake = FakeCluster()
        self.there, self.here = Ledger(self.fake), Ledger(self.fake)
        self.peering = Peering("rome", "milan", KEY.namespace, "liqo-tenant-rome")
        self.reconciler = ReplicationReconciler(
            KIND,
            self.peering,
            local=self.here,
            remote=self.there,
            events=Told(self.fake).recorder,
            out=LargeWriteLimit(self.clock),
            back=LargeWriteLimit(self.clock),
        )

    async def begin(self) -> None:
        for namespace in (KEY.namespace, "liqo-tenant-rome"):
            await ensure_namespace(self.fake, namespace)
        desired = {f"n{number}": f"n{number}-rome" for number in range(400)}
        await self.fake.create(KIND, local_map(KEY.namespace, KEY.name, **desired))
        await self.reconciler.reconcile(KEY)
        self.there.writes.clear()
        self.here.writes.clear()

    async def ask(self, **desired: str | None) -> float | None:
        await self.fake.patch(KIND, KEY, {"spec": {"desiredMapping": desired}})
        return await self.reconciler.reconcile(KEY)

    async def answer(self, **phases: str) -> float | None:
        current = {name: {"phase": phase} for name, phase in phases.items()}
        where = self.peering.replica_of(KEY)
        await self.fake.patch_status(KIND, where, {"currentMapping": current})
        return await self.reconciler.reconcile(KEY)

    async def replica(self) -> dict[str, str]:
        found = await there(self.fake, KIND, self.peering.replica_of(KEY))
        desired: dict[str, str] = found["spec"]["desiredMapping"]
        return desired

    async def status(self) -> Object:
        found = await there(self.fake, KIND, KEY)
        return (found.get("status") or {}).get("currentMapping") or {}


@pytest.fixture
async def replicating() -> Replicating:
    made = Replicating()
    await made.begin()
    return made


async def test_a_burst_of_entries_is_replicated_by_two_writes(replicating: Replicating) -> None:
    assert await replicating.ask(first="x") is None
    assert (await replicating.replica())["first"] == "x"

    left = [await replicating.ask(**{f"more{number}": "x"}) for number in range(5)]
    assert left == [pytest.approx(0.401)] * 5
    assert len(replicating.there.writes) == 1

    replicating.clock.now += 0.402
    assert await replicating.ask(first=None) is None
    desired = await replicating.replica()
    assert "first" not in desired
    assert {f"more{number}" for number in range(5)} <= desired.keys()
    assert len(replicating.there.writes) == 2


async def test_an_answer_comes_home_at_once_after_its_entry_went(replicating: Replicating) -> None:
    assert await replicating.ask(first="x") is None

    assert await replicating.answer(first="Creating") == pytest.approx(0.401)  # for its entries
    assert await replicating.status() == {"first": {"phase": "Creating"}}

    assert await replicating.answer(first="Accepted") is not None
    assert await replicating.status() == {"first": {"phase": "Creating"}}

    replicating.clock.now += 0.402
    assert await replicating.reconciler.reconcile(KEY) is None
    assert await replicating.status() == {"first": {"phase": "Accepted"}}
    assert [write[0] for write in replicating.here.writes] == ["patch_status"] * 2


# When so much is missing at once that nothing may rest on it.


class Cache(Informer[Object]):
    """An informer that is told what its lists have, without a server."""

    def __init__(self) -> None:
        super().__init__(Selection(keys.POD, Object))
        self.synced.set()

    def lists(self, count: int) -> None:
        """Let a list have the first ``count`` pods."""
        listed = {Key("shop", f"web-{number}"): numbered_pod(number) for number in range(count)}
        for change in [*self._gone(listed), *self._there(Listing(listed, ""))]:
            self._tell(change)


def numbered_pod(number: int) -> Object:
    made = named(keys.POD, Key("shop", f"web-{number}"))
    made["metadata"] |= {"uid": str(number), "resourceVersion": "1"}
    return made


@factories.cases("before, after, is_open")
def test_more_than_five_and_more_than_a_fifth(before: int, after: int, *, is_open: bool) -> None:
    told: list[bool] = []
    breaker = Breaker(lambda: told.append(True))
    cache = Cache()
    breaker.watch(cache)
    cache.lists(before)

    cache.lists(after)

    assert breaker.is_open() is is_open
    assert bool(told) is is_open


@pytest.mark.parametrize("after", [39, 0])
def test_of_a_restored_server_one_that_is_missing_is_enough(after: int) -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    breaker.watch(cache)
    cache.lists(40)
    assert not breaker.is_after_restore

    cache.went_back = True
    cache.lists(after)

    assert (breaker.is_open(), breaker.missing()) == (True, 40 - after)
    assert breaker.is_after_restore
    now[0] += HOLD_S + 1
    assert not breaker.is_open()


def test_it_closes_when_all_is_there_again_or_after_a_while() -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    stop = breaker.watch(cache)
    cache.lists(20)
    cache.lists(0)
    assert (breaker.is_open(), breaker.missing()) == (True, 20)
    cache.lists(20)
    assert (breaker.is_open(), told) == (False, [True, False])

    cache.lists(0)
    now[0] += HOLD_S + 1
    assert not breaker.is_open()

    cache.lists(20)
    cache.lists(0)
    stop()
    assert not breaker.is_open()


def test_what_time_closed_is_told_and_what_is_missing_next_is_another_alarm() -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    breaker.watch(cache)
    cache.lists(40)
    cache.lists(20)
    now[0] += HOLD_S + 1
    assert (breaker.is_open(), breaker.missing()) == (False, 0)

    cache.lists(0)

    assert (breaker.missing(), told) == (20, [True, False, True])


def test_a_decision_looks_only_at_what_misses_something() -> None:
    asked: list[object] = []

    class Counted(Cache):
        def items(self) -> Mapping[Key, Object]:
            asked.append(self)
            return super().items()

    breaker, caches = Breaker(lambda: None), [Counted() for _ in range(100)]
    for cache in caches:
        breaker.watch(cache)
        cache.lists(40)
    caches[7].lists(10)
    asked.clear()

    assert breaker.is_open()

    assert asked == [caches[7]]
