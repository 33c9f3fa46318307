"""The kubelet API on a port of its own, before a provider that is a web server."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import aiohttp
import yarl
from aiohttp import web

from apis import keys, objects
from apis.objects import Key, Object
from certs import listener, pki
from certs.listener import Server
from kube.authz import Authorizer
from kube.client import ClusterClient
from kube.cluster import Cluster
from kube.credentials import Access
from kubelet.api import server as server_
from kubelet.api.server import Api, PodLookups
from kubelet.eventloop import Caller, Likeness, WorkerThread
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import NodePod
from tests import factories
from tests.fakes import FakeCluster
from tests.kubelet.worlds import NODE, NOW, PAIR, TWIN, WEB, Namespaces

DAY = dt.timedelta(days=1)


@dataclass
class Rig:
    """A server, the two clusters behind it, by their fakes' name, and what reached the provider."""

    local: FakeCluster
    remote: FakeCluster
    server: Server
    apart: WorkerThread
    ca: pki.Keypair
    namespaces: Namespaces
    pods: dict[Key, NodePod]
    """What the cache has of the node's pods."""
    seen: list[str] = field(default_factory=list)
    queries: list[list[tuple[str, str]]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    answer: tuple[int, str] = (200, "one\ntwo\n")
    greeting: bytes = b""
    more: str = ""
    """Further lines of the head that a stream begins with."""
    streams: list["Echo"] = field(default_factory=list)

    async def get(
        self, path: str, who: str | None = "admin", *, token: str = "", method: str = "GET"
    ) -> tuple[int, str]:
        """Ask as ``who``, by a certificate of the API server's CA."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = yarl.URL(f"https://127.0.0.1:{self.server.port}{path}", encoded=True)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, ssl=self.context(who), headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    def context(self, who: str | None, ca: pki.Keypair | None = None) -> ssl.SSLContext:
        """Return the client's side."""
        context = ssl.create_default_context(cadata=self.ca.certificate.decode())
        if who:
            made = pki.issue(ca or self.ca, common_name=who, client=True, now=now(), lifetime=DAY)
            listener.load(context, made)
        return context


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)  # noqa: TID251  # TLS takes no other clock


@contextlib.asynccontextmanager
async def provider_app(rig_of: list[Rig]) -> AsyncIterator[ClusterClient]:
    async def log(request: web.Request) -> web.Response:
        rig = rig_of[0]
        rig.seen.append(request.path_qs)
        rig.queries.append(list(request.query.items()))
        rig.headers.append(dict(request.headers))
        status, text = rig.answer
        if status != 200:
            return web.json_response({"message": text, "code": status}, status=status)
        if "Upgrade" in request.headers:
            return await echo(request, rig)
        return web.Response(text=text)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", log)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        async with client_of(port) as client:
            yield client
    finally:
        await runner.cleanup()


async def echo(request: web.Request, rig: Rig) -> web.Response:
    """Answer that the protocol changes, and from then on what is sent; end after ``rig.ends``."""
    transport = request.transport
    assert transport
    end = Echo(rig)
    end.connection_made(transport)
    transport.set_protocol(end)
    name = request.headers["Upgrade"]
    answer = f"HTTP/1.1 101 Now\r\nConnection: Upgrade\r\nUpgrade: {name}\r\n"
    transport.write(f"{answer}{rig.more}\r\n".encode())
    transport.write(rig.greeting)
    try:
        await end.lost.wait()
    finally:
        request.protocol.connection_lost(None)
    raise asyncio.CancelledError


class Echo(asyncio.Protocol):
    """Sends back what it gets, no faster than that is taken; ``bye`` ends it."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.lost = rig, asyncio.Event()
        rig.streams.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        if data.endswith(b"bye"):
            self.transport.close()

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@contextlib.asynccontextmanager
async def client_of(port: int) -> AsyncIterator[ClusterClient]:
    client = ClusterClient(Access(f"http://127.0.0.1:{port}", None), user_agent="test")
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def kubelet_api(port: int = 0, *, silent_s: float = listener.SILENT_S) -> AsyncIterator[Rig]:
    """Yield a kubelet API that serves the pod ``web``; ``port`` is of another provider."""
    local = FakeCluster()
    local.answers[keys.SUBJECT_ACCESS_REVIEW] = lambda review: {
        "allowed": review["spec"]["user"] in {"admin", "robot"}
    }
    local.answers[keys.TOKEN_REVIEW] = lambda review: {
        "authenticated": review["spec"]["token"] in {"good", "weak"},
        "user": {"username": {"good": "robot"}.get(review["spec"]["token"], "nobody")},
    }
    async with kubelet_api_between(local, FakeCluster(), port, silent_s=silent_s) as rig:
        yield rig


@contextlib.asynccontextmanager
async def kubelet_api_between(
    local: Cluster, remote: Cluster, port: int = 0, *, silent_s: float = listener.SILENT_S
) -> AsyncIterator[Rig]:
    """Yield a kubelet API between these two, which may be real."""
    spec = {**factories.pod_spec(), "nodeName": NODE}
    pod = await local.create(keys.POD, factories.pod(*WEB, spec=spec))
    await remote.create(keys.POD, twin_of(pod))
    found: list[Rig] = []
    pods = {WEB: NodePod.cached(pod)}
    namespaces = Namespaces(NamespaceMapping(MappingState.OFFLOADED, PAIR))
    async with client_of(port) if port else provider_app(found) as client:
        lookups = PodLookups(
            NODE, local, remote, namespaces,
            pods_here=lambda: pods, gate=Authorizer(local, NODE),
        )  # fmt: skip
        apart, likeness = WorkerThread("kubelet-api"), Likeness(client)
        api = Api(lookups, Caller(), likeness, consumer="rome", clock=lambda: NOW, started=NOW)
        server = Server(server_.application(api), 0, "127.0.0.1", silent_s=silent_s)
        ca = pki.new_ca("home", now=now(), lifetime=DAY)
        made = pki.issue(
            ca, common_name="n", ips=["127.0.0.1"], server=True, now=now(), lifetime=DAY
        )
        await apart.run(server.trust(ca.certificate.decode()))
        assert not server.is_listening, "no certificate yet"
        await apart.run(server.certify(made))
        here, there = cast("FakeCluster", local), cast("FakeCluster", remote)
        found.append(Rig(here, there, server, apart, ca, namespaces, pods))
        yield found[0]
        await apart.run(server.close())
        await apart.run(likeness.close())
        await apart.close()


def twin_of(pod: Object, **metadata: Mapping[str, str]) -> Object:
    labels = {**PAIR.labels(), keys.NODE_NAME: NODE}
    annotations = {keys.LOCAL_POD_UID: objects.uid(pod)}
    return factories.pod(*TWIN, metadata={"labels": labels, "annotations": annotations, **metadata})
