"""A daemon: logging, signals, one task group, health, exit codes, work that begins again, version.

Source: docs/parity.md C-33, C-36, C-38.
"""

import asyncio
import contextlib
import gc
import http
import logging
import os
import re
import signal
import sys
import time
from asyncio import constants, sslproto
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol, cast

from kube import logs, memory
from kube.controller import TerminalError
from kube.errors import KubeError, UnauthorizedError

logger = logging.getLogger(__name__)

HEALTH_PORT: Final = 8081
DRAIN_S: Final = 10.0
MOST: Final = 512
"""Connections to the port of probes: of more the oldest gives way, for a probe is short."""
TLS_BUFFER: Final = 2**15
"""What asyncio fills with zeros for each TLS connection; its own 256 KiB make nothing faster."""
TLS_UNREAD: Final = 2**14
"""Bytes of a TLS connection that are taken from the system though nobody reads them yet.

asyncio's own bound is 256 KiB: hundreds of watches of a peer that says too much would take 100 MiB.
"""
MOST_HEAD: Final = 2**13
"""Bytes of the head of a probe."""
_ASKED: Final = re.compile(rb"([A-Z]{1,20}) (/[!->@-~]{,99})(?:\?[!-~]*)? HTTP/1\.[01]\r\n")
OK, FAILED = 0, 1
BEGUN: Final = "begun"
"""What /readyz names between two attempts."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Check = Callable[[], bool]


class Runnable(Protocol):
    """What works for a while: a ``kube.controller.Runner``, or what runs several of them."""

    name: str

    async def run(self) -> None:
        """Work for ever; cancel to stop."""
        ...

    def is_alive(self) -> bool:
        """Whether nothing in it is stuck, as a liveness probe asks: by default nothing can be."""
        return True

    async def drain(self) -> None:
        """Take no more keys and finish those that wait, before the process ends, if it has any."""
        return


class ProcessHealth:
    """What probes ask: ``ready`` when all checks hold, ``alive`` unless something is stuck."""

    def __init__(self) -> None:
        self._ready: dict[str, Check] = {}
        self._alive: dict[str, Check] = {}

    def ready_when(self, name: str, check: Check) -> None:
        """Answer /readyz with 200 only while ``check`` holds."""
        self._ready[name] = check

    def alive_when(self, name: str, check: Check) -> None:
        """Answer /livez with 200 only while ``check`` holds: for deadlocks, not for outages."""
        self._alive[name] = check

    def forget(self, name: str) -> None:
        """No longer ask what was asked under ``name``: who does not work is ready and alive."""
        self._ready.pop(name, None)
        self._alive.pop(name, None)

    def not_ready(self) -> list[str]:
        return _failing(self._ready)

    def not_alive(self) -> list[str]:
        return _failing(self._alive)


class Process:
    """One daemon, as its ``main`` sees it."""

    def __init__(self, name: str, health_port: int = HEALTH_PORT) -> None:
        self.name = name
        self.health = ProcessHealth()
        self._health_port = health_port
        self._working: list[Runnable] = []
        self.port = 0
        """Where /healthz is served, once it is."""

    @contextlib.contextmanager
    def works(self, loops: Iterable[Runnable]) -> Iterator[None]:
        """Let ``loops`` count for liveness and be drained on SIGTERM, while inside.

        10 s are for all of them to drain, before all tasks are cancelled.
        Nothing of them is kept longer: with each lease that is lost a whole cache ends, too.
        """
        working = list(loops)
        for loop in working:
            self.health.alive_when(loop.name, loop.is_alive)
            self._working.append(loop)
        try:
            yield
        finally:
            for loop in working:
                self.health.forget(loop.name)
                self._working.remove(loop)

    def settled(self) -> None:
        """Say that the caches are filled: what is there will stay."""
        memory.settle()

    async def stop(self) -> None:
        """Finish what waits, for at most 10 s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await asyncio.gather(*(loop.drain() for loop in self._working))

    @contextlib.asynccontextmanager
    async def serve(self, host: str = "") -> AsyncIterator[None]:
        """Answer /healthz, /livez and /readyz while inside, and nothing else: nobody is asked who.

        A server of aiohttp would be 7 to 8 MiB more of a daemon that needs it for nothing else.
        """
        open_: dict[asyncio.Transport, None] = {}
        listener = await asyncio.get_running_loop().create_server(
            lambda: _Probe(self._answer, open_), host or None, self._health_port
        )
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            listener.close()
            for each in list(open_):
                each.abort()

    def _answer(self, path: str) -> tuple[int, str]:
        checks = {"/readyz": self.health.not_ready}
        checks |= dict.fromkeys(("/healthz", "/livez"), self.health.not_alive)
        if path not in checks:
            return 404, "there are /healthz, /livez and /readyz\n"
        names = checks[path]()
        return (503, "not: " + ", ".join(names) + "\n") if names else (200, "ok\n")


