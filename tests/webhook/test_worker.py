"""Which reviews the loop that reads and writes answers itself, and which wait in a thread."""

import asyncio
import contextlib
import io
import os
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube.errors import KubeError
from kube.memory import give_back
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import until
from tests.webhook.reviews import body, offloading, patch_of
from tests.webhook.slowservers import Lagging, Silent, connecting
from webhook import app
from webhook.admission import WebhookHandler
from webhook.reader import CachedReader, MustWaitError
from webhook.worker import called

KINDS: Final = [keys.NAMESPACE_OFFLOADING, keys.NAMESPACE, keys.NODE]
POD: Final[Object] = {"metadata": {"name": "web"}, "spec": {"containers": []}}
PATH: Final = "/mutate/pod"


class Failing(Lagging):
    """A server that says no."""

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        raise KubeError("etcd is away")


@contextlib.asynccontextmanager
async def served_judges(
    cluster: FakeCluster, *objects: tuple[Kind, Object]
) -> AsyncIterator[Mapping[str, WebhookHandler]]:
    """Yield the judges, whose reader lives in the loop of the test."""
    reader = CachedReader(connecting(cluster, *objects), KINDS)
    following = asyncio.create_task(reader.follow())
    await asyncio.to_thread(reader.call, lambda _: asyncio.sleep(0))  # there is a connection
    yield app.webhook_handlers(reader)
    following.cancel()


def answered(judges: Mapping[str, WebhookHandler], timeout: str = "1s") -> tuple[int, Any]:
    """Return what the app says, called where this is called."""
    client = app.create_app(judges).test_client()
    path = f"{PATH}?timeout={timeout}"
    found = client.post(path, data=body(POD), content_type="application/json")
    return found.status_code, found.get_json()


async def test_what_the_caches_know_is_answered_in_the_loop() -> None:
    cluster = FakeCluster()
    async with served_judges(cluster, (keys.NAMESPACE_OFFLOADING, offloading())) as judges:
        await until(lambda: not app.waits(judges, PATH, body(POD)))
        status, answer = answered(judges)

    assert status == 200
    assert patch_of(answer)
    assert cluster.requests["get", "namespaceoffloadings"] == 0


async def test_a_namespaceoffloading_that_no_cache_has_is_looked_up_in_a_thread() -> None:
    async with served_judges(Lagging(), (keys.NAMESPACE_OFFLOADING, offloading())) as judges:
        assert app.waits(judges, PATH, body(POD))
        status, answer = await asyncio.to_thread(answered, judges)

    assert status == 200
    assert patch_of(answer)


@pytest.mark.parametrize("cluster", [Silent(), Failing()], ids=["silent", "failing"])
async def test_what_the_server_does_not_say_is_no_answer(cluster: FakeCluster) -> None:
    async with served_judges(cluster) as judges:
        status, failure = await asyncio.to_thread(answered, judges, "100ms")

    assert status == 503
    assert "did not tell the webhook in time" in failure["message"]


async def test_a_shadowpod_of_a_twin_that_is_known_is_judged_in_the_loop() -> None:
    twin = named(keys.NAMESPACE, Key("", "shop"))
    sent = body({"metadata": {"name": "web", "namespace": "shop"}, "spec": {}})
    async with served_judges(FakeCluster(), (keys.NAMESPACE, twin)) as judges:
        await until(lambda: not app.waits(judges, "/validate/shadowpods", sent))


async def test_what_turns_out_to_have_to_wait_is_answered_in_a_thread() -> None:
    begun: list[int] = []

    def slow(environ: Any, start_response: Any) -> Iterable[bytes]:
        begun.append(threading.get_ident())
        sent = environ["wsgi.input"].read()
        if begun[-1] == threading.main_thread().ident:
            raise MustWaitError
        start_response("200 OK", [])
        return [sent]

    with ThreadPoolExecutor(1) as threads:
        answer = await called(slow, {"wsgi.input": io.BytesIO(b"review")}, threads)

    assert (answer.status, answer.body, len(begun)) == (200, b"review", 2)


async def test_the_loop_never_waits_for_itself() -> None:
    async with served_judges(Lagging()) as judges:
        with pytest.raises(MustWaitError):
            answered(judges)


@factories.cases("path, is_slow")
async def test_what_may_have_to_wait_is_known_before(path: str, *, is_slow: bool) -> None:
    async with served_judges(FakeCluster()) as judges:
        assert app.waits(judges, path, b"no review") is is_slow


def test_memory_below_what_is_still_in_use_is_given_back() -> None:
    many = [bytearray(2_000) for _ in range(20_000)]
    used = resident_mib()
    many[:-1] = []  # the last is above all others

    give_back()

    assert used - resident_mib() > 30


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
