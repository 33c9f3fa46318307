"""The whole process against a real API server, which is both home and provider."""

import asyncio
import base64
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from apis import keys, objects
from apis.objects import Key, named
from certs import pki
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock
from kube.client import ClusterClient
from kube.events import EventRecorder
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import CRD, definition, established
from tests.kube.running import until_so
from tests.kubelet import sites
from tests.kubelet.sites import PATIENCE_S, Site, free_port
from tests.kubelet.worlds import named_condition, running
from tests.world import existing

pytestmark = pytest.mark.cluster


@pytest.fixture
async def site(server: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    async with sites.prepared(server, plane.kubeconfig) as made:
        yield made


@pytest.fixture
async def other(server: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    async with sites.prepared(server, plane.kubeconfig) as made:
        yield made


async def test_its_api_is_served_once_its_certificate_is_signed(site: Site) -> None:
    await site.start()
    authorities: list[pki.Keypair] = []

    async def is_signed() -> bool:
        authorities.extend(filter(None, [await site.sign()]))
        return bool(authorities)

    async def is_served() -> bool:
        return await site.health(authorities[0]) == 401

    await until_so(is_signed)
    await until_so(is_served)


async def test_one_pod_outlives_the_kill_of_its_kubelet(site: Site) -> None:
    cluster = site.cluster
    await site.start()

    async def has_lease() -> bool:
        return bool(await cluster.get(keys.LEASE, Key("kube-node-lease", site.name)))

    async def is_labelled() -> bool:
        found = await cluster.get(keys.POD, Key(site.home, "web"))
        return bool(found and objects.labels(found).get(keys.SHADOW_POD_LABEL))

    await until_so(site.is_ready)
    local = await site.bind("web")
    await until_so(is_labelled)
    shadow = await existing(cluster, keys.SHADOW_POD, Key(site.twin, "web"))
    await until_so(has_lease)

    assert await site.kill(signal.SIGKILL) == -signal.SIGKILL
    await site.start()
    await site.bind("other")

    async def has_other() -> bool:
        return bool(await cluster.get(keys.SHADOW_POD, Key(site.twin, "other")))

    await until_so(has_other)
    assert await cluster.get(keys.SHADOW_POD, Key(site.twin, "web")) == shadow
    again = await existing(cluster, keys.POD, Key(site.home, "web"))
    assert objects.uid(again) == objects.uid(local)

    await cluster.delete(keys.POD, Key(site.home, "web"), uid=objects.uid(local))

    async def is_gone() -> bool:
        left = await cluster.get(keys.SHADOW_POD, Key(site.twin, "web"))
        return left is None and await cluster.get(keys.POD, Key(site.home, "web")) is None

    await until_so(is_gone)
    assert await site.kill(signal.SIGTERM) == 0


async def test_one_pod_network_of_two_providers_is_told_apart(site: Site, other: Site) -> None:
    """Both call it 10.1.0.0/16 and their pod 10.1.0.7; each pod is told by its provider's remap."""
    networks = {site: "10.71.0.0/16", other: "10.72.0.0/16"}
    for one, network in networks.items():
        await one.start("--remote-pod-cidr=10.1.0.0/16", f"--remote-pod-cidr-remap={network}")
    for one in networks:
        await runs_there(one)

    assert [await pod_address(one) for one in networks] == ["10.71.0.7", "10.72.0.7"]


async def runs_there(site: Site) -> None:
    """Bind a pod, let it run on the provider, and wait until that is told."""
    there = Key(site.twin, "web")
    await site.bind("web")

    async def is_offloaded() -> bool:
        return bool(await site.cluster.get(keys.SHADOW_POD, there))

    await until_so(is_offloaded)
    recorder = EventRecorder(site.cluster, "tests", "milan")
    await ShadowPodReconciler(site.cluster, events=recorder, clock=clock.now).reconcile(there)
    await site.cluster.patch_status(keys.POD, there, running())

    async def is_told() -> bool:
        found = await site.cluster.get(keys.POD, Key(site.home, "web"))
        return ((found or {}).get("status") or {}).get("phase") == "Running"

    await until_so(is_told)


async def pod_address(site: Site) -> str:
    found = await site.cluster.get(keys.POD, Key(site.home, "web"))
    return str(((found or {}).get("status") or {}).get("podIP", ""))


async def test_a_pod_is_told_by_the_address_of_a_configuration_that_comes_later(site: Site) -> None:
    """No restart; until then, nobody here knows the kind, and nobody is told an address."""
    cluster = site.cluster
    await site.start("--ip-fabric")
    await runs_there(site)
    assert not await pod_address(site)

    async def is_reached() -> bool:
        return await pod_address(site) == "10.71.0.7"

    for kind in (keys.CONFIGURATION, keys.IP):
        await cluster.apply(CRD, definition(kind), manager="tests")
        await established(cluster, Key("", kind.resource))
    networks = {
        "spec": {"remote": {"cidr": {"pod": ["10.1.0.0/16"]}}},
        "status": {"remote": {"cidr": {"pod": ["10.71.0.0/16"]}}},
    }
    where, metadata = Key(site.tenant, "milan"), {"labels": {keys.REMOTE_CLUSTER_ID: "milan"}}
    made = named(keys.CONFIGURATION, where, metadata=metadata, spec=networks["spec"])
    await cluster.create(keys.CONFIGURATION, made)
    await cluster.patch_status(keys.CONFIGURATION, where, networks["status"])
    await until_so(is_reached)

    async def is_published() -> bool:
        found = await cluster.get(keys.IP, Key(site.home, "web"))
        return bool(found and found["spec"] == {"ip": "10.71.0.7"})

    await until_so(is_published)

    outside = [{"$patch": "replace"}, {"ip": "10.2.0.7"}]
    there = Key(site.twin, "web")
    await cluster.patch_status(keys.POD, there, {"podIP": "10.2.0.7", "podIPs": outside})

    async def is_told() -> bool:
        found = await cluster.get(keys.POD, Key(site.home, "web")) or {}
        told = named_condition(found.get("status") or {}, "pyliqo.io/AddressPublished")
        return told.get("reason") == "ForeignAddress"

    await until_so(is_told)
    assert not await pod_address(site)
    assert site.process
    assert site.process.returncode is None


async def test_it_says_by_what_it_runs_and_does_not_begin_on_nonsense(
    site: Site, tmp_path: Path
) -> None:
    site.log = tmp_path / "log"
    await site.start("--node-ping-interval=soon")
    assert site.process
    assert await site.process.wait() == 2
    assert "--node-ping-interval" in site.log.read_text()
    assert await site.cluster.get_live(keys.NODE, Key("", site.name)) is None

    await site.start("--node-ping-interval=7s")

    async def is_said() -> bool:
        assert site.log
        return bool(re.search(r"ping_interval_s\W+7\.0\b", site.log.read_text()))

    await until_so(is_said)


# What the two processes of a virtual node have imported while they work, which is their memory.
# They run as in their pod: with the identity of a ServiceAccount, not with a kubeconfig's.


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
NEVER: Final = {"kubelet": FOR_OTHERS, "reflector": FOR_OTHERS | {"aiohttp"}}


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
async def pod(server: ClusterClient, plane: Plane, tmp_path: Path) -> Pod:
    site = Site(server, plane.kubeconfig)
    await site.prepare()
    account = Key(site.tenant, "vk")
    await server.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, account))
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    key = Key("", site.name)
    binding = named(keys.CLUSTER_ROLE_BINDING, key, roleRef=role, subjects=[subject])
    await server.create(keys.CLUSTER_ROLE_BINDING, binding)
    made = await server.post(keys.SERVICE_ACCOUNT, account, "token", {"spec": {}})
    (tmp_path / "token").write_text(made["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(server.access.ca)
    return Pod(site, tmp_path, server.access.server)


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
        await until_so(is_served)
        await until_so(is_reflected)
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
    assert {"hpack", "msgspec"} <= found["kubelet"] & found["reflector"]
