"""Reviews that need a look at the API server, answered by the loop that reads and writes."""

import asyncio
import contextlib
import io
import os
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Final
from wsgiref.types import WSGIEnvironment

import flask
import msgspec
import pytest
from aiohttp import web

from apis import keys
from apis.objects import Key, Kind, Object
from kube.errors import KubeError
from tests.fakes import FakeCluster
from tests.webhook.reviews import body, offloading, patch_of
from tests.webhook.test_reader import Lagging, Silent, connecting
from webhook import app
from webhook.reader import CachedReader
from webhook.reviews import ARRIVED
from webhook.worker import answer_here, give_back

KINDS: Final = [keys.NAMESPACE_OFFLOADING, keys.NODE]
POD: Final[Object] = {"metadata": {"name": "web"}, "spec": {"containers": []}}
EARLY: Final = "/mutate/pod/early"
LABELLED: Final = "/mutate/pod"


class Gated(Lagging):
    """A server whose caches are behind, and which answers when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        found = await super().get_live(kind, key)
        await self.gate.wait()
        return found


class Failing(Lagging):
    """A server that says no."""

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        raise KubeError("etcd is away")


@contextlib.asynccontextmanager
async def served(cluster: FakeCluster, *objects: tuple[Kind, Object]) -> AsyncIterator[flask.Flask]:
    reader = CachedReader(connecting(cluster, *objects), KINDS)
    following = asyncio.create_task(reader.follow())
    await asyncio.to_thread(reader.call, lambda _: asyncio.sleep(0))  # there is a connection
    yield app.create_app(reader, runtime_class="liqo")
    following.cancel()


def environ(
    path: str, obj: Object = POD, *, kind: Kind = keys.POD, timeout: str = "1s"
) -> WSGIEnvironment:
    sent = body(obj, kind=kind)
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "QUERY_STRING": f"timeout={timeout}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(sent)),
        "wsgi.input": io.BytesIO(sent),
        ARRIVED: time.monotonic(),
    }


async def told(answering: Awaitable[web.Response | None]) -> tuple[int, Object]:
    response = await answering
    assert response is not None
    assert isinstance(response.body, bytes)
    return response.status, msgspec.json.decode(response.body)


async def test_a_burst_of_pods_that_nobody_offloads_costs_one_request() -> None:
    cluster = Gated()
    async with served(cluster) as webhook:
        asked = [asyncio.create_task(told(answer_here(webhook, environ(EARLY)))) for _ in range(30)]
        cluster.gate.set()
        answers = await asyncio.gather(*asked)

    verdicts = [answer["response"]["auditAnnotations"]["verdict"] for _, answer in answers]
    assert verdicts == ["unchanged: not offloaded"] * 30
    assert cluster.requests["get", "namespaceoffloadings"] == 1


async def test_a_pod_whose_namespaceoffloading_no_cache_has_is_placed_in_the_loop() -> None:
    cluster = Gated()
    cluster.gate.set()
    async with served(cluster, (keys.NAMESPACE_OFFLOADING, offloading())) as webhook:
        status, answer = await told(answer_here(webhook, environ(EARLY)))

    assert status == 200
    assert patch_of(answer)


@pytest.mark.parametrize("cluster", [Silent(), Failing()], ids=["silent", "failing"])
async def test_what_the_server_does_not_say_is_no_answer(cluster: FakeCluster) -> None:
    async with served(cluster) as webhook:
        early, answer = await told(answer_here(webhook, environ(EARLY, timeout="100ms")))
        labelled, failure = await told(answer_here(webhook, environ(LABELLED, timeout="100ms")))

    assert (early, labelled) == (200, 503)
    assert answer["response"]["auditAnnotations"]["verdict"] == "unchanged: cannot be judged"
    assert "did not tell the webhook in time" in failure["message"]


async def test_a_list_takes_a_thread() -> None:
    sent = environ("/validate/namespace-offloading", offloading(), kind=KINDS[0])

    async with served(FakeCluster()) as webhook:
        assert await answer_here(webhook, sent) is None


def test_memory_below_what_is_still_in_use_is_given_back() -> None:
    many = [bytearray(2_000) for _ in range(20_000)]
    used = resident_mib()
    many[:-1] = []  # the last is above all others

    give_back()

    assert used - resident_mib() > 30


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
