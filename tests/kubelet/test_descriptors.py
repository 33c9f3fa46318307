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
from sandbox import controlplane
from tests.conftest import install_crds
from tests.kube.running import until_so
from tests.kubelet import sites
from tests.kubelet.sites import Site
from tests.world import existing, offload

pytestmark = pytest.mark.cluster

LIMIT: Final = 256
RENEWALS: Final = 3
SAID: Final = f"no file descriptor left (its limit is {LIMIT})"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Yield one at a server that takes one watch on a connection: another needs another."""
    with controlplane.start(tmp_path, flags=["--http2-max-streams-per-connection=1"]) as plane:
        await install_crds(plane.kubeconfig)
        async with (
            client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as server,
            sites.prepared(server, plane.kubeconfig, log=tmp_path / "kubelet.log") as made,
        ):
            yield made


@contextlib.asynccontextmanager
async def crowd(port: int) -> AsyncIterator[None]:
    """Take all that anybody who listens on ``port`` has left, and keep it."""
    taken = [await asyncio.open_connection("127.0.0.1", port) for _ in range(LIMIT)]
    try:
        yield
    finally:
        for _, writer in taken:
            writer.transport.abort()


async def renewed(site: Site) -> str:
    lease = await existing(site.cluster, keys.LEASE, Key(site.tenant, site.name))
    return str(lease["spec"]["renewTime"])


async def follow_another(cluster: ClusterClient, site: Site) -> str:
    """Map one more namespace; return its twin."""
    local, twin = f"{site.name}-more", f"{site.name}-more-rome"
    for name in (local, twin):
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    await offload(cluster, Key(site.tenant, "milan"), {local: twin})
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

    await until_so(site.is_ready)
    await site.bind("web")
    await until_so(is_offloaded)

    resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    async with crowd(site.health_port):
        times: set[str] = set()

        async def is_led_on() -> bool:
            times.add(await renewed(site))
            return len(times) > RENEWALS

        twin = await follow_another(site.cluster, site)
        await until_so(is_told)
        await until_so(is_led_on)
        assert await site.is_ready()
        assert site.process.returncode is None

    local: Object = await bound_in_twin(site, twin)
    assert local
    await until_so(lambda: is_offloaded(twin))
    assert await site.is_ready()
    assert "server does not answer" not in said()
    assert "Provider is silent" not in said()
    assert "no longer leads" not in said()


async def bound_in_twin(site: Site, twin: str) -> Object:
    before, site.home = site.home, twin.removesuffix("-rome")
    try:
        return await site.bind("web")
    finally:
        site.home = before
