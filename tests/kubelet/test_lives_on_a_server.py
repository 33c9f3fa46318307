"""Lives of pods on a control plane that only these tests use: its scheduler binds what waits.

It is home and provider of a whole virtual kubelet. ``PYLIQO_TEST_LATENCY_S=0.25`` is the full size
of a slow link, one way: then a round trip takes half a second, at 256 kbit/s.
Source: docs/parity.md F-5, F-8; § 5.5.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Change, Informer
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import install_crds, size_of
from tests.kube.running import Gate, dice, running, until
from tests.kubelet.milan import Milan
from tests.kubelet.sites import Site
from tests.kubelet.test_outage import behind
from tests.kubelet.worlds import named_condition
from tests.world import is_ready

pytestmark = pytest.mark.cluster

LATENCY_S: Final = size_of("PYLIQO_TEST_LATENCY_S", 0.05, 0.25)
BYTES_PER_S: Final = 32_000 * 0.25 / LATENCY_S
RESENT: Final = 0.05
"""Of so many pieces one is lost on the way, and comes when TCP sends it again."""
OURS: Final = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"}
PRIORITY: Final = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
)


class Pods:
    """What there is in both namespaces of a site, and what was told first of a pod that ends."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.here = Informer(Selection(keys.POD, Object, site.home))
        self.there = Informer(Selection(keys.POD, Object, site.twin))
        self.ending: dict[str, Object] = {}
        self.here.subscribe(self._note)

    def _note(self, change: Change[Object]) -> None:
        if change.new is not None and objects.is_terminating(change.new):
            self.ending.setdefault(change.key.name, change.new)

    def local(self, name: str) -> Object | None:
        return self.here.get(Key(self.site.home, name))

    def remote(self, name: str) -> Object | None:
        return self.there.get(Key(self.site.twin, name))

    def is_ready(self, name: str, restarts: int = 0) -> bool:
        status = (self.local(name) or {}).get("status") or {}
        told = [one["restartCount"] for one in status.get("containerStatuses") or []]
        return is_ready(self.local(name)) and told == [restarts]


@contextlib.asynccontextmanager
async def client_of(plane: Plane) -> AsyncIterator[ClusterClient]:
    await install_crds(plane.kubeconfig)
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@contextlib.asynccontextmanager
async def offloading_kubelet(site: Site, *flags: str) -> AsyncIterator[tuple[Pods, Milan]]:
    await site.prepare()
    hard = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    virtual = Key(site.tenant, site.name)
    changes = {"spec": {"resourceQuota": {"hard": hard}}}
    await site.cluster.patch(keys.VIRTUAL_NODE, virtual, changes)
    pods, milan = Pods(site), Milan(site.cluster, site.twin)
    followed = (one.run(site.cluster) for one in (pods.here, pods.there))
    async with running(*followed), milan.running():
        await site.start(*flags)
        try:
            yield pods, milan
        finally:
            await site.end()


async def test_a_pod_of_higher_priority_takes_the_place_of_another_here_and_there(
    scheduled: Plane,
) -> None:
    async with client_of(scheduled) as real:
        site = Site(real, scheduled.kubeconfig)
        urgent = named(PRIORITY, Key("", f"urgent-{site.name}"), value=1000)
        await real.create(PRIORITY, urgent)
        async with offloading_kubelet(site) as (pods, milan):
            await real.create(keys.POD, asking_pod(site, "low", terminationGracePeriodSeconds=7))
            await until(lambda: pods.is_ready("low"))
            remote = pods.remote("low")
            assert remote
            assert remote["spec"]["terminationGracePeriodSeconds"] == 7

            high = asking_pod(site, "high", priorityClassName=urgent["metadata"]["name"])
            await real.create(keys.POD, high)
            await until(lambda: pods.is_ready("high"))

            assert pods.local("low") is None
            await until(lambda: pods.remote("low") is None and not milan.shadows.get(low(site)))
    victim = pods.ending["low"]
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 7
    assert (
        named_condition(victim["status"], "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    )
    assert victim["spec"]["nodeName"] == site.name


def low(site: Site) -> Key:
    return Key(site.twin, "low")


def asking_pod(site: Site, name: str, **rest: Any) -> Object:
    """Return a pod for the virtual node, of which it has room for one."""
    spec = factories.pod_spec(tolerations=[OURS], **rest)
    spec["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    return factories.pod(site.home, name, spec=spec)


async def test_while_its_home_is_cut_off_a_pod_is_restored_and_told_of_afterwards(
    scheduled: Plane, tmp_path: Path
) -> None:
    async with client_of(scheduled) as real, Gate(scheduled.listening.port) as gate:
        home = behind(scheduled, gate, tmp_path)
        site = Site(real, home, provider=scheduled.kubeconfig)
        async with offloading_kubelet(site) as (pods, milan):
            local = await site.bind("web")
            await until(lambda: pods.is_ready("web"))

            await gate.shut()
            remote = pods.remote("web")
            assert remote
            await milan.end(remote)
            await until(lambda: len(milan.births[objects.uid(local)]) == 2)
            assert not pods.is_ready("web", restarts=1), "home was told through a closed gate"

            await gate.open()
            await until(lambda: pods.is_ready("web", restarts=1))
            assert site.process
            assert site.process.returncode is None
            there = pods.local("web")
            assert there
            assert objects.uid(there) == objects.uid(local)
            assert len(milan.births[objects.uid(local)]) == 2


async def test_over_a_slow_link_that_loses_pieces_all_of_a_life_arrives(
    scheduled: Plane, tmp_path: Path
) -> None:
    async with client_of(scheduled) as real, Gate(scheduled.listening.port) as gate:
        chance = dice(7)

        def latency() -> float:
            again = 4 * LATENCY_S if chance.random() < RESENT else 0
            return chance.uniform(0.6, 1.4) * LATENCY_S + again

        gate.slow(latency, BYTES_PER_S)
        provider = behind(scheduled, gate, tmp_path)
        site = Site(real, scheduled.kubeconfig, provider=provider)
        async with offloading_kubelet(site) as (pods, milan):
            names = [f"web-{number}" for number in range(5)]
            made = [await site.bind(name) for name in names]
            await until(lambda: all(pods.is_ready(name) for name in names))

            labels = {"metadata": {"labels": {"tier": "front"}}}
            await real.patch(keys.POD, Key(site.home, "web-0"), labels)
            await until(lambda: "tier" in objects.labels(pods.remote("web-0") or {"metadata": {}}))
            for pod in made:
                await real.delete(keys.POD, objects.key_of(pod), uid=objects.uid(pod))
            await until(lambda: not pods.here.items() and not pods.there.items())
            assert {len(births) for births in milan.births.values()} == {1}
            assert len(milan.births) == len(names)
