"""Clients of the webhook that never finish a request: a process of its own, which nobody waits for.

``python -m bench.slow ADDRESS...`` keeps 200 connections open, by turns to each address, that say
nothing, half a head, or half a body, and writes how many there are once they are most of them; who
is sent away comes again. Source: docs/parity.md SEC-D9.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Sequence
from typing import Final

from apis import keys

CLIENTS: Final = 200
_HEAD: Final = b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_BEGINNINGS: Final = (b"", _HEAD, _HEAD + b"Content-Length: 5000\r\n\r\n{")
_WITHOUT_TLS: Final = 4
"""One in so many does not even shake hands."""
_MOST: Final = 0.75
_APART_S: Final = 0.015
"""Between two that come first: together they would come together for ever."""
_PAUSE_S: Final = 0.05


def trusting() -> ssl.SSLContext:
    """Return what takes any certificate: the webhook is called by its address."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def main(addresses: Sequence[str]) -> None:
    """Keep them until the process is ended."""
    held: set[int] = set()
    secured = trusting()
    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            context = secured if number % _WITHOUT_TLS else None
            address = addresses[number % len(addresses)]
            tasks.create_task(_come_again(address, context, number, held))
            await asyncio.sleep(_APART_S)
        while len(held) < CLIENTS * _MOST:  # noqa: ASYNC110  # they come and go
            await asyncio.sleep(_PAUSE_S)
        sys.stdout.write(f"{len(held)}\n")
        sys.stdout.flush()


async def _come_again(
    address: str, secured: ssl.SSLContext | None, number: int, held: set[int]
) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(address, keys.WEBHOOK_PORT, ssl=secured)
            held.add(number)
            try:
                writer.write(_BEGINNINGS[number % len(_BEGINNINGS)])
                await reader.read()
            finally:
                writer.transport.abort()
        held.discard(number)
        await asyncio.sleep(_PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
