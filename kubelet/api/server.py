"""The kubelet API of one virtual node: HTTPS, everybody identified, every right asked for.

A route is a row of ``ROUTES``; exec, attach and port-forward come as rows of the same table. What
copies bytes has a loop of its own: no stream makes a lease or a watch wait.
Source: docs/parity.md § 5.7; SEC-B8, SEC-B10, SEC-D1 to SEC-D3, SEC-I7.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from apis import keys, naming, objects, prometheus, texts
from apis.objects import Key, Object
from apis.prometheus import Family
from certs.keypair import Keypair
from certs.listener import Server
from kube import clock, errors, wire
from kube.authz import Authorizer, NotAuthorizedError, Right, UnauthenticatedError
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.credentials import Access
from kube.informer import Informer
from kubelet.api import streams, usage
from kubelet.api.certificate import CLIENT_CA, CertificateReconciler, TrustReconciler
from kubelet.api.streams import StreamAction
from kubelet.api.usage import Measured, NodeCpu
from kubelet.eventloop import Caller, Likeness, WorkerThread
from kubelet.options import KubeletOptions
from kubelet.pods import containers, shadowpod
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import NodePod, OffloadedNamespaces

AT_ONCE: Final = 50
"""So many pods are decoded in some two milliseconds."""


class UnknownPodError(Exception):
    """There is no such pod on this node, or no such container in it: answer 404."""


class NotRunningError(Exception):
    """It does not run on the provider: answer 400, as kubelets do of a container that waits.

    The text of a 404 is the API server's own, so nobody would read why.
    """


class NotKnownError(Exception):
    """The API server of this cluster, not the provider, does not say: answer 503."""


@dataclass(frozen=True)
class PodLookups:
    """All of it belongs to one event loop; what serves streams asks from another."""

    node: str
    local: Cluster
    remote: Cluster
    namespaces: OffloadedNamespaces
    pods_here: Callable[[], Mapping[Key, NodePod]]
    gate: Authorizer

    async def authorize(
        self, certificate: Mapping[str, Any] | None, authorization: str, rights: Sequence[Right]
    ) -> None:
        """Return if the one who asks has one of ``rights``.

        Raises:
            UnauthenticatedError: nobody knows who it is.
            DeniedError: it has none of them.
        """
        user = await self.gate.user(certificate, authorization)
        await self.gate.check(user, rights)

    async def pods(self) -> list[bytes | Key]:
        """Return the JSON of each pod bound to this node; of a large one only its key."""
        found: list[bytes | Key] = []
        async for key, pod in self._some_at_once():
            found.append(key if pod.is_outline else pod.json())
        return found

    async def large(self, key: Key) -> bytes:
        """Return the JSON of a pod of which the cache has an outline; empty if it has gone."""
        pod = await self.local.get(keys.POD, key)
        is_here = pod is not None and pod["spec"].get("nodeName") == self.node
        return msgspec.json.encode(pod) if is_here else b""

    async def measured(self) -> dict[Key, Measured]:
        """Return what of each pod bound to this node its metrics need."""
        found: dict[Key, Measured] = {}
        async for key, pod in self._some_at_once():
            measured = pod.measured if pod.is_outline else Measured.of(pod.whole())
            if measured is not None:
                found[key] = measured
        return found

    async def _some_at_once(self) -> AsyncIterator[tuple[Key, NodePod]]:
        """Yield the pods that are here now, and let other tasks run every few of them."""
        for number, (key, pod) in enumerate(sorted(self.pods_here().items(), key=itemgetter(0)), 1):
            yield key, pod
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def twin(self, key: Key, container: str = "") -> Key:
        """Return where the pod runs, if it is bound to this node and that very pod runs there.

        Raises:
            NotHereError: it is not bound to it, or has no such container.
            NotRunningError: it does not run on the provider, or this container does not.
            NotKnownError: whether it is cannot be asked now.
            KubeError: the provider could not be asked.
        """
        pod = await self.local.get(keys.POD, key)
        if pod is None or pod["spec"].get("nodeName") != self.node:
            raise UnknownPodError(f"pod {key} is not bound to node {self.node}")
        if container and container not in usage.containers(pod):
            raise UnknownPodError(f"pod {key} has no container {container}")
        if reason := containers.refusal(pod, container):
            raise NotRunningError(f"container {container} of pod {key} does not run: {reason}")
        mapping = await self._mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            raise NotRunningError(f"namespace {key.namespace} is not offloaded")
        twin = mapping.pair.twin_of(key)
        remote = await self.remote.get(keys.POD, twin)
        if remote is None or not (mapping.pair.reflects(remote) and shadowpod.is_for(remote, pod)):
            raise NotRunningError(f"pod {key} does not run on the provider yet")
        return twin

    async def _mapping(self, namespace: str) -> NamespaceMapping:
        try:
            return await self.namespaces.mapping(namespace)
        except errors.KubeError as error:
            what = f"whether namespace {namespace} is offloaded is not known now"
            raise NotKnownError(f"{what}: {error}") from error


# Routes -------------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

PROXY: Final = Right("get", "proxy")
CONNECT: Final = Right("create", "proxy")
"""What exec, attach and port-forward do, be the request a GET or a POST."""
RESOURCE_METRICS: Final = "/metrics/resource"
MAX_COUNT: Final = 2**63 - 1
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_COUNT: Final = re.compile(r"\d{1,19}")


class Provider(Protocol):
    """What the kubelet API needs of the provider."""

    @property
    def access(self) -> Access: ...

    def stream(
        self, method: str, path: str, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[wire.HttpAnswer]: ...

    async def get_text(self, path: str, *, most: int) -> str: ...


@dataclass(frozen=True)
class Api:
    """What handlers work with: they run in a loop of their own, and ``ask`` that of the pods."""

    lookups: PodLookups
    ask: Caller
    provider: Callable[[], Provider]
    consumer: str
    clock: Callable[[], datetime]
    started: datetime
    cpu: NodeCpu = field(default_factory=NodeCpu)
    scraping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for one answer of the provider's metric agent at a time."""


