"""The aggregated API: who came through the API server, and sees what its own pods use.

The API server has asked RBAC already; that a cluster sees only its own is asked here.

Source: docs/parity.md § 5.9; SEC-A21, SEC-I7; Kubernetes, "Configure the aggregation layer".
"""

import asyncio
import base64
import binascii
import datetime as dt
import itertools
import json
import logging
import ssl
import time
import zlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import web
from aiohttp.typedefs import Handler

from apis import authentication, keys, objects, prometheus
from apis.networks import ListenAddress
from apis.objects import Key, Object
from certs import childprocess
from certs.keypair import Keypair
from controllers.metricagent import forge
from kube import authz, errors, wire
from kube.client import ClusterClient
from kube.clock import Deadline
from kube.cluster import Cluster
from kube.untrusted.decode import Decoder


@dataclass(frozen=True)
class FrontProxy:
    """How the API server says for whom it asks; by ``extension-apiserver-authentication``."""

    ca: str = ""
    names: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("X-Remote-Group",)

    @staticmethod
    def parse(config_map: Object) -> "FrontProxy":
        """Return what the ConfigMap says; without an authority nobody is believed."""
        data: Mapping[str, str] = config_map.get("data") or {}
        return FrontProxy(
            data.get("requestheader-client-ca-file", ""),
            _names(data.get("requestheader-allowed-names", "")),
            _names(data.get("requestheader-group-headers", "")) or FrontProxy.group_headers,
        )

    def has_sent(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether ``certificate``, verified by our authority, is the API server's."""
        if not certificate:
            return False
        try:
            name = authz.subject(certificate).name
        except authz.UnauthenticatedError:
            return False
        return not self.names or name in self.names


@dataclass(frozen=True)
class Agent:
    """What the handlers work with."""

    front_proxy: Callable[[], FrontProxy]
    namespaces: Callable[[], Iterable[Object]]
    pods: Callable[[], Collection[Key]]
    say: Callable[[str], Awaitable["KubeletsSay"]]


def application(agent: Agent) -> web.Application:
    """Return the web application; nothing of it is for who did not come through the API server."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        if not agent.front_proxy().has_sent(certificate):
            raise web.HTTPUnauthorized(text="only the API server may ask\n")
        return await handler(request)

    async def scrape(request: web.Request) -> web.StreamResponse:
        return await _scrape(agent, request)

    app = web.Application(middlewares=[guard], client_max_size=2**16)
    app.router.add_get(f"/apis/{keys.METRICS_GROUP}", _said(forge.group()))
    app.router.add_get(keys.METRICS_ROOT, _said(forge.resources()))
    app.router.add_get(f"{keys.METRICS_ROOT}/scrape/{{consumer}}{{path:/.*}}", scrape)
    return app


async def _scrape(agent: Agent, request: web.Request) -> web.StreamResponse:
    consumer, path = request.match_info["consumer"], request.match_info["path"]
    groups = [
        group
        for header in agent.front_proxy().group_headers
        for group in request.headers.getall(header, [])
    ]
    if consumer not in groups:
        raise web.HTTPForbidden(text=f"the caller is not of cluster {consumer!r:.80}\n")
    if path not in keys.SCRAPED:
        raise web.HTTPNotFound(text=f"there are {', '.join(keys.SCRAPED)}\n")
    twins = forge.twins(agent.namespaces(), consumer)
    try:
        told = await (await agent.say(path)).told(consumer, twins, agent.pods()) if twins else []
    except errors.LargerError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    body = _inflated(told)
    return web.Response(body=body, headers={"Content-Type": prometheus.CONTENT_TYPE})


async def _inflated(kept: Iterable[bytes]) -> AsyncIterator[bytes]:
    for each in kept:
        yield zlib.decompress(each)


def _said(answer: Object) -> Handler:
    async def say(_: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    return say


def _names(encoded: str) -> tuple[str, ...]:
    try:
        names = json.loads(encoded or "[]")
    except ValueError:
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


# What the kubelets of this cluster say, asked seldom however many ask us --------------------------

logger = logging.getLogger(__name__)

FRESH_S: Final = 5.0
ASK_S: Final = 8.0
MAX_ANSWER: Final = 32 * 2**20
MAX_LINE: Final = 4 * prometheus.MAX_LINE
"""Bytes, of which a character has up to four."""
MAX_TOLD: Final = 64 * 2**20
"""Characters of what one consumer is told: its virtual kubelet takes no more bytes."""
AT_ONCE: Final = 16


class KubeletsSay:
    """What all kubelets say at one path of ``kept`` namespaces; what each consumer is told of it.

    Consumers are told one after another, and each the same, however often it asks.
    """

    def __init__(self, kept: Mapping[str, Sequence[bytes]], *, most: int = MAX_TOLD) -> None:
        self._kept, self._most = kept, most
        self._told: dict[str, list[bytes] | None] = {}
        self._turn = asyncio.Lock()

    async def told(
        self, consumer: str, twins: Mapping[str, str], pods: Collection[Key]
    ) -> list[bytes]:
        """Return the samples of ``pods`` in ``twins``, deflated, each metric by itself.

        Raises:
            LargerError: they are more than a virtual kubelet takes.
        """
        async with self._turn:
            if consumer not in self._told:
                self._told[consumer] = await self._narrowed(twins, pods)
            told = self._told[consumer]
        if told is None:
            raise errors.LargerError(
                f"the samples of {consumer} are larger than {self._most} bytes"
            )
        return told

    async def _narrowed(
        self, twins: Mapping[str, str], pods: Collection[Key]
    ) -> list[bytes] | None:
        samples = forge.ConsumerSamples(twins, pods)
        for each in itertools.chain.from_iterable(self._kept.get(twin, ()) for twin in twins):
            samples.read(forge.inflated(each))
            if samples.size > self._most:
                return None
            await asyncio.sleep(0)  # thousands of pods take seconds, and others ask, too
        return samples.end()


class Kubelets:
    """Asks every physical node; one that does not answer is left out, and said in the log.

    Of what they say only samples of ``namespaces`` are kept.
    """

    def __init__(
        self,
        client: ClusterClient,
        nodes: Callable[[], Iterable[forge.KubeletNode]],
        namespaces: Callable[[], Iterable[Object]],
        tls: ssl.SSLContext | None,
        *,
        ask_s: float = ASK_S,
    ) -> None:
        self._client, self._nodes, self._tls = client, nodes, tls
        self._namespaces, self._ask_s = namespaces, ask_s
        self._turn: dict[str, asyncio.Lock] = {path: asyncio.Lock() for path in keys.SCRAPED}
        self._said: dict[str, KubeletsSay] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def say(self, path: str) -> KubeletsSay:
        """Return what each kubelet says at ``path``, at most 5 s old."""
        async with self._turn[path]:
            if path not in self._said:
                self._said[path] = KubeletsSay(await self._ask_all(path))
                asyncio.get_running_loop().call_later(FRESH_S, self._said.pop, path)
            return self._said[path]

    async def _ask_all(self, path: str) -> Mapping[str, Sequence[bytes]]:
        where = [found for node in self._nodes() if (found := forge.address(node))]
        namespaces = {objects.key_of(namespace).name for namespace in self._namespaces()}
        kept: dict[str, list[bytes]] = {}

        async def ask(host: str, port: int) -> None:
            said = await self._ask(session, host, port, path, forge.KubeletSamples(namespaces))
            for namespace, texts in said.items():
                kept.setdefault(namespace, []).extend(texts)

        async with aiohttp.ClientSession(trust_env=False, auto_decompress=False) as session:
            await asyncio.gather(*(ask(*one) for one in where))
        return kept

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        host: str,
        port: int,
        path: str,
        samples: forge.KubeletSamples,
    ) -> Mapping[str, Sequence[bytes]]:
        url = yarl.URL.build(scheme="https", host=host, port=port, path=path)
        authorization = self._client.access.authorization
        headers = {"Authorization": authorization, "Accept-Encoding": "identity"}
        tls = self._tls or self._client.access.tls or True
        decoder = Decoder()
        try:
            async with (
                self._at_once,
                asyncio.timeout(self._ask_s),
                session.get(url, ssl=tls, headers=headers, allow_redirects=False) as answer,
            ):
                answer.raise_for_status()
                async for lines in wire.whole_lines(answer, most=MAX_ANSWER, longest=MAX_LINE):
                    samples.read(decoder.text(lines))
                return samples.end()
        except (aiohttp.ClientError, errors.KubeError, OSError, ValueError) as error:
            fields = {"kubelet": str(ListenAddress(host, port)), "error": repr(error)}
            logger.warning("A kubelet gave no metrics", extra=fields)
            return {}


# With what it serves: a certificate of its own making, which the API server is told of ------------
# Neither authority nor key is stored: a new process makes new ones, and each replica has its own.
# The bundle of the APIService holds those of all.

MANAGER: Final = keys.METRIC_AGENT
LIFETIME: Final = dt.timedelta(days=90)
RENEWED: Final = dt.timedelta(days=60)
AGAIN_S: Final = 3600.0
MOST_AUTHORITIES: Final = 8
"""Authorities in the bundle, the last first: of Pods that are gone some stay until they end."""


class AgentCertificateReconciler:
    """Has a certificate for the Service, and hands it to ``install`` once it is trusted.

    Its key is that of the APIService. Where that is away the certificate is served all the same:
    the APIService is made once an agent is ready.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        service: Key,
        install: Callable[[Keypair], Awaitable[None]],
        clock: Callable[[], dt.datetime],
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._install = cluster, install
        self._clock, self._tick = clock, tick
        self._name = f"{service.name}.{service.namespace}.svc"
        self._ca = b""
        self._renewal: Deadline | None = None

    async def reconcile(self, key: Key) -> float | None:
        now, renewal = self._clock(), self._renewal
        if renewal is not None and renewal.left_s(now, self._tick()) > 0:
            await self._tell(key, self._ca, now)
            return AGAIN_S
        ca, pair = await childprocess.authority("liqo-metric-agent-ca", self._name, now, LIFETIME)
        await self._tell(key, ca, now)
        await self._install(pair)
        self._ca = ca
        self._renewal = Deadline.noted(now + RENEWED, now, self._tick())
        return AGAIN_S

    async def _tell(self, key: Key, ca: bytes, now: dt.datetime) -> None:
        """Have ``ca`` in the bundle beside those of other replicas; no write when it is there."""
        found = await self._cluster.get_live(keys.API_SERVICE, key)
        if found is None or ca in authentication.certificates(had := _bundle(found)):
            return
        merged = await childprocess.merged_bundle(ca, had, now=now)
        trusted = authentication.certificates(merged)[:MOST_AUTHORITIES]
        wanted = forge.injected(base64.b64encode(b"".join(trusted)).decode())
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        wanted["metadata"]["uid"] = objects.uid(found)
        await self._cluster.apply(keys.API_SERVICE, wanted, manager=MANAGER)


def _bundle(service: Object) -> bytes:
    try:
        return base64.b64decode(objects.spec(service).get("caBundle") or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
