"""The kubelet API of the virtual node: HTTPS, everybody identified, every right asked for.

A route is a row of ``ROUTES``; exec, attach and port-forward come as rows of the same table.

Source: behaviour.md 5.7; security.md D1-D3, I7; stack.md 7.
"""

import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from apis import keys, naming
from apis.objects import Key, Object
from certs import pki
from kube import errors
from kube.cluster import Cluster
from kube.gate import DeniedError, Gate, Right, UnauthenticatedError
from kubelet import certificate
from kubelet.forge import shadowpod
from kubelet.forge.mapping import MappingState
from kubelet.pods import Namespaces

logger = logging.getLogger(__name__)

PROXY: Final = Right("get", "proxy")
MAX_COUNT: Final = 2**63 - 1
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_COUNT: Final = re.compile(r"\d{1,19}")


class Provider(Protocol):
    """What the kubelet API needs of the provider."""

    def stream(
        self, method: str, path: str, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Open a raw request."""
        ...


@dataclass(frozen=True)
class Api:
    """What the handlers work with."""

    node: str
    local: Cluster
    remote: Cluster
    provider: Provider
    namespaces: Namespaces
    pods: Callable[[], Mapping[Key, Object]]
    gate: Gate


@dataclass(frozen=True)
class Route:
    """One path; whoever has one of ``rights`` on the node may use it, no rights mean everybody."""

    method: str
    path: str
    rights: tuple[Right, ...]
    handle: Callable[[Api, web.Request], Awaitable[web.StreamResponse]]


# Handlers ----------------------------------------------------------------------------------------


async def healthz(_api: Api, _request: web.Request) -> web.StreamResponse:
    """Return that the server runs."""
    return web.Response(text="ok")


async def pods(api: Api, _request: web.Request) -> web.StreamResponse:
    """Return the pods bound to this node, as a PodList."""
    items = [pod for _, pod in sorted(api.pods().items())]
    return web.json_response(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    )


async def container_logs(api: Api, request: web.Request) -> web.StreamResponse:
    """Stream the log of a container from the provider."""
    key, container = _container(request)
    twin = await _twin(api, key, container)
    query = {"container": container, **log_options(request.query)}
    path = f"/api/v1/namespaces/{twin.namespace}/pods/{twin.name}/log"
    try:
        async with api.provider.stream("GET", path, query) as upstream:
            return await _relay(upstream.content.iter_any(), request)
    except errors.KubeError as error:
        raise _refusal(error) from error


async def not_here(_api: Api, request: web.Request) -> web.StreamResponse:
    """Answer a route of kubelets that virtual nodes do not have."""
    raise web.HTTPNotImplemented(text=f"{request.path} is not available on a virtual node\n")


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/healthz", (), healthz),
    Route("GET", "/pods", (Right("get", "pods"), PROXY), pods),
    Route("GET", "/runningpods/", (PROXY,), pods),
    Route("GET", "/containerLogs/{namespace}/{pod}/{container}", (PROXY,), container_logs),
    *(
        Route("*", f"/{name}{{rest:(/.*)?}}", (Right("create", "proxy"),), not_here)
        for name in ("exec", "attach", "portForward", "run", "checkpoint")
    ),
    Route("*", "/stats{rest:(/.*)?}", (Right("get", "stats"),), not_here),
    Route("*", "/metrics{rest:(/.*)?}", (Right("get", "metrics"),), not_here),
)


def application(api: Api) -> web.Application:
    """Return the web application; what is in no row is refused too, after asking who asks."""
    rows: dict[Handler, Route] = {}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        row = rows.get(request.match_info.handler)
        rights = row.rights if row else (PROXY,)
        if rights:
            await _authorize(api.gate, request, rights)
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


async def _authorize(gate: Gate, request: web.Request, rights: tuple[Right, ...]) -> None:
    transport = request.transport
    peer = transport.get_extra_info("peercert") if transport is not None else None
    try:
        user = await gate.user(peer, request.headers.get("Authorization", ""))
        await gate.check(user, rights)
    except UnauthenticatedError as error:
        raise web.HTTPUnauthorized(text=f"{error}\n") from None
    except DeniedError as error:
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
}


async def _relay(chunks: AsyncIterator[bytes], request: web.Request) -> web.StreamResponse:
    """Pass on what comes, no faster than it is read."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    async for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


# Whose pod ---------------------------------------------------------------------------------------


def _container(request: web.Request) -> tuple[Key, str]:
    """Return what the path names; each part is a DNS name, and so nothing else."""
    parts = request.match_info
    namespace, pod, container = parts["namespace"], parts["pod"], parts["container"]
    labels = naming.is_dns_label(namespace) and naming.is_dns_label(container)
    if not (labels and naming.is_dns_subdomain(pod)):
        raise web.HTTPBadRequest(text="the path names no namespace, pod and container\n")
    return Key(namespace, pod), container


async def _twin(api: Api, key: Key, container: str) -> Key:
    """Return where the pod runs, if it is bound to this node and that very pod runs there."""
    pod = await api.local.get(keys.POD, key)
    if pod is None or pod["spec"].get("nodeName") != api.node:
        raise web.HTTPNotFound(text=f"pod {key} is not bound to node {api.node}\n")
    if container not in _containers(pod):
        raise web.HTTPNotFound(text=f"pod {key} has no container {container}\n")
    try:
        mapping = await api.namespaces.mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            raise web.HTTPNotFound(text=f"namespace {key.namespace} is not offloaded\n")
        twin = mapping.pair.twin_of(key)
        remote = await api.remote.get(keys.POD, twin)
    except errors.KubeError as error:
        raise _refusal(error) from error
    is_twin = remote is not None and mapping.pair.reflects(remote) and shadowpod.is_for(remote, pod)
    if not is_twin:
        raise web.HTTPNotFound(text=f"pod {key} does not run on the provider yet\n")
    return twin


def _containers(pod: Object) -> set[str]:
    fields = ("containers", "initContainers", "ephemeralContainers")
    return {item["name"] for field in fields for item in pod["spec"].get(field) or []}


def _refusal(error: errors.KubeError) -> web.HTTPException:
    """Return the provider's answer; its 401 and 403 are about us, not about who asks."""
    text = f"the provider says: {error}\n"
    known: Mapping[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        404: web.HTTPNotFound,
        422: web.HTTPUnprocessableEntity,
        429: web.HTTPTooManyRequests,
    }
    return known.get(error.status, web.HTTPBadGateway)(text=text)


# The listener ------------------------------------------------------------------------------------


class Server:
    """Listens once it has a certificate and knows who signs its clients' certificates."""

    def __init__(self, app: web.Application, port: int, host: str | None = None) -> None:
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=5
        )
        self._host, self._port = host, port
        self._site: web.TCPSite | None = None
        self._context: ssl.SSLContext | None = None
        self._pair: pki.KeyPair | None = None
        self._client_ca: str | None = None
        self.port = 0
        """Where it listens, 0 while it does not."""

    @property
    def is_listening(self) -> bool:
        """Whether there is a listener."""
        return self._site is not None

    async def certify(self, pair: pki.KeyPair) -> None:
        """Serve new connections with ``pair``; old ones live on."""
        self._pair = pair
        if self._context is not None:
            certificate.load(self._context, pair)
        else:
            await self._listen()

    async def trust(self, client_ca: str) -> None:
        """Take certificates signed by ``client_ca`` (PEM, "" for none) as who a client is.

        An authority cannot be taken out of a context, so another one needs a new listener.
        """
        if client_ca == self._client_ca:
            return
        self._client_ca = client_ca
        await self._stop()
        await self._listen()

    async def close(self) -> None:
        """Stop listening and end what is served."""
        await self._stop()
        await self._runner.cleanup()

    async def _listen(self) -> None:
        if self._pair is None or self._client_ca is None:
            return
        context = tls(self._pair, self._client_ca)
        if self._runner.server is None:
            await self._runner.setup()
        site = web.TCPSite(
            self._runner, self._host, self._port, ssl_context=context, reuse_address=True
        )
        await site.start()
        self._site, self._context = site, context
        self.port = _port(site)
        logger.info("Kubelet API listens", extra={"port": self.port})

    async def _stop(self) -> None:
        if self._site is not None:
            await self._site.stop()
        self._site, self._context, self.port = None, None, 0


def tls(pair: pki.KeyPair, client_ca: str) -> ssl.SSLContext:
    """Return the context of the listener: TLS 1.2 or later, HTTP/1.1 only, certificates welcome."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.CERT_NONE
    if client_ca:
        context.load_verify_locations(cadata=client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    certificate.load(context, pair)
    return context


def _port(site: web.TCPSite) -> int:
    server: Any = site._server  # noqa: SLF001  # aiohttp has no public way to the port of one site
    return int(server.sockets[0].getsockname()[1])
