"""What the two processes of a virtual node have imported while they work, which is their memory.

They run as in their pod: with the identity of a ServiceAccount, not with a kubeconfig's.
"""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from apis import keys
from apis.objects import Key, named
from certs import pki
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests import factories
from tests.kubelet.sites import PATIENCE_S, Site, eventually, free_port

pytestmark = pytest.mark.cluster

PROGRAM: Final = """
import importlib, pathlib, sys
from kube import credentials
credentials.SERVICE_ACCOUNT = pathlib.Path(sys.argv[2])  # where a kubelet puts it
code = importlib.import_module(sys.argv[1] + ".__main__").main(sys.argv[3:])
print(*sys.modules)
sys.exit(code)
"""
FOR_OTHERS: Final = {
    "click",
    "cryptography",  # certificates are made and judged by a process that ends
    "flask",
    "gunicorn",
    "importlib.metadata",
    "jinja2",
    "kubernetes",
    "multiprocessing",
    "rich",
    "yaml",  # kubeconfigs of ours are JSON
    "zipfile",
}
ONLY_TO_SERVE: Final = {"aiohttp.web", "aiohttp.web_app", "aiohttp.web_urldispatcher"}
NEVER: Final = {"kubelet": FOR_OTHERS, "reflector": FOR_OTHERS | ONLY_TO_SERVE}


@dataclass
class Pod:
    """A process with the identity of a pod."""

    site: Site
    folder: Path
    server: str

    async def start(self, daemon: str, *more: str) -> asyncio.subprocess.Process:
        where = urlsplit(self.server)
        pod = {
            "POD_NAME": f"vk-{self.site.name}-0",
            "KUBERNETES_SERVICE_HOST": where.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(where.port),
        }
        arguments = [
            f"--nodename={self.site.name}",
            f"--tenant-namespace={self.site.tenant}",
            "--home-cluster-id=rome",
            "--foreign-cluster-id=milan",
            f"--foreign-kubeconfig-secret-name={self.site.secret}",
            f"--health-port={free_port()}",
            *more,
        ]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, daemon, str(self.folder), *arguments),
            stdout=asyncio.subprocess.PIPE,
            env={name: said for name, said in os.environ.items() if name != "KUBECONFIG"} | pod,
        )


@pytest.fixture
async def real(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        yield cluster


@pytest.fixture
async def pod(real: ClusterClient, plane: Plane, tmp_path: Path) -> Pod:
    site = Site(real, plane.kubeconfig, f"vk-{os.urandom(3).hex()}")
    await site.prepare()
    account = Key(site.tenant, "vk")
    await real.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, account))
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    key = Key("", site.name)
    binding = named(keys.CLUSTER_ROLE_BINDING, key, roleRef=role, subjects=[subject])
    await real.create(keys.CLUSTER_ROLE_BINDING, binding)
    made = await real.post(keys.SERVICE_ACCOUNT, account, "token", {"spec": {}})
    (tmp_path / "token").write_text(made["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(real.access.ca)
    return Pod(site, tmp_path, real.access.server)


async def modules(process: asyncio.subprocess.Process) -> set[str]:
    """End the process; return what it has imported, and each package of that."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        said, _ = await process.communicate()
    assert process.returncode == 0
    names = said.decode().split()
    return {*names, *(name.partition(".")[0] for name in names)}


async def test_a_virtual_node_imports_what_it_works_with_and_nothing_else(pod: Pod) -> None:
    site, cluster = pod.site, pod.site.cluster
    site.port = free_port()
    kubelet = await pod.start("kubelet", "--node-ip=127.0.0.1", f"--listen-port={site.port}")
    reflector = await pod.start("reflector")
    processes = {"kubelet": kubelet, "reflector": reflector}
    try:
        authorities: list[pki.Keypair] = []

        async def is_served() -> bool:
            authorities.extend(filter(None, [] if authorities else [await site.sign()]))
            return bool(authorities) and await site.health(authorities[0]) == 401

        async def is_reflected() -> bool:
            return bool(await cluster.get_live(keys.CONFIG_MAP, Key(site.twin, "settings")))

        data = {"a": base64.b64encode(b"1").decode()}
        made = named(keys.CONFIG_MAP, Key(site.home, "settings"), data=data)
        await cluster.create(keys.CONFIG_MAP, made)
        await cluster.create(keys.NAMESPACE_OFFLOADING, factories.offloading(site.home))
        await eventually(is_served)
        await eventually(is_reflected)
        found = {name: await modules(process) for name, process in processes.items()}
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert {name: found[name] & NEVER[name] for name in found} == {
        "kubelet": set(),
        "reflector": set(),
    }
    assert {"aiohttp.client", "msgspec"} <= found["kubelet"] & found["reflector"]
