"""The whole process against a real API server, which is both home and provider."""

import asyncio
import base64
import datetime as dt
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from certs import pki
from kube import client, clock
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox.controlplane import Plane
from tests import factories
from tests.kubelet.worlds import named_condition

pytestmark = pytest.mark.cluster

SECRET = "kubeconfig-of-milan"  # noqa: S105  # a name
PATIENCE_S = 60


@pytest.fixture
async def real(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        yield cluster


class Site:
    """Namespaces and objects that an installation has, and the process."""

    def __init__(
        self, cluster: ClusterClient, kubeconfig: Path, name: str, *, provider: Path | None = None
    ) -> None:
        self.cluster, self.kubeconfig, self.name = cluster, kubeconfig, name
        self.provider = provider or kubeconfig
        self.tenant, self.home, self.twin = f"{name}-tenant", f"{name}-shop", f"{name}-shop-rome"
        self.process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def prepare(self) -> None:
        """Create all that is there before the kubelet."""
        for name in (self.tenant, self.home, self.twin):
            await self.cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
        data = {"kubeconfig": base64.b64encode(self.provider.read_bytes()).decode()}
        secret = named(keys.SECRET, Key(self.tenant, SECRET), data=data)
        await self.cluster.create(keys.SECRET, secret)
        spec = {"clusterID": "milan", "resourceQuota": {"hard": {"cpu": "4000m", "memory": "8Gi"}}}
        virtual = named(keys.VIRTUAL_NODE, Key(self.tenant, self.name), spec=spec)
        await self.cluster.create(keys.VIRTUAL_NODE, virtual)
        key = Key(self.tenant, "milan")
        found = named(
            keys.NAMESPACE_MAP,
            key,
            metadata={"labels": {keys.REMOTE_CLUSTER_ID: "milan", keys.REPLICATION: "true"}},
            spec={"desiredMapping": {self.home: self.twin}},
        )
        await self.cluster.create(keys.NAMESPACE_MAP, found)
        current = {self.home: {"remoteNamespace": self.twin, "phase": "Accepted"}}
        await self.cluster.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": current})

    async def start(self, *more: str) -> None:
        """Start the process, with ``more`` flags."""
        self.port = free_port()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kubelet",
            f"--kubeconfig={self.kubeconfig}",
            f"--nodename={self.name}",
            f"--tenant-namespace={self.tenant}",
            "--home-cluster-id=rome",
            "--foreign-cluster-id=milan",
            f"--foreign-kubeconfig-secret-name={SECRET}",
            "--node-ip=127.0.0.1",
            f"--listen-port={self.port}",
            f"--health-port={free_port()}",
            *more,
            env={**os.environ, "POD_NAME": f"vk-{self.name}-0"},
        )

    async def kill(self, number: signal.Signals) -> int:
        """End the process by a signal; return its exit code."""
        assert self.process
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def end(self) -> None:
        """End the process if it still runs."""
        if self.process and self.process.returncode is None:
            await self.kill(signal.SIGKILL)

    async def sign(self) -> pki.KeyPair | None:
        """Approve and sign what the process asks for; return the authority, None if it did not."""
        kind = keys.CERTIFICATE_SIGNING_REQUEST
        labels = f"{keys.VIRTUAL_NODE_LABEL}={self.name}"
        found = (await self.cluster.list(Selection(kind, Object, labels=labels))).items
        for key, request in found.items():
            now = clock.now()
            ca = pki.new_ca("test", now=now, lifetime=dt.timedelta(days=1))
            csr = base64.b64decode(request["spec"]["request"])
            signed = pki.sign(ca, csr, server=True, now=now, lifetime=dt.timedelta(hours=1))
            approved = {"type": "Approved", "status": "True", "reason": "Test", "message": ""}
            status = {"conditions": [approved]}
            await self.cluster.patch(kind, key, {"status": status}, subresource="approval")
            certificate = base64.b64encode(signed).decode()
            await self.cluster.patch_status(kind, key, {"certificate": certificate})
            return ca
        return None

    async def health(self, ca: pki.KeyPair) -> tuple[int, int]:
        """Return what /healthz and /pods answer to nobody in particular; (0, 0) for nothing."""
        context = ssl.create_default_context(cadata=ca.certificate.decode())
        root = f"https://127.0.0.1:{self.port}"
        try:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{root}/healthz", ssl=context) as health:
                    pass
                async with session.get(f"{root}/pods", ssl=context) as pods:
                    return health.status, pods.status
        except aiohttp.ClientConnectionError:
            return 0, 0

    async def bind(self, name: str) -> Object:
        """Create a pod bound to our node."""
        spec = {**factories.pod_spec(), "nodeName": self.name}
        return await self.cluster.create(keys.POD, factories.pod(self.home, name, spec=spec))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
async def site(real: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    made = Site(real, plane.kubeconfig, f"vk-{os.urandom(3).hex()}")
    await made.prepare()
    yield made
    await made.end()


async def eventually(found: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await found():  # noqa: ASYNC110  # another process is waited for
            await asyncio.sleep(0.05)


async def test_its_api_is_served_once_its_certificate_is_signed(site: Site) -> None:
    await site.start()
    authorities: list[pki.KeyPair] = []

    async def is_signed() -> bool:
        authorities.extend(filter(None, [await site.sign()]))
        return bool(authorities)

    async def is_served() -> bool:
        return await site.health(authorities[0]) == (200, 401)

    await eventually(is_signed)
    await eventually(is_served)


async def test_one_pod_outlives_the_kill_of_its_kubelet(site: Site) -> None:
    cluster = site.cluster
    await site.start()

    async def is_ready() -> bool:
        node = await cluster.get(keys.NODE, Key("", site.name))
        return named_condition((node or {}).get("status") or {}, "Ready").get("status") == "True"

    async def has_lease() -> bool:
        return bool(await cluster.get(keys.LEASE, Key("kube-node-lease", site.name)))

    async def is_labelled() -> bool:
        found = await cluster.get(keys.POD, Key(site.home, "web"))
        return bool(found and objects.labels(found).get(keys.SHADOW_POD_LABEL))

    await eventually(is_ready)
    local = await site.bind("web")
    await eventually(is_labelled)
    shadow = await cluster.get(keys.SHADOW_POD, Key(site.twin, "web"))
    assert shadow
    if await cluster.get(keys.NAMESPACE, Key("", "kube-node-lease")):
        await eventually(has_lease)

    assert await site.kill(signal.SIGKILL) == -signal.SIGKILL
    await site.start()
    await site.bind("other")

    async def has_other() -> bool:
        return bool(await cluster.get(keys.SHADOW_POD, Key(site.twin, "other")))

    await eventually(has_other)
    assert await cluster.get(keys.SHADOW_POD, Key(site.twin, "web")) == shadow
    again = await cluster.get(keys.POD, Key(site.home, "web"))
    assert again
    assert objects.uid(again) == objects.uid(local)

    await cluster.delete(keys.POD, Key(site.home, "web"), uid=objects.uid(local))

    async def is_gone() -> bool:
        left = await cluster.get(keys.SHADOW_POD, Key(site.twin, "web"))
        return left is None and await cluster.get(keys.POD, Key(site.home, "web")) is None

    await eventually(is_gone)
    assert await site.kill(signal.SIGTERM) == 0
