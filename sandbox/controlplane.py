"""A control plane alone: etcd and kube-apiserver on loopback, ready in seconds, no root needed.

For tests of what speaks to an API server and needs no pod to run. It ends with the process that
started it, however that ends.
"""

import atexit
import contextlib
import datetime as dt
import itertools
import json
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sandbox import api, binaries, credentials, documents, flags
from sandbox.layout import Files, Listening

READY_S: Final = 240.0
"""A limit, which only a machine with much else to do comes near."""
_STOP_S: Final = 15.0
_BETWEEN_S: Final = 0.02
_LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = range(15000, 30000)
"""Below those of which Linux gives one to the one who connects, or listens on any."""
_SIGNER: Final = (
    "certificatesigningrequest-signing-controller",
    "garbage-collector-controller",
    "namespace-controller",
)
_SERVICES: Final = "10.255.0.0/20"
_ALONE: Final = (
    "--endpoint-reconciler-type=none",  # an endpoint may not be on loopback
    "--disable-admission-plugins=ServiceAccount",  # nobody makes the account of a namespace
    "--audit-log-maxsize=4000",  # one file, no matter who reads it
)


@dataclass
class Plane:
    """A running etcd and kube-apiserver."""

    files: Files
    listening: Listening
    flags: Sequence[str]
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.files.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self.listening.server

    @property
    def audit_log(self) -> Path:
        """What every request did."""
        return self.files.audit

    @property
    def api(self) -> api.Api:
        """The API server as its administrator sees it."""
        return api.of(self.files, self.listening)

    def pid(self, name: str) -> int:
        """Return the process ID of a program that runs: ``etcd``, ``kube-apiserver``."""
        return self._running[name].pid

    def start(self) -> None:
        """Start both; return when the API server is ready."""
        self._start("etcd", flags.etcd(self.files, self.listening, unsafe=True))
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Start the API server; return when it is ready."""
        own = flags.apiserver(self.files, self.listening)
        server = self._start("kube-apiserver", [*own, *_ALONE, *self.flags])
        what = f"API server (its log: {self.files.log('kube-apiserver')})"
        api.wait_until(
            lambda: self.api.is_ready() or server.poll() is not None, what, timeout_s=READY_S
        )
        if server.poll() is not None:
            raise api.NotYetError(f"{what}: ended with {server.returncode}")

    def start_scheduler(self) -> None:
        """Start kube-scheduler, which places pods on whatever Node objects there are."""
        self._start("kube-scheduler", flags.alone(self.kubeconfig, *free_ports(1)))

    def start_deployments(self) -> None:
        """Start of kube-controller-manager what makes pods of Deployments, and ends namespaces.

        It counts for each ResourceQuota, too: where there is one, no pod comes before that.
        """
        names = ("deployment-controller", "replicaset-controller", "namespace-controller")
        often = ["--resource-quota-sync-period=1s"]
        self._start_loops(*names, "resourcequota-controller", more=often)

    def start_namespaces(self) -> None:
        """Start of kube-controller-manager what empties namespaces that are deleted."""
        self._start_loops("namespace-controller")

    def start_quotas(self) -> None:
        """Start of kube-controller-manager what counts for each ResourceQuota, every second."""
        often = ["--resource-quota-sync-period=1s"]
        self._start_loops("resourcequota-controller", more=often)

    def start_evictions(self) -> None:
        """Start of kube-controller-manager what taints nodes that are not ready, and evicts."""
        quick = ["--node-monitor-period=1s", "--node-eviction-rate=10"]
        self._start_loops("node-lifecycle-controller", "taint-eviction-controller", more=quick)

    def start_signer(self, lifetime: str = "") -> None:
        """Start of kube-controller-manager what signs, collects garbage and ends namespaces.

        ``lifetime`` is that of certificates at most, such as 30s.
        """
        pki = self.files.pki
        signs = [
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
        ]
        signs += [f"--cluster-signing-duration={lifetime}"] if lifetime else []
        self._start_loops(*_SIGNER, more=signs)

    def _start_loops(self, *names: str, more: Sequence[str] = ()) -> None:
        own = flags.alone(self.kubeconfig, *free_ports(1))
        controllers = f"--controllers={','.join(names)}"
        self._start("kube-controller-manager", [*own, controllers, *more])

    def stop_apiserver(self) -> None:
        """Ask the API server to end, and wait until it did."""
        self._end("kube-apiserver", is_asked=True)

    def kill_apiserver(self) -> None:
        """End the API server as a crash would."""
        self._end("kube-apiserver", is_asked=False)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Let etcd stand still meanwhile, as on a disk that does not answer."""
        etcd = self._running["etcd"]
        etcd.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            etcd.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def slow(self, seconds: float = 0.3) -> Iterator[None]:
        """Let etcd stand still for ``seconds`` again and again, as on a disk that syncs slowly."""
        is_over = threading.Event()

        def stall() -> None:
            while not is_over.wait(_BETWEEN_S):
                with self.stalled():
                    is_over.wait(seconds)

        with ThreadPoolExecutor() as pool:
            stalling = pool.submit(stall)
            try:
                yield
            finally:
                is_over.set()
                stalling.result()

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Let etcd refuse writes meanwhile, as one that has used up its quota."""
        alarm = {"memberID": "0", "alarm": "NOSPACE"}
        self._etcd("maintenance/alarm", {"action": "ACTIVATE", **alarm})
        try:
            yield
        finally:
            self._etcd("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def save(self, to: Path) -> None:
        """Copy what etcd has to ``to``; both start again for it."""
        self.stop()
        shutil.copytree(self.files.data, to)
        self.start()

    def restore(self, saved: Path) -> None:
        """Start both again with what was saved, as after a disaster: all since is forgotten."""
        self.stop()
        shutil.rmtree(self.files.data)
        shutil.copytree(saved, self.files.data)
        self.start()

    def compact(self) -> None:
        """Forget every version before the current one, so that a watch from one of them gets 410.

        The API server starts again for it, as its own cache would serve old versions on.
        """
        answer = self._etcd("kv/range", {"key": "AA==", "limit": "1"})
        self._etcd("kv/compaction", {"revision": answer["header"]["revision"], "physical": True})
        self.kill_apiserver()
        self.start_apiserver()

    def stop(self) -> None:
        """End both at once; the API server first, which would end its watches without an etcd."""
        for name in reversed(list(self._running)):
            self._end(name, is_asked=False)

    def _start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = ["setpriv", "--pdeathsig", "KILL", str(binaries.program(name)), *arguments]
        if not shutil.which("setpriv"):
            command = command[3:]
        with self.files.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self._running[name]

    def _end(self, name: str, *, is_asked: bool) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        if is_asked:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
        process.kill()
        process.wait()

    def _etcd(self, path: str, body: dict[str, Any]) -> Any:
        url = f"{self.listening.etcd}/v3/{path}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:  # noqa: S310  # our own http URL
            return json.load(answer)


@contextlib.contextmanager
def start(directory: Path, *, flags: Sequence[str] = ()) -> Iterator[Plane]:
    """Yield a control plane whose files lie in ``directory``; ``flags`` go to kube-apiserver.

    Raises:
        MissingError: there are no Kubernetes programs and none can be built.
    """
    binaries.program("kube-apiserver")
    files = Files(directory, directory / "etcd", directory / "kubeconfig")
    port, etcd, etcd_peer = free_ports(3)
    at = Listening(_LOOPBACK, port, etcd, etcd_peer, _SERVICES, "10.255.0.1")
    credentials.create(files, at, name="plane", now=dt.datetime.now(dt.UTC))
    (files.config / "audit.yaml").write_text(json.dumps(documents.audit_policy()))
    plane = Plane(files, at, flags)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@contextlib.contextmanager
def beside(plane: Plane, directory: Path) -> Iterator[Plane]:
    """Yield a second API server of the etcd of ``plane``; its own files lie in ``directory``."""
    files = Files(directory, plane.files.data, directory / "kubeconfig")
    (port,) = free_ports(1)
    at = replace(plane.listening, port=port)
    for shared in (plane.files.pki, plane.files.config):
        (directory / shared.name).symlink_to(shared)
    files.logs.mkdir()
    files.kubeconfig.write_text(plane.kubeconfig.read_text().replace(plane.server, at.server))
    second = Plane(files, at, plane.flags)
    try:
        second.start_apiserver()
        yield second
    finally:
        second.stop()


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens, and which nobody else is given while we run."""
    shuffled = secrets.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(itertools.islice(filter(_claim, shuffled), count))


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)  # its abstract name ends with this process
    try:
        claim.bind(f"\0pyliqo-port-{port}")
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        claim.close()
        return False
    atexit.register(claim.close)
    return True
