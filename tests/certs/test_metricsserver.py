"""The metrics of each process are by TLS, and for those whom the API server lets get them.

Each runs in its own name, with the rights of the manifests. Source: docs/parity.md SEC-I7, SEC-E3.
"""

import asyncio
import contextlib
import functools
import gc
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from apis import keys, naming
from apis.networks import ListenAddress
from apis.objects import Key, Object, named
from apis.offloading import VirtualNode
from certs import metricsserver
from controllers.offloading.virtualnode.forge import rights
from kube import memory
from kube.client import ClusterClient
from kube.process import Process
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import flood, scraping
from tests.controllers.managing import inline, install_rights
from tests.controllers.support import ensure_namespace
from tests.fakes import FakeCluster
from tests.kube.running import until_so
from tests.world import descriptors

NODE = VirtualNode("milan", naming.tenant_namespace("milan"), "milan", kubeconfig_secret="to-milan")  # noqa: S106  # a name
OF_A_NODE = (
    f"--nodename={NODE.name}",
    f"--tenant-namespace={NODE.namespace}",
    "--home-cluster-id=rome",
    "--foreign-cluster-id=milan",
    f"--foreign-kubeconfig-secret-name={NODE.kubeconfig_secret}",
)
ASKED = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
PROCESSES = {
    "controllers": (Key(keys.LIQO_NAMESPACE, "liqo-controller-manager"), ()),
    "certs": (Key(keys.LIQO_NAMESPACE, "liqo-certs"), ()),
    "controllers.metricagent": (Key(keys.LIQO_NAMESPACE, "liqo-metric-agent"), ("--port={other}",)),
    "kubelet": (Key(NODE.namespace, NODE.name), OF_A_NODE),
    "reflector": (Key(NODE.namespace, NODE.name), OF_A_NODE),
}


def knows(review: Object) -> Object:
    """Answer a TokenReview: each token is the name of its bearer, but ``wrong``."""
    bearer = review["spec"]["token"]
    return {"authenticated": bearer != "wrong", "user": {"username": bearer}}


def lets(review: Object) -> Object:
    """Answer a SubjectAccessReview: the scraper may get the metrics."""
    asked = review["spec"]["nonResourceAttributes"] == {"verb": "get", "path": "/metrics"}
    return {"allowed": asked and review["spec"]["user"] == "scraper"}


async def test_connections_are_bounded_and_who_may_do_nothing_keeps_none() -> None:
    """X9: anybody on the network of pods reaches the port."""
    cluster = FakeCluster()
    context = ssl._create_unverified_context()  # noqa: S323, SLF001  # nobody can know it
    async with (
        metricsserver.served(ListenAddress("127.0.0.1", 0), cluster) as port,
        asyncio.timeout(60),
    ):

        async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port, ssl=context)

        held = [await opened() for _ in range(32)]
        beyond, its_writer = await opened()
        its_writer.write(ASKED)
        answered = b""
        with contextlib.suppress(ConnectionError):
            answered = await beyond.read()
        assert answered == b""

        reader, writer = held.pop()
        writer.write(ASKED * 2)
        assert (await reader.read()).count(b"401 Unauthorized") == 1, "told, and closed"
        writer.close()
        again, another = await opened()
        another.write(ASKED)
        assert await again.readline(), "there is room for one again"
        for each in (its_writer, another, *(one for _, one in held)):
            each.transport.abort()


async def test_who_is_refused_is_told_what_to_do_and_answers_are_remembered() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.TOKEN_REVIEW] = knows
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = lets
    async with metricsserver.served(ListenAddress("127.0.0.1", 0), cluster) as port:
        nobody = await scraping.page(port)
        wrong = await scraping.page(port, "wrong")
        other = await scraping.page(port, "other")
        pages = [await scraping.page(port, "scraper") for _ in range(3)]
        elsewhere = [await scraping.page(port, who, "/debug") for who in ("", "other", "scraper")]

    hint = "send 'Authorization: Bearer TOKEN' of an account that may get /metrics\n"
    assert nobody == (401, f"neither a client certificate nor a bearer token was sent: {hint}")
    assert wrong == (401, f"the token is not valid: {hint}")
    needed = "user 'other' needs get /metrics: bind the ClusterRole pyliqo-metrics-reader to it\n"
    assert other == (403, needed)
    assert {status for status, _ in pages} == {200}
    assert "# TYPE pyliqo_requests_total counter" in pages[0][1]
    assert [status for status, _ in elsewhere] == [401, 403, 404]
    assert cluster.requests["create", "tokenreviews"] == 3
    assert cluster.requests["create", "subjectaccessreviews"] == 2


async def test_half_open_and_slow_connections_keep_nobody_out() -> None:
    """Nor does each cost memory: of those whose handshake is not done, 64 are kept."""
    cluster = FakeCluster()
    cluster.answers[keys.TOKEN_REVIEW] = knows
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = lets
    before = descriptors()
    async with (
        metricsserver.served(ListenAddress("127.0.0.1", 0), cluster) as port,
        flood.held_connections(port),
    ):
        assert (await scraping.page(port, "scraper"))[0] == 200
        ours = descriptors() - before - flood.CONNECTIONS
        assert ours <= 64 + 32 + 10, "those without a handshake, those with one, the listener"


