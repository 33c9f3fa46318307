"""A daemon starts, says how it is, ends when asked, and says with which code."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import aiohttp
import pytest

from kube import process
from kube.process import Process
from tests.kube.running import Time

PROGRAM = """
import asyncio, sys, threading
from kube import process

async def main(daemon):
    async def drain():
        print("drained", flush=True)
    daemon.before_stop(drain)
    print("up", flush=True)
    try:
        {body}
    finally:
        print("cancelled" , flush=True)

code = process.run(main, name="test", health_port=0, json_logs=True, settings={{"retry_s": 2}})
print("threads", [t.name for t in threading.enumerate()], flush=True)
sys.exit(code)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def start(body: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(PROGRAM).format(body=body)
    return subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_first_signal_drains_and_ends_it(started: list[subprocess.Popen[str]]) -> None:
    program = start("await asyncio.Event().wait()")
    started.append(program)
    assert program.stdout
    assert program.stdout.readline() == "up\n"
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=30)

    assert out.splitlines() == ["drained", "cancelled", "threads ['MainThread']"]
    assert program.returncode == 0
    assert '"retry_s":2' in err or "'retry_s': 2" in err


def test_the_second_signal_ends_it_at_once(started: list[subprocess.Popen[str]]) -> None:
    program = start("signal_me = print('stuck', flush=True)\n        while True: pass")
    started.append(program)
    assert program.stdout
    assert [program.stdout.readline() for _ in range(2)] == ["up\n", "stuck\n"]
    program.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(timeout=0.5)
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=30)

    assert program.returncode == 128 + signal.SIGTERM


def test_an_error_ends_it_with_1_and_is_logged(started: list[subprocess.Popen[str]]) -> None:
    program = start("raise ValueError('so it is')")
    started.append(program)
    _, err = program.communicate(timeout=30)

    assert program.returncode == 1
    assert "ValueError: so it is" in err


def test_an_end_of_its_own_is_0(started: list[subprocess.Popen[str]]) -> None:
    program = start("return")
    started.append(program)
    program.communicate(timeout=30)

    assert program.returncode == 0


async def ask(daemon: Process, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{daemon.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_probes_are_answered_by_their_checks() -> None:
    daemon = Process("test", 0)
    states = {"synced": False, "moving": True}
    daemon.health.ready_when("synced", lambda: states["synced"])
    daemon.health.alive_when("moving", lambda: states["moving"])
    async with daemon.serve("127.0.0.1"):
        assert await ask(daemon, "/readyz") == (503, "not: synced\n")
        assert await ask(daemon, "/livez") == await ask(daemon, "/healthz") == (200, "ok\n")
        states.update(synced=True, moving=False)
        assert await ask(daemon, "/readyz") == (200, "ok\n")
        assert await ask(daemon, "/livez") == (503, "not: moving\n")
        code, page = await ask(daemon, "/metrics")

    assert code == 200
    assert "# TYPE kube_requests_total counter" in page


def test_a_heartbeat_is_missed() -> None:
    time = Time()
    beat, is_beating = process.heartbeat(30, clock=time)
    time.now += 29
    assert is_beating()
    beat()
    time.now += 29
    assert is_beating()
    time.now += 2
    assert not is_beating()
