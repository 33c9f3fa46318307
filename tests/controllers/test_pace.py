"""A burst of changes of a large map is a few writes; a small one is written as it changes."""

from dataclasses import dataclass

import pytest

from apis import keys
from apis.objects import Key, Object
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.reconciler import ReplicationReconciler
from kube.ratelimit import LargeWriteLimit
from tests.controllers.support import Ledger, Told, ensure_namespace, local_map, there
from tests.fakes import FakeCluster

KEY = Key("liqo-tenant-milan", "milan")
KIND = keys.NAMESPACE_MAP


@dataclass
class Clock:
    """Goes on when a test says so."""

    now: float = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("entries", "pause_s"), [(99, None), (100, 0.1), (400, 0.4), (1000, 1.0), (5000, 1.0)]
)
def test_the_pause_grows_with_the_entries_up_to_a_second(
    entries: int, pause_s: float | None
) -> None:
    clock = Clock()
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
        self.clock = Clock()
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


async def test_an_answer_comes_home_at_once_after_its_entry_went(
    replicating: Replicating,
) -> None:
    assert await replicating.ask(first="x") is None

    assert await replicating.answer(first="Creating") == pytest.approx(0.401)  # for its entries
    assert await replicating.status() == {"first": {"phase": "Creating"}}

    assert await replicating.answer(first="Accepted") is not None
    assert await replicating.status() == {"first": {"phase": "Creating"}}

    replicating.clock.now += 0.402
    assert await replicating.reconciler.reconcile(KEY) is None
    assert await replicating.status() == {"first": {"phase": "Accepted"}}
    assert [write[0] for write in replicating.here.writes] == ["patch_status"] * 2
