"""The proxy of a kubeconfig, by which streams reach a provider."""

import asyncio
import base64
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from certs import listener, pki
from kube import client, clock
from kube.credentials import Access
from kube.errors import NotReachableError
from kubelet.api import tunnel
from sandbox.controlplane import free_ports

HEAD = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DAY = dt.timedelta(days=1)
CA = pki.new_ca("test", now=clock.now(), lifetime=DAY)


def of_server() -> ssl.SSLContext:
    made = pki.issue(
        CA, common_name="there", ips=["127.0.0.1"], server=True, now=clock.now(), lifetime=DAY
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load(context, made)
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An API server that upgrades, and sends back what it gets."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD)
    with contextlib.suppress(OSError):
        await pump(reader, writer)


USER: Final = "liqo:S3cr3t%2FPw"
SIGNED_IN: Final = base64.b64encode(b"liqo:S3cr3t/Pw").decode()


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes to the address that CONNECT names, for whoever signs in."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if f"Proxy-Authorization: Basic {SIGNED_IN}\r\n" not in head:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        with contextlib.suppress(OSError):
            await reader.read()  # whoever is refused closes the connection
        writer.close()
        return
    asked = head.split()[1]
    there = await asyncio.open_connection(*asked.split(":"))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.transport.abort()
        writer.close()


@contextlib.asynccontextmanager
async def serving(*, by_tls: bool, proxied_by_tls: bool, user: str = USER) -> AsyncIterator[Access]:
    tls = of_server() if by_tls else None
    tasks: set[asyncio.Task[None]] = set()

    def kept(handler: Handler) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            tasks.add(task)
            await handler(reader, writer)

        return handle

    there = await asyncio.start_server(kept(echo), "127.0.0.1", 0, ssl=tls)
    tls = of_server() if proxied_by_tls else None
    between = await asyncio.start_server(kept(proxy), "127.0.0.1", 0, ssl=tls)
    ports = [each.sockets[0].getsockname()[1] for each in (there, between)]
    schemes = ["https" if each else "http" for each in (by_tls, proxied_by_tls)]
    urls = [f"{scheme}://127.0.0.1:{port}" for scheme, port in zip(schemes, ports, strict=True)]
    context = ssl.create_default_context(cadata=CA.certificate.decode()) if by_tls else None
    async with there, between:
        yield Access(urls[0], context, proxy=urls[1].replace("//", f"//{user}@"))
        await asyncio.wait_for(asyncio.gather(*tasks), 120)


async def test_of_a_name_with_a_dead_first_address_the_second_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a name with an IPv6 and an IPv4 address one may lead nowhere."""
    loop = asyncio.get_running_loop()
    port = free_ports(1)[0]  # of both addresses: what the system gives for one may be in use there
    there = await asyncio.start_server(echo, "127.0.0.1", port)

    async def resolved(*_: object, **__: object) -> list[tuple[object, ...]]:
        dead, alive = ("127.0.0.2", port), ("127.0.0.1", port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in (dead, alive)]

    with contextlib.ExitStack() as sockets:
        deaf = sockets.enter_context(socket.socket())
        deaf.bind(("127.0.0.2", port))
        deaf.listen(0)
        for _ in range(3):  # nobody accepts, so the kernel answers no other
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)  # noqa: FBT003  # of the standard library
            waiting.connect_ex(("127.0.0.2", port))
        monkeypatch.setattr(loop, "getaddrinfo", resolved)
        async with there:
            access = Access(f"http://both.example:{port}", None)
            head, leg = await tunnel.dial(access, "POST", "/exec", [], [])
            leg.abort()

    assert head == HEAD


@pytest.mark.parametrize("by_tls", [False, True])
async def test_a_stream_passes_a_proxy_of_its_scheme(*, by_tls: bool) -> None:
    async with serving(by_tls=True, proxied_by_tls=by_tls) as access:
        head, leg = await tunnel.dial(access, "POST", "/exec", [], [("Connection", "Upgrade")])
        assert head == HEAD
        leg.send(b"x" * 100_000)
        assert await leg.exactly(50_000) == b"x" * 50_000
        leg.abort()


async def test_to_a_proxy_of_https_nothing_goes_in_plain_text() -> None:
    async with serving(by_tls=False, proxied_by_tls=True) as access:
        with pytest.raises(NotReachableError, match="needs TLS"):
            await tunnel.dial(access, "POST", "/exec", [], [])


async def test_a_proxy_of_another_authority_is_not_used() -> None:
    async with serving(by_tls=True, proxied_by_tls=True) as access:
        other = ssl.create_default_context()
        foreign = Access(access.server, other, proxy=access.proxy)
        with pytest.raises(NotReachableError, match="certificate"):
            await tunnel.dial(foreign, "POST", "/exec", [], [])


async def test_what_a_proxy_refuses_is_told_without_the_password() -> None:
    async with serving(by_tls=True, proxied_by_tls=False, user="liqo:wrong-S3cr3t") as access:
        with pytest.raises(NotReachableError, match="does not connect") as refused:
            await tunnel.dial(access, "POST", "/exec", [], [])
        async with client.connect(access, user_agent="tests") as cluster:
            with pytest.raises(NotReachableError, match="the proxy answered 407") as silent:
                await cluster.get_text("/livez")

    for raised in (refused, silent):
        assert "S3cr3t" not in str(raised.value)
