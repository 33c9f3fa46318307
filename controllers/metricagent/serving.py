"""The aggregated API: who came through the API server, and sees what its own pods use.

The API server has asked RBAC already; that a cluster sees only its own is asked here.

Source: docs/parity.md § 5.9; SEC-A21, SEC-I7; Kubernetes, "Configure the aggregation layer".
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from apis import exposition, keys
from apis.objects import Key, Object
from controllers.metricagent import forge
from kube import gate


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
            name = gate.subject(certificate).name
        except gate.UnauthenticatedError:
            return False
        return not self.names or name in self.names


@dataclass(frozen=True)
class Agent:
    """What the handlers work with."""

    front_proxy: Callable[[], FrontProxy]
    namespaces: Callable[[], Iterable[Object]]
    pods: Callable[[], Collection[Key]]
    say: Callable[[str], Awaitable[list[str]]]


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
    text = forge.narrowed(await agent.say(path), twins, agent.pods()) if twins else ""
    return web.Response(body=text.encode(), headers={"Content-Type": exposition.CONTENT_TYPE})


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
