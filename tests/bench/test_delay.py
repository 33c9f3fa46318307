"""Packets between two clusters come later, all of them and in their order; others do not."""

import asyncio
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from bench import children, delay
from sandbox import network
from sandbox.allocation import SLOTS, Slot

ROUND_TRIP_MS = 120
FEW = 5
PIECES = 20
PIECE = 2**20
_BEYOND = 22
"""So many numbers of slots are left above those that clusters get."""
ECHO = """
import socket, sys
listening = socket.create_server((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
"""
ASK = """
import hashlib, socket, sys, threading, time
pieces, size = int(sys.argv[2]), int(sys.argv[3])
connection = socket.create_connection((sys.argv[1], 7000))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
quickest = 60.0
for _ in range(3):
    began = time.monotonic()
    connection.sendall(b"?")
    connection.recv(1)
    quickest = min(quickest, time.monotonic() - began)
sent = b"".join(number.to_bytes(4, "big") * (size // 4) for number in range(pieces))
threading.Thread(target=connection.sendall, args=(sent,)).start()
got = bytearray()
while len(got) < len(sent):
    got += connection.recv(2**20)
print(quickest, got == sent, flush=True)
"""


@pytest.fixture
def slots() -> Iterator[tuple[Slot, Slot]]:
    number, id_ = SLOTS + 2 * secrets.randbelow(_BEYOND // 2), secrets.token_hex(4)
    made = (Slot(id_, "/", "one", number), Slot(id_, "/", "other", number + 1))
    for slot in made:
        network.create(slot)
    yield made
    for slot in made:
        network.remove(slot)


async def asked(slots: tuple[Slot, Slot], pieces: int) -> tuple[float, bool]:
    """Return the quickest round trip in seconds, and whether many bytes came back as they went."""
    one, other = slots
    echo = network.inside(other, [sys.executable, "-c", ECHO, other.address])
    words = [other.address, str(pieces), str(PIECE)]
    async with children.running(*echo) as echoing:
        await children.line(echoing)
        ask = network.inside(one, [sys.executable, "-c", ASK, *words])
        async with children.running(*ask) as asking:
            quickest, is_same = (await children.line(asking)).split()
    return float(quickest), is_same == "True"


@pytest.mark.cluster
async def test_a_round_trip_takes_so_much_longer_and_nothing_is_lost(
    slots: tuple[Slot, Slot],
) -> None:
    near_s, _ = await asked(slots, 1)
    async with delay.between(*slots, ROUND_TRIP_MS) as lost:
        far_s, is_same = await asked(slots, PIECES)
        missing = lost()
    again_s, _ = await asked(slots, 1)

    assert far_s >= ROUND_TRIP_MS / 1000
    assert is_same
    assert missing == 0
    assert max(near_s, again_s) < far_s


@pytest.mark.cluster
async def test_a_run_that_was_killed_leaves_no_delay_and_no_rules_behind(
    slots: tuple[Slot, Slot],
) -> None:
    one, other = slots
    rules = f"iif {one.link} "
    code = (
        "import asyncio, sys; from bench import delay; from sandbox.allocation import Slot\n"
        "async def main():\n"
        f"    async with delay.between({one!r}, {other!r}, 5000):\n"
        "        print('far', flush=True); await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    async with children.running(sys.executable, "-c", code) as run:
        await children.line(run)
        run.kill()
        await run.wait()

    async with delay.between(*slots, 0):
        pass

    assert rules not in await _told("ip", "rule")


async def test_packets_keep_their_order_and_none_comes_early() -> None:
    """A pair of sockets stands for the device."""
    ours, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    device.settimeout(0)
    with ours, device:
        passing = threading.Thread(target=delay.pass_on, args=(device.fileno(), 0.05))
        passing.start()
        began = time.monotonic()
        for packet in range(FEW):
            ours.send(bytes([packet]))
        came = [await asyncio.to_thread(ours.recv, 10) for _ in range(FEW)]
        ours.shutdown(socket.SHUT_WR)
        await asyncio.to_thread(passing.join)

    assert time.monotonic() - began >= 0.05
    assert came == [bytes([packet]) for packet in range(FEW)]


async def _told(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()
