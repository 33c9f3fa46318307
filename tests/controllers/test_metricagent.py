"""metrics.liqo.io: only through the API server, and of each cluster's own pods only (A21)."""

import asyncio
import base64
import contextlib
import datetime as dt
import json
import ssl
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

import aiohttp
import msgspec
import pytest
from aiohttp import web

from apis import authentication, keys
from apis.objects import Key, Object
from certs import listener, pki
from certs.listener import Server
from controllers.granting.metricsapi import forge as metricsapi
from controllers.metricagent import forge
from controllers.metricagent.forge import KubeletNode, KubeletSamples
from controllers.metricagent.server import (
    MOST_AUTHORITIES,
    Agent,
    AgentCertificateReconciler,
    FrontProxy,
    Kubelets,
    KubeletsSay,
    application,
)
from kube import errors
from kube.client import ClusterClient
from kube.credentials import Access
from tests import flood
from tests.fakes import FakeCluster

DAY = dt.timedelta(days=1)
SCRAPE = f"{keys.METRICS_ROOT}/scrape"
TEXT = """\
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",namespace="shop-rome",pod="web"} 1 5
container_memory_working_set_bytes{container="main",namespace="shop-rome",pod="debug"} 2 5
container_memory_working_set_bytes{container="main",namespace="shop-turin",pod="web"} 3 5
container_memory_working_set_bytes{container="etcd",namespace="kube-system",pod="etcd"} 4 5
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="shop-rome",persistentvolumeclaim="db"} 6
kubelet_volume_stats_used_bytes{namespace="shop-turin",persistentvolumeclaim="db"} 7
kubelet_volume_stats_used_bytes{namespace="shop-rome",persistentvolumeclaim="db",pod="debug"} 8
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 5 5
"""
PODS = {Key("shop-rome", "web"), Key("shop-turin", "web"), Key("kube-system", "etcd")}


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)  # noqa: TID251  # TLS takes no other clock


def twin(name: str, original: str, consumer: str) -> Object:
    metadata = {
        "name": name,
        "labels": {keys.REMOTE_CLUSTER_ID: consumer},
        "annotations": {keys.ORIGINAL_NAME: original},
    }
    return {"metadata": metadata}


@dataclass
class Rig:
    """The agent on a port, and the authorities that sign those who come."""

    server: Server
    serving: pki.Keypair
    proxies: pki.Keypair
    asked: list[str] = field(default_factory=list)

    def tls(self, ca: pki.Keypair | None, name: str = "front-proxy") -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.serving.certificate.decode())
        if ca:
            made = pki.issue(ca, common_name=name, client=True, now=now(), lifetime=DAY)
            listener.load(context, made)
        return context

    async def get(
        self, path: str, groups: list[str], tls: ssl.SSLContext | None = None
    ) -> tuple[int, str]:
        headers = [("X-Remote-User", "vk"), *(("X-Remote-Group", group) for group in groups)]
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://127.0.0.1:{self.server.port}{path}",
                ssl=tls or self.tls(self.proxies),
                headers=headers,
            ) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    proxies = pki.new_ca("front-proxy-ca", now=now(), lifetime=DAY)
    own = pki.new_ca("agent", now=now(), lifetime=DAY)
    made = pki.issue(own, common_name="a", ips=["127.0.0.1"], server=True, now=now(), lifetime=DAY)
    front = FrontProxy.parse(
        {
            "data": {
                "requestheader-client-ca-file": proxies.certificate.decode(),
                "requestheader-allowed-names": '["front-proxy"]',
                "requestheader-group-headers": '["X-Remote-Group"]',
            }
        }
    )
    found: list[Rig] = []

    async def say(path: str) -> KubeletsSay:
        found[0].asked.append(path)
        samples = KubeletSamples({"shop-rome", "shop-turin"})
        samples.read(TEXT)
        return KubeletsSay(samples.end())

    namespaces = [twin("shop-rome", "shop", "rome"), twin("shop-turin", "shop", "turin")]
    agent = Agent(lambda: front, lambda: namespaces, lambda: PODS, say)
    server = Server(application(agent), 0, "127.0.0.1")
    await server.trust(front.ca)
    await server.certify(made)
    found.append(Rig(server, own, proxies))
    yield found[0]
    await server.close()