@dataclass(frozen=True)
class Route:
    """One path; anybody who has one of ``rights`` on the node may use it, and nobody else."""

    method: str
    path: str
    rights: tuple[Right, ...]
    handle: Callable[[Api, web.Request], Awaitable[web.StreamResponse]]


# Handlers ----------------------------------------------------------------------------------------


async def healthz(_api: Api, _request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def pods(api: Api, request: web.Request) -> web.StreamResponse:
    """Stream the pods bound to this node, as a PodList: large ones are read one by one."""
    found = await api.ask(api.lookups.pods())
    response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
    await response.prepare(request)
    before = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":['
    try:
        for each in found:
            pod = each if isinstance(each, bytes) else await api.ask(api.lookups.large(each))
            if pod:
                await response.write(before + pod)
                before = b","
    except errors.KubeError as error:
        raise _cut(error, "list of pods") from error
    await response.write(b"]}" if before == b"," else before + b"]}")
    await response.write_eof()
    return response


async def container_logs(api: Api, request: web.Request) -> web.StreamResponse:
    key, container = _container(request)
    twin = await _twin(api, key, container)
    query = {"container": container, **log_options(request.query)}
    path = wire.path(keys.POD, twin, "log")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        async with api.provider().stream("GET", path, query) as upstream:
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)  # no faster than it is read
    except errors.KubeError as error:
        if not response.prepared:
            raise _refusal(error) from error
        raise _cut(error, f"log of pod {key}") from error
    await response.write_eof()
    return response


def _connected(action: StreamAction) -> Callable[[Api, web.Request], Awaitable[web.StreamResponse]]:
    async def handle(api: Api, request: web.Request) -> web.StreamResponse:
        key, container = _container(request)
        twin = await _twin(api, key, container)
        try:
            return await streams.carry(action, request, api.provider().access, twin, container)
        except errors.KubeError as error:
            logger.warning(
                "Refused a stream",
                extra={"pod": str(key), "what": action.subresource, "error": str(error)},
            )
            raise _refusal(error) from error

    return handle


async def metrics(api: Api, request: web.Request) -> web.StreamResponse:
    """Return what the provider says that the pods of this node use."""
    pods, told = await _used(api, request.path)
    now_ms = int(api.clock().timestamp() * 1000)
    families = usage.timely(told, now_ms)
    if request.path == RESOURCE_METRICS:
        families += usage.of_node(told, pods, api.cpu, now_ms)
    return web.Response(
        body=prometheus.text(families).encode(), headers={"Content-Type": prometheus.CONTENT_TYPE}
    )


