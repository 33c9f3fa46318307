"""Many clients at the edge of a quota, while controllers and webhooks are killed all the time.

Source: docs/parity.md SEC-A12; bench/goals.py row 11. ``PYLIQO_QUOTA``: clients, ShadowPods each,
CPUs granted.
"""

import asyncio
import base64
import contextlib
import json
import os
import random
import secrets
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from apis import keys, resources
from apis.objects import Key, Object, named
from apis.resources import Quantity
from kube.cluster import Cluster, Selection
from kube.errors import KubeError
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.controllers.managing import kubeconfig_of_its_account
from tests.controllers.support import own_binding, there
from tests.controllers.test_process import cluster, rights
from tests.manifests import documents
from tests.webhook.served import CA, leaf, store

__all__ = ["cluster", "rights"]
pytestmark = pytest.mark.cluster

CLIENTS, EACH, GRANTED = (
    int(part) for part in size_of("PYLIQO_QUOTA", "8x25x20", "64x500x100").split("x")
)
REPLICAS: Final = size_of("PYLIQO_REPLICAS", 1, 3)
PATIENCE_S: Final = 120 + CLIENTS * EACH / 10
KILLS: Final = 4
TRUST: Final = ssl.create_default_context(cadata=CA.certificate.decode())
ORDERS: Final = random.Random(7)  # noqa: S311  # moments, no secrets


@dataclass
class Daemon:
    """A process that is killed and started again, until it is left alone."""

    command: Sequence[str]
    log: Path
    port: int
    scheme: str = "http"
    kills: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as lines:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdout=lines,
                stderr=lines,
                env={**os.environ, "POD_NAME": "the-only-one"},
                start_new_session=True,
            )

    async def kill(self) -> None:
        """End all its processes, as a container does: none keeps the port."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.kills += 1

    async def is_ready(self) -> None:
        url = f"{self.scheme}://127.0.0.1:{self.port}/readyz"
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url, ssl=TRUST) as answer:
                        if answer.ok:
                            return
                await asyncio.sleep(0.05)

    async def under_fire(self, stop: asyncio.Event) -> None:
        """Kill it a moment after it has begun to work, again and again; leave it running."""
        while not stop.is_set() or self.kills < KILLS:
            await self.is_ready()
            await asyncio.sleep(ORDERS.uniform(0.1, 1.0))  # the kill has to come at any moment
            await self.kill()
            await self.start()


@dataclass
class Balancer:
    """What a Service is: each connection goes to the next webhook that answers."""

    ports: Sequence[int]
    turn: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                onward, back = await self._next()
                ends.append(back)
                await asyncio.gather(pipe(reader, back), pipe(onward, writer))
        finally:
            for end in ends:
                end.transport.abort()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.ports:
            self.turn += 1
            with contextlib.suppress(ConnectionRefusedError):
                port = self.ports[self.turn % len(self.ports)]
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


@dataclass
class Replay:
    """Every revision of the Pods and the Quota, in order: how much ran, how much was booked."""

    moved: asyncio.Event = field(default_factory=asyncio.Event)
    running: list[int] = field(default_factory=list)
    booked: list[int] = field(default_factory=list)
    pods: dict[Key, str] = field(default_factory=dict)
    shadows: set[Key] = field(default_factory=set)
    untold: set[Key] = field(default_factory=set)
    """Of those the ones that do not say why they wait."""

    async def follow_pods(self, cluster: Cluster, namespace: str, since: str) -> None:
        async for event in revisions(cluster, Selection(keys.POD, Object, namespace), since):
            self.pods.pop(event.key, None)
            if event.type != "DELETED":
                self.pods[event.key] = (event.object.get("status") or {}).get("phase", "")
            self.running.append(self.now)
            self.moved.set()

    async def follow_quota(self, cluster: Cluster, namespace: str, since: str) -> None:
        async for event in revisions(cluster, Selection(keys.QUOTA, Object, namespace), since):
            status = event.object["status"]
            amounts = status.get("booked"), ahead(status)
            taken = resources.total(map(resources.parse_resources, amounts))
            self.booked.append(taken.get("cpu", Quantity()).whole)
            self.moved.set()

    async def follow_shadows(self, cluster: Cluster, namespace: str, since: str) -> None:
        of = Selection(keys.SHADOW_POD, Object, namespace)
        async for event in revisions(cluster, of, since):
            is_there = event.type != "DELETED"
            note_change(self.shadows, event.key, is_in=is_there)
            note_change(
                self.untold, event.key, is_in=is_there and not is_refusal_told(event.object)
            )
            self.moved.set()

    @property
    def now(self) -> int:
        return sum(phase not in ("Succeeded", "Failed") for phase in self.pods.values())


def note_change(found: set[Key], key: Key, *, is_in: bool) -> None:
    (found.add if is_in else found.discard)(key)


def ahead(status: Object) -> Object:
    """Return what the keeper has booked ahead; of a predecessor's reserve Pods may be there."""
    reserve = status.get("reserve") or {}
    is_own = reserve.get("keeper") == status.get("keeper")
    return dict(reserve.get("requests") or {}) if is_own else {}


