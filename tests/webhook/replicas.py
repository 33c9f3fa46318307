"""Replicas of the webhook behind a Service of a real API server, without a node to run them.

What a node and a controller would do is done here: a Secret volume is filled, and a replica is an
endpoint of the Service for as long as a test says so.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from apis import keys
from apis.objects import Key, Object, named
from certs import __main__ as certs
from certs.rotation import RotationOptions
from kube import clock, credentials
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.process import Process
from sandbox import controlplane
from tests.factories import pod
from tests.kube.running import until_so
from tests.webhook.reviews import offloading

PODS: Final = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
    "scope": "Namespaced",
}
PATIENCE_S: Final = 300
MODULE: Final = (sys.executable, "-m", "webhook")


def address() -> str:
    """Return an address of this machine that is not on loopback, where no endpoint may be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # for documentation: nothing is sent to it
        return str(probe.getsockname()[0])


@dataclass
class Replica:
    """One process ``python -m webhook``, and the Secret volume it is served from."""

    directory: Path
    port: int = field(default_factory=lambda: controlplane.free_ports(1)[0])
    process: subprocess.Popen[bytes] | None = None

    @property
    def tls(self) -> Path:
        return self.directory / "tls"

    def fill(self, data: dict[str, bytes]) -> None:
        """Replace all files of the volume at once, as a node does."""
        version = self.tls / secrets.token_hex(4)
        version.mkdir(parents=True)
        for name, content in data.items():
            (version / name).write_bytes(content)
        new = self.tls / "new"
        new.symlink_to(version)
        new.replace(self.tls / "current")

    def start(self, kubeconfig: Path, *flags: str) -> None:
        command = [
            *(*MODULE, "--port", str(self.port), "--kubeconfig", str(kubeconfig)),
            *("--tls-dir", str(self.tls / "current"), *flags),
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)

    def pids(self) -> tuple[int, ...]:
        """Return the processes of this replica: who started it, and its worker."""
        assert self.process
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return (pid, *map(int, children))

    def handshake(self, bundle: bytes, name: str) -> bytes:
        """Return the certificate that it serves to who trusts ``bundle``, called ``name``.

        Raises:
            ssl.SSLError: who does so would not trust it.
        """
        context = ssl.create_default_context(cadata=bundle.decode())
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        with context.wrap_socket(plain, server_hostname=name) as found:
            return ssl.DER_cert_to_PEM_cert(found.getpeercert(binary_form=True) or b"").encode()

    async def is_ready(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.directory / "log").read_text()
        url = f"https://127.0.0.1:{self.port}/readyz"
        try:
            async with aiohttp.ClientSession() as http, http.get(url, ssl=False) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def tell(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    @property
    def status(self) -> int | None:
        """Return its exit status, None while it runs."""
        assert self.process
        return self.process.poll()

    async def has_ended(self) -> bool:
        return self.status is not None

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@dataclass
class Service:
    """The Service of a webhook in a namespace of its own, and who is called through it."""

    cluster: ClusterClient
    namespace: str
    run: str = field(default_factory=lambda: f"run-{secrets.token_hex(4)}")
    """The name of the configuration; namespaces with the label ``judged: <run>`` are judged."""

    async def create(self) -> None:
        """Make the namespace and the Service in it."""
        await self.cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", self.namespace)))
        where = Key(self.namespace, keys.WEBHOOK_SERVICE)
        ports = [{"name": "https", "port": keys.WEBHOOK_PORT, "protocol": "TCP"}]
        await self.cluster.create(keys.SERVICE, named(keys.SERVICE, where, spec={"ports": ports}))

    async def register(self, caller: str = "pod.mutate.liqo.io", policy: str = "Fail") -> Key:
        """Have the API server call it for the pods of judged namespaces; without a caBundle."""
        service = {
            "namespace": self.namespace,
            "name": keys.WEBHOOK_SERVICE,
            "path": "/mutate/pod",
            "port": keys.WEBHOOK_PORT,
        }
        hook = {
            "name": caller,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": policy,
            "timeoutSeconds": 30,  # the longest there is: no test is about it
            "reinvocationPolicy": "IfNeeded",
            "clientConfig": {"service": service},
            "namespaceSelector": {"matchLabels": {"judged": self.run}},
            "rules": [PODS],
        }
        kind = keys.MUTATING_WEBHOOKS
        await self.cluster.create(kind, named(kind, Key("", self.run), webhooks=[hook]))
        return Key("", self.run)

    async def offloaded(self) -> str:
        """Return a new namespace that is judged and offloaded."""
        name = f"load-{secrets.token_hex(4)}"
        labels = {"judged": self.run, keys.SCHEDULING_ENABLED: "true"}
        metadata = {"labels": labels}
        await self.cluster.create(
            keys.NAMESPACE, named(keys.NAMESPACE, Key("", name), metadata=metadata)
        )
        await self.cluster.create(keys.NAMESPACE_OFFLOADING, offloading(name))
        return name

    async def join(self, replica: Replica) -> None:
        """Let the API server call ``replica``."""
        key = self._slice(replica)
        metadata = {"labels": {"kubernetes.io/service-name": keys.WEBHOOK_SERVICE}}
        await self.cluster.create(
            keys.ENDPOINT_SLICE,
            named(
                keys.ENDPOINT_SLICE,
                key,
                metadata=metadata,
                addressType="IPv4",
                endpoints=[{"addresses": [address()], "conditions": {"ready": True}}],
                ports=[{"name": "https", "port": replica.port, "protocol": "TCP"}],
            ),
        )

    async def leave(self, replica: Replica) -> None:
        """Let the API server call ``replica`` no more."""
        key = self._slice(replica)
        found = await self.cluster.get_live(keys.ENDPOINT_SLICE, key)
        assert found
        await self.cluster.delete(keys.ENDPOINT_SLICE, key, uid=found["metadata"]["uid"])

    async def bundle(self) -> bytes:
        """Return whom the API server is told to trust."""
        found = await self.cluster.get_live(keys.MUTATING_WEBHOOKS, Key("", self.run))
        assert found
        (hook,) = found["webhooks"]
        return base64.b64decode(hook["clientConfig"].get("caBundle") or "")

    def _slice(self, replica: Replica) -> Key:
        return Key(self.namespace, f"webhook-{replica.port}")


@contextlib.asynccontextmanager
async def certified(
    service: Service, settings: RotationOptions, now: Callable[[], dt.datetime] = clock.now
) -> AsyncIterator[None]:
    """Keep Secret and caBundle of ``service`` as ``python -m certs`` does."""
    daemon = Process("certs", 0)
    following = certs.follow(service.cluster, settings, daemon, configuration=service.run, now=now)
    task = asyncio.create_task(following)
    try:
        await until_so(service.bundle, "the caBundle")
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def filling(
    cluster: ClusterClient, settings: RotationOptions, on_change: Callable[[dict[str, bytes]], None]
) -> AsyncIterator[None]:
    """Tell what the Secret of the serving certificate holds, first and whenever it changes."""
    key = settings.certs_key
    fields = f"metadata.name={key.name}"
    selection = Selection(keys.SECRET, Object, namespace=key.namespace, fields=fields)
    first = asyncio.Event()

    def tell(change: Change[Object]) -> None:
        data = (change.new or {}).get("data") or {}
        if data:
            on_change({name: base64.b64decode(text) for name, text in data.items()})
            first.set()

    informer = Informer(selection)
    informer.subscribe(tell)
    task = asyncio.create_task(informer.run(cluster))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await first.wait()
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Load:
    """Creates pods in a namespace, as dry runs, a hundred in a second where the machine can."""

    AT_ONCE: Final = 32

    def __init__(self, kubeconfig: Path, namespace: str, *, per_s: int = 100) -> None:
        self._kubeconfig, self._namespace, self._pause_s = kubeconfig, namespace, 1 / per_s
        self._turns = asyncio.Semaphore(self.AT_ONCE)
        self._since = time.monotonic()
        self._ends = False
        self.admitted = 0
        self.failures: list[str] = []

    def begin(self) -> None:
        """Count from here."""
        self._since, self.admitted = time.monotonic(), 0
        self.failures.clear()

    @property
    def per_s(self) -> float:
        """Return how many were answered in a second, for the record."""
        return self.answered / (time.monotonic() - self._since)

    async def steady(self) -> None:
        """Count from when the API server calls the webhook, which it learns of a moment later."""
        await self.more(1)

        async def is_steady() -> bool:
            self.begin()
            await self.more(30)
            return not self.failures

        await until_so(is_steady, "thirty admitted pods in a row")
        self.begin()

    async def more(self, count: int) -> None:
        """Return when ``count`` more were answered."""
        goal = self.answered + count

        async def reached() -> bool:
            return self.answered >= goal

        await until_so(reached, f"{count} more answers")

    @property
    def answered(self) -> int:
        return self.admitted + len(self.failures)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create pods while inside; those that were begun are waited for."""
        who = await credentials.from_file(self._kubeconfig)
        connector = aiohttp.TCPConnector(limit=0, ssl=who.tls or False)
        async with aiohttp.ClientSession(who.server, connector=connector) as http:
            self._ends = False
            task = asyncio.create_task(self._create(http))
            try:
                yield
            finally:
                self._ends = True
                await task

    async def _create(self, http: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as tasks:
            while not self._ends:
                await self._turns.acquire()
                tasks.create_task(self._one(http))
                await asyncio.sleep(self._pause_s)

    async def _one(self, http: aiohttp.ClientSession) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        body = pod(self._namespace, "load")
        try:
            async with http.post(path, params={"dryRun": "All"}, json=body) as answer:
                made = await answer.json()
        except aiohttp.ClientError as error:
            self.failures.append(repr(error))
        else:
            self._judge(made)
        finally:
            self._turns.release()

    def _judge(self, made: Object) -> None:
        tolerations = (made.get("spec") or {}).get("tolerations") or []
        if any(one.get("key") == keys.VIRTUAL_NODE_TAINT for one in tolerations):
            self.admitted += 1
        else:
            self.failures.append(str(made.get("message", made)))
