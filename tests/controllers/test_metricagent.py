"""metrics.liqo.io: only through the API server, and of each cluster's own pods only (A21)."""

import base64
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
import pytest

from apis import authentication, keys
from apis.objects import Key, Object
from certs import listener, pki
from certs.listener import Server
from controllers.granting.metricsapi import forge as metricsapi
from controllers.metricagent import forge
from controllers.metricagent.server import (
    MOST_AUTHORITIES,
    Agent,
    AgentCertificateReconciler,
    FrontProxy,
    application,
)
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

    async def say(path: str) -> list[str]:
        found[0].asked.append(path)
        return [TEXT]

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
    assert forge.address({"metadata": {}, "status": status}) == ("10.0.0.1", 10250)
    assert forge.address({"metadata": {"labels": virtual}, "status": status}) is None
    assert forge.address({"metadata": {}, "status": {}}) is None


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
    for _ in range(20):
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
    async with flood.held(rig.server.port):
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
