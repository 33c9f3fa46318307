"""The real server: TLS, rotation, silent clients, signals.2; D9; F27; F36."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apis import keys, resources
from certs import pki
from certs.pki import Keypair
from kube import clock
from sandbox import controlplane
from tests import flood
from tests.manifests import documents
from tests.webhook.reviews import body, wait_until
from tests.webhook.served import ANSWERED, CA, DAY, HOSTILE, POD, Served, envelope, leaf, store
from webhook import serving
from webhook import worker as worker_
from webhook.serving import BEGUN_S, LINGER_S
from webhook.worker import HELD, LARGE


def free_port() -> int:
    return controlplane.free_ports(1)[0]


def nowhere(directory: Path) -> Path:
    """Return a kubeconfig of an API server that is not there."""
    user = pki.issue(CA, common_name="us", client=True, now=clock.now(), lifetime=DAY)
    identity = pki.KubeconfigIdentity(
        name="us",
        cluster_id="nowhere",
        server=f"https://127.0.0.1:{free_port()}",
        ca=CA.certificate,
        certificate=user.certificate,
        key=user.key,
    )
    path = directory / "kubeconfig"
    path.write_bytes(pki.kubeconfig(identity))
    return path


@pytest.fixture(scope="module", name="served")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_process(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture(name="own")
def start_own(tmp_path: Path) -> Iterator[Served]:
    with serving_process(tmp_path) as found:
        yield found


@contextlib.contextmanager
def serving_process(directory: Path, drain_s: int = 0) -> Iterator[Served]:
    store(directory / "tls", leaf())
    port, log = free_port(), directory / "log"
    command = [
        *(sys.executable, "-m", "webhook", "--host", "127.0.0.1", "--port", str(port)),
        *("--tls-dir", str(directory / "tls" / "current")),
        *("--kubeconfig", str(nowhere(directory)), "--json-logs"),
        *("--drain-seconds", str(drain_s)),
    ]
    with log.open("wb") as lines:
        process = subprocess.Popen(command, stderr=lines, stdout=lines)
    found = Served(process, port, directory / "tls", log)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            return found.ask("GET", "/healthz")[0] == 200
        return False

    try:
        wait_until(answers)
        yield found
    finally:
        process.kill()
        process.wait()


def test_it_serves_and_does_not_guess_while_the_api_server_is_away(served: Served) -> None:
    assert served.ask("GET", "/readyz")[0] == 503
    assert served.ask("POST", "/mutate/pod?timeout=1s", body(POD))[0] == 503
    assert served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200
    assert served.ask("GET", "/metrics")[0] == 401


def test_a_new_certificate_is_served_on_the_next_connection(served: Served) -> None:
    before = served.certificate()
    kept = served.connection()
    kept.request("GET", "/healthz")
    kept.getresponse().read()
    new = leaf()

    store(served.tls, new)

    assert served.certificate() == new.certificate != before
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"ok"
    kept.close()


def test_many_rotations_fail_no_review(served: Served) -> None:
    head = {"Content-Type": "application/json"}
    with contextlib.closing(served.connection()) as kept:
        for _ in range(50):
            store(served.tls, leaf())
            kept.request("POST", f"{ANSWERED}?timeout=10s", body(POD), head)
            answer = kept.getresponse()
            assert answer.status == 200
            assert answer.read()
            assert served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200


def test_a_half_written_certificate_is_not_served(own: Served) -> None:
    before = own.certificate()
    broken = leaf()

    store(own.tls, Keypair(broken.certificate, leaf().key))
    assert own.certificate() == before

    (own.tls / "current" / "tls.crt").write_bytes(broken.certificate[:100])
    assert own.certificate() == before

    (own.tls / "current").unlink()
    assert own.certificate() == before


def test_sigterm_ends_it_with_0(own: Served) -> None:
    kept = own.connection()
    kept.request("GET", "/healthz")
    kept.getresponse().read()

    own.process.send_signal(signal.SIGTERM)

    assert own.process.wait(120) == 0
    kept.close()


def test_an_idle_connection_is_closed_before_a_request_can_be_lost_on_it(own: Served) -> None:
    """API servers keep theirs, and wait in vain for the answer of one that has ended."""
    with own.handshake() as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in idle.recv(65536)
        own.process.send_signal(signal.SIGTERM)

        idle.settimeout(BEGUN_S - LINGER_S / 2)

        assert idle.recv(65536) == b""
    assert own.process.wait(120) == 0


def test_spare_connections_do_not_keep_it_from_ending(own: Served) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(own.handshake())
        assert own.ask("GET", "/healthz")[0] == 200

        own.process.send_signal(signal.SIGTERM)

        assert own.process.wait(120) == 0


def test_it_serves_on_while_it_drains(tmp_path: Path) -> None:
    """Endless, so that no test depends on its length; what ends it is in the tests above."""
    review = body(POD)
    head = {"Content-Type": "application/json"}
    with serving_process(tmp_path, drain_s=3600) as draining, contextlib.ExitStack() as stack:
        kept = stack.enter_context(contextlib.closing(draining.connection()))
        kept.request("POST", f"{ANSWERED}?timeout=10s", review, head)
        before = kept.getresponse()
        assert before.read()

        draining.process.send_signal(signal.SIGTERM)
        wait_until(lambda: b"about to end" in draining.ask("GET", "/readyz")[1])

        assert "connection" not in before.headers or before.headers["connection"] != "close"

        def is_last() -> bool:
            """Whether the answer says so: the signal comes to each worker at its own time."""
            kept.request("POST", f"{ANSWERED}?timeout=10s", review, head)
            answer = kept.getresponse()
            assert answer.status == 200
            assert answer.read()
            return answer.headers["connection"] == "close"

        wait_until(is_last)
        assert draining.ask("POST", f"{ANSWERED}?timeout=10s", review)[0] == 200
        assert draining.ask("GET", "/readyz")[0] == 503
        assert draining.process.poll() is None


def test_silent_clients_hold_no_thread(served: Served) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(40):
            clients.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        for _ in range(2):
            clients.enter_context(served.handshake())
        for _ in range(2):
            half = clients.enter_context(served.handshake())
            half.sendall(b"POST /mutate/tenants HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")

        assert served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200
    assert served.process.poll() is None


def test_clients_that_shook_hands_and_wait_hold_no_thread(served: Served) -> None:
    """The API server opens connections to spare; four of them took all threads for 3 s each."""
    with contextlib.ExitStack() as clients:
        spares = [clients.enter_context(served.handshake()) for _ in range(12)]

        answered = served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0]

        assert answered == 200
        for spare in spares:  # none was given up meanwhile
            spare.settimeout(0)
            with pytest.raises(ssl.SSLWantReadError):
                spare.recv(1)


def test_an_endless_or_huge_body_kills_nobody(served: Served) -> None:
    head = b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    with served.handshake() as huge:
        huge.sendall(head + b"Content-Length: 7340033\r\n\r\n")
        assert b" 413 " in huge.recv(100)
    with served.handshake() as endless:
        endless.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(9):
                endless.sendall(chunk)
        assert b" 413 " in endless.recv(100)
    assert served.ask("GET", "/healthz")[0] == 200


def test_one_source_cannot_have_all_connections(own: Served) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(500):
            clients.enter_context(own.handshake("127.0.0.2"))
        beyond = clients.enter_context(own.handshake("127.0.0.2"))

        assert beyond.recv(1) == b""
        assert own.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200

    def has_room_again() -> bool:
        with own.handshake("127.0.0.2") as again:
            again.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 200 " in again.recv(100)

    wait_until(has_room_again)


def test_a_worker_that_is_killed_is_replaced(own: Served) -> None:
    killed = own.worker()
    os.kill(killed, signal.SIGKILL)

    def answers_again() -> bool:
        with contextlib.suppress(OSError):
            return own.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200
        return False

    wait_until(answers_again)
    assert own.worker() != killed


GREEDY = {
    "keys": "{" + ",".join(f'"k{n}":0' for n in range(480_000)) + "}",
    "objects": "[" + ",".join(['{"k":"abcd"}'] * 520_000) + "]",  # more are refused
}
"""Bodies of 7 MB that become many times as much once they are read."""


@pytest.mark.parametrize("shape", GREEDY)
def test_many_large_bodies_at_once_take_no_more_memory_than_the_pod_has(
    own: Served, shape: str
) -> None:
    sent, worker = envelope(GREEDY[shape]), own.worker()

    def ask() -> int:
        try:
            return own.ask("POST", f"{ANSWERED}?timeout=30s", sent)[0]
        except OSError:  # the connection may end before the refusal is read
            return 503

    with ThreadPoolExecutor(16) as clients:
        asked = [clients.submit(ask) for _ in range(16)]
        found = {one.result() for one in asked}

    assert 200 in found
    assert found <= {200, 408, 503}
    deployment = documents.named("Deployment", "liqo-webhook", keys.LIQO_NAMESPACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (
        peak_kib(worker) * 1024
        < resources.parse_quantity(container["resources"]["limits"]["memory"]).whole
    )


def peak_kib(pid: int) -> int:
    """Return the most memory that the process had."""
    told = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = [int(line.split()[1]) for line in told if line.startswith("VmHWM")]
    return peak


HEAD = b"POST /mutate/tenants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_large_bodies_that_never_come_keep_no_other_waiting(served: Served) -> None:
    size = 2 * LARGE
    with contextlib.ExitStack() as clients:
        silent = [clients.enter_context(served.handshake()) for _ in range(HELD // size + 1)]
        for client in silent:
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
            client.settimeout(0)
        wait_until(lambda: any(has_answer(client, b"503") for client in silent))  # one too many

        assert served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200


def has_answer(client: ssl.SSLSocket, status: bytes) -> bool:
    try:
        return client.recv(100).split()[1] == status
    except ssl.SSLWantReadError:
        return False


NO_HTTP = {
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n",
    "zeros": b"\x00\x01\x02\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a long line": b"POST /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "many headers": HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
}


def test_what_is_no_http_is_told_so_and_not_logged(own: Served) -> None:
    for name, sent in NO_HTTP.items():
        with own.handshake() as client:
            client.sendall(sent)
            assert b" 400 " in client.recv(100), name
    with own.handshake() as gone:
        gone.sendall(HEAD + b"Content-Length: 50\r\n\r\nabc")

    assert own.ask("GET", "/healthz")[0] == 200
    assert "Traceback" not in own.log.read_text()


def test_hostile_bodies_get_an_answer_and_end_no_worker(served: Served) -> None:
    pid = served.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    before = children.read_text()

    found = {
        name: served.ask("POST", f"{path}?timeout=10s", sent)
        for path in (ANSWERED, "/validate/namespace-offloading")
        for name, sent in HOSTILE.items()
    }

    harmless = {"a million keys", "5000 digits"}
    for name, (status, answer) in found.items():
        assert status in ({200, 400} if name in harmless else {400}), name
        json.loads(answer)
    assert children.read_text() == before
    assert served.ask("POST", f"{ANSWERED}?timeout=10s", body(POD))[0] == 200


@pytest.mark.parametrize(
    "head", ["Content-Encoding: gzip", "Content-Type: text/plain", "Content-Type: application/yaml"]
)
def test_what_is_no_plain_json_is_415(served: Served, head: str) -> None:
    name, _, value = head.partition(": ")
    with contextlib.closing(served.connection()) as connection:
        kind = {"Content-Type": "application/json"} | {name: value}
        connection.request("POST", "/mutate/pod", b"\x1f\x8b", kind)
        assert connection.getresponse().status == 415


def test_log_lines_are_json_and_hold_no_object(own: Served) -> None:
    own.ask("POST", ANSWERED, body({**POD, "secret": "canary"}))
    own.process.send_signal(signal.SIGTERM)
    own.process.wait(120)

    lines = own.log.read_text().splitlines()
    assert lines
    assert all(line.startswith('{"time"') for line in lines)
    assert not any("canary" in line for line in lines)


def test_the_process_that_forks_imports_nothing_of_what_answers() -> None:
    """What it has, the worker does not share for long: counting references copies the pages."""
    program = "import sys, webhook.__main__; print(*sys.modules)"
    modules = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, check=True, text=True
    ).stdout.split()

    assert "gunicorn.arbiter" in modules
    others = {"aiohttp", "asyncio", "flask", "cryptography", "prometheus_client"}
    assert others.isdisjoint(modules)


def test_without_an_identity_it_ends_and_says_why(tmp_path: Path) -> None:
    store(tmp_path / "tls", leaf())
    command = [
        *(sys.executable, "-m", "webhook", "--host", "127.0.0.1", "--port", str(free_port())),
        *("--tls-dir", str(tmp_path / "tls" / "current")),
        *("--kubeconfig", str(tmp_path / "not-there")),
    ]

    ended = subprocess.run(command, capture_output=True, timeout=300, check=False)

    assert ended.returncode == serving.FAILED
    assert b"not-there" in ended.stderr


def test_tls_is_modern() -> None:
    context = worker_.hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert not any("CBC" in name or name.endswith("SHA") for name in names)


@pytest.mark.parametrize(
    ("version", "is_served"),
    [
        (ssl.TLSVersion.TLSv1, False),
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_below_1_2_is_refused(
    served: Served, version: ssl.TLSVersion, *, is_served: bool
) -> None:
    context = served.context()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")  # it is the server that refuses, not this client
    plain = socket.create_connection(("127.0.0.1", served.port), timeout=120)
    refusal = contextlib.nullcontext() if is_served else pytest.raises(ssl.SSLError)

    with plain, refusal, context.wrap_socket(plain, server_hostname="127.0.0.1") as found:
        assert found.version() == version.name.replace("_", ".")


@pytest.mark.parametrize(("host", "bound"), [("10.0.0.1", "10.0.0.1:1"), ("::", "[::]:1")])
def test_addresses(host: str, bound: str) -> None:
    assert serving.address(host, 1) == bound
    with pytest.raises(ValueError, match="out of range"):
        serving.address(host, 2**16)


def test_half_open_and_slow_connections_keep_nobody_out(own: Served) -> None:
    async def asked() -> int:
        async with flood.held_connections(own.port):
            found = await asyncio.to_thread(own.ask, "POST", f"{ANSWERED}?timeout=10s", body(POD))
            return found[0]

    assert asyncio.run(asked()) == 200


def _slowest_s(own: Served, over: threading.Event) -> float:
    """Ask for reviews over one connection, as an API server does; return the longest it took."""
    slowest_s = 0.0
    with contextlib.closing(own.connection()) as connection:
        while not over.wait(0.01):
            began = time.monotonic()
            connection.request("POST", ANSWERED, body(POD), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            slowest_s = max(slowest_s, time.monotonic() - began)
    return slowest_s


def test_no_request_makes_it_fail(
    own: Served, record_property: Callable[[str, object], None]
) -> None:
    async def asked() -> set[int]:
        paths = [ANSWERED, "/mutate/pod", "/validate/shadowpods", "/metrics", "/healthz"]
        sent = flood.requests(paths)
        found = flood.answers(own.port, own.context(), sent, record_property)
        over = threading.Event()
        beside = asyncio.create_task(asyncio.to_thread(_slowest_s, own, over))
        statuses = {status async for status, _ in found}
        over.set()
        record_property("slowest review beside, s:", f"{await beside:.2f}")
        return statuses

    assert asyncio.run(asked()) <= {0, 200, 400, 401, 404, 405, 408, 413, 415, 417, 503}
    assert own.process.poll() is None
    assert "Traceback" not in own.log.read_text()
    record_property("MiB at most:", peak_kib(own.worker()) // 1024)
    assert peak_kib(own.worker()) < 200 * 1024
