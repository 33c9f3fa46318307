"""The process ``kubelet`` between namespaces of a real API server, which is both its clusters."""

import asyncio
import base64
import contextlib
import datetime as dt
import os
import secrets
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from apis import keys
from apis.objects import Key, Object, named
from certs import pki
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import controlplane
from tests import factories
from tests.world import is_ready, offload

PATIENCE_S = 300


class Site:
    """Namespaces and objects that an installation has, and the process."""

    def __init__(  # noqa: PLR0913  # those that differ by name
        self,
        cluster: ClusterClient,
        kubeconfig: Path,
        name: str = "",
        *,
        provider: Path | None = None,
        replica: int = 0,
        log: Path | None = None,
    ) -> None:
        self.cluster, self.kubeconfig = cluster, kubeconfig
        self.name = name = name or f"vk-{secrets.token_hex(3)}"
        self.provider = provider
        self.tenant, self.home, self.twin = f"{name}-tenant", f"{name}-shop", f"{name}-shop-rome"
        self.pod_name, self.secret = f"vk-{name}-{replica}", f"kubeconfig-of-milan-{replica}"
        self.process: asyncio.subprocess.Process | None = None
        self.port = self.health_port = 0
        self.log = log
        """Where what the process says goes; None shows it."""

    async def prepare(self) -> None:
        for name in (self.tenant, self.home, self.twin):
            await self.cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
        await self.lead_to_provider()
        spec = {"clusterID": "milan", "resourceQuota": {"hard": {"cpu": "4000m", "memory": "8Gi"}}}
        virtual = named(keys.VIRTUAL_NODE, Key(self.tenant, self.name), spec=spec)
        await self.cluster.create(keys.VIRTUAL_NODE, virtual)
        await offload(self.cluster, Key(self.tenant, "milan"), {self.home: self.twin})

    async def lead_to_provider(self) -> None:
        """Create the Secret by which the process finds its provider."""
        kubeconfig = (self.provider or self.kubeconfig).read_bytes()
        data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
        secret = named(keys.SECRET, Key(self.tenant, self.secret), data=data)
        await self.cluster.create(keys.SECRET, secret)

    async def start(self, *flags: str) -> None:
        self.port, self.health_port = free_port(), free_port()
        log = self.log.open("wb") if self.log else None
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kubelet",
            f"--kubeconfig={self.kubeconfig}",
            f"--nodename={self.name}",
            f"--tenant-namespace={self.tenant}",
            "--home-cluster-id=rome",
            "--foreign-cluster-id=milan",
            f"--foreign-kubeconfig-secret-name={self.secret}",
            "--node-ip=127.0.0.1",
            f"--listen-port={self.port}",
            f"--health-port={self.health_port}",
            *flags,
            env={**os.environ, "POD_NAME": self.pod_name},
            stderr=log,
        )
        if log:
            log.close()

    async def kill(self, number: signal.Signals) -> int:
        """End the process by a signal; return its exit code."""
        assert self.process
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def end(self) -> None:
        if self.process and self.process.returncode is None:
            await self.kill(signal.SIGKILL)

    async def sign(self) -> pki.Keypair | None:
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

    async def health(self, ca: pki.Keypair) -> int:
        """Return what /healthz answers to nobody in particular; 0 for nothing."""
        context = ssl.create_default_context(cadata=ca.certificate.decode())
        url = f"https://127.0.0.1:{self.port}/healthz"
        try:
            async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0

    async def is_ready(self) -> bool:
        return is_ready(await self.cluster.get(keys.NODE, Key("", self.name)))

    async def bind(self, name: str) -> Object:
        spec = {**factories.pod_spec(), "nodeName": self.name}
        return await self.cluster.create(keys.POD, factories.pod(self.home, name, spec=spec))


@contextlib.asynccontextmanager
async def prepared(cluster: ClusterClient, kubeconfig: Path, **rest: Any) -> AsyncIterator[Site]:
    """Yield a site with all that it needs; its process ends with the block."""
    site = Site(cluster, kubeconfig, **rest)
    await site.prepare()
    try:
        yield site
    finally:
        await site.end()


def free_port() -> int:
    return controlplane.free_ports(1)[0]