async def summary(api: Api, _request: web.Request) -> web.StreamResponse:
    """Return what the pods of this node use, as the summary of kubelets."""
    pods, families = await _used(api, RESOURCE_METRICS)
    about = {"nodeName": api.lookups.node, "startTime": objects.timestamp(api.started)}
    return web.json_response(usage.summary(about, pods, families, api.cpu, api.clock()))


async def _used(api: Api, path: str) -> tuple[dict[Key, Measured], list[Family]]:
    """Return the pods of this node, and what the provider's metric agent says of them."""
    pods = await api.ask(api.lookups.measured())
    where = f"{keys.METRICS_ROOT}/scrape/{api.consumer}{path}"
    async with api.scraping:
        try:
            text = await api.provider().get_text(where, most=usage.most_bytes(len(pods)))
        except errors.KubeError as error:
            raise _refusal(error) from error
        return pods, await asyncio.to_thread(usage.of_pods, text, pods)  # it may be long


async def not_here(_api: Api, request: web.Request) -> web.StreamResponse:
    """Answer a route of kubelets that virtual nodes do not have."""
    raise web.HTTPNotImplemented(text=f"{request.path} is not available on a virtual node\n")


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/healthz", (Right("get", "healthz"), PROXY), healthz),
    Route("GET", "/pods", (Right("get", "pods"), PROXY), pods),
    Route("GET", "/runningpods/", (Right("get", "pods"), PROXY), pods),
    Route("GET", "/containerLogs/{namespace}/{pod}/{container}", (PROXY,), container_logs),
    *(
        Route(method, path, (CONNECT,), _connected(action))
        for method in ("GET", "POST")  # WebSocket comes as GET, SPDY as POST
        for path, action in (
            ("/exec/{namespace}/{pod}/{container}", streams.EXEC),
            ("/attach/{namespace}/{pod}/{container}", streams.ATTACH),
            ("/portForward/{namespace}/{pod}", streams.PORT_FORWARD),
        )
    ),
    *(
        Route("*", f"/{name}{{rest:(/.*)?}}", (CONNECT,), not_here)
        for name in ("run", "checkpoint")
    ),
    Route("GET", "/stats/summary", (Right("get", "stats"),), summary),
    Route("*", "/stats{rest:(/.*)?}", (Right("get", "stats"),), not_here),
    *(Route("GET", path, (Right("get", "metrics"),), metrics) for path in keys.SCRAPED),
    Route("*", "/metrics{rest:(/.*)?}", (Right("get", "metrics"),), not_here),
)


def application(api: Api) -> web.Application:
    """Return the web application; what is in no row is refused too, after asking who asks."""
    rows: dict[Handler, Route] = {}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        row = rows.get(request.match_info.handler)
        await _authorize(api, request, row.rights if row else (PROXY,))
        return await handler(request)

    app = web.Application(middlewares=[guard], client_max_size=2**16)
    for row in ROUTES:
        handler = _bound(row, api)
        rows[handler] = row
        app.router.add_route(row.method, row.path, handler)
    return app


def _bound(row: Route, api: Api) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await row.handle(api, request)

    return handler


async def _authorize(api: Api, request: web.Request, rights: tuple[Right, ...]) -> None:
    transport = request.transport
    peer = transport.get_extra_info("peercert") if transport is not None else None
    authorization = request.headers.get("Authorization", "")
    try:
        await api.ask(api.lookups.authorize(peer, authorization, rights))
    except UnauthenticatedError as error:
        raise web.HTTPUnauthorized(text=f"{error}\n") from None
    except NotAuthorizedError as error:
        raise web.HTTPForbidden(text=f"{error}\n") from None


# Logs --------------------------------------------------------------------------------------------