async def revisions(cluster: Cluster, of: Selection[Object], since: str) -> AsyncIterator[Any]:
    while True:
        async with contextlib.aclosing(cluster.watch(of, since)) as events:
            async for event in events:
                since = event.version or since
                if event.type != "BOOKMARK":
                    yield event


@dataclass
class Field:
    """Where it happens."""

    cluster: Cluster
    namespace: str
    run: str
    replay: Replay = field(default_factory=Replay)

    @property
    def quota(self) -> Key:
        return Key(self.namespace, "edge")

    async def ask(self, name: str) -> None:
        """Create a ShadowPod of one CPU, until it is there; webhooks come and go."""
        resources = {"requests": {"cpu": "1"}}
        container = {"name": "main", "image": "nginx", "resources": resources}
        shadow = named(
            keys.SHADOW_POD,
            Key(self.namespace, name),
            metadata={"labels": {keys.ORIGIN: "rome"}},
            spec={"pod": factories.pod_spec(containers=[container])},
        )
        while True:
            try:
                await self.cluster.create(keys.SHADOW_POD, shadow)
            except KubeError as error:
                if error.status == 409:  # the answer was lost, the object was not
                    return
                await asyncio.sleep(0.05)
            else:
                return

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await holds():
                    await self.replay.moved.wait()
                    self.replay.moved.clear()
        except TimeoutError:
            found = await there(self.cluster, keys.QUOTA, self.quota)
            pytest.fail(f"not so: {what}; {self.replay.now} run; {str(found['status'])[:500]}")

    async def is_at_rest(self) -> bool:
        """Whether what was granted runs, and all others know why they wait."""
        return self.replay.now == GRANTED and self.replay.untold <= self.replay.pods.keys()

    async def end(self, key: Key) -> None:
        """Delete a ShadowPod, and its Pod as the garbage collector would."""
        for kind in (keys.SHADOW_POD, keys.POD):
            found = await self.cluster.get_live(kind, key)
            if found:
                await self.cluster.delete(kind, key, uid=found["metadata"]["uid"], grace_s=0)

    async def collect(self) -> None:
        """Delete Pods whose ShadowPod went while they were created: nobody else collects them."""
        for key in self.replay.pods.keys() - self.replay.shadows:
            await self.end(key)

    async def is_empty(self) -> bool:
        await self.collect()
        status = (await there(self.cluster, keys.QUOTA, self.quota))["status"]
        return not status["bookings"] and set(status["booked"].values()) == {"0"}


def is_refusal_told(shadow: Object) -> bool:
    found = ((shadow.get("status") or {}).get("conditions") or [{}])[0]
    return (found.get("status"), found.get("reason")) == ("False", "QuotaExceeded")


@pytest.fixture
async def field_(cluster: Cluster, rights: None) -> AsyncIterator[Field]:
    run = f"run-{secrets.token_hex(4)}"
    labels = {"judged": run, keys.REMOTE_CLUSTER_ID: "rome"}
    await cluster.create(keys.NAMESPACE, factories.namespace(run, **labels))
    await cluster.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, Key(run, "default")))
    await cluster.create(keys.ROLE_BINDING, own_binding(run))
    where = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
    identity = named(keys.CONFIG_MAP, where, data={"CLUSTER_ID": run})
    made = await cluster.create(keys.CONFIG_MAP, identity)
    yield Field(cluster, run, run)
    await cluster.delete(keys.CONFIG_MAP, where, uid=made["metadata"]["uid"])
    for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
        found = await cluster.get_live(kind, Key("", run))
        if found:
            await cluster.delete(kind, Key("", run), uid=found["metadata"]["uid"])


async def register(cluster: Cluster, run: str, port: int) -> None:
    """Let the hooks of the manifests on ShadowPods judge those of this run."""
    bundle = base64.b64encode(CA.certificate).decode()
    for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
        hooks = [
            {
                **hook,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}",
                    "caBundle": bundle,
                },
                "namespaceSelector": {"matchLabels": {"judged": run}},
                "timeoutSeconds": 30,
            }
            for hook in documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]
            if hook["rules"][0]["resources"] == ["shadowpods"]
        ]
        await cluster.create(kind, named(kind, Key("", run), webhooks=hooks))


async def our_name(cluster: Cluster) -> str:
    """Return who we are to the API server."""
    review = named(keys.TOKEN_REVIEW, Key("", "me"))
    review |= {"kind": "SelfSubjectReview"}
    made = await cluster.create(WHO_AM_I, review)
    return str(made["status"]["userInfo"]["username"])


WHO_AM_I: Final = type(keys.TOKEN_REVIEW)(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)


