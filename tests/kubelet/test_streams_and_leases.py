"""However much streams carry, leases are renewed in time: 200 of 10 MB/s in the full size.

``PYLIQO_TEST_STREAMS=200 PYLIQO_TEST_STREAM_S=30`` is that size; by default it is a tenth of it.
"""

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from apis import keys
from apis.objects import Key, Kind, Object, named
from certs import pki
from kube import clock
from kube.controller import Runner
from kubelet.node import LeaseReconciler
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.kubelet import rigs
from tests.kubelet.rigs import DAY, Rig, now

STREAMS = size_of("PYLIQO_TEST_STREAMS", 20, 200)
SECONDS = size_of("PYLIQO_TEST_STREAM_S", 6.0, 30.0)
RATE = 10_000_000
LEASE_S = 4
LATE_S = 2.0


class Leases(FakeCluster):
    """Notes when a lease is written, by what this process has worked until then, and by the clock.

    What is judged is the first: a machine that gives it no time makes it late, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.worked: list[float] = []
        self.clock: list[float] = []

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        done = await super().patch(kind, key, changes, subresource=subresource)
        self.worked.append(time.process_time())
        self.clock.append(time.monotonic())
        return done


def latest_s(written: list[float]) -> float:
    """Return by how much the latest renewal came after its time, a quarter of the lease."""
    return max(after - before for before, after in itertools.pairwise(written)) - LEASE_S / 4


@contextlib.asynccontextmanager
async def load() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kubelet.load", str(RATE),
        cwd=Path(__file__).parents[2],
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout
    async with asyncio.timeout(SECONDS + 120):
        line = await process.stdout.readline()
    answer: dict[str, Any] = json.loads(line)
    return answer


async def hand_over_identity(process: asyncio.subprocess.Process, rig: Rig, folder: Path) -> None:
    assert process.stdin
    identity = folder / "identity.pem"
    identity.touch(mode=0o600)
    made = pki.issue(rig.ca, common_name="admin", client=True, now=now(), lifetime=DAY)
    identity.write_bytes(made.key + made.certificate)
    order = {
        "port": rig.server.port,
        "ca": rig.ca.certificate.decode(),
        "identity": str(identity),
        "streams": STREAMS,
        "bytes_per_s": RATE,
        "seconds": SECONDS,
    }
    process.stdin.write(json.dumps(order).encode() + b"\n")
    await process.stdin.drain()


async def test_streams_make_no_lease_late(tmp_path: Path) -> None:
    leases = Leases()
    where = Key(keys.NODE_LEASE_NAMESPACE, "milan")
    await leases.create(keys.LEASE, named(keys.LEASE, where, spec={}))
    runner = Runner("lease", LeaseReconciler(leases, duration_s=LEASE_S, clock=clock.now), [])
    runner.enqueue(Key("", "milan"))
    cpu_s = time.process_time()
    async with load() as process:
        port = (await line_of(process))["port"]
        async with rigs.kubelet_api(port) as rig:
            renewing = asyncio.create_task(runner.run())
            try:
                await hand_over_identity(process, rig, tmp_path)
                carried = await line_of(process)
            finally:
                renewing.cancel()
                await asyncio.wait([renewing])

    latest, by_clock = latest_s(leases.worked), latest_s(leases.clock)
    sent_gb, ours_s = carried["bytes"] / 1e9, time.process_time() - cpu_s
    print(  # noqa: T201  # what bounds it is the CPU, of both sides
        f"{STREAMS} streams, {sent_gb / SECONDS * 1000:.0f} MB/s, latest renewal "
        f"{by_clock * 1000:.0f} ms late ({latest * 1000:.0f} ms of work); "
        f"CPU-s a GB: {ours_s / sent_gb:.1f} ours, "
        f"{carried['cpu_s'] / sent_gb:.1f} of both ends"
    )
    assert carried["silent"] == 0
    assert len(leases.worked) >= 3
    assert latest < LATE_S, "streams were served while a lease was due"
