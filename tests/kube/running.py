"""What tests of loops share: run something meanwhile, wait for what must come."""

import asyncio
import contextlib
import random
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

T = TypeVar("T")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Answer every request of up to 64 MiB as ``answer`` says; yield the URL."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def whole_session(**rest: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of which no socket is open when it is over.

    Closing one returns earlier where requests were cancelled, and then another test is blamed.
    """
    sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def opened(address: Any) -> socket.socket:
        made = socket.socket(*address[:3])
        sockets.add(made)
        return made

    # No limit: hundreds of watches last at once.
    connector = aiohttp.TCPConnector(socket_factory=opened, limit=0)
    async with aiohttp.ClientSession(connector=connector, **rest) as session:
        yield session
    await until(lambda: all(each.fileno() < 0 for each in sockets))


@contextlib.asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run ``coroutines`` while inside, then cancel them; what they raised is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def until(holds: Callable[[], object], within_s: float = 300) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # a test looks at states that announce nothing
            await asyncio.sleep(0.001)


async def until_so(
    holds: Callable[[], Awaitable[object]], what: str = "", within_s: float = 300
) -> None:
    """Wait until ``holds``, which asks a cluster or a process; ``what`` says what for."""
    try:
        async with asyncio.timeout(within_s):
            while not await holds():  # noqa: ASYNC110  # the condition is in another process
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise AssertionError(f"not within {within_s:g} s: {what or holds}") from error


async def some_at_once(work: Iterable[Awaitable[T]], limit: int = 16) -> list[T]:
    """Do all ``work``, so much of it at a time that no request waits long for a connection."""
    turn = asyncio.Semaphore(limit)

    async def one(awaited: Awaitable[T]) -> T:
        async with turn:
            return await awaited

    return await asyncio.gather(*map(one, work))


async def forever() -> None:
    await asyncio.Event().wait()


async def turns(count: int = 50) -> None:
    """Let everybody else go on for a while."""
    for _ in range(count):
        await asyncio.sleep(0)


def dice(seed: int) -> random.Random:
    """Return chance that is the same in every run."""
    return random.Random(seed)  # noqa: S311  # nothing here is a secret


class Gate:
    """A port that leads to another, until it is shut: then all that went through it breaks."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._through: set[asyncio.Task[None]] = set()
        self._is_open = False
        self._passing, self._answering = asyncio.Event(), asyncio.Event()
        self._pause_s: Callable[[int], float] | None = None
        self.let_go()
        self.port = 0
        self.passed = 0
        """How many pieces went through, of whatever size."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        """Let connections through."""
        self._is_open = True
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Break every connection and refuse new ones."""
        self._is_open = False
        if self._server:
            # asyncio loses a socket that it accepts while it closes: first it accepts no more.
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await turns()
            self._server.close()
        for task in self._through:
            task.cancel()
        await asyncio.gather(*self._through, return_exceptions=True)
        await turns()

    def lead_to(self, port: int) -> None:
        """Lead new connections to another port from now on."""
        self._to = port

    def hold(self) -> None:
        """Let no byte through any more, and break nothing: as if all packets were dropped."""
        self._passing.clear()
        self._answering.clear()

    def hold_answers(self) -> None:
        """Let requests through, and nothing that comes back."""
        self._answering.clear()

    def slow(self, latency_s: Callable[[], float], bytes_per_s: float) -> None:
        """Let every piece take its time from now on, each way."""
        self._pause_s = lambda size: latency_s() + size / bytes_per_s

    def let_go(self) -> None:
        """Let bytes through again, also those that waited."""
        self._passing.set()
        self._answering.set()

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:  # it was accepted when the gate was shut
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._through.add(task)
        task.add_done_callback(self._through.discard)
        # One that is cancelled before its first step has no turn to do that itself.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        with contextlib.suppress(OSError):
            try:
                onward, back = await asyncio.open_connection("127.0.0.1", self._to)
                ends.append(back)
                await asyncio.gather(
                    self._pump(reader, back, self._passing),
                    self._pump(onward, writer, self._answering),
                )
            finally:
                for end in ends:
                    end.transport.abort()
                await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            await passing.wait()
            if self._pause_s is not None:
                await asyncio.sleep(self._pause_s(len(data)))
            self.passed += 1
            writer.write(data)
            await writer.drain()
        writer.close()


class Time:
    """A clock that moves when told to, or when somebody sleeps; it keeps how long they slept."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