async def daemons(field_: Field, plane: Plane, directory: Path) -> tuple[Daemon, list[Daemon]]:
    cluster = field_.cluster
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(await kubeconfig_of_its_account(cluster, plane)))
    (port,) = controlplane.free_ports(1)
    controllers = Daemon(
        [
            *(sys.executable, "-m", "controllers", "--kubeconfig", str(kubeconfig)),
            *("--liqo-namespace", keys.LIQO_NAMESPACE, "--health-port", str(port)),
            "--enable-resource-enforcement",
        ],
        directory / "controllers.log",
        port,
    )
    store(directory / "tls", leaf())
    webhooks = []
    for number in range(REPLICAS):
        (port,) = controlplane.free_ports(1)
        command = [
            *(sys.executable, "-m", "webhook", "--host", "127.0.0.1", "--port", str(port)),
            *("--tls-dir", str(directory / "tls" / "current")),
            *("--kubeconfig", str(plane.kubeconfig), "--enable-resource-enforcement"),
        ]
        webhooks.append(Daemon(command, directory / f"webhook-{number}.log", port, "https"))
    return controllers, webhooks


@contextlib.asynccontextmanager
async def fought_over(field_: Field, plane: Plane, directory: Path) -> AsyncIterator[list[Daemon]]:
    """Run the controllers and the webhooks, and write down every revision meanwhile."""
    cluster, namespace = field_.cluster, field_.namespace
    spec = {"user": await our_name(cluster), "resources": {"cpu": str(GRANTED)}}
    await cluster.create(keys.QUOTA, named(keys.QUOTA, field_.quota, spec=spec))
    since = {  # of each kind: a server does not know versions older than its own first list of it
        kind: (await cluster.list(Selection(kind, Object, namespace))).version
        for kind in (keys.POD, keys.QUOTA, keys.SHADOW_POD)
    }
    controllers, webhooks = await daemons(field_, plane, directory)
    server = await asyncio.start_server(Balancer([one.port for one in webhooks]), "127.0.0.1")
    try:
        for one in (controllers, *webhooks):
            await one.start()
        await register(cluster, field_.run, server.sockets[0].getsockname()[1])
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(field_.replay.follow_pods(cluster, namespace, since[keys.POD])),
                tasks.create_task(
                    field_.replay.follow_quota(cluster, namespace, since[keys.QUOTA])
                ),
                tasks.create_task(
                    field_.replay.follow_shadows(cluster, namespace, since[keys.SHADOW_POD])
                ),
            ]
            yield [controllers, *webhooks]
            for watch in watching:
                watch.cancel()
    finally:
        server.close()
        for one in (controllers, *webhooks):
            if one.process is not None and one.process.returncode is None:
                await one.kill()
        sys.stdout.write((directory / "controllers.log").read_text()[-3000:])  # for what failed


async def test_the_quota_holds_at_every_revision_and_nobody_waits_in_vain(
    field_: Field, own_plane: Plane, tmp_path: Path
) -> None:
    began, done = time.monotonic(), asyncio.Event()
    async with fought_over(field_, own_plane, tmp_path) as daemons_:
        async with asyncio.TaskGroup() as tasks:
            for one in daemons_:
                tasks.create_task(one.under_fire(done))
            await asyncio.gather(*(ask_for_pods(field_, number) for number in range(CLIENTS)))
            created_s = time.monotonic() - began
            done.set()
        await field_.until(field_.is_at_rest, "what was granted runs, all others are told why")
        at_rest_s = time.monotonic() - began
        await one_half_changes(field_)
        await field_.until(field_.is_at_rest, "others run in place of what ended or went")
        limit = asyncio.Semaphore(32)
        await asyncio.gather(*(end_pods(field_, key, limit) for key in set(field_.replay.shadows)))
        gone = time.monotonic()
        await field_.until(field_.is_empty, "nothing is booked any more")
        freed_s = time.monotonic() - gone
    replay, kills = field_.replay, [one.kills for one in daemons_]
    sys.stdout.write(
        f"{CLIENTS} x {EACH} on {GRANTED}, {REPLICAS} webhooks: created in {created_s:.1f} s, "
        f"at rest after {at_rest_s:.1f} s, kills {kills}, {len(replay.running)} revisions of Pods, "
        f"{len(replay.booked)} of the Quota, free {freed_s:.1f} s after the last deletion\n"
    )
    assert max(replay.running) == GRANTED
    assert max(replay.booked) <= GRANTED
    assert min(kills) >= KILLS


async def ask_for_pods(field_: Field, number: int) -> None:
    for turn in range(EACH):
        await field_.ask(f"pod-{number}-{turn}")


async def end_pods(field_: Field, key: Key, limit: asyncio.Semaphore) -> None:
    async with limit:
        await field_.end(key)


async def one_half_changes(field_: Field) -> None:
    """End a quarter of what runs, and delete another."""
    running = sorted(field_.replay.pods)
    for key in running[: GRANTED // 4]:
        await field_.cluster.patch_status(keys.POD, key, {"phase": "Succeeded"})
    for key in running[GRANTED // 4 : GRANTED // 2]:
        await field_.end(key)

    async def is_seen() -> bool:
        await field_.collect()
        pods = field_.replay.pods
        return all(pods.get(key, "Succeeded") == "Succeeded" for key in running[: GRANTED // 2])

    await field_.until(is_seen, "what ended has ended")
