"""Whether an API server answers: by a probe, and by pings of its watches."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from kube import connection
from kube.reachability import DOUBT_TURNS, SILENT_TURNS, PingMonitor, Reachability
from tests.kube.running import until


async def test_a_probe_that_raises_is_followed_by_the_next() -> None:
    causes: list[Exception] = [AssertionError("a defect of a library")]
    returned = asyncio.Event()

    async def probe() -> bool:
        if causes:
            raise causes.pop()
        return True

    reach = Reachability(probe, lambda: None)
    reach.subscribe(returned.set)
    reach.doubt()

    assert await asyncio.wait_for(returned.wait(), 60) is True
    assert not reach.is_lost
    await reach.close()


# When a watch that is pinged is silent, and when it is only slow ----------------------------------

TURN_S = 0.005


class Socket:
    """Answers each ping for which ``answers`` says so, by its number; ends when told."""

    def __init__(self, answers: Callable[[int], bool]) -> None:
        self._answers = answers
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self.pings = 0

    async def ping(self) -> None:
        if self._answers(self.pings):
            self._said.put_nowait("pong")
        self.pings += 1

    def end(self) -> None:
        self._said.put_nowait("")

    async def __aiter__(self) -> AsyncIterator[str]:
        while said := await self._said.get():
            yield said


def pulse(socket: Socket, *, is_current: Callable[[], bool] = lambda: True) -> PingMonitor:
    return PingMonitor(socket.ping, socket, is_current)


async def test_one_that_answers_is_never_doubted_and_ends_by_itself() -> None:
    doubts: list[bool] = []
    socket = Socket(lambda _: True)

    async with asyncio.timeout(300):
        ends = asyncio.create_task(pulse(socket).follow(lambda: doubts.append(True), turn_s=TURN_S))
        await until(lambda: socket.pings > 10)
        socket.end()
        assert not await ends

    assert doubts == []


@pytest.mark.parametrize("answered", [0, 3])
async def test_one_that_falls_silent_is_doubted_once_and_then_given_up(answered: int) -> None:
    doubts: list[int] = []
    socket = Socket(lambda number: number < answered)

    async with asyncio.timeout(300):
        silent = pulse(socket).follow(lambda: doubts.append(socket.pings), turn_s=TURN_S)
        assert await silent

    assert DOUBT_TURNS < SILENT_TURNS
    assert len(doubts) == 1
    assert socket.pings > doubts[0], "it is still asked while it is doubted"


async def test_one_that_answers_late_is_doubted_and_not_given_up() -> None:
    """Of three pings one is answered."""
    doubts: list[bool] = []
    socket = Socket(lambda number: number % 3 == 0)

    async with asyncio.timeout(300):
        ends = asyncio.create_task(pulse(socket).follow(lambda: doubts.append(True), turn_s=TURN_S))
        await until(lambda: len(doubts) >= 5)
        socket.end()
        assert not await ends


async def test_it_ends_with_its_connection_for_another_identity() -> None:
    socket = Socket(lambda _: True)

    async with asyncio.timeout(300):
        over = pulse(socket, is_current=lambda: socket.pings < 2)
        assert not await over.follow(lambda: None, turn_s=TURN_S)


def test_the_kernel_finds_out_within_45_s_that_the_other_side_vanished() -> None:
    with socket.socket() as made:
        connection.keep_alive(made)
        idle_s, interval_s, probes = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert idle_s + interval_s * probes <= 45
