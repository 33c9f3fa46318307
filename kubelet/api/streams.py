"""exec, attach and port-forward: authorized as a request, then a tunnel of bytes to the provider.

Source: docs/parity.md § 5.7; SEC-D1 to SEC-D3.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from aiohttp import web
from multidict import CIMultiDictProxy, MultiMapping
from prometheus_client import Gauge

from apis import keys
from apis.objects import Key
from kube import wire
from kube.credentials import Access
from kube.metrics import REGISTRY
from kubelet.api import tunnel
from kubelet.api.tunnel import TunnelEnd

STREAMS: Final = Gauge(
    "pyliqo_kubelet_streams",
    "Open exec, attach and portforward streams",
    ["subresource"],
    registry=REGISTRY,
)


QueryPairs = list[tuple[str, str]]

_PASSED_ON: Final = frozenset({"connection", "upgrade", "x-stream-protocol-version", "user-agent"})
_PASSED_ON_WITH: Final = "sec-websocket-"
_FLAGS: Final[Mapping[str, str]] = {
    "input": "stdin",
    "output": "stdout",
    "error": "stderr",
    "tty": "tty",
}
_EXTENSIONS: Final = "sec-websocket-extensions"
"""Nobody agrees on one: the head that comes back would have to say so."""
IDLE_S: Final = 4 * 60 * 60.0
"""How long a stream may pass nothing in either direction, as of kubelets. Source: Kubernetes,
kubelet, ``--streaming-connection-idle-timeout``."""
_TRUE: Final = frozenset({"1", "true"})
MAX_PORT: Final = 65535


class StreamAction(NamedTuple):
    """A subresource of the remote pod that is reached by an upgrade."""

    subresource: str
    options: Callable[[MultiMapping[str], str], QueryPairs]


def _streams(query: MultiMapping[str], container: str) -> QueryPairs:
    wanted = [(theirs, "true") for ours, theirs in _FLAGS.items() if query.get(ours) in _TRUE]
    return [*wanted, ("container", container)]


def _command(query: MultiMapping[str], container: str) -> QueryPairs:
    words = [("command", word) for word in query.getall("command", [])]
    return [*_streams(query, container), *words]


def _ports(query: MultiMapping[str], _container: str) -> QueryPairs:
    ports = [port for value in query.getall("port", []) for port in value.split(",")]
    for port in ports:
        if not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise web.HTTPBadRequest(text=f"port={port!r:.80} is not valid\n")
    return [("ports", port) for port in ports]


EXEC: Final = StreamAction("exec", _command)
ATTACH: Final = StreamAction("attach", _streams)
PORT_FORWARD: Final = StreamAction("portforward", _ports)


async def carry(
    action: StreamAction, request: web.Request, access: Access, twin: Key, container: str = ""
) -> web.StreamResponse:
    """Open ``action`` on the remote pod and pass bytes until one side ends.

    Raises:
        HTTPBadRequest: the request asks for no upgrade, or its options make no sense.
        KubeError: the provider refused; then this is an answer as any other.
    """
    if not request.headers.get("Upgrade"):
        raise web.HTTPBadRequest(text=f"{action.subresource} needs a connection upgrade\n")
    query = action.options(request.query, container)
    path = wire.path(keys.POD, twin, action.subresource)
    head, there = await tunnel.dial(access, request.method, path, query, passed_on(request.headers))
    with STREAMS.labels(action.subresource).track_inprogress():
        await _pass(request, head, there)
    raise asyncio.CancelledError  # the connection was upgraded: there is no HTTP answer to give


def passed_on(headers: CIMultiDictProxy[str]) -> QueryPairs:
    """Return the headers of an upgrade; who asks, and from where, is nobody's business there."""
    return [
        (name, value)
        for name, value in headers.items()
        if (name.lower() in _PASSED_ON or name.lower().startswith(_PASSED_ON_WITH))
        and name.lower() != _EXTENSIONS
    ]


async def _pass(request: web.Request, head: bytes, there: TunnelEnd) -> None:
    """Take the connection away from the web server, and give its end back when all is over."""
    transport, protocol = request.transport, request.protocol
    if transport is None:
        there.abort()
        raise ConnectionResetError
    here = TunnelEnd()
    here.transport = transport
    transport.set_protocol(here)
    idle = asyncio.create_task(_end_when_idle(here, there))
    try:
        transport.write(head)
        here.lead_to(there)
        there.lead_to(here)
        await here.ended
        await there.ended
    finally:
        idle.cancel()
        for leg in (here, there):
            leg.abort()
        protocol.connection_lost(None)


async def _end_when_idle(*legs: TunnelEnd) -> None:
    now = asyncio.get_running_loop().time
    until = now() + IDLE_S
    while until > now():
        await asyncio.sleep(until - now())
        until = max(leg.heard_at for leg in legs) + IDLE_S
    for leg in legs:
        leg.abort()