@pytest.mark.parametrize("is_probed", [False, True], ids=["metrics", "probes"])
async def test_what_is_no_http_leaves_little_behind(
    record_property: Callable[[str, object], None], *, is_probed: bool
) -> None:
    """Python keeps at most 128 such connections until it collects them."""
    daemon, kept = Process("tests", 0), 0
    gc.collect()
    gc.disable()
    try:
        async with (
            metricsserver.served(ListenAddress("127.0.0.1", 0), FakeCluster()) as port,
            daemon.serve("127.0.0.1"),
        ):
            for _ in range(3 * memory.CONNECTIONS):
                where = daemon.port if is_probed else port
                tls = None if is_probed else ssl._create_unverified_context()  # noqa: S323, SLF001
                reader, writer = await asyncio.open_connection("127.0.0.1", where, ssl=tls)
                writer.write(b"\x00\r\n\r\n")
                assert b" 400 " in await reader.readline()
                writer.transport.abort()
            kept = sum(
                type(one).__name__ in {"RequestHandler", "_Probe"} for one in gc.get_objects()
            )
    finally:
        gc.enable()
    record_property(f"connections kept of {3 * memory.CONNECTIONS}:", kept)
    assert kept < 2 * memory.CONNECTIONS


@pytest.mark.parametrize("is_probed", [False, True], ids=["metrics", "probes"])
async def test_no_request_makes_it_fail(
    record_property: Callable[[str, object], None], *, is_probed: bool
) -> None:
    cluster = FakeCluster()
    cluster.answers[keys.TOKEN_REVIEW] = knows
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = lets
    tls = None if is_probed else ssl._create_unverified_context()  # noqa: S323, SLF001
    daemon, found = Process("tests", 0), set()
    async with (
        metricsserver.served(ListenAddress("127.0.0.1", 0), cluster) as port,
        daemon.serve("127.0.0.1"),
    ):
        asked = daemon.port if is_probed else port
        requests = flood.requests(["/metrics", "/healthz", "/readyz"])
        async for status, said in flood.answers(asked, tls, requests, record_property):
            assert status < 500 or (is_probed and status == 503), said[:400]
            assert b"Traceback" not in said
            found.add(status)
        assert found >= ({400, 404} if is_probed else {400, 401})
        assert (await scraping.page(port, "scraper"))[0] == 200


async def test_without_an_address_nothing_is_served() -> None:
    async with metricsserver.served(None, FakeCluster()) as port:
        assert port == 0


@pytest.fixture
async def installed_rights(own_server: ClusterClient) -> None:
    """Install the rights of all processes, and what they begin with."""
    await install_rights(own_server)
    await ensure_namespace(own_server, NODE.namespace)
    for desired in rights.at_home(NODE):
        await own_server.apply(desired.kind, desired.wanted, manager="tests")
    key = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
    known = named(keys.CONFIG_MAP, key, data={"CLUSTER_ID": "rome"})
    await own_server.apply(keys.CONFIG_MAP, known, manager="tests")


class Daemon(NamedTuple):
    """A process, the port of its probes, that of its metrics, and one for what it serves."""

    pid: int
    health: int
    metrics: int
    other: int


@contextlib.asynccontextmanager
async def running(module: str, kubeconfig: Path, flags: tuple[str, ...]) -> AsyncIterator[Daemon]:
    health, metrics, other = controlplane.free_ports(3)
    with kubeconfig.with_name("log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, "--kubeconfig", str(kubeconfig)),
            *(flag.format(other=other) for flag in flags),
            f"--health-port={health}",
            f"--metrics-address=127.0.0.1:{metrics}",
            stdout=log,
            stderr=log,
        )
    try:
        yield Daemon(process.pid, health, metrics, other)
    finally:
        process.kill()
        await process.wait()
        sys.stdout.write(kubeconfig.with_name("log").read_text())  # pytest shows it for what failed


def listening(pid: int) -> set[int]:
    """Return the ports on which the process listens."""
    links = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            links.add(str(each.readlink()))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {
        int(local.rpartition(":")[2], 16)
        for _, local, _, state, *rest in lines
        if state == LISTENS and f"socket:[{rest[5]}]" in links
    }


async def in_the_clear(port: int, path: str) -> int:
    """Return the status of an answer without TLS; 0 if there is none."""
    url = f"http://127.0.0.1:{port}{path}"
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


@pytest.mark.cluster
@pytest.mark.parametrize("module", PROCESSES)
async def test_metrics_of_each_process_are_for_those_who_may_get_them(
    module: str, own_server: ClusterClient, own_plane: Plane, installed_rights: None, tmp_path: Path
) -> None:
    account, flags = PROCESSES[module]
    config = json.loads(inline(own_plane.kubeconfig))
    config["users"][0]["user"] = {"token": await scraping.token(own_server, account)}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    reader = await scraping.reader(own_server)
    other = await scraping.token(own_server, Key(scraping.ACCOUNTS, "other"))

    async with running(module, tmp_path / "kubeconfig", flags) as daemon:
        ask = functools.partial(scraping.page, daemon.metrics)

        async def is_served() -> bool:
            return (await ask())[0] == 401

        await until_so(is_served)
        assert (await ask("not.a.token"))[0] == 401
        assert (await ask(other))[0] == 403
        status, text = await ask(reader)
        assert status == 200
        assert "# TYPE pyliqo_requests_total counter" in text
        assert await in_the_clear(daemon.metrics, "/metrics") == 0
        assert await in_the_clear(daemon.health, "/metrics") == 404
        assert await in_the_clear(daemon.health, "/livez") == 200
        assert listening(daemon.pid) - {daemon.other} == {daemon.health, daemon.metrics}
