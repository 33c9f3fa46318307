"""Real processes that are killed, before a real API server that keeps a log.

``PYLIQO_TEST_PODS`` says how many pods; 1000 is the full size. Source: faults.md F1; I3.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from apis import keys, objects
from apis.objects import Object
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import audit
from sandbox.audit import Call
from sandbox.controlplane import Plane
from tests.kubelet.milan import Milan
from tests.kubelet.sites import Site, eventually
from tests.kubelet.worlds import named_condition

pytestmark = pytest.mark.cluster

PODS = int(os.environ.get("PYLIQO_TEST_PODS", "20"))
PATIENCE_S = 300 + PODS


@pytest.fixture
async def real(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        yield cluster


@pytest.fixture
async def site(real: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    made = Site(real, plane.kubeconfig, f"vk-{os.urandom(3).hex()}")
    yield made
    await made.end()


async def local_pods(site: Site) -> dict[str, Object]:
    """Return the pods at home, by name."""
    found = (await site.cluster.list(Selection(keys.POD, Object, site.home))).items
    return {key.name: pod for key, pod in found.items()}


def is_ready(pod: Object) -> bool:
    return named_condition(pod.get("status") or {}, "Ready").get("status") == "True"


async def until(holds: Callable[[dict[str, Object]], bool], site: Site) -> dict[str, Object]:
    """Return the pods at home once they are so."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(pods := await local_pods(site)):  # noqa: ASYNC110  # a process is waited for
            await asyncio.sleep(0.1)
    return pods


def all_ready(count: int) -> Callable[[dict[str, Object]], bool]:
    return lambda pods: len(pods) == count and all(map(is_ready, pods.values()))


def restarts(pods: Iterable[Object]) -> int:
    return sum(one["restartCount"] for pod in pods for one in pod["status"]["containerStatuses"])


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
        await eventually(lambda: half_there(milan))
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
        log.read()
        began = time.monotonic()
        await site.start()
        await site.bind("marker")  # behind all others
        await until(all_ready(PODS + 1), site)
        took_s = time.monotonic() - began
        sys.stderr.write(f"{PODS} pods: looked at again {took_s:.1f} s after a restart\n")
        writes = await logged(log, site, is_about("marker"))

    others = [call for call in writes if call.name != "marker" and call.resource in PARTS]
    assert others == []
    assert {len(uids) for uids in milan.births.values()} == {1}


PARTS = frozenset({"pods", "pods/status", "shadowpods", "secrets"})


async def half_there(milan: Milan) -> bool:
    return len(milan.shadows.items()) >= PODS // 2
