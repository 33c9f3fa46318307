"""The lease of a node is renewed whatever its virtual kubelet is busy with (docs/parity.md H22)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key
from kube import client
from kube.client import ClusterClient
from kubelet.node import Heartbeat
from sandbox import api
from sandbox.controlplane import Plane
from tests.kube.running import running

pytestmark = pytest.mark.cluster

SHORT_S = 4


@pytest.fixture
async def home(plane: Plane) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig) as real:
        yield real


async def test_a_loop_that_is_held_delays_no_renewal(plane: Plane, home: ClusterClient) -> None:
    name = "held"
    await home.create(keys.NODE, objects.named(keys.NODE, Key("", name)))
    beats = Heartbeat(home, name, duration_s=SHORT_S, may_write=lambda: True)
    async with running(beats.run()):
        await begun(home, name)
        seen = {renewed(plane, name)}

        def is_renewed_twice() -> bool:
            seen.add(renewed(plane, name))
            return len(seen) > 2

        api.wait_until(is_renewed_twice, "two renewals", timeout_s=120)  # and holds this loop
        assert beats.is_alive()


async def test_who_does_not_lead_renews_nothing(plane: Plane, home: ClusterClient) -> None:
    name = "lost"
    await home.create(keys.NODE, objects.named(keys.NODE, Key("", name)))
    asked: list[bool] = []
    leads = [True]

    def may_write() -> bool:
        asked.append(leads[0])
        return leads[0]

    beats = Heartbeat(home, name, duration_s=SHORT_S, may_write=may_write)
    async with running(beats.run()):
        await begun(home, name)
        leads[0] = False
        api.wait_until(lambda: asked[-1:] == [False], "the next attempt", timeout_s=120)
        last = renewed(plane, name)
        api.wait_until(lambda: asked[-3:] == [False] * 3, "more of them", timeout_s=120)
        assert renewed(plane, name) == last


async def begun(home: ClusterClient, name: str) -> None:
    where = Key(keys.NODE_LEASE_NAMESPACE, name)
    async with asyncio.timeout(300):
        while await home.get(keys.LEASE, where) is None:  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.05)


def renewed(plane: Plane, name: str) -> str:
    """Return when the lease was renewed; it asks without any loop."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{keys.NODE_LEASE_NAMESPACE}/leases/{name}"
    found: Any = plane.api.request("GET", path)
    return str(found["spec"]["renewTime"])
