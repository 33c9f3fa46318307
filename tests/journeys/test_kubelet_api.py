"""kubectl reaches into offloaded pods as into any other, over WebSocket and over SPDY."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import secrets
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import aiohttp
import pytest

from apis import keys
from apis.objects import Key, Object
from controllers.offloading.virtualnode.forge import deployment
from kube.client import ClusterClient
from sandbox import pair
from tests import scraping
from tests.conftest import size_of
from tests.journeys import vk, world
from tests.journeys.kubectl import SPDY, Kubectl
from tests.world import is_ready

pytestmark = pytest.mark.journey

MAIN = ("-c", "main")
KEPT = "echo open; exec sleep 1000"
KEPT_OPEN = 3
FEW = 4
"""Connections to the provider that are kept for the next request."""
STEP = size_of("PYLIQO_TEST_EXIT_STEP", 51, 1)
AT_ONCE = size_of("PYLIQO_TEST_EXECS", 10, 200)
IDLE_S = size_of("PYLIQO_TEST_IDLE_S", 3.0, 600.0)
PROCESSES = 8
"""So many of kubectl at once, each of which takes memory and CPU of its own."""
WEBSOCKET: Mapping[str, str] = {}
SCRAPER = """
import ssl, sys, urllib.request
page = urllib.request.Request("https://127.0.0.1:8082/metrics")
page.add_header("Authorization", "Bearer " + sys.stdin.read())
print(urllib.request.urlopen(page, context=ssl._create_unverified_context()).read().decode())
"""
SIZES = ("sh", "-c", "trap 'exit 0' TERM; while :; do stty size; sleep 0.2; done")
SCRIPT = (
    "echo first; echo second; echo hello > /tmp/index.html; "
    "httpd -p 8080 -h /tmp; " + world.sleeping()
)


@pytest.fixture
async def kubectl(both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]) -> Kubectl:
    """Return kubectl towards a namespace with the running pod ``web``."""
    await both.offload(namespace)
    await both.rome.create(keys.POD, web(namespace, both.image))
    await world.until_one(both.rome, keys.POD, Key(namespace, "web"), is_ready)
    await vk.until_served(both)
    return Kubectl(kubeconfigs["rome"], namespace)


def web(namespace: str, image: str) -> Object:
    """Return a pod with a web server, and a second container that waits for what it is told."""
    made = world.pod(namespace, "web", image, SCRIPT)
    side = {**made["spec"]["containers"][0], "name": "side", "stdin": True}
    side["command"] = ["sh", "-c", "while read line; do echo heard $line; done"]
    made["spec"]["containers"].append(side)
    return made


def twice(namespace: str, image: str) -> Object:
    """Return a pod of which one container fails once, and the other has a terminal."""
    script = "test -f /kept/it || { echo one; touch /kept/it; exit 3; }; echo two; "
    made = world.pod(
        namespace,
        "twice",
        image,
        script + world.sleeping(),
        volumes=[{"name": "kept", "emptyDir": {}}],
    )
    (main,) = made["spec"]["containers"]
    terminal = {**main, "name": "terminal", "command": [*SIZES], "stdin": True, "tty": True}
    main["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    made["spec"]["containers"].append(terminal)
    return made


def is_in_second_life(pod: Object) -> bool:
    containers = pod.get("status", {}).get("containerStatuses") or []
    restarts = {one["name"]: one["restartCount"] for one in containers}
    return is_ready(pod) and restarts == {"main": 1, "terminal": 0}


def over(kubectl: Kubectl, variables: Mapping[str, str]) -> Kubectl:
    return Kubectl(kubectl.kubeconfig, kubectl.namespace, variables)


async def test_kubectl_reaches_into_an_offloaded_pod(
    both: world.Pair, kubectl: Kubectl, tmp_path: Path
) -> None:
    await both.rome.create(keys.POD, twice(kubectl.namespace, both.image))
    await world.until_one(both.rome, keys.POD, Key(kubectl.namespace, "twice"), is_in_second_life)
    await logs_of_both_lives_are_read(kubectl)
    for protocol in (WEBSOCKET, SPDY):
        one = over(kubectl, protocol)
        await exit_codes_arrive(one)
        await bytes_pass_unchanged(one)
        await the_end_of_the_input_ends_nothing_else(one)
        await a_debugger_that_asks_for_too_much_ends(one, both.image)
        await a_debugger_is_talked_to(one, both.image)
        await a_terminal_has_the_size_of_ours(one, "exec", "-it", "web", *MAIN, "--", *SIZES)
        await a_terminal_has_the_size_of_ours(one, "attach", "-it", "twice", "-c", "terminal")
        await ports_are_forwarded(one)
        await files_are_copied(one, tmp_path)
        await a_process_is_attached_to(one)
    await logs_are_read(kubectl)


Streams: TypeAlias = Callable[[], Awaitable[int]]


@pytest.fixture
async def streams(both: world.Pair, kubeconfigs: Mapping[str, Path]) -> AsyncIterator[Streams]:
    """Serve the metrics of virtual kubelets meanwhile; yield what counts open streams."""
    await vk.serve_metrics(both, kubeconfigs["rome"], is_enabled=True)
    token = await scraping.reader(both.rome)

    async def read() -> int:
        key = await vk.pod(both)
        return await streams_open(Kubectl(kubeconfigs["rome"], key.namespace), key.name, token)

    yield read
    await vk.serve_metrics(both, kubeconfigs["rome"], is_enabled=False)
    await world.remove(both.rome, keys.CLUSTER_ROLE_BINDING, Key("", keys.METRICS_READER_ROLE))
    await world.remove(both.rome, keys.NAMESPACE, Key("", scraping.ACCOUNTS))


async def test_many_streams_end_and_leave_nothing_behind(
    both: world.Pair, streams: Streams, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    await kubectl.out("exec", "web", *MAIN, "--", "true")
    before = pair.files_open("kubelet")

    await every_exit_code_arrives(kubectl)
    waits = [await until_as_before(streams, before)]

    told = await many_execs_cost_what_they_cost_there(both, kubectl.namespace)
    waits.append(await until_as_before(streams, before))

    for protocol in (WEBSOCKET, SPDY):
        one = over(kubectl, protocol)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(KEPT_OPEN):
                await kept_open(stack, one, "exec", "web", *MAIN, "--", "sh", "-c", KEPT)
                await kept_open(stack, one, "logs", "-f", "web", *MAIN)
                await kept_open(stack, one, "port-forward", "pod/web", ":8080")
            assert await streams() == 2 * KEPT_OPEN, "all but the logs"
        waits.append(await until_as_before(streams, before))

    await a_silent_log_is_followed(kubectl)
    waits.append(await until_as_before(streams, before))

    async with contextlib.AsyncExitStack() as stack:
        ends = [
            await kept_open(
                stack, over(kubectl, protocol), "exec", "web", *MAIN, "--", "sh", "-c", KEPT
            )
            for protocol in (WEBSOCKET, SPDY)
        ]
        await world.remove(both.milan, keys.POD, Key(both.twin(kubectl.namespace), "web"))
        async with asyncio.timeout(300):
            assert 0 not in [await process.wait() for process in ends]
    waits.append(await until_as_before(streams, before))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{AT_ONCE} commands at once: {told}\n"
            f"until no stream was open, and no file more: {'; '.join(waits)}\n"
        )


async def every_exit_code_arrives(kubectl: Kubectl) -> None:
    """Ask for every ``STEP``-th exit code, by both protocols in turn."""
    gate = asyncio.Semaphore(PROCESSES)

    async def ended(code: int) -> int:
        async with gate:
            one = over(kubectl, SPDY if code % 2 else WEBSOCKET)
            return (await one.run("exec", "web", *MAIN, "--", "sh", "-c", f"exit {code}")).code

    codes = range(0, 256, STEP)
    assert await asyncio.gather(*map(ended, codes)) == list(codes)


async def many_execs_cost_what_they_cost_there(both: world.Pair, namespace: str) -> str:
    """Run so many commands at once through us, and straight at the provider: each in a new pod.

    How long it took is told and not judged: a node starts a few commands a second.
    """
    ends = {
        "through": (both.rome, Key(namespace, "through")),
        "straight": (both.milan, Key(both.twin(namespace), "straight")),
    }
    for name in ends:
        await both.rome.create(keys.POD, world.pod(namespace, name, both.image))
    told = []
    for name, (cluster, key) in ends.items():
        await world.until_one(both.rome, keys.POD, Key(namespace, name), is_ready)
        began = monotonic()
        async with asyncio.timeout(world.PATIENCE_S + 2 * AT_ONCE):
            try:
                open_s = await all_at_once(cluster, key) - began
            except* aiohttp.WSServerHandshakeError as refused:
                raise AssertionError(f"{name}: {await refusals(both)}") from refused
        told.append(f"{name} open after {open_s:.1f} s, over after {monotonic() - began:.1f} s")
    return "; ".join(told)


async def all_at_once(cluster: ClusterClient, pod: Key) -> float:
    """Run ``AT_ONCE`` commands, of which none ends before all run; return when all did."""
    runs = asyncio.Semaphore(0)
    script = "echo; while ! test -e /tmp/go; do sleep 1; done; exit"
    async with asyncio.TaskGroup() as tasks:
        commands = [
            tasks.create_task(code_of(cluster, pod, f"{script} {code}", runs))
            for code in range(AT_ONCE)
        ]
        for _ in commands:
            await runs.acquire()
        open_at = monotonic()
        assert await code_of(cluster, pod, "echo > /tmp/go", runs) == 0
    assert [command.result() for command in commands] == list(range(AT_ONCE))
    return open_at


async def code_of(cluster: ClusterClient, pod: Key, script: str, runs: asyncio.Semaphore) -> int:
    """Return the exit code of ``script``; tells ``runs`` at its first output.

    It is asked for by WebSocket as clients of old do: a GET.
    """
    access = cluster.access
    url = f"{access.server}/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/exec"
    words = ("sh", "-c", script)
    query = [("container", "main"), ("stdout", "true"), *(("command", word) for word in words)]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            url, params=query, ssl=access.tls or True, protocols=["v4.channel.k8s.io"]
        ) as stream,
    ):
        async for message in stream:
            channel, said = message.data[:1], message.data[1:]
            if channel == b"\x01" and said:
                runs.release()
            if channel == b"\x03":
                status = json.loads(said)
                causes = (status.get("details") or {}).get("causes") or [{"message": "0"}]
                return int(causes[0]["message"])
    raise AssertionError("the stream ended without a status")


async def kept_open(
    stack: contextlib.AsyncExitStack, kubectl: Kubectl, *args: str
) -> asyncio.subprocess.Process:
    """Start kubectl and wait for its first line; it is killed when the stack ends."""
    process = await stack.enter_async_context(kubectl.started(*args))
    assert process.stdout
    async with asyncio.timeout(300):
        assert await process.stdout.readline()
    return process


async def until_as_before(streams: Streams, files: int) -> str:
    """Wait until no stream is open, and the virtual kubelet has no more files open than before.

    But for a few connections that it keeps for the next request. Returns how long either took.
    """
    began = monotonic()
    async with asyncio.timeout(300):
        while await streams():  # noqa: ASYNC110  # another process is asked
            await asyncio.sleep(0.5)
        ended_s = monotonic() - began
        while pair.files_open("kubelet") > files + FEW:  # noqa: ASYNC110  # and its files counted
            await asyncio.sleep(0.5)
    return f"{ended_s:.1f} and {monotonic() - began:.1f} s"


async def refusals(both: world.Pair) -> str:
    """Return what the virtual kubelet said of streams that it refused, "" if it refused none."""
    key = await vk.pod(both)
    path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log?container={deployment.KUBELET}"
    lines = (await both.rome.get_text(path)).splitlines()
    return "\n".join(line for line in lines if "Refused a stream" in line)


async def streams_open(own: Kubectl, pod: str, token: str) -> int:
    """Return how many streams the virtual kubelet in ``pod`` says that it carries."""
    kept = ("exec", "-i", pod, "-c", deployment.KUBELET, "--", "python3", "-c", SCRAPER)
    told = (await own.out(*kept, stdin=token.encode())).decode()
    return sum(
        int(float(line.split()[-1]))
        for line in told.splitlines()
        if line.startswith("pyliqo_kubelet_streams{")
    )


async def a_silent_log_is_followed(kubectl: Kubectl) -> None:
    word = secrets.token_hex(4)
    async with kubectl.started("logs", "-f", "web", "-c", "side", "--tail=0") as follows:
        await asyncio.sleep(IDLE_S)  # what is tested: that nothing happens, and it goes on
        async with kubectl.started(
            "attach", "-i", "web", "-c", "side", stdin=asyncio.subprocess.PIPE
        ) as process:
            assert process.stdin
            process.stdin.write(f"{word}\n".encode())
            await process.stdin.drain()
            assert follows.stdout
            async with asyncio.timeout(300):
                await follows.stdout.readuntil(f"heard {word}".encode())


async def exit_codes_arrive(kubectl: Kubectl) -> None:
    codes = (0, 1, 42, 137, 255)
    done = await asyncio.gather(
        *(kubectl.run("exec", "web", "--", "sh", "-c", f"exit {code}") for code in codes)
    )
    assert tuple(one.code for one in done) == codes
    said = await kubectl.run("exec", "web", "-c", "main", "--", "sh", "-c", "echo a; echo b >&2")
    assert (said.out, said.err) == (b"a\n", "b\n")
    missing = await kubectl.run("exec", "web", "--", "no-such-program")
    assert (missing.code, "executable file not found" in missing.err) == (1, True)


async def bytes_pass_unchanged(kubectl: Kubectl) -> None:
    sent = secrets.token_bytes(3_000_000)
    back = await kubectl.out("exec", "-i", "web", "-c", "main", "--", "cat", stdin=sent)
    assert hashlib.sha256(back).digest() == hashlib.sha256(sent).digest()


async def the_end_of_the_input_ends_nothing_else(kubectl: Kubectl) -> None:
    """What a process says once it has read all, and its exit code, arrive."""
    sent, script = bytes(100_000), "wc -c; head -c 300000 /dev/zero; exit 7"
    done = await kubectl.run("exec", "-i", "web", *MAIN, "--", "sh", "-c", script, stdin=sent)
    assert (done.code, done.out == b"100000\n" + bytes(300_000)) == (7, True), done.err


async def a_debugger_that_asks_for_too_much_ends(kubectl: Kubectl, image: str) -> None:
    """Nobody waits for an ephemeral container that the provider refuses."""
    name = f"nosy-{secrets.token_hex(4)}"
    asked = debugger(name, image, "general")
    done = await kubectl.run("debug", "-i", "twice", *asked, "--", "true")
    assert done.code == 1
    assert f"container {name} of pod {kubectl.namespace}/twice does not run: " in done.err
    assert "capabilities.add must not have SYS_PTRACE" in done.err
    assert "kubectl debug asks for less with --profile=baseline" in done.err


async def a_debugger_is_talked_to(kubectl: Kubectl, image: str) -> None:
    """``kubectl debug -i`` adds a container to the pod as it runs, and attaches to it."""
    word = secrets.token_hex(4)
    container = debugger(f"plain-{word}", image, "baseline")
    script = "while read line; do echo heard $line; done"
    async with kubectl.started(
        "debug", "-i", "web", *container, "--", "sh", "-c", script, stdin=asyncio.subprocess.PIPE
    ) as process:
        await is_heard(process, word)


def debugger(name: str, image: str, profile: str) -> tuple[str, ...]:
    where = (f"--image={image}", "--image-pull-policy=IfNotPresent", f"--container={name}")
    return (*where, f"--profile={profile}")


async def is_heard(process: asyncio.subprocess.Process, word: str) -> None:
    """Say ``word`` to a process, and wait until it says that it heard that."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{word}\n".encode())
    await process.stdin.drain()
    async with asyncio.timeout(300):
        await process.stdout.readuntil(f"heard {word}".encode())


