"""Pods and reflected objects after an outage of their provider: both processes, behind a gate.

One real API server is home and provider. ``PYLIQO_TEST_OBJECTS=500 PYLIQO_TEST_OUTAGE_S=60`` is the
full size, time-scaled: pings come ten times as often as by default, so 60 s are 10 min. The seconds
are printed; what is judged is that all of it is true again, and that nothing was deleted.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from apis.reflection import CONFIG_MAP
from controllers.offloading.shadowpod import forge
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Informer
from sandbox import audit
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.kube.running import Gate, running, until
from tests.kubelet import sites
from tests.kubelet.sites import Site
from tests.reflector.test_process import process
from tests.world import is_ready

pytestmark = pytest.mark.cluster

COUNT: Final = size_of("PYLIQO_TEST_OBJECTS", 10, 500)
OUTAGE_S: Final = size_of("PYLIQO_TEST_OUTAGE_S", 1.0, 60.0)
"""After it was noticed."""
PATIENCE_S: Final = 300
AT_ONCE: Final = 16
WAYS: Final = ("reject", "drop", "one way")
"""How a provider is cut off: refused, silent both ways, or silent in its answers only."""


class Observed:
    """What there is at home and on the provider, seen past the gate."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.pods = Informer(Selection(keys.POD, Object, site.home))
        self.shadows = Informer(Selection(keys.SHADOW_POD, Object, site.twin))
        self.twins = Informer(Selection(keys.CONFIG_MAP, Object, site.twin))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        informers: list[Informer[Object]] = [self.pods, self.shadows, self.twins]
        async with running(*(one.run(self.site.cluster) for one in informers)):
            yield

    def is_no_pod_ready(self) -> bool:
        """Whether every pod at home says that it is not, or not known to be, Ready."""
        return not any(map(is_ready, self.pods.items().values()))

    def is_true(self, told: str) -> bool:
        """Whether every pod at home, and every twin, says what was ``told`` last."""
        said = [one["data"].get("told") for key, one in self.twins.items().items() if _ours(key)]
        pods = self.pods.items().values()
        return (
            len(said) == len(pods) == COUNT
            and {*said} == {told}
            and all(_is(p, told) for p in pods)
        )


def _ours(key: Key) -> bool:
    return key.name.startswith("o-")


def _is(pod: Object, told: str) -> bool:
    return is_ready(pod) and (pod.get("status") or {}).get("message") == told


def behind(plane: Plane, gate: Gate, directory: Path) -> Path:
    """Return a kubeconfig of the same server, reached through ``gate``."""
    text, path = plane.kubeconfig.read_text(), directory / "behind"
    assert plane.server in text
    path.write_text(text.replace(plane.server, f"https://127.0.0.1:{gate.port}"))
    return path


@pytest.fixture
async def site(
    server: ClusterClient, plane: Plane, gate: Gate, tmp_path: Path
) -> AsyncIterator[Site]:
    way = behind(plane, gate, tmp_path)
    async with sites.prepared(server, plane.kubeconfig, provider=way) as made:
        await server.create(keys.NAMESPACE_OFFLOADING, factories.offloading(made.home))
        yield made


async def for_each_pod(work: Callable[[int], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    turn = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with turn:
            await work(number)

    await asyncio.gather(*map(one, range(COUNT)))


async def create_all(site: Site) -> None:
    async def one(number: int) -> None:
        await site.bind(f"o-{number}")
        settings = factories.config_map(site.home, f"o-{number}", told="a")
        await site.cluster.create(keys.CONFIG_MAP, settings)

    await for_each_pod(one)


async def create_remote_pods(seen: Observed) -> None:
    """Create the Pods on the provider, as its controllers do."""

    async def one(number: int) -> None:
        shadow = seen.shadows.items()[Key(seen.site.twin, f"o-{number}")]
        await seen.site.cluster.create(keys.POD, forge.pod(shadow))

    await for_each_pod(one)


async def remote_pods_say(site: Site, told: str) -> None:
    """Let every Pod of the provider be Ready and say ``told``."""
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": objects.timestamp(clock.now()),
    }
    status = {"phase": "Running", "message": told, "conditions": [ready]}

    async def one(number: int) -> None:
        await site.cluster.patch_status(keys.POD, Key(site.twin, f"o-{number}"), status)

    await for_each_pod(one)


async def change(site: Site, told: str) -> None:
    async def one(number: int) -> None:
        key = Key(site.home, f"o-{number}")
        await site.cluster.patch(keys.CONFIG_MAP, key, {"data": {"told": told}})

    await for_each_pod(one)


async def seconds_alone(site: Site) -> float:
    """Return the seconds that writing as much takes alone: what bounds all of it."""
    began = time.monotonic()

    async def twin(number: int) -> None:
        key = Key(site.twin, f"o-{number}")
        await site.cluster.patch(keys.CONFIG_MAP, key, {"data": {"told": "c"}})

    async def pod(number: int) -> None:
        key = Key(site.home, f"o-{number}")
        await site.cluster.patch_status(keys.POD, key, {"message": "c"})

    await asyncio.gather(for_each_pod(twin, CONFIG_MAP.workers), for_each_pod(pod, AT_ONCE))
    return time.monotonic() - began


async def cut(gate: Gate, way: str) -> None:
    if way == "reject":
        await gate.shut()
    elif way == "drop":
        gate.hold()
    else:
        gate.hold_answers()


async def mend(gate: Gate, way: str) -> None:
    gate.let_go()
    if way == "reject":
        await gate.open()


async def outlast(site: Site, seen: Observed, gate: Gate, way: str) -> float:
    """Cut the provider off, and let it be back; return the seconds until all is true again."""
    told = f"after {way}"
    await cut(gate, way)
    await remote_pods_say(site, told)
    await change(site, told)
    await until(seen.is_no_pod_ready, within_s=PATIENCE_S)
    await asyncio.sleep(OUTAGE_S)  # the outage itself
    assert not seen.is_true(told)
    assert seen.is_no_pod_ready()
    began = time.monotonic()
    await mend(gate, way)
    await until(lambda: seen.is_true(told), within_s=PATIENCE_S)
    return time.monotonic() - began


async def test_everything_is_true_again_soon_after_an_outage(
    plane: Plane, site: Site, gate: Gate
) -> None:
    seen, log, took_s = Observed(site), audit.Log(plane.audit_log), {}
    flag = f"--foreign-kubeconfig-secret-name={site.secret}"
    await site.start("--node-ping-interval=1s")
    with process(plane, site.tenant, f"{site.name}-0", flag, f"--nodename={site.name}"):
        async with seen.running():
            await create_all(site)
            await until(lambda: len(seen.shadows.items()) == COUNT, within_s=PATIENCE_S)
            await create_remote_pods(seen)
            await remote_pods_say(site, "a")
            await until(lambda: seen.is_true("a"), within_s=PATIENCE_S)
            for way in WAYS:
                took_s[way] = await outlast(site, seen, gate, way)
            assert len(seen.shadows.items()) == COUNT
    await site.end()
    calls = await asyncio.to_thread(log.settled, plane.api)
    places = {site.home, site.twin}
    assert [
        call
        for call in calls
        if call.is_ours and call.namespace in places and call.verb.startswith("delete")
    ] == []
    alone = await seconds_alone(site)
    for way, took in took_s.items():
        what = (
            f"{COUNT} pods and {COUNT} reflected objects true again {took:.1f} s after the return"
        )
        sys.stderr.write(f"{way}: {what}, {alone:.1f} s as bare writes\n")