def log_options(query: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a log that are known, validated.

    Raises:
        HTTPBadRequest: a value that makes no sense.
    """
    chosen = {name: value for name, value in query.items() if name in _OPTIONS and value != ""}
    for name, value in chosen.items():
        if not _OPTIONS[name](value):
            raise web.HTTPBadRequest(text=f"{name}={value!r:.80} is not valid\n")
    return chosen


def _is_truth(value: str) -> bool:
    return value in {"true", "false", "1", "0"}


def _is_count(value: str) -> bool:
    return bool(_COUNT.fullmatch(value)) and int(value) <= MAX_COUNT


_OPTIONS: Final[Mapping[str, Callable[[str], bool]]] = {
    "follow": _is_truth,
    "previous": _is_truth,
    "timestamps": _is_truth,
    "tailLines": _is_count,
    "limitBytes": _is_count,
    "sinceSeconds": _is_count,
    "sinceTime": lambda value: bool(_TIME.fullmatch(value)),
    "stream": lambda value: value in {"All", "Stdout", "Stderr"},
}


# Whose pod ---------------------------------------------------------------------------------------


def _container(request: web.Request) -> tuple[Key, str]:
    """Return what the path names; each part is a DNS name, and so nothing else.

    The container is empty where the path has none.
    """
    parts = request.match_info
    namespace, pod, container = parts["namespace"], parts["pod"], parts.get("container")
    labels = naming.is_dns_label(namespace) and (
        container is None or naming.is_dns_label(container)
    )
    if not (labels and naming.is_dns_subdomain(pod)):
        raise web.HTTPBadRequest(text="the path names no namespace, pod and container\n")
    return Key(namespace, pod), container or ""


async def _twin(api: Api, key: Key, container: str) -> Key:
    try:
        return await api.ask(api.lookups.twin(key, container))
    except UnknownPodError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from None
    except NotRunningError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    except NotKnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{texts.clamp(str(error))}\n") from error
    except errors.KubeError as error:
        raise _refusal(error) from error


def _cut(error: errors.KubeError, about: str) -> asyncio.CancelledError:
    """Return what ends an answer that has begun: who reads sees that it has no end."""
    logger.warning("Cut an answer short", extra={"about": about, "error": str(error)})
    return asyncio.CancelledError()


def _refusal(error: errors.KubeError) -> web.HTTPException:
    """Return the provider's answer; its 401 and 403 are about us, not about who asks.

    What is wrong with the request is said as a kubelet would say it.
    """
    known: Mapping[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        404: web.HTTPNotFound,
        422: web.HTTPUnprocessableEntity,
        429: web.HTTPTooManyRequests,
    }
    if error.status in known:
        return known[error.status](text=f"{texts.clamp(error.said)}\n")
    if isinstance(error, errors.ExhaustedError):
        return web.HTTPServiceUnavailable(text=f"{texts.clamp(str(error))}\n")
    away = isinstance(error, errors.NotReachableError)
    who = "the provider does not answer" if away else "the provider says"
    return web.HTTPBadGateway(text=f"{who}: {texts.clamp(str(error))}\n")


# In a loop of its own, and what keeps it trusted --------------------------------------------------


class ApiEndpoint:
    """Listens once it has a certificate; ``lookups`` belong to the loop that makes this."""

    def __init__(
        self,
        settings: KubeletOptions,
        home: ClusterClient,
        provider: ClusterClient,
        lookups: PodLookups,
    ) -> None:
        self._settings, self._home = settings, home
        self._apart = WorkerThread("kubelet-api")
        self._likeness = Likeness(provider)
        self._client_ca: Informer[Object] = Informer(
            Selection(
                keys.CONFIG_MAP,
                Object,
                CLIENT_CA.namespace,
                fields=f"metadata.name={CLIENT_CA.name}",
            )
        )
        api = Api(
            lookups,
            Caller(),
            self._likeness,
            consumer=settings.home_cluster_id,
            clock=clock.now,
            started=clock.now(),
        )
        self._server = Server(application(api), settings.listen_port)

    @property
    def informers(self) -> list[Informer[Any]]:
        return [self._client_ca] if self._settings.node_ip else []

    def runners(self) -> list[Runner]:
        """Return the loops that keep its certificate and whom it trusts; none without address."""
        settings = self._settings
        if not settings.node_ip:
            return []
        certificates = CertificateReconciler(
            self._home,
            node=settings.node_name,
            address=settings.node_ip,
            install=self._certify,
            clock=clock.now,
        )
        trust = TrustReconciler(self._client_ca, self._trust)
        serving_certificate = Runner("serving-certificate", certificates, [])
        serving_certificate.enqueue(Key("", settings.node_name))
        client_ca = Runner("client-ca", trust, [WatchSource(self._client_ca)])
        client_ca.enqueue(CLIENT_CA)
        return [serving_certificate, client_ca]

    async def close(self) -> None:
        """End all streams, and no longer listen."""
        await self._apart.run(self._shut())
        await self._apart.close()

    async def _shut(self) -> None:
        await self._server.close()
        await self._likeness.close()

    async def _certify(self, pair: Keypair) -> None:
        await self._apart.run(self._server.certify(pair))

    async def _trust(self, client_ca: str) -> None:
        await self._apart.run(self._server.trust(client_ca))
