"""A virtual kubelet that starts while a server does not say all of what it has to know.

Home and provider are one real API server; who stands before it refuses to tell of one kind.
Source: docs/parity.md F-21, F-22.
"""

import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from apis import keys, objects
from apis.objects import Key, Object
from kube.client import ClusterClient
from kube.credentials import Access
from sandbox.controlplane import Plane
from tests.kube.running import until_so
from tests.kubelet import sites
from tests.kubelet.milan import Milan
from tests.kubelet.sites import Site
from tests.kubelet.toll import Call, Toll
from tests.liar import Liar

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
async def site(server: ClusterClient, silent: Silent, tmp_path: Path) -> AsyncIterator[Site]:
    (way := tmp_path / "way.kubeconfig").write_text(silent.kubeconfig())
    async with sites.prepared(server, way, provider=way) as made:
        yield made


async def identities_of_web(site: Site) -> list[str]:
    """Return the phase and the UID of the pod ``web``, of its ShadowPod and of its remote Pod."""
    here, there = Key(site.home, "web"), Key(site.twin, "web")
    pod = await site.cluster.get_live(keys.POD, here) or {"metadata": {}}
    rest = [await site.cluster.get_live(kind, there) for kind in (keys.SHADOW_POD, keys.POD)]
    phase = (pod.get("status") or {}).get("phase", "")
    return [phase, *(str((one or {"metadata": {}})["metadata"].get("uid")) for one in (pod, *rest))]


async def test_what_is_not_told_yet_is_not_taken_for_absent(site: Site, silent: Silent) -> None:
    milan = Milan(site.cluster, site.twin)

    async def is_running() -> bool:
        return (await identities_of_web(site))[0] == "Running"

    async with milan.running():
        await site.start()
        pod = await site.bind("web")
        await until_so(is_running)
        before = await identities_of_web(site)
        for number, about in enumerate(("namespacemaps", "shadowpods", "pods", "virtualnodes")):

            async def was_refused(about: str = about) -> bool:
                return silent.failed[about] >= TIMES

            async def goes_on(name: str = f"next-{number}") -> bool:
                return bool(await site.cluster.get_live(keys.SHADOW_POD, Key(site.twin, name)))

            await site.kill(signal.SIGKILL)
            silent.about = about
            await site.start()
            await until_so(was_refused)
            assert await identities_of_web(site) == before, about
            silent.about = ""
            await site.bind(f"next-{number}")
            await until_so(goes_on)
            assert await identities_of_web(site) == before, about

    assert before[1] == objects.uid(pod)
    assert len(milan.births[objects.uid(pod)]) == 1


# A provider whose answers make no sense ends no daemon: what it says is asked again.
# The process and the API server are real; between them stands who rewrites what the server says.
# Source: docs/parity.md SEC-B8.


Lie = Callable[[Object], list[Object]]


class Told:
    """An attack: some watches of Pods and ShadowPods are answered with a lie, all else is true."""

    def __init__(self, lie: Lie, about: Object) -> None:
        self._lines = [json.dumps(line) + "\n" for line in lie(about)]
        self.left = TIMES

    async def __call__(
        self, _liar: Liar, _request: web.Request, call: Call
    ) -> web.StreamResponse | None:
        if not self.left or call.verb != "WATCH" or call.resource not in {"pods", "shadowpods"}:
            return None
        self.left -= 1
        return web.Response(text="".join(self._lines), content_type="application/json")


def error(code: Any) -> Object:
    return {"type": "ERROR", "object": {"code": code}}


def changed_metadata(pod: Object, **metadata: Any) -> Object:
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


LIES: Final[dict[str, Lie]] = {
    "an error whose code is a word": lambda _: [error("abc")],
    "a version of 5,000 digits": lambda pod: [
        {"type": "BOOKMARK", "object": changed_metadata(pod, resourceVersion="9" * 5_000)},
        error(410),
    ],
    "a departure with a list of annotations": lambda pod: [
        {"type": "DELETED", "object": changed_metadata(pod, annotations=["x"])}
    ],
}


@pytest.fixture
async def liar(plane: Plane) -> AsyncIterator[Liar]:
    made = Liar(plane)
    async with made.open():
        yield made


@pytest.fixture
async def lied_to(
    server: ClusterClient, plane: Plane, liar: Liar, tmp_path: Path
) -> AsyncIterator[Site]:
    (provider := tmp_path / "provider.kubeconfig").write_text(liar.kubeconfig())
    async with sites.prepared(server, plane.kubeconfig, provider=provider) as made:
        yield made


async def test_no_answer_that_cannot_be_read_ends_a_daemon(lied_to: Site, liar: Liar) -> None:
    await lied_to.start()
    for number, (name, lie) in enumerate(LIES.items()):
        key = Key(lied_to.twin, f"web-{number}")

        async def is_offloaded(key: Key = key) -> bool:
            return bool(await lied_to.cluster.get_live(keys.SHADOW_POD, key))

        await lied_to.bind(key.name)
        await until_so(is_offloaded)
        told = liar.attack = Told(lie, await lied_to.cluster.get_live(keys.SHADOW_POD, key) or {})

        async def are_told(name: str = name, told: Told = told) -> bool:
            assert lied_to.process
            assert lied_to.process.returncode is None, name
            return not told.left

        liar.cut()
        await until_so(are_told)
        liar.attack = None

    await lied_to.bind("last")

    async def is_last_offloaded() -> bool:
        return bool(await lied_to.cluster.get_live(keys.SHADOW_POD, Key(lied_to.twin, "last")))

    await until_so(is_last_offloaded)
    assert lied_to.process
    assert lied_to.process.returncode is None
