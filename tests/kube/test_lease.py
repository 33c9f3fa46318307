"""One leads at a time, stops before another may, and resumes what is its own."""

import asyncio
import contextlib
import datetime as dt
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import errors, lease
from kube.cluster import Cluster, LeaderOnlyCluster, Selection
from kube.lease import Election
from tests.factories import config_map
from tests.fakes import FakeCluster
from tests.kube.running import Time, forever, running, turns, until
from tests.world import existing

LEASE = Key("default", "leader")
SHORT: dict[str, Any] = {
    "duration_s": 1.0, "renew_s": 0.5, "every_s": 0.02, "attempt_s": 0.2, "retry_s": 0.02,
}  # fmt: skip


LONG: dict[str, Any] = {"duration_s": 300, "renew_s": 200, "attempt_s": 100}
"""So long that nobody loses a lease because a machine stands still."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a release take as long as a busy server needs."""
    monkeypatch.setattr(lease, "_RELEASE_S", 300.0)


@dataclass
class Team:
    """Who works now, and whether ever two did."""

    working: set[str] = field(default_factory=set)
    terms: list[str] = field(default_factory=list)
    most: int = 0

    async def work(self, who: str) -> None:
        self.working.add(who)
        self.terms.append(who)
        self.most = max(self.most, len(self.working))
        try:
            await asyncio.Event().wait()
        finally:
            self.working.discard(who)


def candidate(cluster: Cluster, who: str, key: Key = LEASE, **rest: Any) -> Election:
    return Election(cluster, key, who, **{**SHORT, **rest})


async def spec_of(cluster: Cluster, key: Key = LEASE) -> Object:
    lease = await existing(cluster, keys.LEASE, key)
    spec: Object = lease["spec"]
    return spec


async def test_one_of_two_leads_and_the_other_follows_its_release(
    cluster: Cluster, namespace: str
) -> None:
    key, team = Key(namespace, "leader"), Team()
    one, two = (candidate(cluster, who, key, **LONG) for who in ("one", "two"))
    async with running(one.lead(lambda: team.work("one"))) as tasks:
        await until(lambda: one.is_leader and team.working)
        async with running(two.lead(lambda: team.work("two"))):
            await turns(200)
            assert (one.is_leader, two.is_leader, team.working) == (True, False, {"one"})

            tasks[0].cancel()
            await until(lambda: team.working == {"two"})
            assert (await spec_of(cluster, key))["holderIdentity"] == "two"
            assert (one.is_first, two.is_first) == (True, False)

    assert team.most == 1
    assert (await spec_of(cluster, key))["holderIdentity"] == ""
    assert (await spec_of(cluster, key))["leaseTransitions"] >= 1


async def test_a_renewal_that_arrives_as_it_ends_does_not_keep_the_lease() -> None:
    cluster = FakeCluster()
    election = candidate(cluster, "one", duration_s=60, renew_s=40, every_s=30)
    async with running(election.lead(forever)):
        await until(lambda: election.is_leader)
        cluster.fail("patch", errors.refusal(409, {"reason": "Conflict"}))

    assert (await spec_of(cluster))["holderIdentity"] == ""


async def test_times_have_six_digits(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "leader")
    moment = dt.datetime(2030, 1, 2, 3, 4, 5, 0, dt.UTC)
    election = candidate(cluster, "one", key, now=lambda: moment, **LONG)
    async with running(election.lead(forever)):
        await until(lambda: election.is_leader)
        spec = await spec_of(cluster, key)

    assert spec["renewTime"] == spec["acquireTime"] == "2030-01-02T03:04:05.000000Z"


async def test_a_restarted_container_resumes_its_own_lease_at_once() -> None:
    cluster = FakeCluster()
    spec = {"holderIdentity": "pod-0", "leaseDurationSeconds": 3600, "leaseTransitions": 3}
    spec |= {"renewTime": "2030-01-01T00:00:00.000000Z", "acquireTime": "2029-01-01T00:00:00.0Z"}
    await cluster.create(keys.LEASE, named(keys.LEASE, LEASE, spec=spec))

    election = candidate(cluster, "pod-0")
    async with running(election.lead(forever)):
        await until(lambda: election.is_leader)
        resumed = await spec_of(cluster)

    assert resumed["leaseTransitions"] == 3
    assert resumed["acquireTime"] == spec["acquireTime"]


