"""Streams of the kubelet API, byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from tests.kubelet.rigs import Rig

EXEC = "/exec/shop/web/main?command=ls&command=a%26b%3Dc+d&input=1&output=1&tty=0"
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel"}
HEAD = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def opened(
    rig: Rig, path: str, headers: Mapping[str, str], method: str = "POST", who: str = "admin"
) -> AsyncIterator[Stream]:
    """Send the head of a request, leave the rest to the test, and be gone at the end."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=rig.context(who), server_hostname="127.0.0.1"
    )
    lines = [f"{method} {path} HTTP/1.1", "Host: me", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape"))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        writer.close()


async def tasks() -> int:
    await asyncio.sleep(0.05)
    return len(asyncio.all_tasks())
