"""A provider whose answers make no sense ends no daemon: what it says is asked again.

The process and the API server are real; between them stands who rewrites what the server says.
Source: security.md B8.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from apis import keys
from apis.objects import Key, Object
from kube import client
from kube.access import Access
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests.kubelet.sites import Site, eventually
from tests.kubelet.toll import Toll

pytestmark = pytest.mark.cluster

Lie = Callable[[Object], list[Object]]
TIMES: Final = 3


class Liar(Toll):
    """It answers some watches of ``about`` with what ``lie`` makes of a Pod, and is true else."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane, lambda: None, is_whole=False)
        self.lie: Lie | None = None
        self.about: Object = {}
        self.left = 0
        self.versions = 1  # the first question of the version is answered, too
        self._watches: list[asyncio.Transport] = []

    def cut(self) -> None:
        """Break all watches."""
        for transport in self._watches:
            transport.abort()
        self._watches.clear()

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, who: Access
    ) -> web.StreamResponse:
        is_followed = request.path.endswith(("/pods", "/shadowpods"))
        if self.lie and self.left and "watch" in request.query and is_followed:
            self.left -= 1
            lines = [json.dumps(line) + "\n" for line in self.lie(self.about)]
            return web.Response(text="".join(lines), content_type="application/json")
        if "watch" in request.query and isinstance(request.transport, asyncio.Transport):
            self._watches.append(request.transport)
        return await super()._pass(request, session, who)


def error(code: Any) -> Object:
    return {"type": "ERROR", "object": {"code": code}}


def changed(pod: Object, **metadata: Any) -> Object:
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


LIES: Final[dict[str, Lie]] = {
    "an error whose code is a word": lambda _: [error("abc")],
    "a version of 5,000 digits": lambda pod: [
        {"type": "BOOKMARK", "object": changed(pod, resourceVersion="9" * 5_000)},
        error(410),
    ],
    "a departure with a list of annotations": lambda pod: [
        {"type": "DELETED", "object": changed(pod, annotations=["x"])}
    ],
}


@pytest.fixture
async def liar(plane: Plane) -> AsyncIterator[Liar]:
    made = Liar(plane)
    async with made.open():
        yield made


@pytest.fixture
async def site(plane: Plane, liar: Liar, tmp_path: Path, crds: None) -> AsyncIterator[Site]:
    provider = tmp_path / "provider.kubeconfig"
    provider.write_text(liar.kubeconfig())
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        made = Site(cluster, plane.kubeconfig, "vk-broken", provider=provider)
        await made.prepare()
        yield made
        await made.end()


async def shadow(cluster: ClusterClient, key: Key) -> Object | None:
    return await cluster.get_live(keys.SHADOW_POD, key)


async def test_no_answer_that_cannot_be_read_ends_a_daemon(site: Site, liar: Liar) -> None:
    await site.start()
    for number, (name, lie) in enumerate(LIES.items()):
        key = Key(site.twin, f"web-{number}")

        async def is_offloaded(key: Key = key) -> bool:
            return bool(await shadow(site.cluster, key))

        async def are_told(name: str = name) -> bool:
            assert site.process
            assert site.process.returncode is None, name
            return not liar.left

        await site.bind(key.name)
        await eventually(is_offloaded)
        liar.about, liar.lie, liar.left = await shadow(site.cluster, key) or {}, lie, TIMES
        liar.cut()
        await eventually(are_told)
        liar.lie = None

    await site.bind("last")

    async def is_last_offloaded() -> bool:
        return bool(await shadow(site.cluster, Key(site.twin, "last")))

    await eventually(is_last_offloaded)
    assert site.process
    assert site.process.returncode is None