async def test_a_cluster_sees_its_own_pods_under_their_own_names(rig: Rig) -> None:
    status, text = await rig.get(f"{SCRAPE}/rome/metrics/resource", ["rome", "other"])
    assert (status, text.splitlines()) == (
        200,
        [
            "# TYPE container_memory_working_set_bytes gauge",
            'container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 1 5',
            "# TYPE kubelet_volume_stats_used_bytes gauge",
            'kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="db"} 6',
        ],
    )
    assert rig.asked == ["/metrics/resource"]


@pytest.mark.parametrize(
    ("consumer", "groups"),
    [("turin", ["rome"]), ("rome", []), ("rome", ["rome2"]), ("rome", ["system:masters"])],
)
async def test_nobody_sees_those_of_another(rig: Rig, consumer: str, groups: list[str]) -> None:
    assert (await rig.get(f"{SCRAPE}/{consumer}/metrics/resource", groups))[0] == 403
    assert rig.asked == []


async def test_only_the_api_server_may_come(rig: Rig) -> None:
    path = f"{SCRAPE}/rome/metrics/resource"
    assert (await rig.get(path, ["rome"], rig.tls(None)))[0] == 401
    assert (await rig.get(path, ["rome"], rig.tls(rig.proxies, "somebody")))[0] == 401
    assert (await rig.get(keys.METRICS_ROOT, [], rig.tls(None)))[0] == 401
    other = pki.new_ca("other", now=now(), lifetime=DAY)
    with pytest.raises(aiohttp.ClientError):
        await rig.get(path, ["rome"], rig.tls(other))
    assert rig.asked == []


@pytest.mark.parametrize(
    "path", ["", "/", "/exec", "/metrics/../pods", "/metrics/resource/", "/pods"]
)
async def test_nothing_but_metrics_is_asked_of_kubelets(rig: Rig, path: str) -> None:
    assert (await rig.get(f"{SCRAPE}/rome{path}", ["rome"]))[0] == 404
    assert rig.asked == []


async def test_the_api_server_finds_the_group(rig: Rig) -> None:
    assert json.loads((await rig.get(f"/apis/{keys.METRICS_GROUP}", []))[1])["kind"] == "APIGroup"
    found = json.loads((await rig.get(keys.METRICS_ROOT, []))[1])
    assert [one["name"] for one in found["resources"]] == ["scrape", "scrape/metrics"]


@pytest.mark.parametrize("said", ["", "{", "null", '"x"', "[1]"])
def test_what_makes_no_sense_lets_nobody_in(said: str) -> None:
    front = FrontProxy.parse({"data": {"requestheader-group-headers": said}})
    assert front.group_headers == ("X-Remote-Group",)
    assert not front.has_sent(None)
    assert not front.has_sent({"subject": ()})


def test_virtual_nodes_are_not_asked() -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    virtual: Mapping[str, str] = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
    found = (
        forge.address(msgspec.convert({"metadata": metadata, "status": status}, KubeletNode))
        for metadata, status in (({}, status), ({"labels": virtual}, status), ({}, {}))
    )
    assert list(found) == [("10.0.0.1", 10250), None, None]


async def test_the_api_server_is_told_of_a_new_authority_before_it_is_used() -> None:
    cluster = await with_api_service()
    replica = Replica(cluster)
    for _ in range(3):
        await replica.look()
    assert len(replica.served) == 1
    assert pki.subject(replica.served[0]).dns == ("liqo-metric-agent.liqo.svc",)
    assert cluster.requests["apply", "apiservices"] == 1
    replica.set_back = 30 * DAY
    replica.time += 61 * DAY - replica.set_back
    await replica.look()
    assert len(replica.served) == 2
    assert all([await is_trusted(cluster, one) for one in replica.served])


