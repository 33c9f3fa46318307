"""A server that cannot prove who it is hears nothing of ours. Source: docs/parity.md SEC-B11."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object
from certs import listener, pki
from kube import client, clock, credentials, errors
from kube.cluster import Selection
from sandbox import documents
from tests.kube.running import Gate
from webhook import worker

DAY: Final = dt.timedelta(days=1)
NOW: Final = clock.now()
CA: Final = pki.new_ca("milan", now=NOW, lifetime=30 * DAY)
OTHER_CA: Final = pki.new_ca("milan", now=NOW, lifetime=30 * DAY)
BARE_CA: Final = pki.new_ca("milan", now=NOW, lifetime=30 * DAY, has_identifier=False)
"""As those of EKS: its key has no identifier, and what it signs names none."""
BARE_PEM: Final = BARE_CA.certificate.decode()
OLD_CA: Final = pki.new_ca("milan", now=NOW - 30 * DAY, lifetime=DAY)


def proof(ca: pki.Keypair = CA, *, now: dt.datetime = NOW, **names: Any) -> pki.Keypair:
    names = names or {"ips": ["127.0.0.1"]}
    return pki.issue(ca, common_name="127.0.0.1", server=True, now=now, lifetime=DAY, **names)


ROWS: Final = {
    "another name": proof(dns=["milan.example"]),
    "another address": proof(ips=["127.0.0.2"]),
    "no name but the common one": proof(dns=[]),
    "another authority of that name": proof(OTHER_CA),
    "of itself": OTHER_CA,
    "the authority itself": CA,
    "expired": proof(now=NOW - 3 * DAY),
    "not valid yet": proof(now=NOW + 3 * DAY),
    "of a client": pki.issue(
        CA, common_name="vk", ips=["127.0.0.1"], client=True, now=NOW, lifetime=DAY
    ),
}

BARE: Final = {
    "another name": proof(BARE_CA, dns=["milan.example"]),
    "another authority without an identifier": proof(
        pki.new_ca("milan", now=NOW, lifetime=30 * DAY, has_identifier=False)
    ),
    "expired": proof(BARE_CA, now=NOW - 3 * DAY),
    "not valid yet": proof(BARE_CA, now=NOW + 3 * DAY),
    "of a client": pki.issue(
        BARE_CA, common_name="vk", ips=["127.0.0.1"], client=True, now=NOW, lifetime=DAY
    ),
}


class TlsServer:
    """Answers each request with an empty object, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard = b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.heard += await reader.readuntil(b"\r\n\r\n")
            body = b'{"metadata": {"name": "web"}}'
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n".encode()
            writer.write(head + b"Content-Type: application/json\r\n\r\n" + body)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def tls_serving(
    pair: pki.Keypair, server: TlsServer | None = None, *, oldest: bool = False
) -> AsyncIterator[tuple[TlsServer, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load(context, pair)
    if oldest:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    server = server or TlsServer()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield server, listening.sockets[0].getsockname()[1]


def access_to(port: int, ca: pki.Keypair = CA) -> credentials.Access:
    own = pki.issue(CA, common_name="vk", client=True, now=NOW, lifetime=DAY)
    text = documents.kubeconfig(
        cluster="milan", server=f"https://127.0.0.1:{port}", ca=ca.certificate, user="vk",
        pair=(own.certificate, own.key),
    )  # fmt: skip
    return credentials.from_kubeconfig(text.encode())


async def ask_over_tls(port: int, ca: pki.Keypair = CA) -> object:
    async with client.connect(access_to(port, ca), user_agent="t") as cluster:
        return await cluster.get_live(keys.POD, Key("shop", "web"))


async def test_who_proves_it_is_spoken_to() -> None:
    async with tls_serving(proof()) as (server, port):
        assert await ask_over_tls(port)
    assert server.heard.startswith(b"GET /api/v1/namespaces/shop/pods/web ")


@pytest.mark.parametrize("row", ROWS)
async def test_who_does_not_hears_nothing(row: str) -> None:
    async with tls_serving(ROWS[row]) as (server, port):
        with pytest.raises(errors.NotReachableError):
            await ask_over_tls(port)
    assert server.heard == b""


async def test_an_authority_without_key_identifiers_proves_who_it_signed() -> None:
    """As on EKS; ``tests.conftest.strict`` has Python ask for them, as 3.13 does by itself."""
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Authority Key Identifier"):
        handshake(listener.tls(proof(BARE_CA), ""), ssl.create_default_context(cadata=BARE_PEM))

    async with tls_serving(proof(BARE_CA)) as (server, port):
        assert await ask_over_tls(port, BARE_CA)
    assert server.heard


@pytest.mark.parametrize("row", BARE)
async def test_without_key_identifiers_names_dates_and_chain_are_verified(row: str) -> None:
    async with tls_serving(BARE[row]) as (server, port):
        with pytest.raises(errors.NotReachableError):
            await ask_over_tls(port, BARE_CA)
    assert server.heard == b""


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> None:
    """Shake hands in memory.

    Raises:
        ssl.SSLError: one of both refused the other.
    """
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(there, here, server_side=True),
        client.wrap_bio(here, there, server_hostname=name),
    ]
    for side in sides * 4:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    for side in sides:
        side.do_handshake()


def hardened(ca: str) -> ssl.SSLContext:
    """Return the context of the webhook, as gunicorn makes it first."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=ca)
    listener.load(context, proof())
    context.verify_mode = ssl.CERT_REQUIRED
    return worker.hardened(context)


LISTENERS: Final[dict[str, Callable[[str], ssl.SSLContext]]] = {
    "kubelet, metric agent": lambda ca: listener.tls(proof(), ca),
    "webhook": hardened,
}


@pytest.mark.parametrize("listens", LISTENERS)
def test_a_listener_verifies_clients_of_an_authority_without_key_identifiers(listens: str) -> None:
    def come(ca: pki.Keypair, now: dt.datetime = NOW, *, client: bool = True) -> None:
        context = credentials.trusting(CA.certificate)
        own = pki.issue(
            ca, common_name="api", client=client, server=not client, now=now, lifetime=DAY
        )
        listener.load(context, own)
        handshake(LISTENERS[listens](BARE_PEM), context)

    come(BARE_CA)
    for ca, now in ((OTHER_CA, NOW), (BARE_CA, NOW - 3 * DAY)):
        with pytest.raises(ssl.SSLError):
            come(ca, now)
    with pytest.raises(ssl.SSLError):
        come(BARE_CA, client=False)


def test_every_context_verifies_as_go_does() -> None:
    """A context of another origin would ask for key identifiers where Python is 3.13 or later."""
    root = Path(__file__).parent.parent.parent
    packages = ("kube", "certs", "webhook", "controllers", "kubelet", "reflector", "liqoctl")
    found = {
        (path.relative_to(root).as_posix(), line.strip())
        for package in packages
        for path in (root / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if "SSLContext(" in line or "create_default_context(" in line
    }
    assert {name for name, line in found if "verifying(" not in line} == {
        "kube/credentials.py",  # trusting, which is how clients verify
        "kube/http1.py",  # who trusts nobody
    }


async def test_an_authority_that_has_ended_proves_nothing() -> None:
    async with tls_serving(proof(OLD_CA, now=NOW - 30 * DAY)) as (server, port):
        with pytest.raises(errors.NotReachableError):
            await ask_over_tls(port, OLD_CA)
    assert server.heard == b""


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_nor_does_who_speaks_tls_of_old() -> None:
    async with tls_serving(proof(), oldest=True) as (server, port):
        with pytest.raises(errors.NotReachableError):
            await ask_over_tls(port)
    assert server.heard == b""


BOOKMARK: Final = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1",'
    b'"metadata":{"resourceVersion":"7"}}}\n'
)


class SilentServer(TlsServer):
    """Tells one event, and goes on until the client ends it."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(BOOKMARK), BOOKMARK))
            while piece := await reader.read(65536):
                self.heard += piece
        writer.close()


async def test_a_client_that_ends_amid_a_watch_waits_until_the_server_agrees() -> None:
    """Or the connection would be left open when the loop ends."""
    order: list[str] = []
    async with tls_serving(proof(), SilentServer()) as (_, port):
        gate = Gate(port)
        await gate.open()

        def agree() -> None:
            order.append("agreed")
            gate.let_go()

        async with client.connect(access_to(gate.port), user_agent="t") as cluster:
            told = asyncio.Event()
            watching = asyncio.create_task(watch(cluster, told))
            await told.wait()
            gate.hold_answers()
            watching.cancel()
            await asyncio.wait([watching])
            later = asyncio.get_running_loop().call_later(0.3, agree)
        order.append("closed")
        later.cancel()
        await gate.shut()
    assert order == ["agreed", "closed"]


async def watch(cluster: client.ClusterClient, told: asyncio.Event) -> None:
    async with contextlib.aclosing(cluster.watch(Selection(keys.POD, Object, "shop"), "")) as news:
        async for _ in news:
            told.set()
