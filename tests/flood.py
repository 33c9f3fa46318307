"""What strangers send to a port: connections that say little or nothing, and requests at random.

``PYLIQO_FUZZ`` is the number of requests for each path, 300 by default.
"""

import asyncio
import contextlib
import logging
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.conftest import size_of

REQUESTS: Final = size_of("PYLIQO_FUZZ", 100, 2000)
CONNECTIONS: Final = 500
MORE_MIB: Final = 100
"""By so much a server of about 90 MiB may grow while it answers: 200 is what it may have."""
ELSEWHERE: Final = "127.0.0.2"
_LARGE: Final = 3 * 2**20
_SLOW: Final = b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "
_METHODS: Final = ("GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "G\x00T", "x")
_NAMES: Final = (
    "Host", "Accept", "Authorization", "Content-Type", "Content-Length", "Transfer-Encoding",
    "Connection", "Upgrade", "Expect", "X-Remote-User", "X-Remote-Group", "Sec-WebSocket-Key",
    "X-Stream-Protocol-Version", "Accept-Encoding", "Content-Encoding", "Range", "Cookie",
)  # fmt: skip
_VALUES: Final = (
    "", "x", "Bearer a.b.c", "Basic eDp4", "application/json", "chunked", "Upgrade", "SPDY/3.1",
    "websocket", "100-continue", "system:masters", "rome", "gzip", "bytes=0-", "0", "-1", "1e9",
    "4" * 400, "\u00e9", "a,b;q=0.1", "close",
)  # fmt: skip
_PARTS: Final = (
    "/",
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "//",
    "shop",
    "web",
    "main",
    "\u20ac",
    "a" * 300,
)
_ASKED: Final = (
    "container=main", "follow=true", "tailLines=-1", "command=a&command=b", "stdin=1", "port=x",
    "=", "&&", "%", "timeout=1s", "a" * 2000,
)  # fmt: skip


@contextlib.asynccontextmanager
async def held_connections(port: int) -> AsyncIterator[None]:
    """Hold connections of one address that is not ours: silent, half a handshake, half a head."""
    writers = []
    context = ssl._create_unverified_context()  # noqa: S323, SLF001  # nobody is trusted here
    hello = _client_hello(context)
    for number in range(CONNECTIONS):
        with contextlib.suppress(OSError):
            kind = number % 3
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context if kind == 2 else None, local_addr=(ELSEWHERE, 0)
            )
            writer.write((b"", hello[: len(hello) // 2], _SLOW)[kind])
            writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


def _client_hello(context: ssl.SSLContext) -> bytes:
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def requests(paths: Sequence[str], number: int = REQUESTS) -> Iterator[bytes]:
    """Yield so many requests for each of ``paths``, the same in each run.

    Their bodies have 8 KB in the mean.
    """
    draw = random.Random(7)  # noqa: S311  # no secret
    for path in paths:
        for _ in range(number):
            yield _request(path, draw)


def _request(path: str, draw: random.Random) -> bytes:
    target = path
    if draw.random() < 0.3:
        cut = draw.randrange(len(path) + 1)
        target = "/" + path[:cut].lstrip("/") + draw.choice(_PARTS) + path[cut:]
    if draw.random() < 0.5:
        target += "?" + "&".join(draw.choices(_ASKED, k=draw.randint(1, 3)))
    size = _LARGE if draw.random() < 0.0003 else int(draw.expovariate(1 / 8192))
    body = draw.randbytes(size)
    lines = [f"{draw.choice(_METHODS)} {target} HTTP/1.1", "Host: x"]
    lines += [f"{draw.choice(_NAMES)}: {draw.choice(_VALUES)}" for _ in range(draw.randint(0, 4))]
    lines += [f"Content-Length: {len(body)}"] if draw.random() < 0.8 else []
    head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogatepass")
    return head + body


async def answers(
    port: int,
    tls: ssl.SSLContext | None,
    sent: Iterable[bytes],
    record: Callable[[str, object], None],
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the answers to ``sent``, one by one; record how long the slowest took.

    The server is a part of this process, or a child that is measured elsewhere. What is logged
    meanwhile is not kept, as pytest would, with the stack of each.
    """
    slowest_s, at_first = 0.0, _resident_mib()
    most = at_first
    logging.disable()
    try:
        for one in sent:
            began = time.monotonic()
            yield await answer_at(port, tls, one)
            slowest_s = max(slowest_s, time.monotonic() - began)
            most = max(most, _resident_mib())
    finally:
        logging.disable(logging.NOTSET)
    record("slowest answer, s:", f"{slowest_s:.2f}")
    assert most - at_first < MORE_MIB


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def answer_at(port: int, tls: ssl.SSLContext | None, sent: bytes) -> tuple[int, bytes]:
    """Return the status and all of the answer; 0 where the connection is closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    said = b""
    try:
        async with asyncio.timeout(120):
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                writer.write(sent)
                while said[9:12] in {b"", b"100"}:
                    said = await reader.readuntil(b"\r\n\r\n")
                if b" 101 " not in said[:13]:  # a stream has no end
                    said += await reader.read()
    finally:
        writer.transport.abort()
    status = said[9:12]
    return (int(status) if status.isdigit() else 0), said
