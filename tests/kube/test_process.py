"""A daemon starts, says how it is, ends when asked, and says with which code."""

import argparse
import asyncio
import contextlib
import datetime as dt
import io
import json
import logging
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apis import keys
from apis.objects import Key, Object
from certs import listener, pki
from kube import clock, errors, flags, logs, process
from kube.cluster import Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.flags import flag
from kube.informer import Informer
from kube.process import FIRST_S, MOST, MOST_S, Process, persist
from tests.fakes import FakeCluster
from tests.kube.running import Time, running
from tests.world import descriptors

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys, threading
from kube import errors, process

class Loop:
    name = "loop"
    def is_alive(self):
        return True
    async def drain(self):
        print("drained", flush=True)

async def main(daemon):
    try:
        with daemon.works([Loop()]):
            print("up", flush=True)
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
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_first_signal_drains_and_ends_it(started: list[subprocess.Popen[str]]) -> None:
    program = start("await asyncio.Event().wait()")
    started.append(program)
    assert program.stdout
    assert program.stdout.readline() == "up\n"
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=300)

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
    program.communicate(timeout=300)

    assert program.returncode == 128 + signal.SIGTERM


def test_an_error_ends_it_with_1_and_is_logged(started: list[subprocess.Popen[str]]) -> None:
    program = start("raise ValueError('so it is')")
    started.append(program)
    _, err = program.communicate(timeout=300)

    assert program.returncode == 1
    assert "ValueError: so it is" in err


def test_what_a_server_refuses_begins_it_anew(started: list[subprocess.Popen[str]]) -> None:
    body = """if not daemon.health.not_ready():
                daemon.health.ready_when("second", lambda: False)
                raise errors.KubeError("the server is not there yet")"""
    program = start(body)
    started.append(program)
    out, err = program.communicate(timeout=300)

    assert out.splitlines() == [*["up", "cancelled"] * 2, "threads ['MainThread']"]
    assert program.returncode == 0
    assert "the server is not there yet" in err
    assert "Traceback" not in err


def test_it_takes_as_many_file_descriptors_as_it_may_have(
    started: list[subprocess.Popen[str]],
) -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    try:
        program = start("import resource; print(resource.getrlimit(7), flush=True); return")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
    started.append(program)
    out, _ = program.communicate(timeout=300)

    assert str((most, most)) in out.splitlines()


UNREAD = """
            import ssl
            tls = ssl.create_default_context(cafile={file!r})
            reader, writer = await asyncio.open_connection("127.0.0.1", {port}, ssl=tls, limit=1024)
            inside = writer.transport._ssl_protocol
            while not inside._ssl_reading_paused:
                await asyncio.sleep(0.01)
            print("unread", inside._incoming.pending, flush=True)
            writer.transport.abort()
            return
"""