async def test_each_replica_adds_its_authority_to_those_of_the_others() -> None:
    cluster = await with_api_service()
    replicas = [Replica(cluster) for _ in range(3)]
    for replica in [*replicas, *replicas]:
        await replica.look()
    assert cluster.requests["apply", "apiservices"] == 3
    assert all([await is_trusted(cluster, one.served[0]) for one in replicas])


async def test_authorities_of_replicas_that_are_gone_are_bounded_and_nobody_loses_its_own() -> None:
    cluster = await with_api_service()
    lives = Replica(cluster)
    await lives.look()
    for _ in range(MOST_AUTHORITIES):
        await Replica(cluster).look()
    assert not await is_trusted(cluster, lives.served[0])
    await lives.look()
    assert await is_trusted(cluster, lives.served[0])
    assert len(authentication.certificates(await trusted(cluster))) == MOST_AUTHORITIES


async def test_an_agent_listens_also_while_its_api_service_is_away() -> None:
    cluster = FakeCluster()
    replica = Replica(cluster)
    await replica.look()
    assert len(replica.served) == 1
    assert cluster.requests["apply", "apiservices"] == 0
    await cluster.create(keys.API_SERVICE, metricsapi.wanted("liqo"))
    await replica.look()
    assert await is_trusted(cluster, replica.served[0])


@pytest.mark.parametrize("said", ["", "no base64!", "bm8gY2VydGlmaWNhdGU=", None])
async def test_a_bundle_that_makes_no_sense_is_replaced(said: str | None) -> None:
    cluster = await with_api_service()
    await cluster.patch(keys.API_SERVICE, keys.METRICS_API, {"spec": {"caBundle": said}})
    replica = Replica(cluster)
    await replica.look()
    assert await is_trusted(cluster, replica.served[0])


class Replica:
    """An agent, of which only the certificate runs."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self.time = cluster, now()
        self.set_back = dt.timedelta()
        self.served: list[bytes] = []
        self._reconciler = AgentCertificateReconciler(
            cluster,
            service=Key("liqo", keys.METRIC_AGENT),
            install=self._install,
            clock=lambda: self.time,
            tick=self.tick,
        )

    def tick(self) -> float:
        return (self.time + self.set_back).timestamp()

    async def look(self) -> None:
        await self._reconciler.reconcile(keys.METRICS_API)

    async def _install(self, pair: pki.Keypair) -> None:
        if await self._cluster.get(keys.API_SERVICE, keys.METRICS_API):
            assert await is_trusted(self._cluster, pair.certificate)
        self.served.append(pair.certificate)


async def with_api_service() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.create(keys.API_SERVICE, metricsapi.wanted("liqo"))
    return cluster


async def trusted(cluster: FakeCluster) -> bytes:
    found = await cluster.get(keys.API_SERVICE, keys.METRICS_API)
    assert found
    return base64.b64decode(found["spec"]["caBundle"])


async def is_trusted(cluster: FakeCluster, leaf: bytes) -> bool:
    """Whether the API server lets a server in that shows ``leaf``."""
    authorities = authentication.certificates(await trusted(cluster))
    return any(pki.is_signed_by(leaf, authority) for authority in authorities)


async def test_half_open_and_slow_connections_keep_nobody_out(rig: Rig) -> None:
    async with flood.held_connections(rig.server.port):
        assert (await rig.get(keys.METRICS_ROOT, []))[0] == 200


@pytest.mark.parametrize("is_api_server", [True, False])
async def test_no_request_makes_it_fail(
    rig: Rig, record_property: Callable[[str, object], None], *, is_api_server: bool
) -> None:
    paths = [f"/apis/{keys.METRICS_GROUP}", keys.METRICS_ROOT]
    paths += [f"{keys.METRICS_ROOT}/scrape/rome/metrics"]
    tls = rig.tls(rig.proxies if is_api_server else None)
    found = set()
    requests = flood.requests(paths)
    async for status, said in flood.answers(rig.server.port, tls, requests, record_property):
        assert status < 500, said[:400]
        assert b"Traceback" not in said
        found.add(status)

    assert found >= ({200, 400, 403, 404, 405} if is_api_server else {400, 401})
    assert (await rig.get(keys.METRICS_ROOT, []))[0] == 200


# What kubelets say: their texts are read as they arrive, and of them little is kept.


MIB: Final = 2**20
SPACES: Final = [twin("shop-rome", "shop", "rome"), twin("shop-turin", "shop", "turin")]
ALL_PODS: Final = {Key(name, f"web-{pod}") for pod in range(60) for name in ("shop-rome", "other")}
Say: TypeAlias = Callable[[], Iterator[str]]


def cadvisor() -> Iterator[str]:
    """Yield 5 MB that a kubelet says of 60 pods, of which each tenth is a consumer's."""
    for number in range(250):
        name = f"container_metric_{number}_total"
        yield f"# HELP {name} What a container uses\n# TYPE {name} counter\n"
        for pod in range(60):
            namespace = "other" if pod % 10 else "shop-rome"
            yield (
                f'{name}{{container="main",id="/kubepods.slice/pod{pod:0200}.slice",'
                f'namespace="{namespace}",pod="web-{pod}"}} {number} 1633253809720\n'
            )


