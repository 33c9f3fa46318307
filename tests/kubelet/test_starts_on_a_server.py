"""A virtual kubelet that starts while a server does not say all of what it has to know.

Home and provider are one real API server; who stands before it refuses to tell of one kind.
Source: docs/parity.md F-21, F-22.
"""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from apis import keys, objects
from apis.objects import Key
from kube import client
from kube.credentials import Access
from sandbox.controlplane import Plane
from tests.kubelet.milan import Milan
from tests.kubelet.sites import Site, eventually
from tests.kubelet.toll import Toll

pytestmark = pytest.mark.cluster

TIMES: Final = 3


class Silent(Toll):
    """It fails the one who asks about a kind of ``about``, as a server does that has trouble."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane, lambda: None, is_whole=False)
        self.versions = 1  # the first question of the version is answered, too
        self.about = ""
        self.failed: Counter[str] = Counter()

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, who: Access
    ) -> web.StreamResponse:
        if self.about and self.about in request.path.split("/"):
            self.failed[self.about] += 1
            return web.json_response({"message": "trouble", "code": 500}, status=500)
        return await super()._pass(request, session, who)


@pytest.fixture
async def silent(plane: Plane) -> AsyncIterator[Silent]:
    made = Silent(plane)
    async with made.open():
        yield made


@pytest.fixture
async def site(plane: Plane, silent: Silent, tmp_path: Path, crds: None) -> AsyncIterator[Site]:
    way = tmp_path / "way.kubeconfig"
    way.write_text(silent.kubeconfig())
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        made = Site(cluster, way, "vk-starts", provider=way)
        await made.prepare()
        yield made
        await made.end()


async def lives(site: Site) -> list[str]:
    """Return the phase and the UID of the pod ``web``, of its ShadowPod and of its remote Pod."""
    here, there = Key(site.home, "web"), Key(site.twin, "web")
    pod = await site.cluster.get_live(keys.POD, here) or {"metadata": {}}
    rest = [await site.cluster.get_live(kind, there) for kind in (keys.SHADOW_POD, keys.POD)]
    phase = (pod.get("status") or {}).get("phase", "")
    return [phase, *(str((one or {"metadata": {}})["metadata"].get("uid")) for one in (pod, *rest))]


async def test_what_is_not_told_yet_is_not_taken_for_absent(site: Site, silent: Silent) -> None:
    milan = Milan(site.cluster, site.twin)

    async def is_running() -> bool:
        return (await lives(site))[0] == "Running"

    async with milan.running():
        await site.start()
        pod = await site.bind("web")
        await eventually(is_running)
        before = await lives(site)
        for number, about in enumerate(("namespacemaps", "shadowpods", "pods", "virtualnodes")):

            async def was_refused(about: str = about) -> bool:
                return silent.failed[about] >= TIMES

            async def goes_on(name: str = f"next-{number}") -> bool:
                return bool(await site.cluster.get_live(keys.SHADOW_POD, Key(site.twin, name)))

            await site.kill(signal.SIGKILL)
            silent.about = about
            await site.start()
            await eventually(was_refused)
            assert await lives(site) == before, about
            silent.about = ""
            await site.bind(f"next-{number}")
            await eventually(goes_on)
            assert await lives(site) == before, about

    assert before[1] == objects.uid(pod)
    assert len(milan.births[objects.uid(pod)]) == 1
