"""The API server of each provider is asked, and what it says is told once."""

import asyncio
import base64
import contextlib
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest
import yaml
from aiohttp import web
from yarl import URL

from apis import keys
from apis.objects import Key, named
from certs import listener, pki
from certs.pki import Keypair
from controllers.peers.foreigncluster.checker import Checker, ProviderSource
from kube import clock
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.kube.running import Answer, Gate, serving, until

pytestmark = pytest.mark.cluster
SECRET = Key("of-milan", "kubeconfig")
SILENCES = size_of("PYLIQO_TEST_SILENCES", 1, 20)
"""How often the server falls silent."""
WITHIN_S = 300
A_DAY = timedelta(days=1)
A_CONNECTION = 12
"""More pieces than it takes to open a watch."""


def source(wanted: Mapping[str, Key]) -> ProviderSource:
    async def now() -> Mapping[str, Key]:
        return wanted

    return ProviderSource(now, lambda _: "pool", lambda _: lambda: None)


@contextlib.asynccontextmanager
async def checking(
    cluster: Cluster, wanted: Mapping[str, Key], interval_s: float = 0.05, user_agent: str = "tests"
) -> AsyncIterator[tuple[Checker, asyncio.Queue[str]]]:
    told: asyncio.Queue[str] = asyncio.Queue()
    checker = Checker(
        cluster,
        source(wanted),
        tell=told.put_nowait,
        clock=clock.now,
        user_agent=user_agent,
        interval_s=interval_s,
    )
    task = asyncio.create_task(checker.run())
    try:
        yield checker, told
    finally:
        task.cancel()
        await asyncio.wait([task])


async def store_kubeconfig(cluster: Cluster, key: Key, document: bytes) -> None:
    data = {keys.KUBECONFIG_KEY: base64.b64encode(document).decode()}
    await cluster.create(keys.SECRET, named(keys.SECRET, key, data=data))


