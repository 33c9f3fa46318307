"""The API server of each provider is asked, and what it says is told once."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest
import yaml
from yarl import URL

from apis import keys
from apis.objects import Key, named
from controllers.foreigncluster.checker import Checker, Source
from kube import clock
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests.fakes import FakeCluster
from tests.kube.running import Gate

pytestmark = pytest.mark.cluster
SECRET = Key("of-milan", "kubeconfig")


def source(wanted: Mapping[str, Key]) -> Source:
    async def now() -> Mapping[str, Key]:
        return wanted

    return Source(now, lambda _: "pool", lambda _: lambda: None)


@contextlib.asynccontextmanager
async def checking(
    cluster: Cluster, wanted: Mapping[str, Key], interval_s: float = 0.05
) -> AsyncIterator[tuple[Checker, asyncio.Queue[str]]]:
    told: asyncio.Queue[str] = asyncio.Queue()
    checker = Checker(
        cluster,
        source(wanted),
        tell=told.put_nowait,
        clock=clock.now,
        user_agent="tests",
        interval_s=interval_s,
    )
    task = asyncio.create_task(checker.run())
    try:
        yield checker, told
    finally:
        task.cancel()
        await asyncio.wait([task])


async def store(cluster: Cluster, key: Key, kubeconfig: bytes) -> None:
    data = {keys.KUBECONFIG_KEY: base64.b64encode(kubeconfig).decode()}
    await cluster.create(keys.SECRET, named(keys.SECRET, key, data=data))


@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_up_and_down(plane: Plane, cluster: Cluster, namespace: str) -> None:
    local = FakeCluster()
    document = yaml.safe_load(plane.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    await store(local, SECRET, yaml.safe_dump(document).encode())
    told_here = {"annotations": {keys.PROVIDER_VERSION: "0.1.7"}}
    pool = named(keys.RESOURCE_SLICE, Key(namespace, "pool"), metadata=told_here, spec={})
    await cluster.create(keys.RESOURCE_SLICE, pool)
    dead = plane.kubeconfig.read_text().replace(plane.server, "https://127.0.0.1:1")
    await store(local, Key("of-turin", "kubeconfig"), dead.encode())
    wanted = {"milan": SECRET, "turin": Key("of-turin", "kubeconfig"), "away": Key("x", "none")}

    async with asyncio.timeout(60), checking(local, wanted) as (checker, told):
        assert {await told.get(), await told.get()} == {"milan", "turin"}
        up, down = checker.reach("milan"), checker.reach("turin")
        assert up is not None
        assert up.is_answering
        assert up.version.startswith("v1.")
        assert up.ahead_s == 0
        assert up.pyliqo == "0.1.7"
        assert down is not None
        assert not down.is_answering
        assert down.message.endswith("/livez: nothing listens there (connection refused)")
        assert checker.reach("away") is None

        found = await local.get_live(keys.SECRET, SECRET)
        assert found
        data = {keys.KUBECONFIG_KEY: base64.b64encode(dead.encode()).decode()}
        await local.patch(keys.SECRET, SECRET, {"data": data})
        assert await told.get() == "milan"
        after = checker.reach("milan")
        assert after is not None
        assert not after.is_answering
        assert (after.version, after.pyliqo) == (up.version, up.pyliqo)
        assert told.empty()


async def test_an_outage_and_its_end_are_told_when_they_happen(plane: Plane, crds: None) -> None:
    """No question is due within this test: what breaks off the watch is what tells."""
    local, gate = FakeCluster(), Gate(URL(plane.server).port or 443)
    await gate.open()
    through = plane.kubeconfig.read_text().replace(plane.server, f"https://127.0.0.1:{gate.port}")
    await store(local, SECRET, through.encode())

    async with asyncio.timeout(60), checking(local, {"milan": SECRET}, 3600) as (checker, told):
        heard = []
        for change in (None, gate.shut, gate.open, gate.shut, gate.open):
            if change:
                await change()
            assert await told.get() == "milan"
            reach = checker.reach("milan")
            assert reach is not None
            heard.append(reach.is_answering)
    await gate.shut()

    assert heard == [True, False, True, False, True]
