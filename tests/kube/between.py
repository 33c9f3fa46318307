"""Who stands between a client and a real API server, and says again what it said in other words."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import aiohttp
from aiohttp import web

from kube import client, credentials
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests.kube.running import serving, whole_session

Query = Mapping[str, str]
Line = bytes


class Between:
    """It passes on what is asked and answered; a test says what it does to queries and lines."""

    def __init__(self) -> None:
        self.watches: list[dict[str, str]] = []
        """What each watch was asked with."""
        self.lists = 0
        self.asks: Callable[[dict[str, str]], Query] = dict
        """What a query becomes on its way to the server."""
        self.tells: Callable[[Line], Iterable[Line]] = lambda line: [line]
        """What a line of a watch, or the whole of another answer, becomes on its way back."""
        self._open: list[asyncio.Transport] = []

    def cut(self) -> None:
        """Break all watches."""
        for transport in self._open:
            transport.abort()
        self._open.clear()

    @contextlib.asynccontextmanager
    async def connected(self, plane: Plane) -> AsyncIterator[ClusterClient]:
        """Yield a client that asks ``plane`` through here."""
        who = await credentials.from_file(plane.kubeconfig)
        async with whole_session() as session:

            async def passes(request: web.Request) -> web.StreamResponse:
                return await self._pass(request, session, who)

            async with serving(passes) as url, client.connect(credentials.plain(url)) as cluster:
                yield cluster
                self.cut()

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, who: credentials.Access
    ) -> web.StreamResponse:
        is_watch = "watch" in request.query
        if is_watch:
            self.watches.append(dict(request.query))
        elif request.query.get("limit", "1") != "1":
            self.lists += 1
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with session.request(
            request.method, f"{who.server}{request.path}", params=self.asks(dict(request.query)),
            ssl=who.tls or True, headers=headers, data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:  # fmt: skip
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                await response.prepare(request)
                if is_watch:
                    await self._follow(request, answer, response)
                else:
                    await response.write(b"".join(self.tells(await answer.read())))
        return response

    async def _follow(
        self, request: web.Request, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        if isinstance(request.transport, asyncio.Transport):
            self._open.append(request.transport)
        async for line in answer.content:
            for told in self.tells(line):
                await response.write(told)
