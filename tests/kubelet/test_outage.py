"""Pods and reflected objects after an outage of their provider: both processes, behind a gate.

One real API server is home and provider. ``PYLIQO_TEST_OBJECTS=500 PYLIQO_TEST_OUTAGE_S=60`` is the
full size, time-scaled; the seconds are printed, and what is judged is that all of it is true again.
"""

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object
from apis.reflection import CONFIG_MAP
from controllers.shadowpod import forge
from kube import client, clock
from kube.cluster import Selection
from kube.informer import Informer
from sandbox.controlplane import Plane
from tests import factories
from tests.kube.running import Gate, running, until
from tests.kubelet.sites import Site
from tests.kubelet.worlds import named_condition
from tests.reflector.test_process import process

pytestmark = pytest.mark.cluster

COUNT: Final = int(os.environ.get("PYLIQO_TEST_OBJECTS", "10"))
OUTAGE_S: Final = float(os.environ.get("PYLIQO_TEST_OUTAGE_S", "5"))
PATIENCE_S: Final = 300
AT_ONCE: Final = 16


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
    status = pod.get("status") or {}
    is_ready = named_condition(status, "Ready").get("status") == "True"
    return is_ready and status.get("message") == told


def behind(plane: Plane, gate: Gate, directory: Path) -> Path:
    """Return a kubeconfig of the same server, reached through ``gate``."""
    text, path = plane.kubeconfig.read_text(), directory / "behind"
    assert plane.server in text
    path.write_text(text.replace(plane.server, f"https://127.0.0.1:{gate.port}"))
    return path


@pytest.fixture
async def site(plane: Plane, crds: None, gate: Gate, tmp_path: Path) -> AsyncIterator[Site]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:
        way = behind(plane, gate, tmp_path)
        made = Site(real, plane.kubeconfig, f"vk-{secrets.token_hex(3)}", provider=way)
        await made.prepare()
        yield made
        await made.end()


async def each(work: Callable[[int], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Do ``work`` for each number, some at a time."""
    turn = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with turn:
            await work(number)

    await asyncio.gather(*map(one, range(COUNT)))


async def create(site: Site) -> None:
    """Create the pods and what is reflected, at home."""

    async def one(number: int) -> None:
        await site.bind(f"o-{number}")
        settings = factories.config_map(site.home, f"o-{number}", told="a")
        await site.cluster.create(keys.CONFIG_MAP, settings)

    await each(one)


async def answer(seen: Observed) -> None:
    """Create the Pods on the provider, as its controllers do."""

    async def one(number: int) -> None:
        shadow = seen.shadows.items()[Key(seen.site.twin, f"o-{number}")]
        await seen.site.cluster.create(keys.POD, forge.pod(shadow))

    await each(one)


async def say(site: Site, told: str) -> None:
    """Let every Pod of the provider be Ready and say ``told``."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": clock.seconds(clock.now())}
    status = {"phase": "Running", "message": told, "conditions": [ready]}

    async def one(number: int) -> None:
        await site.cluster.patch_status(keys.POD, Key(site.twin, f"o-{number}"), status)

    await each(one)


async def change(site: Site, told: str) -> None:
    """Change all that is reflected, at home."""

    async def one(number: int) -> None:
        key = Key(site.home, f"o-{number}")
        await site.cluster.patch(keys.CONFIG_MAP, key, {"data": {"told": told}})

    await each(one)


async def bare(site: Site) -> float:
    """Return the seconds that writing as much takes alone: what bounds all of it."""
    began = time.monotonic()

    async def twin(number: int) -> None:
        key = Key(site.twin, f"o-{number}")
        await site.cluster.patch(keys.CONFIG_MAP, key, {"data": {"told": "c"}})

    async def pod(number: int) -> None:
        key = Key(site.home, f"o-{number}")
        await site.cluster.patch_status(keys.POD, key, {"message": "c"})

    await asyncio.gather(each(twin, CONFIG_MAP.workers), each(pod, AT_ONCE))
    return time.monotonic() - began


@pytest.mark.parametrize("way", ["reject", "drop"])
async def test_everything_is_true_again_soon_after_an_outage(
    plane: Plane, site: Site, gate: Gate, way: str
) -> None:
    seen = Observed(site)
    flag = f"--foreign-kubeconfig-secret-name={site.secret}"
    await site.start("--node-ping-interval=1s")
    with process(plane, site.tenant, f"{site.name}-0", flag, f"--nodename={site.name}"):
        async with seen.running():
            await create(site)
            await until(lambda: len(seen.shadows.items()) == COUNT, within_s=PATIENCE_S)
            await answer(seen)
            await say(site, "a")
            await until(lambda: seen.is_true("a"), within_s=PATIENCE_S)
            if way == "drop":
                gate.hold()
            else:
                await gate.shut()
            await say(site, "b")
            await change(site, "b")
            await asyncio.sleep(OUTAGE_S)  # the outage itself
            assert not seen.is_true("b")
            began = time.monotonic()
            gate.let_go()
            if way == "reject":
                await gate.open()
            await until(lambda: seen.is_true("b"), within_s=PATIENCE_S)
            took = time.monotonic() - began
    what = f"{COUNT} pods and {COUNT} reflected objects"
    await site.end()
    alone = await bare(site)
    told = f"true again {took:.1f} s after the return, {alone:.1f} s as bare writes"
    sys.stderr.write(f"{way}: {what} {told}\n")