@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_up_and_down(plane: Plane, cluster: Cluster, namespace: str) -> None:
    local = FakeCluster()
    document = yaml.safe_load(plane.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    await store_kubeconfig(local, SECRET, yaml.safe_dump(document).encode())
    told_here = {"annotations": {keys.PROVIDER_VERSION: "0.1.7"}}
    pool = named(keys.RESOURCE_SLICE, Key(namespace, "pool"), metadata=told_here, spec={})
    await cluster.create(keys.RESOURCE_SLICE, pool)
    dead = plane.kubeconfig.read_text().replace(plane.server, "https://127.0.0.1:1")
    await store_kubeconfig(local, Key("of-turin", "kubeconfig"), dead.encode())
    ended = {**document, "users": [{"name": "us", "user": {"token": "ended"}}]}
    ended["contexts"] = [{**document["contexts"][0]}]
    ended["contexts"][0]["context"] = {**document["contexts"][0]["context"], "user": "us"}
    await store_kubeconfig(local, Key("of-genoa", "kubeconfig"), yaml.safe_dump(ended).encode())
    wanted = {
        "milan": SECRET,
        "turin": Key("of-turin", "kubeconfig"),
        "genoa": Key("of-genoa", "kubeconfig"),
        "away": Key("x", "none"),
    }

    async with asyncio.timeout(WITHIN_S), checking(local, wanted) as (checker, told):
        await says(checker, told, is_answering=True)
        await says(checker, told, "turin", is_answering=False)
        await says(checker, told, "genoa", is_answering=False)
        refused = checker.reach("genoa")
        assert refused is not None
        assert "liqoctl peer --remote-kubeconfig FILE gets a new one" in refused.message
        up, down = checker.reach("milan"), checker.reach("turin")
        assert up is not None
        assert up.version.startswith("v1.")
        assert up.ahead_s is not None
        assert abs(up.ahead_s) < WITHIN_S
        assert up.pyliqo == "0.1.7"
        assert down is not None
        assert down.message.endswith("/livez: nothing listens there (connection refused)")
        assert checker.reach("away") is None

        found = await local.get_live(keys.SECRET, SECRET)
        assert found
        data = {keys.KUBECONFIG_KEY: base64.b64encode(dead.encode()).decode()}
        await local.patch(keys.SECRET, SECRET, {"data": data})
        await says(checker, told, is_answering=False)
        after = checker.reach("milan")
        assert after is not None
        assert (after.version, after.pyliqo) == (up.version, up.pyliqo)


async def test_an_outage_and_its_end_are_told_when_they_happen(plane: Plane, crds: None) -> None:
    """No question is due within this test: what breaks off the watch is what tells."""
    local, gate = FakeCluster(), Gate(URL(plane.server).port or 443)
    await gate.open()
    through = plane.kubeconfig.read_text().replace(plane.server, f"https://127.0.0.1:{gate.port}")
    await store_kubeconfig(local, SECRET, through.encode())

    async with (
        asyncio.timeout(WITHIN_S),
        checking(local, {"milan": SECRET}, 3600) as (checker, told),
    ):
        await says(checker, told, is_answering=True)
        for _ in range(2):
            await gate.shut()
            await says(checker, told, is_answering=False)
            await gate.open()
            await says(checker, told, is_answering=True)
    await gate.shut()


async def test_a_server_that_falls_silent_is_told_by_pongs_that_do_not_come(
    plane: Plane, crds: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """No question is due within this test: what asks is the silence of the watch."""
    local, gate = FakeCluster(), Gate(URL(plane.server).port or 443)
    await gate.open()
    through = plane.kubeconfig.read_text().replace(plane.server, f"https://127.0.0.1:{gate.port}")
    await store_kubeconfig(local, SECRET, through.encode())
    agent, silent_s, back_s = f"tests-{secrets.token_hex(4)}", [], []

    async with (
        asyncio.timeout(WITHIN_S + 30 * SILENCES),
        checking(local, {"milan": SECRET}, 3600, agent) as (checker, told),
    ):
        await says(checker, told, is_answering=True)
        asked = -1  # a server that pauses is asked whether it answers, so perhaps not at once
        while asked != (asked := plane.audit_log.read_text().count(agent)):
            await pieces(gate, A_CONNECTION)
        for _ in range(SILENCES):
            gate.hold()
            begun = time.monotonic()
            await says(checker, told, is_answering=False)
            silent_s.append(time.monotonic() - begun)
            gate.let_go()
            begun = time.monotonic()
            await says(checker, told, is_answering=True)
            back_s.append(time.monotonic() - begun)
            await pieces(gate, A_CONNECTION)
    await gate.shut()

    with capsys.disabled():
        sys.stdout.write(f"\nsilence told, {times(silent_s)}; return told, {times(back_s)}\n")


def times(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{len(ordered)} times: P50 {ordered[len(ordered) // 2]:.2f}, max {ordered[-1]:.2f} s"


async def says(
    checker: Checker, told: asyncio.Queue[str], name: str = "milan", *, is_answering: bool
) -> None:
    """Wait until it has told so; where a machine stands still, it tells of more than that."""
    while (reach := checker.reach(name)) is None or reach.is_answering is not is_answering:
        await told.get()


async def pieces(gate: Gate, count: int) -> None:
    """Wait for so many more to pass: pings and pongs, when nothing else goes on."""
    enough = gate.passed + count
    await until(lambda: gate.passed >= enough, WITHIN_S)


async def test_where_no_websocket_passes_a_plain_watch_is_held() -> None:
    """As behind a proxy that knows no upgrades: what breaks off is still told at once."""
    local, watches = FakeCluster(), asyncio.Queue[web.Request]()
    ca = pki.new_ca("somebody", now=clock.now(), lifetime=A_DAY)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"gitVersion": "v1.2.3", "metadata": {}})
        if "Upgrade" in request.headers:
            return web.Response(status=400)
        response = web.StreamResponse()
        await response.prepare(request)
        watches.put_nowait(request)
        await asyncio.Event().wait()
        return response

    async with by_tls(ca, answer) as server, asyncio.timeout(WITHIN_S):
        await store_kubeconfig(local, SECRET, kubeconfig_for(ca, server))
        async with checking(local, {"milan": SECRET}, 3600) as (checker, told):
            await says(checker, told, is_answering=True)
            held = await watches.get()
            assert held.query["fieldSelector"] == "metadata.name=pyliqo-nobody"
            assert held.transport
            held.transport.abort()
            await watches.get()
        assert told.empty(), "it answers, so a broken watch is no outage"


def by_tls(ca: Keypair, answer: Answer) -> contextlib.AbstractAsyncContextManager[str]:
    """Answer by TLS, by a certificate of ``ca``."""
    pair = pki.issue(
        ca, common_name="s", ips=["127.0.0.1"], server=True, now=clock.now(), lifetime=A_DAY
    )
    return serving(answer, listener.tls(pair, ""))


def kubeconfig_for(ca: Keypair, server: str) -> bytes:
    """Return a kubeconfig for ``server``."""
    pair = pki.issue(ca, common_name="me", client=True, now=clock.now(), lifetime=A_DAY)
    who = pki.KubeconfigIdentity(
        "me", "milan", server, ca.certificate, pair.certificate, pair.key, "tenant"
    )
    return pki.kubeconfig(who)
