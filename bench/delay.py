"""Puts a distance between the clusters: each packet from one to the other comes some time later.

``python -m bench.delay MS`` makes a device of the host's, says its name, and gives each packet that
goes into it back MS later, until it is ended. Packets wait side by side and keep their order, so
distance is all that is added: no bound on how much is on its way. (netem does the same where a
kernel has it; that of many virtual machines has not.)
"""

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import children
from sandbox.allocation import Slot

PRIORITY: Final = 900
"""Of the rules that lead packets into the device: before the routes of the host."""
_FIRST_TABLE: Final = 8900
_IP: Final = "ip"
_DEVICES: Final = "/dev/net/tun"
_NAME: Final = b"pldelay%d"
_SET_FLAGS, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_FLAGS: Final = 0x1 | 0x1000 | 0x4000  # packets of IP, nothing before them but how they are cut
_OFFLOAD: Final = 0x1 | 0x2 | 0x4  # they may come uncut, with a checksum that is still to be made
_QUEUE: Final = 100_000
_PACKET: Final = 2**17
_BATCH: Final = 256
_NICE: Final = -10
_LOST: Final = ("tx_dropped", "tx_errors", "rx_dropped", "rx_errors")
_SYSTEM: Final = Path("/sys/class/net")


@contextlib.asynccontextmanager
async def between(one: Slot, other: Slot, round_trip_ms: float) -> AsyncIterator[Callable[[], int]]:
    """Add ``round_trip_ms`` to each round trip between two clusters, half of it each way.

    Yields who tells how many packets were lost on the way, which none should be. If the run is
    killed its rules lead nowhere, and so packets go as before.
    """
    table = str(_FIRST_TABLE + one.number)
    rules = [*_rules(one, other, table), *_rules(other, one, table)]
    _forget(rules)
    command = (sys.executable, "-m", "bench.delay", str(round_trip_ms / 2))
    async with children.running(*command) as process:
        device = await children.line(process)
        with contextlib.ExitStack() as undo:
            undo.callback(_forget, rules)
            _ip("route", "replace", "default", "dev", device, "table", table)
            for rule in rules:
                _ip("rule", "add", *rule)
            yield lambda: _lost(device)


def pass_on(device: int, delay_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Give back what comes out of ``device``, ``delay_s`` after it came, while there is one."""
    waiting: deque[tuple[float, bytes]] = deque()
    while not waiting or waiting[-1][1]:
        patience_s = max(0.0, waiting[0][0] - clock()) if waiting else None
        select.select([device], [], [], patience_s)
        waiting.extend((clock() + delay_s, packet) for packet in _packets(device))
        while waiting and waiting[0][0] <= clock():
            with contextlib.suppress(OSError):  # the device counts what it does not take
                os.write(device, waiting.popleft()[1])


def _packets(device: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        for _ in range(_BATCH):
            yield os.read(device, _PACKET)


def _rules(sender: Slot, receiver: Slot, table: str) -> Iterator[Sequence[str]]:
    for where in (f"{receiver.address}/32", receiver.pod_cidr):
        yield "iif", sender.link, "to", where, "lookup", table, "priority", str(PRIORITY)


def _forget(rules: Sequence[Sequence[str]]) -> None:
    for rule in rules:
        while not _try("rule", "del", *rule):
            pass


def _lost(device: str) -> int:
    counts = (_SYSTEM / device / "statistics" / name for name in _LOST)
    return sum(int(file.read_text()) for file in counts)


def _opened() -> tuple[int, str]:
    """Return a new device, and what it is called."""
    device = os.open(_DEVICES, os.O_RDWR | os.O_NONBLOCK)
    made = fcntl.ioctl(device, _SET_FLAGS, struct.pack("16sH22x", _NAME, _FLAGS))
    fcntl.ioctl(device, _SET_OFFLOAD, _OFFLOAD)
    name = made[:16].rstrip(b"\0").decode()
    _ip("link", "set", name, "up", "txqueuelen", str(_QUEUE))
    # What comes out of it comes from the clusters, to which the host knows other ways.
    Path("/proc/sys/net/ipv4/conf", name, "rp_filter").write_text("2")
    return device, name


def _ip(*words: str) -> None:
    done = subprocess.run([_IP, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _try(*words: str) -> int:
    return subprocess.run([_IP, *words], capture_output=True, check=False).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Delay until SIGTERM."""
    (delay_ms,) = sys.argv[1:] if argv is None else argv
    device, name = _opened()
    os.nice(_NICE)  # it does little, and what it does late is a delay that nobody asked for
    print(name, flush=True)  # told to the parent
    pass_on(device, float(delay_ms) / 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