async def test_of_a_tls_connection_that_nobody_reads_little_is_taken_from_the_system(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Hundreds of connections to a peer that says too much wait, with asyncio's 256 KiB each."""
    now, day = clock.now(), dt.timedelta(days=1)
    authority = pki.new_ca("milan", now=now, lifetime=day)
    proof = pki.issue(
        authority, common_name="milan", server=True, ips=["127.0.0.1"], now=now, lifetime=day
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load(context, proof)
    (tmp_path / "ca").write_bytes(authority.certificate)

    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(2**16))
                await writer.drain()
                await asyncio.sleep(
                    0
                )  # which drain leaves out: the loop has to see a lost connection

    server = await asyncio.start_server(say, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        program = start(UNREAD.format(file=str(tmp_path / "ca"), port=port).strip())
        started.append(program)
        out, _ = await asyncio.to_thread(program.communicate, timeout=300)

    unread = int(out.split("unread ")[1].split()[0])
    assert process.TLS_UNREAD <= unread <= process.TLS_UNREAD + process.TLS_BUFFER


def test_an_end_of_its_own_is_0(started: list[subprocess.Popen[str]]) -> None:
    program = start("return")
    started.append(program)
    program.communicate(timeout=300)

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
        assert (await ask(daemon, "/metrics"))[0] == 404  # nobody is asked who he is here


async def test_a_term_that_ends_leaves_nothing_behind() -> None:
    """Each lease that is lost ends a term: its runners, and the caches they hold, go with it."""
    daemon = Process("test")
    last: list[weakref.ref[Any]] = []
    for _ in range(3):
        live = FakeCluster()
        informer = Informer(Selection(keys.CONFIG_MAP, Object))
        runner = Runner("maps", Idle(), [WatchSource(informer)])
        with daemon.works([runner]):
            async with running(informer.run(live)), running(runner.run()):
                await informer.synced.wait()
                daemon.settled()
                assert daemon.health.not_alive() == []
        gone, last = last, [weakref.ref(each) for each in (runner, informer)]
        assert [each() for each in gone] == [None] * len(gone)
        del runner, informer

    await daemon.stop()  # drains nobody


class Idle:
    """Does nothing."""

    async def reconcile(self, key: Key) -> float | None:
        return None


async def test_silent_connections_keep_no_probe_from_its_answer() -> None:
    before = descriptors()
    daemon = Process("tests", 0)
    async with daemon.serve("127.0.0.1"), asyncio.timeout(60):
        silent = [await asyncio.open_connection("127.0.0.1", daemon.port) for _ in range(MOST + 40)]
        assert await silent[0][0].read() == b"", "the oldest gives way"
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await reader.read(), "answered, and closed"
        ours = descriptors() - before - len(silent)
        assert ours < MOST + 10
        for _, each in (*silent, (reader, writer)):
            each.transport.abort()


# A refusal of a server is told and tried again; what is a bug is not ------------------------------

REFUSED = errors.refusal(503, {"message": "etcd is away"})
UNSET = TerminalError("NoClusterID", "configmap liqo/liqo has no ID: set it")


class Work:
    """Fails as it is told to, each time after some seconds, and returns then."""

    def __init__(self, time: Time, *failures: tuple[float, Exception]) -> None:
        self.time, self.failures = time, list(failures)
        self.begun = 0

    async def __call__(self) -> None:
        self.begun += 1
        if self.failures:
            lasted_s, error = self.failures.pop(0)
            self.time.now += lasted_s
            raise error


async def test_it_begins_anew_until_it_is_let_and_tells_each_time_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    both = ExceptionGroup("tasks", [REFUSED, ExceptionGroup("more", [UNSET])])
    work = Work(time, (0, REFUSED), (0, UNSET), (0, both), (MOST_S + 1, REFUSED))

    with caplog.at_level(logging.ERROR):
        await persist(work, "test", sleep=time.sleep, clock=time)

    assert work.begun == 5
    assert time.slept == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, FIRST_S]
    told = [str(vars(record)["error"]) for record in caplog.records]
    assert told == [str(REFUSED), str(UNSET), f"{REFUSED}; {UNSET}", str(REFUSED)]
    assert [record.exc_info for record in caplog.records] == [None] * 4


async def test_the_pause_has_a_bound() -> None:
    time = Time()
    work = Work(time, *([(0.0, REFUSED)] * 8))

    await persist(work, "test", sleep=time.sleep, clock=time)

    assert time.slept[-2:] == [MOST_S, MOST_S]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        ExceptionGroup("tasks", [REFUSED, ValueError("a bug")]),
        errors.UnauthorizedError("kubeconfig not-there: no such file"),
    ],
)
async def test_what_is_a_bug_or_lacks_an_identity_is_not_tried_again(error: Exception) -> None:
    time = Time()
    work = Work(time, (0, error))

    with pytest.raises((ValueError, ExceptionGroup, errors.UnauthorizedError)):
        await persist(work, "test", sleep=time.sleep, clock=time)
    assert work.begun == 1


# A flag is one field of a process's options.


@dataclass(frozen=True, kw_only=True)
class Options:
    """As a process has them."""

    name: str = flag("who it is", "--name", required=True)
    place: str = flag("where", "--place", env="PLACE", default="here")
    count: int = flag("how many (%(default)s)", "--how-many", "-n", type=flags.count, default=2)
    networks: tuple[str, ...] = flag("several", "--network", action="append")
    keys: tuple[str, ...] = flag("several", "--key", action="extend", type=flags.names)
    is_on: bool = flag("a switch", "--on", **flags.SWITCH, default=False)
    started: str = "later"


def parse(*argv: str, **environment: str) -> Options:
    parser = argparse.ArgumentParser()
    flags.add(parser, Options, environment)
    return Options(**flags.taken(Options, vars(parser.parse_args(argv))))


def test_fields_have_what_flags_say_and_else_their_defaults() -> None:
    assert (
        parse("--name=a")
        == Options(name="a")
        == Options(name="a", place="here", count=2, networks=(), keys=(), is_on=False)
    )
    several = ("--network=x", "--network=y", "--key=a,b", "--key=c")
    assert parse("--name=a", "-n3", "--on", *several) == Options(
        name="a", count=3, networks=("x", "y"), keys=("a", "b", "c"), is_on=True
    )


