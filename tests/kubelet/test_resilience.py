"""Real processes that are killed and raced, before a real API server that keeps a log.

``PYLIQO_TEST_PODS`` says how many pods; 1000 is the full size. With ``PYLIQO_TEST_CRASHES=all`` the
process dies before and after each call of a life, reads too, not only after the first write of each
part of it.
Source: docs/parity.md F-1, F-3, F-19.
"""

import asyncio
import itertools
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from controllers import writes as writes_
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import audit
from sandbox.audit import Call
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.kube.running import some_at_once, until_so
from tests.kubelet import worlds
from tests.kubelet.milan import Milan
from tests.kubelet.sites import Site
from tests.kubelet.toll import Toll, kubeconfig_as
from tests.world import existing, is_ready, remove

pytestmark = pytest.mark.cluster

PODS = size_of("PYLIQO_TEST_PODS", 20, 1000)
IS_WHOLE = size_of("PYLIQO_TEST_CRASHES", small=False, full=True)
PATIENCE_S = 300 + PODS
CALM_LOOKS = 100 if IS_WHOLE else 1
"""So often a state has to be seen, 50 ms apart, until no further call is expected."""


@pytest.fixture
async def site(server: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    made = Site(server, plane.kubeconfig)
    yield made
    await made.end()


async def local_pods(site: Site) -> dict[str, Object]:
    found = (await site.cluster.list(Selection(keys.POD, Object, site.home))).items
    return {key.name: pod for key, pod in found.items()}


async def until(holds: Callable[[dict[str, Object]], bool], site: Site) -> dict[str, Object]:
    async with asyncio.timeout(PATIENCE_S):
        while not holds(pods := await local_pods(site)):  # noqa: ASYNC110  # a process is waited for
            await asyncio.sleep(0.1)
    return pods


def all_ready(count: int) -> Callable[[dict[str, Object]], bool]:
    return lambda pods: len(pods) == count and all(map(is_ready, pods.values()))


def restarts(pods: Iterable[Object]) -> int:
    """Return how often they were restarted; one that is made again has none for a while."""
    told = [one for pod in pods for one in pod["status"].get("containerStatuses") or []]
    return sum(one["restartCount"] for one in told)


async def logged(log: audit.Log, site: Site, settled: Callable[[list[Call]], bool]) -> list[Call]:
    """Return what the processes of ``site`` wrote, leases aside, once the log is ``settled``."""
    calls: list[Call] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            calls += [call for call in log.read() if is_of(site, call)]
            if settled(calls):
                return [call for call in calls if call.is_write and call.resource != "leases"]
            await asyncio.sleep(0.1)


def is_of(site: Site, call: Call) -> bool:
    places = {site.home, site.twin, site.tenant}
    return call.agent.startswith("pyliqo-kubelet") and call.namespace in places


def is_about(name: str) -> Callable[[list[Call]], bool]:
    """Return whether the status of the pod of that name was written."""
    return lambda calls: any(call.name == name and call.resource == "pods/status" for call in calls)


# Killed ------------------------------------------------------------------------------------------


async def test_killed_amid_a_burst_and_at_rest_it_doubles_and_writes_nothing(
    site: Site, plane: Plane
) -> None:
    await site.prepare()
    milan, log = Milan(site.cluster, site.twin), audit.Log(plane.audit_log)
    async with milan.running():
        await site.start()
        made = await asyncio.gather(*(site.bind(f"web-{number}") for number in range(PODS)))
        await until_so(lambda: half_there(milan))
        await site.kill(signal.SIGKILL)
        began = time.monotonic()
        await site.start()
        pods = await until(all_ready(PODS), site)
        took_s = time.monotonic() - began
        sys.stderr.write(f"\n{PODS} pods: all true {took_s:.1f} s after a kill amid their births\n")
        assert {objects.uid(pod) for pod in pods.values()} == set(milan.births)
        assert set(milan.births) == {objects.uid(pod) for pod in made}
        assert {len(uids) for uids in milan.births.values()} == {1}
        assert restarts(pods.values()) == 0

        await site.kill(signal.SIGKILL)
        again = milan.births[objects.uid(pods[ANEW])]
        await remove(site.cluster, keys.POD, Key(site.twin, ANEW), grace_s=0)
        await until_so(lambda: are_two(again))
        await asyncio.to_thread(log.settled, plane.api)
        began = time.monotonic()
        await site.start()
        await site.bind("marker")  # behind all others
        await until(all_ready(PODS + 1), site)
        took_s = time.monotonic() - began
        sys.stderr.write(f"{PODS} pods: looked at again {took_s:.1f} s after a restart\n")
        await until(lambda pods: restarts(pods.values()) == restarts([pods[ANEW]]) == 1, site)
        writes = await logged(log, site, is_about("marker"))

        assert {call.name for call in writes if call.resource in PARTS} <= {"marker", ANEW}
        assert sum(len(uids) for uids in milan.births.values()) == PODS + 2

        await site.kill(signal.SIGKILL)
        away = Away([name for name in pods if name != ANEW])
        await away.change(site)
        await asyncio.to_thread(log.settled, plane.api)
        began = time.monotonic()
        await site.start()
        await until_so(lambda: away.is_caught_up(site, milan))
        took_s = time.monotonic() - began
        calls = await asyncio.to_thread(log.settled, plane.api)
        costs = Counter(
            (call.namespace, call.resource.partition("/")[0], call.name)
            for call in calls
            if is_of(site, call) and call.is_write and call.resource not in {"leases", "events"}
        )
        sys.stderr.write(
            f"{PODS} changes while it was away: all true after {took_s:.1f} s, "
            f"at most {max(costs.values())} writes an object\n"
        )
        assert sum(len(uids) for uids in milan.births.values()) == PODS + 2 + len(away.made)


class Away:
    """What happens while no virtual kubelet runs: a change each for pods of those ``names``."""

    def __init__(self, names: list[str]) -> None:
        self.labelled, self.restarted, self.deleted = names[::3], names[1::3], names[2::3]
        self.made = [f"new-{number}" for number in range(len(self.deleted))]

    async def change(self, site: Site) -> None:
        cluster, labels = site.cluster, {"metadata": {"labels": {"tier": "front"}}}
        status, pods = worlds.running(restarts=1), await local_pods(site)
        await some_at_once(
            [
                *(cluster.patch(keys.POD, Key(site.home, one), labels) for one in self.labelled),
                *(
                    cluster.patch_status(keys.POD, Key(site.twin, one), status)
                    for one in self.restarted
                ),
                *(
                    cluster.delete(keys.POD, Key(site.home, one), uid=objects.uid(pods[one]))
                    for one in self.deleted
                ),
                *(site.bind(one) for one in self.made),
            ]
        )

    async def is_caught_up(self, site: Site, milan: Milan) -> bool:
        here = await local_pods(site)
        there = {key.name: pod for key, pod in milan.pods.items().items()}
        return (
            not {*self.deleted} & (here.keys() | there.keys())
            and all("tier" in objects.labels(there[one]) for one in self.labelled)
            and restarts(here[one] for one in self.restarted) == len(self.restarted)
            and all(is_ready(here[one]) for one in (*self.labelled, *self.restarted, *self.made))
        )


ANEW = "web-0"


async def are_two(births: set[str]) -> bool:
    return len(births) == 2


PARTS = frozenset({"pods", "pods/status", "shadowpods", "secrets"})


async def half_there(milan: Milan) -> bool:
    return len(milan.shadows.items()) >= PODS // 2


# Killed at each write -----------------------------------------------------------------------------


class KilledLife:
    """A pod whose kubelet is killed while it lives, and started again."""

    def __init__(self, site: Site, milan: Milan, toll: Toll) -> None:
        self.site, self.milan, self.toll = site, milan, toll
        self.key, self.twin = Key(site.home, "web"), Key(site.twin, "web")

    async def until(self, phase: str, holds: Callable[[], Awaitable[bool]]) -> None:
        left = CALM_LOOKS
        async with asyncio.timeout(PATIENCE_S):
            while left:
                is_so = self.toll.kills[phase] and self._is_up() and await holds()
                left = left - 1 if is_so else CALM_LOOKS
                if not self._is_up():
                    await self.site.start()
                await asyncio.sleep(0.05)

    def _is_up(self) -> bool:
        process = self.site.process
        return process is not None and process.returncode is None

    async def again(self) -> Object:
        """Create the pod again, while nobody is killed; return it once it runs."""
        phase, self.toll.phase = self.toll.phase, ""
        made = await self.site.bind("web")
        await self.until(phase, self.is_running)
        return made

    async def is_running(self) -> bool:
        pod = await self.site.cluster.get_live(keys.POD, self.key)
        return pod is not None and is_ready(pod) and not restarts([pod])

    async def follows(self) -> bool:
        remote = await self.site.cluster.get_live(keys.POD, self.twin)
        return remote is not None and objects.labels(remote).get("tier") == "front"

    async def is_gone(self) -> bool:
        there = ((keys.POD, self.key), (keys.SHADOW_POD, self.twin), (keys.POD, self.twin))
        found = [await self.site.cluster.get_live(kind, key) for kind, key in there]
        return found == [None] * 3

    async def is_aborted(self) -> bool:
        pod = await self.site.cluster.get_live(keys.POD, self.key)
        return ((pod or {}).get("status") or {}).get("reason") == "OffloadingAborted"


async def test_killed_at_its_writes_it_loses_and_doubles_nothing_of_a_life(
    site: Site, plane: Plane, tmp_path: Path
) -> None:
    def kill() -> None:
        if site.process and site.process.returncode is None:
            site.process.kill()

    toll = Toll(plane, kill, is_whole=IS_WHOLE)
    async with toll.open():
        site.kubeconfig = tmp_path / "kubeconfig"
        site.kubeconfig.write_text(toll.kubeconfig())
        await site.prepare()
        milan = Milan(site.cluster, site.twin)
        async with milan.running():
            await site.start()
            await until_so(lambda: asked_again(toll))
            assert site.process
            assert site.process.returncode is None, "a refusal at its start ended it"
            await live_on(KilledLife(site, milan, toll))
        await site.end()


async def asked_again(toll: Toll) -> bool:
    return toll.versions > 1


async def live_on(life: KilledLife) -> None:
    """Create, change, delete, create again, evict, create again, unoffload."""
    site, cluster, births, toll = life.site, life.site.cluster, life.milan.births, life.toll
    toll.phase = "create"
    first = objects.uid(await site.bind("web"))
    await life.until("create", life.is_running)

    toll.phase = "update"
    await cluster.patch(keys.POD, life.key, {"metadata": {"labels": {"tier": "front"}}})
    await life.until("update", life.follows)

    toll.phase = "delete"
    await cluster.delete(keys.POD, life.key, uid=first)
    await life.until("delete", life.is_gone)

    second = await life.again()
    toll.phase = "evict"
    assert await writes_.evict(cluster, second)
    await life.until("evict", life.is_gone)

    third = await life.again()
    toll.phase = "unoffload"
    patch = {"spec": {"desiredMapping": {site.home: None}}}
    await cluster.patch(keys.NAMESPACE_MAP, Key(site.tenant, "milan"), patch)
    await life.until("unoffload", life.is_aborted)
    uids = first, objects.uid(second), objects.uid(third)
    assert [len(births[uid]) for uid in uids] == [1, 1, 1]
    sys.stderr.write(f"\nkilled {toll.kills.total()} times: {dict(toll.kills)}\n")


# Two of them --------------------------------------------------------------------------------------


async def test_of_two_replicas_only_the_one_that_leads_writes(
    site: Site, plane: Plane, server: ClusterClient, tmp_path: Path
) -> None:
    other = Site(server, tmp_path / "b", site.name, replica=1)
    site.kubeconfig = tmp_path / "a"
    users = [f"{site.name}-a", f"{site.name}-b"]
    for one, user in zip((site, other), users, strict=True):
        one.kubeconfig.write_text(kubeconfig_as(plane, user))
    await site.prepare()
    await other.lead_to_provider()
    milan, log = Milan(server, site.twin), audit.Log(plane.audit_log)
    try:
        async with milan.running():
            await site.start()
            await until_so(lambda: leads(site))
            await other.start()
            await asyncio.gather(*(site.bind(f"web-{number}") for number in range(3)))
            await until(all_ready(3), site)
            assert site.process
            site.process.send_signal(signal.SIGSTOP)
            await asyncio.gather(*(site.bind(f"more-{number}") for number in range(3)))
            await until_so(lambda: leads(other))
            site.process.send_signal(signal.SIGCONT)
            await until(all_ready(6), site)
            await site.bind("last")
            await until(all_ready(7), site)
            writes = await logged(log, site, is_about("last"))
    finally:
        await other.end()

    lease = await existing(server, keys.LEASE, Key(site.tenant, site.name))
    by = [call.user for call in sorted(writes, key=received_at) if call.resource in PARTS]
    terms = [user for user, _ in itertools.groupby(by)]
    assert terms[:2] == users
    assert len(terms) <= lease["spec"]["leaseTransitions"] + 1, "somebody wrote who did not lead"
    assert {len(uids) for uids in milan.births.values()} == {1}


def received_at(call: Call) -> str:
    return call.received


async def leads(site: Site) -> bool:
    lease = await site.cluster.get_live(keys.LEASE, Key(site.tenant, site.name))
    return bool(lease and lease["spec"].get("holderIdentity") == site.pod_name)
