"""A way to an API server on which processes are killed: before a write is done, or after.

Source: docs/parity.md, Faults.
"""

import contextlib
import datetime as dt
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from certs import listener, pki
from kube import clock, credentials
from sandbox import documents
from sandbox.controlplane import Plane
from tests.kube.running import whole_session

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LIVES = frozenset({"pods", "shadowpods"})
_CONNECTION = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "host"})


class Toll:
    """It stands between a process and ``plane``; ``kill`` ends the process at once.

    Of each phase the first write to a pod or a ShadowPod kills once the server did it. With
    ``is_whole`` each call does that is of a new kind in its phase, reads and watches too, once
    before the server hears of it and once after. All else passes, but for the first question of
    the server's version.
    """

    def __init__(self, plane: Plane, kill: Callable[[], None], *, is_whole: bool) -> None:
        self._plane, self._kill, self._is_whole = plane, kill, is_whole
        self._seen: Counter[tuple[str, Call]] = Counter()
        self.kills: Counter[str] = Counter()
        """How many there were, by phase."""
        self.phase = ""
        """What is going on; nobody is killed while it is empty."""
        self.versions = 0
        """How often somebody asked for the version."""
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        who = await credentials.from_file(self._plane.kubeconfig)
        app = web.Application(client_max_size=2**24)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        async with whole_session(auto_decompress=False) as session:

            async def passes(request: web.Request) -> web.StreamResponse:
                return await self._pass(request, session, who)

            app.router.add_route("*", "/{rest:.*}", passes)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls()).start()
            self.port = runner.addresses[0][1]
            try:
                yield
            finally:
                await runner.cleanup()

    def kubeconfig(self) -> str:
        ca = authority(self._plane)
        identity = pki.issue(ca, common_name="vk", client=True, now=clock.now(), lifetime=DAY)
        return documents.kubeconfig(
            cluster="toll",
            server=f"https://127.0.0.1:{self.port}",
            ca=ca.certificate,
            user="vk",
            pair=(identity.certificate, identity.key),
        )

    def _tls(self) -> ssl.SSLContext:
        made = pki.issue(
            authority(self._plane), common_name="toll", ips=["127.0.0.1"], server=True,
            now=clock.now(), lifetime=DAY,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listener.load(context, made)
        return context

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, who: credentials.Access
    ) -> web.StreamResponse:
        if self._is_first_version(request):
            return web.json_response({"message": "not yet"}, status=500)
        side = self._side(request)
        if side == "before":
            self._strike()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _CONNECTION}
        body, url = await request.read(), f"{who.server}{request.path_qs}"
        async with session.request(
            request.method, url, ssl=who.tls or True, headers=headers, data=body or None,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:  # fmt: skip
            if side == "after":
                self._strike()
            return await self._give(request, answer)

    async def _give(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        return await _passed_back(request, answer)

    def _is_first_version(self, request: web.Request) -> bool:
        is_asked = request.path == "/version"
        self.versions += is_asked
        return is_asked and self.versions == 1

    def _strike(self) -> None:
        self.kills[self.phase] += 1
        self._kill()
        raise web.HTTPBadGateway

    def _side(self, request: web.Request) -> str:
        """Return on which side of this request the process dies; empty if it lives on."""
        found = call_of(request)
        if not self.phase:
            return ""
        if not self._is_whole:
            is_first = found.is_of_lives and not self.kills[self.phase]
            return "after" if is_first else ""
        self._seen[self.phase, found] += 1
        return {1: "before", 2: "after"}.get(self._seen[self.phase, found], "")


class Call(NamedTuple):
    """What a request does, whatever the name of the object is."""

    verb: str
    namespace: str
    resource: str
    subresource: str

    @property
    def is_of_lives(self) -> bool:
        return self.verb in _WRITES and self.resource in _LIVES


def call_of(request: web.Request) -> Call:
    """Return what ``request`` does; ``GET`` of all is ``LIST``, and ``WATCH`` if it stays."""
    parts = request.path.strip("/").split("/")
    parts = parts[2 if parts[0] == "api" else 3 :]  # /api/v1/..., /apis/GROUP/VERSION/...
    namespace = parts[1] if parts[:1] == ["namespaces"] and len(parts) > 2 else ""
    resource, name, subresource = ([*parts[2 if namespace else 0 :], *[""] * 3])[:3]
    reads = "WATCH" if "watch" in request.query else "GET" if name else "LIST"
    verb = reads if request.method == "GET" else request.method
    return Call(verb, namespace, resource, subresource)


DAY = dt.timedelta(days=1)


def authority(plane: Plane) -> pki.Keypair:
    """Return who signs for the API server."""
    stem: Path = plane.files.pki / "ca"
    return pki.Keypair(stem.with_suffix(".crt").read_bytes(), stem.with_suffix(".key").read_bytes())


async def _passed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {k: v for k, v in answer.headers.items() if k.lower() not in _CONNECTION}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        async for piece in answer.content.iter_any():
            await response.write(piece)
    return response


def kubeconfig_as(plane: Plane, user: str, *groups: str) -> str:
    """Return the kubeconfig of somebody of that name: an administrator, or in ``groups``."""
    made = pki.issue(
        authority(plane), common_name=user, organizations=groups or ["system:masters"], client=True,
        now=clock.now(), lifetime=DAY,
    )  # fmt: skip
    pair = (made.certificate, made.key)
    ca = authority(plane).certificate
    return documents.kubeconfig(cluster="plane", server=plane.server, ca=ca, user=user, pair=pair)
