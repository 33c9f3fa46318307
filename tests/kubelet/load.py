"""Both ends of many streams, in a process of their own: ``python -m tests.kubelet.load``.

It says on which port its provider listens, reads where the kubelet API is, opens the streams, and
says in the end how many bytes came.
"""

import asyncio
import contextlib
import json
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIECE = 2**16
HEAD = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


@dataclass(frozen=True)
class Order:
    """How many streams, how fast each, and for how long."""

    port: int
    ca: str
    identity: str
    streams: int
    bytes_per_s: int
    seconds: float


async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: int) -> None:
    """Answer one upgrade, and send as much as ``rate`` allows until it is closed."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD)
    loop, piece = asyncio.get_running_loop(), bytes(PIECE)
    began, sent = loop.time(), 0
    try:
        while not writer.is_closing():
            ahead = sent / rate - (loop.time() - began)
            await asyncio.sleep(max(0.0, ahead))
            writer.write(piece)
            sent += PIECE
            await writer.drain()
    except OSError:
        writer.transport.abort()


async def consume(order: Order, tls: ssl.SSLContext) -> int:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", order.port, ssl=tls, server_hostname="127.0.0.1", limit=2**20
    )
    path = "/exec/shop/web/main?command=cat&output=1"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: me\r\nConnection: Upgrade\r\n".encode())
    writer.write(b"Upgrade: SPDY/3.1\r\n\r\n")
    got = 0
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(300):
            got = len(await reader.read(2**20))
    try:
        async with asyncio.timeout(order.seconds):
            while piece := await reader.read(2**20):
                got += len(piece)
    except (TimeoutError, OSError):
        pass
    writer.transport.abort()
    return got


async def main() -> None:
    rate = int(sys.argv[1])
    ending: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(provide(reader, writer, rate))
        ending.add(task)
        task.add_done_callback(ending.discard)

    provider = await asyncio.start_server(accept, "127.0.0.1", 0)
    say_json({"port": provider.sockets[0].getsockname()[1]})
    line = await asyncio.to_thread(sys.stdin.readline)
    order = Order(**json.loads(line))
    tls = ssl.create_default_context(cadata=order.ca)
    tls.load_cert_chain(order.identity)
    got = await asyncio.gather(*(consume(order, tls) for _ in range(order.streams)))
    silent = sum(1 for each in got if not each)
    say_json({"bytes": sum(got), "silent": silent, "cpu_s": time.process_time()})
    provider.close()


def say_json(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201  # the test reads it


if __name__ == "__main__":
    Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    asyncio.run(main())