async def test_a_lease_is_owned_by_what_its_last_holder_was_for(
    cluster: Cluster, namespace: str
) -> None:
    """So it goes with that, and stays while another holds it."""
    key = Key(namespace, "leader")

    async def held(who: str) -> tuple[Object, list[Object]]:
        made = await cluster.create(keys.CONFIG_MAP, config_map(namespace, who))
        owner = functools.partial(cluster.get_live, keys.CONFIG_MAP, Key(namespace, who))
        one = candidate(cluster, who, key, owner=owner, **LONG)
        async with running(one.lead(forever)):
            await until(lambda: one.is_leader)
            lease = await cluster.get_live(keys.LEASE, key)
        identity = {"kind": "ConfigMap", "name": who, "uid": made["metadata"]["uid"]}
        return {"apiVersion": "v1", **identity}, (lease or {})["metadata"]["ownerReferences"]

    for who in ("one", "two"):
        wanted, found = await held(who)
        assert found == [wanted]


async def test_a_lease_is_taken_when_it_has_not_changed_for_its_duration() -> None:
    cluster, time = FakeCluster(), Time()
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "9999"}
    await cluster.create(keys.LEASE, named(keys.LEASE, LEASE, spec=spec))
    election = candidate(cluster, "one", clock=time, duration_s=15, renew_s=10)
    team = Team()
    async with running(election.lead(lambda: team.work("one"))):
        await until(lambda: cluster.requests["get", "leases"] > 2)
        time.now += 14
        await cluster.patch(keys.LEASE, LEASE, {"spec": {"renewTime": "10000"}})
        seen = cluster.requests["get", "leases"]
        await until(lambda: cluster.requests["get", "leases"] > seen + 2)
        time.now += 14
        seen = cluster.requests["get", "leases"]
        await until(lambda: cluster.requests["get", "leases"] > seen + 2)
        assert team.working == set()
        time.now += 1
        await until(lambda: team.working)

    assert (await spec_of(cluster))["leaseTransitions"] == 1


async def test_work_ends_at_the_renew_deadline_and_begins_again() -> None:
    cluster, team, time = FakeCluster(), Team(), Time()
    election = candidate(cluster, "one", clock=time, duration_s=60, renew_s=40)
    async with running(election.lead(lambda: team.work("one"))):
        await until(lambda: team.working)
        cluster.fail("*", errors.NotReachableError("cut"), times=10_000, kind=keys.LEASE)
        time.now += 41
        await until(lambda: not team.working)
        assert not election.is_leader
        cluster.heal()
        await until(lambda: team.working)

    assert team.terms == ["one", "one"]


async def test_a_paused_leader_is_none_from_its_deadline_on() -> None:
    cluster, time = FakeCluster(), Time()
    election = candidate(cluster, "one", clock=time, duration_s=15, renew_s=10, retry_s=2)
    async with running(election.lead(forever)):
        await until(lambda: election.is_leader)
        time.now += 9.9
        assert election.is_leader
        time.now += 0.2
        assert not election.is_leader


async def test_who_lost_it_to_another_stops_at_once() -> None:
    cluster, team = FakeCluster(), Team()
    election = candidate(cluster, "one", duration_s=3600, renew_s=1800)
    async with running(election.lead(lambda: team.work("one"))):
        await until(lambda: team.working)
        await cluster.patch(keys.LEASE, LEASE, {"spec": {"holderIdentity": "another"}})
        await until(lambda: not team.working)
        assert not election.is_leader

    assert (await spec_of(cluster))["holderIdentity"] == "another"


async def test_of_many_that_start_together_one_leads() -> None:
    cluster, team = FakeCluster(), Team()
    elections = [candidate(cluster, f"pod-{number}", **LONG) for number in range(8)]
    works = [
        election.lead(lambda who=number: team.work(str(who)))  # type: ignore[misc]  # a default that binds
        for number, election in enumerate(elections)
    ]
    async with running(*works):
        await until(lambda: team.working)
        await turns(300)
        assert sum(election.is_leader for election in elections) == 1

    assert team.most == 1


async def test_a_lost_answer_does_not_lose_the_lease() -> None:
    cluster, team = FakeCluster(), Team()
    election = candidate(cluster, "one", duration_s=3600, renew_s=1800)
    async with running(election.lead(lambda: team.work("one"))):
        await until(lambda: team.working)
        cluster.fail("patch", errors.NotReachableError("answer lost"), times=3, after=True)
        seen = cluster.requests["patch", "leases"]
        await until(lambda: cluster.requests["patch", "leases"] > seen + 5)

    assert team.terms == ["one"]


async def test_work_that_ends_releases_and_its_error_is_raised() -> None:
    cluster = FakeCluster()

    async def fine() -> None:
        return

    async def broken() -> None:
        raise ValueError("broken")

    await candidate(cluster, "one").lead(fine)
    assert (await spec_of(cluster))["holderIdentity"] == ""
    with pytest.raises(ValueError, match="broken"):
        await candidate(cluster, "one").lead(broken)
    assert (await spec_of(cluster))["holderIdentity"] == ""