async def a_terminal_has_the_size_of_ours(kubectl: Kubectl, *command: str) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        async with kubectl.started(
            *command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        ):  # fmt: skip
            await read_until(ours, b"33 99")
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 111, 0, 0))
            await read_until(ours, b"44 111")
    finally:
        os.close(ours)
        os.close(theirs)


async def read_until(descriptor: int, mark: bytes) -> None:
    """Read from a terminal, which is no stream for asyncio, until ``mark`` came."""
    loop, seen, found = asyncio.get_running_loop(), bytearray(), asyncio.Event()

    def read() -> None:
        seen.extend(os.read(descriptor, 65536))
        if mark in seen:
            found.set()

    loop.add_reader(descriptor, read)
    try:
        async with asyncio.timeout(300):
            await found.wait()
    finally:
        loop.remove_reader(descriptor)


async def ports_are_forwarded(kubectl: Kubectl) -> None:
    async with forwarded(kubectl, 8080) as port, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"http://127.0.0.1:{port}/index.html") as answer:
                assert await answer.text() == "hello\n"


@contextlib.asynccontextmanager
async def forwarded(kubectl: Kubectl, port: int) -> AsyncIterator[int]:
    async with kubectl.started("port-forward", "pod/web", f":{port}") as process:
        assert process.stdout
        async with asyncio.timeout(300):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield int(found[1])


