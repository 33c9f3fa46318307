"""The real kubectl, beside the event loop of a journey."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sandbox import binaries

SPDY: Mapping[str, str] = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
}
"""kubectl's own way to ask for SPDY; it speaks WebSocket otherwise."""


class Done(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class Kubectl:
    """kubectl towards one cluster and namespace, with variables of its own."""

    kubeconfig: Path
    namespace: str
    variables: Mapping[str, str] = field(default_factory=dict)

    async def run(self, *args: str, stdin: bytes | None = None, patience_s: float = 120) -> Done:
        """Return what ``kubectl ARGS`` did, whatever it did."""
        async with self.started(*args, stdin=asyncio.subprocess.PIPE) as process:
            async with asyncio.timeout(patience_s):
                out, err = await process.communicate(stdin)
            return Done(process.returncode or 0, out, err.decode("utf-8", "replace"))

    async def out(self, *args: str, stdin: bytes | None = None) -> bytes:
        """Return what ``kubectl ARGS`` printed; it must end well."""
        done = await self.run(*args, stdin=stdin)
        assert done.code == 0, f"kubectl {' '.join(args)}: {done.code} {done.err} {done.out!r:.500}"
        return done.out

    @contextlib.asynccontextmanager
    async def started(self, *args: str, **rest: Any) -> AsyncIterator[asyncio.subprocess.Process]:
        """Yield ``kubectl ARGS`` while it runs; it is killed at the end."""
        command = [f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *args]
        streams = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, **rest}
        process = await asyncio.create_subprocess_exec(
            str(binaries.kubectl()), *command, env={**os.environ, **self.variables}, **streams
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