async def test_only_a_leader_writes() -> None:
    cluster, time = FakeCluster(), Time()
    election = candidate(cluster, "one", clock=time, duration_s=15, renew_s=10, retry_s=2)
    fenced = LeaderOnlyCluster(cluster, lambda: election.is_leader)
    key, obj = Key("ns", "settings"), config_map("ns")
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: fenced.create(keys.CONFIG_MAP, obj),
        lambda: fenced.apply(keys.CONFIG_MAP, obj, manager="one"),
        lambda: fenced.patch(keys.CONFIG_MAP, key, {"data": {"a": "1"}}),
        lambda: fenced.patch_status(keys.POD, key, {}),
        lambda: fenced.post(keys.POD, key, "eviction", {}),
        lambda: fenced.delete(keys.CONFIG_MAP, key, uid="u"),
    ]
    async with running(election.lead(forever)):
        await until(lambda: election.is_leader)
        await fenced.create(keys.CONFIG_MAP, obj)
        time.now += 11
        before = cluster.everything()
        for write in writes:
            with pytest.raises(errors.ConflictError, match="no longer"):
                await write()

    there = {kind: obj for (kind, _), obj in cluster.everything().items()}
    assert there[keys.CONFIG_MAP] == before[keys.CONFIG_MAP, key]
    assert await fenced.get(keys.CONFIG_MAP, key) == await fenced.get_live(keys.CONFIG_MAP, key)
    assert key in (await fenced.list(Selection(keys.CONFIG_MAP, Object))).items


@contextlib.contextmanager
def hurried() -> Iterator[Callable[[], float]]:
    """Let the loop's time leap to what it waits for next; yield its clock."""
    loop: Any = asyncio.get_running_loop()
    now, select = loop.time(), loop._selector.select  # noqa: SLF001  # there is no other way in

    def leap(timeout: float | None = None) -> Any:
        nonlocal now
        now += timeout or 0
        return select(0)

    loop.time, loop._selector.select = lambda: now, leap  # noqa: SLF001  # as above
    try:
        yield loop.time
    finally:
        del loop.time, loop._selector.select  # noqa: SLF001  # as above


class SilentLeases(FakeCluster):
    """A cluster that answers the first ``lost`` changes of a lease with nothing."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost, self.tries = lost, list[float]()

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        self.tries.append(asyncio.get_running_loop().time())
        if self.lost:
            self.lost -= 1
            await forever()
        return await super().patch(kind, key, changes, subresource=subresource)


async def test_a_request_that_hangs_does_not_lose_the_lease() -> None:
    """It takes half of the time between two renewals, and there is time for another."""
    cluster, team = SilentLeases(lost=1), Team()
    election = candidate(cluster, "one", duration_s=60, renew_s=40, every_s=0.02, attempt_s=0.01)
    async with running(election.lead(lambda: team.work("one"))):
        await until(lambda: len(cluster.tries) > 3)
        assert election.is_leader

    assert team.terms == ["one"]


async def test_a_leader_renews_at_a_third_of_the_lease_and_who_waits_looks_every_two_seconds() -> (
    None
):
    cluster = FakeCluster()
    with hurried() as clock:
        one, two = (Election(cluster, LEASE, who, clock=clock) for who in ("one", "two"))
        async with running(one.lead(forever)):
            await until(lambda: one.is_leader)
            async with running(two.lead(forever)):
                began, before = clock(), Counter(cluster.requests)
                await until(lambda: clock() > began + 300, within_s=400)
                asked = Counter(cluster.requests) - before
            assert one.is_leader

    assert 300 / 5.5 - 1 <= asked["patch", "leases"] <= 300 / 5 + 1
    assert 300 / 2.4 - 1 <= asked["get", "leases"] <= 300 / 2 + 1


def test_figures_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="duration_s > renew_s > every_s"):
        Election(FakeCluster(), LEASE, "one", duration_s=10, renew_s=15)


async def test_with_random_pauses_and_cuts_there_are_never_two() -> None:
    """Candidates freeze and lose the server at random; a shared clock judges every moment."""
    cluster = FakeCluster()
    elections = [
        candidate(
            cluster,
            f"pod-{number}",
            duration_s=0.12,
            renew_s=0.06,
            every_s=0.01,
            attempt_s=0.03,
            retry_s=0.01,
        )
        for number in range(3)
    ]
    team, terms = Team(), set[int]()

    async def watch() -> None:
        for round_ in range(400):
            leaders = [number for number, one in enumerate(elections) if one.is_leader]
            assert len(leaders) <= 1
            terms.update(leaders)
            if round_ % 40 == 20:
                cluster.fail("patch", errors.NotReachableError("cut"), times=12, kind=keys.LEASE)
            await asyncio.sleep(0.002)

    works = [one.lead(lambda: team.work("x")) for one in elections]
    async with running(*works):
        await until(lambda: any(one.is_leader for one in elections))
        await watch()

    assert terms