NODE = (
    "--home-cluster-id=rome",
    "--foreign-cluster-id=milan",
    "--foreign-kubeconfig-secret-name=x",
)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("certs",), "kubeconfig /none: there is no such file"),
        (("controllers",), "kubeconfig /none: there is no such file"),
        (("controllers.metricagent",), "kubeconfig /none: there is no such file"),
        (("kubelet", *NODE), "kubeconfig /none: there is no such file"),
        (("reflector", *NODE), "kubeconfig /none: there is no such file"),
        (("webhook", "--tls-dir=/none"), "--tls-dir /none: it has no file tls.crt"),
    ],
)
def test_a_daemon_that_cannot_start_says_why_in_one_line(command: Sequence[str], said: str) -> None:
    argv = [sys.executable, "-m", *command, "--kubeconfig=/none", "--health-port=0"]
    if command[0] == "webhook":
        argv.pop()
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode in {1, 2}
    last = done.stderr.splitlines()[-1]
    assert said in last
    assert "Traceback" not in done.stdout + done.stderr


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        source = textwrap.dedent(PROGRAM).format(body="pass").replace("port=0", f"port={port}")
        program = [sys.executable, "-c", source]
        done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "daemon",
    ["certs", "controllers", "controllers.metricagent", "kubelet", "reflector", "webhook"],
)
def test_the_help_of_each_daemon_has_a_text_for_each_flag_and_defaults_as_a_user_writes_them(
    daemon: str,
) -> None:
    command = [sys.executable, "-m", daemon, "--help"]
    environment = {"PATH": "", "COLUMNS": "1000"}
    shown = subprocess.check_output(command, text=True, env=environment, cwd=ROOT)

    usage, _, listed = shown.partition("options:\n")
    assert usage.startswith(f"usage: python3 -m {daemon} ")
    entries = re.split(r"\n  (?=-)", listed.rstrip())
    assert [entry for entry in entries if not re.search(r"\s{2,}\w", entry)] == []
    assert [entry for entry in entries if entry.count("(default") > 1] == []
    assert re.findall(r"default:? (?:True|False|\w+Policy\.\w+)", listed) == []


def test_the_environment_comes_before_the_default_and_after_the_flag() -> None:
    assert parse("--name=a", PLACE="there").place == "there"
    assert parse("--name=a", "--place=elsewhere", PLACE="there").place == "elsewhere"


@pytest.mark.parametrize("argv", [[], ["--name=a", "--how-many=0"], ["--name=a", "--on=perhaps"]])
def test_nonsense_ends_the_process_and_names_the_flag(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*argv)
    assert ended.value.code == 2
    assert "--name" in capsys.readouterr().err


# A log line is one line, says what was worked on, and survives whatever is logged.


def record(message: str = "created pod", **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "name": "kube.x", "levelname": "INFO"})
    vars(made).update(extra)
    return made


def test_json_lines_say_who_when_and_what() -> None:
    with logs.bound(controller="pods"):
        line = json.loads(logs.JsonFormatter().format(record(pod=Key("ns", "web"), count=3)))

    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "kube.x",
        "message": "created pod",
        "controller": "pods",
        "pod": "ns/web",
        "count": 3,
    }


NASTY = [
    # Ends of lines, as any reader may see them.
    "a\nb", "a\rb", "a\r\nb", "\n", "a\n", "\nb", "a\n\nb", "a\x0bb", "a\x0cb", "a\x1cb", "a\x1db",
    "a\x1eb", "a\x85b", "a\u2028b", "a\u2029b", "a\x00b", "a\tb", "a\x08b", "a\x7fb", "a\x9bb",
    # What a terminal obeys.
    "\x1b[31m", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x07", "\x9b31m", "\x07", "\x1bc",
    # What turns or hides text, or is none.
    "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800", "\udfff", "\U000e0001", "\ufffe",
    # A second line or field of ours.
    '"}', "\r\n{}", '", "level": "ERROR', '\n{"level": "ERROR", "message": "x"}', "level=ERROR",
    "\\", "\\n", '\\"', "a=b c=d", "'", "`",
    # What formatters, templates, shells and databases would read.
    "%s %d %(x)s", "{0} {x} {self}", "{{7*7}}", "${jndi:ldap://x}", "$(id)", "`id`", "; rm -rf /",
    "' OR 1=1 --", "<script>", "x" * 2**18,
]  # fmt: skip


def test_there_are_fifty_of_them() -> None:
    assert len(set(NASTY)) >= 50


@pytest.mark.parametrize("nasty", NASTY, ids=lambda nasty: ascii(nasty)[:40])
def test_no_value_breaks_the_line(nasty: str) -> None:
    for formatter in (logs.JsonFormatter(), logs.TextFormatter()):
        line = formatter.format(record(nasty, field=nasty))
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
        line.encode()


def test_what_is_bound_inside_ends_outside() -> None:
    with logs.bound(a=1):
        with logs.bound(b=2):
            assert logs.fields_of(record()) == {"a": 1, "b": 2}
        assert logs.fields_of(record()) == {"a": 1}
    assert logs.fields_of(record()) == {}


def test_an_exception_comes_with_the_line() -> None:
    error = ValueError("so it is")
    failed = record(exc_info=(ValueError, error, None))

    assert "ValueError: so it is" in json.loads(logs.JsonFormatter().format(failed))["exception"]
    assert logs.TextFormatter().format(failed).endswith("ValueError: so it is")


def test_setup_replaces_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    try:
        logs.setup(json=None, level="INFO")
        logs.setup(json=None, level="INFO")
        logging.getLogger("x").info("hello", extra={"pod": "ns/web"})
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    assert json.loads(stderr.getvalue())["pod"] == "ns/web"
