"""A virtual kubelet that runs out of file descriptors keeps what is up, and says what it lacks.

The process and the API server are real; idle connections to its port of probes take what is left.
Source: docs/parity.md F-35.
"""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests.kubelet.sites import Site, eventually
from tests.kubelet.worlds import named_condition

pytestmark = pytest.mark.cluster

LIMIT: Final = 256
RENEWALS: Final = 3
SAID: Final = f"no file descriptor left (its limit is {LIMIT})"


@pytest.fixture
async def site(plane: Plane, crds: None, tmp_path: Path) -> AsyncIterator[Site]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        made = Site(cluster, plane.kubeconfig, "vk-crowded")
        made.log = tmp_path / "kubelet.log"
        await made.prepare()
        yield made
        await made.end()


@contextlib.asynccontextmanager
async def crowd(port: int) -> AsyncIterator[None]:
    """Take all that anybody who listens on ``port`` has left, and keep it."""
    taken = [await asyncio.open_connection("127.0.0.1", port) for _ in range(LIMIT)]
    try:
        yield
    finally:
        for _, writer in taken:
            writer.transport.abort()


async def is_ready(site: Site) -> bool:
    node = await site.cluster.get(keys.NODE, Key("", site.name))
    return named_condition((node or {}).get("status") or {}, "Ready").get("status") == "True"


async def renewed(site: Site) -> str:
    lease = await site.cluster.get(keys.LEASE, Key(site.tenant, site.name))
    assert lease
    return str(lease["spec"]["renewTime"])


async def follow_another(cluster: ClusterClient, site: Site) -> str:
    """Map one more namespace; return its twin."""
    local, twin = f"{site.name}-more", f"{site.name}-more-rome"
    for name in (local, twin):
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    current = {local: {"remoteNamespace": twin, "phase": "Accepted"}}
    where = Key(site.tenant, "milan")
    await cluster.patch(keys.NAMESPACE_MAP, where, {"spec": {"desiredMapping": {local: twin}}})
    await cluster.patch_status(keys.NAMESPACE_MAP, where, {"currentMapping": current})
    return twin


async def test_without_file_descriptors_what_is_up_stays_and_the_rest_says_so(site: Site) -> None:
    await site.start("--node-ping-interval=1s")
    assert site.process
    assert site.log

    async def is_offloaded(twin: str = site.twin, name: str = "web") -> bool:
        return bool(await site.cluster.get(keys.SHADOW_POD, Key(twin, name)))

    async def is_told() -> bool:
        return SAID in said()

    def said() -> str:
        return site.log.read_text() if site.log else ""

    await eventually(lambda: is_ready(site))
    await site.bind("web")
    await eventually(is_offloaded)

    resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    async with crowd(site.health_port):
        times: set[str] = set()

        async def is_led_on() -> bool:
            times.add(await renewed(site))
            return len(times) > RENEWALS

        twin = await follow_another(site.cluster, site)
        await eventually(is_told)
        await eventually(is_led_on)
        assert await is_ready(site)
        assert site.process.returncode is None

    local: Object = await bound(site, twin)
    assert local
    await eventually(lambda: is_offloaded(twin))
    assert await is_ready(site)
    assert "server does not answer" not in said()
    assert "Provider is silent" not in said()
    assert "no longer leads" not in said()


async def bound(site: Site, twin: str) -> Object:
    """Create a pod on our node in the namespace whose twin that is."""
    before, site.home = site.home, twin.removesuffix("-rome")
    try:
        return await site.bind("web")
    finally:
        site.home = before