async def files_are_copied(kubectl: Kubectl, folder: Path) -> None:
    size = size_of("PYLIQO_TEST_COPY_MB", 8, 100) * 2**20
    there, back = folder / "there", folder / "back"
    there.write_bytes(secrets.token_bytes(2**20) * (size // 2**20))
    await kubectl.out("cp", "-c", "main", str(there), "web:copied")
    told = await kubectl.out("exec", "web", "-c", "main", "--", "sha256sum", "/copied")
    with there.open("rb") as file:
        assert told.split()[0].decode() == hashlib.file_digest(file, "sha256").hexdigest()
    await kubectl.out("cp", "-c", "main", "web:copied", str(back))
    with there.open("rb") as sent, back.open("rb") as got:
        digests = [hashlib.file_digest(file, "sha256").digest() for file in (sent, got)]
    assert digests[0] == digests[1]


async def a_process_is_attached_to(kubectl: Kubectl) -> None:
    async with kubectl.started(
        "attach", "-i", "web", "-c", "side", stdin=asyncio.subprocess.PIPE
    ) as process:
        await is_heard(process, secrets.token_hex(4))


async def logs_are_read(kubectl: Kubectl) -> None:
    main = ("logs", "web", "-c", "main")
    assert await kubectl.out(*main) == b"first\nsecond\n"
    assert await kubectl.out(*main, "--tail=1") == b"second\n"
    assert await kubectl.out(*main, "--tail=0") == b""
    assert await kubectl.out(*main, "--since=1h") == b"first\nsecond\n"
    assert await kubectl.out(*main, "--limit-bytes=3") == b"fir"
    stamped = await kubectl.out(*main, "--timestamps")
    assert re.fullmatch(rb"\d{4}-\S+Z first\n\d{4}-\S+Z second\n", stamped)
    everything = await kubectl.out("logs", "web", "--all-containers", "--prefix")
    assert b"[pod/web/main] first\n" in everything
    assert b"[pod/web/side]" in everything
    previous = await kubectl.run(*main, "--previous")
    assert previous.code == 1
    assert "previous terminated container" in previous.err
    async with kubectl.started(*main, "--follow") as process:
        assert process.stdout
        assert await process.stdout.readline() == b"first\n"
    assert (await kubectl.run("logs", "web", "-c", "nowhere")).code == 1


async def logs_of_both_lives_are_read(kubectl: Kubectl) -> None:
    of = ("logs", "twice", *MAIN)
    assert await kubectl.out(*of, "--previous") == b"one\n"
    async with kubectl.started(*of, "--follow") as process:
        assert process.stdout
        async with asyncio.timeout(300):
            assert await process.stdout.readline() == b"two\n"
