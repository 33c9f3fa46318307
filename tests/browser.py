"""Debian's Chromium without a screen, by its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

CHROMIUM: Final = shutil.which("chromium")
PATIENCE_S: Final = 120.0


class Page:
    """One page, of which expressions are asked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)

    async def do(self, method: str, **params: Any) -> Any:
        """Do what the protocol calls ``method``; return its result, {} before a page is there."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while (answer := await self._socket.receive_json()).get("id") != number:
            pass
        return answer.get("result", {})

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = await self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        return found.get("result", {}).get("value")

    async def until(self, expression: str) -> None:
        """Wait until it is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.evaluate(expression):  # noqa: ASYNC110  # the browser tells nobody
                await asyncio.sleep(0.05)

    async def picture(self) -> bytes:
        """Return what is shown, as PNG."""
        found = await self.do("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path, height: int = 1100) -> AsyncIterator[Page]:
    """Open ``url`` in a window of that ``height``; ``folder`` is for the browser's own files."""
    assert CHROMIUM
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
        f"--user-data-dir={folder}", f"--window-size=1280,{height}", url,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            port = await _port(folder / "DevToolsActivePort")
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                [target] = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(
                target["webSocketDebuggerUrl"], max_msg_size=2**26
            ) as socket:
                yield Page(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _port(file: Path) -> str:
    while not (file.exists() and file.read_text()):  # noqa: ASYNC110, ASYNC240  # another process
        await asyncio.sleep(0.05)
    return file.read_text().splitlines()[0]  # noqa: ASYNC240
