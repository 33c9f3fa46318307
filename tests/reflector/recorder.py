"""All bytes that are sent to a real API server, as they are before TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from kube import credentials
from kube.credentials import Access


class Recorder:
    """Takes plain connections on loopback, keeps what they send, and passes it on by TLS."""

    def __init__(self, server: Access) -> None:
        self.sent = bytearray()
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self._server, self._address = server, urlsplit(server.server)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(
            self._address.hostname, self._address.port, ssl=self._server.tls
        )
        self._open[writer] = done = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, back, self.sent))
                tasks.create_task(self._pass(there, writer, bytearray()))
        except* OSError:
            pass  # either side may end at any moment
        finally:
            for each in (writer, back):
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            del self._open[writer]
            done.set()

    async def end(self) -> None:
        for writer, done in list(self._open.items()):
            writer.transport.abort()
            await done.wait()

    @staticmethod
    async def _pass(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        while chunk := await reader.read(65536):
            kept += chunk
            writer.write(chunk)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def recording(kubeconfig: Path) -> AsyncIterator[tuple[Access, bytearray]]:
    """Yield how to reach the API server of ``kubeconfig``, and what was sent to it so far."""
    recorder = Recorder(await credentials.from_file(kubeconfig))
    async with await asyncio.start_server(recorder.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield credentials.plain(f"http://127.0.0.1:{port}"), recorder.sent
        await recorder.end()