@dataclass
class Asked:
    """Kubelets on ports of this machine, who is asked by them, and how often."""

    kubelets: Kubelets
    requests: Counter[str]

    async def told(self, path: str, consumer: str, pods: Collection[Key] = ALL_PODS) -> str:
        said = await self.kubelets.say(path)
        told = await said.told(consumer, forge.twins(SPACES, consumer), pods)
        return "".join(map(forge.inflated, told))


@contextlib.asynccontextmanager
async def kubelets(*texts: Say) -> AsyncIterator[Asked]:
    requests: Counter[str] = Counter()
    ca = pki.new_ca("kubelets", now=now(), lifetime=DAY)
    pair = pki.issue(ca, common_name="k", ips=["127.0.0.1"], server=True, now=now(), lifetime=DAY)

    async def serve(say: Say) -> Server:
        async def answer(request: web.Request) -> web.StreamResponse:
            requests[request.path] += 1
            response = web.StreamResponse()
            await response.prepare(request)
            said = say()
            while several := "".join(islice(said, 10)):
                await response.write(several.encode())
                await asyncio.sleep(0)  # whoever hung up is noticed
            return response

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        server = Server(app, 0, "127.0.0.1")
        await server.trust("")
        await server.certify(pair)
        return server

    def node(server: Server) -> KubeletNode:
        endpoint = {"kubeletEndpoint": {"Port": server.port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"addresses": addresses, "daemonEndpoints": endpoint}
        return msgspec.convert({"metadata": {}, "status": status}, KubeletNode)

    servers = [await serve(say) for say in texts]
    nodes = [node(server) for server in servers]
    own = ClusterClient(Access("https://127.0.0.1:1", None, "Bearer x"), user_agent="tests")
    tls = ssl.create_default_context(cadata=ca.certificate.decode())
    yield Asked(Kubelets(own, lambda: nodes, lambda: SPACES, tls, ask_s=120), requests)
    for server in servers:
        await server.close()
    await own.close()


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Yield what returns the bytes that were taken since: those kept, and at most."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


async def test_of_what_kubelets_say_only_samples_of_consumers_are_kept() -> None:
    """D8: six kubelets say 30 MB, a tenth of what 60 do."""
    async with kubelets(*[cadvisor] * 6) as asked:
        with traced() as memory:
            told = await asked.told("/metrics/cadvisor", "rome")
            kept, peak = memory()
    assert told.count("# TYPE") == 250
    assert told.count('namespace="shop"') == told.count('pod="') == 6 * 6 * 250
    assert kept - len(told) < MIB
    assert peak < 8 * MIB


async def test_kubelets_are_asked_once_for_all_consumers_and_each_is_told_the_same() -> None:
    async with kubelets(lambda: iter([TEXT])) as asked:
        for consumer in ("rome", "turin"):
            assert 'pod="web"' in await asked.told("/metrics", consumer, PODS)
        said = await asked.kubelets.say("/metrics")
        first, second = [await said.told("rome", {}, PODS) for _ in range(2)]
        assert first is second
        assert await asked.told("/metrics/probes", "rome", PODS)
    assert asked.requests == {"/metrics": 1, "/metrics/probes": 1}


@pytest.mark.parametrize("line", ["x" * 1000, "#", 'up{namespace="shop-rome"} 1\n', "\xff"])
async def test_a_text_that_does_not_end_is_left_out_and_takes_no_room(line: str) -> None:
    sent = 0

    def endless() -> Iterator[str]:
        nonlocal sent
        while sent < 200 * MIB:
            sent += 2**14
            yield line * (2**14 // len(line))

    async with kubelets(endless, lambda: iter([TEXT])) as asked:
        with traced() as memory:
            told = await asked.told("/metrics", "rome", PODS)
            _, peak = memory()
    assert told.count("\n") == 4
    assert sent < 64 * MIB
    assert peak < 16 * MIB


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_text_is_read_in_whatever_parts_it_arrives(size: int) -> None:
    long = 'up{a="' + "\u20ac" * 100_000 + '",namespace="shop-rome",pod="web"} 1\n'
    parts = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    async with kubelets(lambda: iter([long, *parts, long, TEXT])) as asked:
        told = await asked.told("/metrics", "rome", PODS)
    assert [line.split("{")[0] for line in told.splitlines()] == [
        "# TYPE container_memory_working_set_bytes gauge",
        *["container_memory_working_set_bytes"] * 2,
        "# TYPE kubelet_volume_stats_used_bytes gauge",
        *["kubelet_volume_stats_used_bytes"] * 2,
    ]


def test_a_metric_of_many_samples_stays_one() -> None:
    lines = "".join(
        f'seconds_bucket{{le="{number}",namespace="shop-rome",pod="web"}} 1\n'
        for number in range(10_000)
    )
    samples = KubeletSamples({"shop-rome"})
    samples.read(f"# TYPE seconds histogram\n{lines}")
    (texts,) = samples.end().values()
    found = forge.ConsumerSamples({"shop-rome": "shop"}, PODS)
    for text in texts:
        found.read(forge.inflated(text))
    told = "".join(map(forge.inflated, found.end()))
    assert len(texts) > 1
    assert hash(told) == hash("# TYPE seconds histogram\n" + lines.replace("shop-rome", "shop"))


def test_what_a_consumer_is_told_is_deflated_while_more_is_read() -> None:
    """D8: 8 MB, an eighth of what a virtual kubelet takes."""
    lines = (f'up{{id="{number:0200}",namespace="shop-rome",pod="web"}} 1' for number in range(400))
    text = "\n".join(lines)
    found = forge.ConsumerSamples({"shop-rome": "shop"}, PODS)
    with traced() as memory:
        for _ in range(80):
            found.read(text)
        told = found.end()
        _, peak = memory()
    assert sum(len(forge.inflated(each)) for each in told) == found.size > 7 * MIB
    assert peak < 5 * MIB


async def test_what_no_virtual_kubelet_takes_is_not_gathered() -> None:
    samples = KubeletSamples({"shop-rome"})
    samples.read(TEXT)
    said = KubeletsSay(samples.end(), most=10)
    for _ in range(2):
        with pytest.raises(errors.LargerError, match="rome"):
            await said.told("rome", {"shop-rome": "shop"}, PODS)
    assert await said.told("turin", {"shop-turin": "shop"}, PODS) == []
