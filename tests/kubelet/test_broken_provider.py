"""A provider whose answers make no sense ends no daemon: what it says is asked again.

The process and the API server are real; between them stands who rewrites what the server says.
Source: docs/parity.md SEC-B8.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from apis import keys
from apis.objects import Key, Object
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests.kubelet.sites import Site, eventually
from tests.kubelet.toll import Call
from tests.liar import Liar

pytestmark = pytest.mark.cluster

Lie = Callable[[Object], list[Object]]
TIMES: Final = 3


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

        await site.bind(key.name)
        await eventually(is_offloaded)
        told = liar.attack = Told(lie, await shadow(site.cluster, key) or {})

        async def are_told(name: str = name, told: Told = told) -> bool:
            assert site.process
            assert site.process.returncode is None, name
            return not told.left

        liar.cut()
        await eventually(are_told)
        liar.attack = None

    await site.bind("last")

    async def is_last_offloaded() -> bool:
        return bool(await shadow(site.cluster, Key(site.twin, "last")))

    await eventually(is_last_offloaded)
    assert site.process
    assert site.process.returncode is None