class _Probe(asyncio.Protocol):
    """One connection of who probes, which ends with its answer, as those of kubelets do."""

    def __init__(
        self, answer: Callable[[str], tuple[int, str]], open_: dict[asyncio.Transport, None]
    ) -> None:
        self._answer, self._open, self._head = answer, open_, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        memory.has_arrived()
        self._transport = cast("asyncio.Transport", transport)
        if len(self._open) >= MOST:
            oldest = next(iter(self._open))
            del self._open[oldest]  # as it is told of its end later, when more have come
            oldest.abort()
        self._open[self._transport] = None

    def connection_lost(self, _: Exception | None) -> None:
        self._open.pop(self._transport, None)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > MOST_HEAD:
            asked = _ASKED.match(self._head)
            self._say(*([part.decode() for part in asked.groups()] if asked else ("", "")))

    def _say(self, method: str, path: str) -> None:
        is_read = method in {"GET", "HEAD"}
        status, text = self._answer(path) if is_read else (405 if method else 400, "")
        head = [
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(text.encode())}",
            "Connection: close",
            *(["Allow: GET, HEAD"] if status == 405 else []),  # noqa: PLR2004
        ]
        body = text * (method == "GET")
        self._transport.write("\r\n".join([*head, "", body]).encode())
        self._transport.close()


Main = Callable[[Process], Coroutine[Any, Any, None]]


def run(  # noqa: PLR0913  # what each __main__ passes on from its flags
    main: Main,
    *,
    name: str,
    health_port: int = HEALTH_PORT,
    json_logs: bool | None = None,
    level: int | str = logging.INFO,
    settings: Mapping[str, object] | None = None,
) -> int:
    """Run ``main`` until it returns or a signal ends it; return the exit code.

    What an API server refuses begins it again, after a pause: ``kube.process``.
    The first SIGTERM or SIGINT drains and cancels it, the second ends the process at once.
    ``settings`` are what was validated at the start; they are logged.
    """
    logs.setup(json=json_logs, level=level)
    memory.take_all_descriptors()
    gc.set_threshold(100_000, 50, 50)
    sslproto.SSLProtocol.max_size = TLS_BUFFER
    constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = TLS_UNREAD // 2**10  # type: ignore[misc]
    fields = {"program": name, "settings": dict(settings or {})}
    logger.info("starts", extra=fields)
    try:
        asyncio.run(_supervised(main, Process(name, health_port)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return OK
    except (KubeError, OSError) as error:  # no identity, or a port that is taken: no bug of ours
        logger.critical("ends", extra={"program": name, "error": str(error)})
        return FAILED
    except BaseExceptionGroup as group:
        logger.critical("ends", exc_info=group)
        return FAILED
    except Exception:
        logger.critical("ends", exc_info=True)
        return FAILED
    logger.info("ended", extra={"program": name})
    return OK


async def _supervised(main: Main, process: Process) -> None:
    stopping = asyncio.Event()
    with _signals(asyncio.get_running_loop(), stopping):
        await _until_stopped(main, process, stopping)


async def _until_stopped(main: Main, process: Process, stopping: asyncio.Event) -> None:
    async with process.serve():
        working = asyncio.ensure_future(persist(lambda: _attempt(main, process), process.name))
        waiting = asyncio.ensure_future(stopping.wait())
        memory.keep_large_apart()
        beside = asyncio.ensure_future(memory.give_back_for_ever())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                logger.info("stops", extra={"program": process.name})
                await process.stop()
        finally:
            for task in (working, waiting, beside):
                task.cancel()
            await asyncio.wait({working, waiting, beside})
        if not working.cancelled():
            working.result()


async def _attempt(main: Main, process: Process) -> None:
    process.health.forget(BEGUN)
    try:
        await main(process)
    finally:
        process.health.ready_when(BEGUN, lambda: False)


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> Iterator[None]:
    # Not loop.add_signal_handler: the second signal has to work when the loop does not.
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        loop.call_soon_threadsafe(stopping.set)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _failing(checks: Mapping[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if not check()]


# Work that needs an API server begins again when that refuses -------------------------------------

FIRST_S: Final = 1.0
MOST_S: Final = 30.0


async def persist(
    work: Callable[[], Awaitable[None]],
    name: str,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do ``work`` until it returns; what a server, or its content, refused is logged in one line.

    Each time it fails the pause doubles, from 1 s to 30 s; anybody who worked for longer than that
    has it short again.

    Raises:
        UnauthorizedError: there is no identity to ask a server with.
        Exception: whatever else ``work`` raises, which trying again would not mend.
    """
    failures = 0
    while True:
        began, refused = clock(), list[BaseException]()
        try:
            await work()
        except* (KubeError, TerminalError) as group:
            refused += _each(group)
        if not refused:
            return
        for error in refused:
            if isinstance(error, UnauthorizedError) and not error.status:
                raise error
        failures = 1 if clock() - began > MOST_S else failures + 1
        pause_s = min(FIRST_S * 2 ** (failures - 1), MOST_S)
        said = "; ".join(dict.fromkeys(map(str, refused)))
        fields = {"program": name, "error": said, "retry_in_s": pause_s}
        logger.error("begins again", extra=fields)
        await sleep(pause_s)


def _each(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    else:
        yield error


# Which version of pyliqo this is ------------------------------------------------------------------

UNKNOWN_VERSION: Final = "unknown"
_BEFORE, _AFTER = "pyliqo-", ".dist-info"


def own_version() -> str:
    """Return what the installed wheel says; "unknown" of a tree that is not installed.

    The folder's name says it: ``importlib.metadata`` takes 1 MiB of each daemon to read the same.
    """
    for folder in sys.path:
        for found in Path(folder).glob(f"{_BEFORE}*{_AFTER}"):
            return found.name.removeprefix(_BEFORE).removesuffix(_AFTER)
    return UNKNOWN_VERSION
