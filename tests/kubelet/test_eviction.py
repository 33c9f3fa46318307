"""Pods of a provider that is away are evicted as their own tolerations say, by Kubernetes.

A control plane of its own, since its node controllers judge every Node there is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from kube import client
from kube.cluster import Selection
from kube.informer import Informer
from sandbox import audit, controlplane
from sandbox.controlplane import Plane
from sandbox.simulated import NodeKeeper
from tests import factories
from tests.conftest import install_crds
from tests.kube.running import Gate, running, until
from tests.kubelet.sites import Site
from tests.kubelet.test_outage import behind
from tests.world import is_ready

pytestmark = pytest.mark.cluster

WITHIN_S: Final = 240
NOT_READY: Final = "node.kubernetes.io/not-ready"
STAYS: Final = {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}
GOES: Final = {**STAYS, "tolerationSeconds": 0}
OURS: Final = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture
async def own_api_server(tmp_path: Path) -> AsyncIterator[Plane]:
    with controlplane.start(tmp_path / "plane") as plane:
        await install_crds(plane.kubeconfig)
        plane.start_evictions()
        yield plane


@pytest.fixture
async def way(own_api_server: Plane) -> AsyncIterator[Gate]:
    async with Gate(own_api_server.listening.port) as gate:
        yield gate


class HomeNodes:
    """Nodes and pods at home."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.nodes = Informer(Selection(keys.NODE, Object))
        self.pods = Informer(Selection(keys.POD, Object, site.home))

    def is_ready(self, name: str) -> bool:
        return is_ready(self.nodes.get(Key("", name)))

    def is_tainted(self) -> bool:
        found = self.nodes.get(Key("", self.site.name)) or {"spec": {}}
        return any(
            each["key"] == NOT_READY and each["effect"] == "NoExecute"
            for each in found["spec"].get("taints") or ()
        )

    def is_evicted(self, name: str) -> bool:
        found = self.pods.get(Key(self.site.home, name))
        return found is None or objects.is_terminating(found)


async def bound_with(site: Site, name: str, toleration: Object) -> Object:
    spec = {**factories.pod_spec(), "nodeName": site.name, "tolerations": [OURS, toleration]}
    return await site.cluster.create(keys.POD, factories.pod(site.home, name, spec=spec))


@contextlib.asynccontextmanager
async def kubelet_behind_gate(own: Plane, way: Gate, directory: Path) -> AsyncIterator[HomeNodes]:
    """Run a virtual kubelet whose provider is behind ``way``, beside a node that is always ready.

    Where all nodes are away at once Kubernetes evicts nobody: it takes itself for cut off.
    """
    async with client.connect(own.kubeconfig, user_agent="pyliqo-tests") as real:
        site = Site(real, own.kubeconfig, provider=behind(own, way, directory))
        await site.prepare()
        seen = HomeNodes(site)
        await site.start("--node-ping-interval=1s")
        try:
            async with running(
                NodeKeeper(real, []).keep("always-there"), seen.nodes.run(real), seen.pods.run(real)
            ):
                names = (site.name, "always-there")
                await until(lambda: all(map(seen.is_ready, names)) and not seen.is_tainted())
                yield seen
        finally:
            await site.end()


async def test_a_provider_that_is_away_costs_the_pods_that_tolerate_it_no_longer(
    own_api_server: Plane, way: Gate, tmp_path: Path
) -> None:
    log = audit.Log(own_api_server.audit_log)
    async with kubelet_behind_gate(own_api_server, way, tmp_path) as seen:
        patient = await bound_with(seen.site, "patient", STAYS)
        await bound_with(seen.site, "hasty", GOES)

        await way.shut()
        await until(seen.is_tainted)
        await until(lambda: seen.is_evicted("hasty"))
        assert not seen.is_evicted("patient")

        await way.open()
        await until(lambda: seen.is_ready(seen.site.name) and not seen.is_tainted())
        await until(lambda: seen.pods.get(Key(seen.site.home, "hasty")) is None)
        left = seen.pods.get(Key(seen.site.home, "patient"))
        assert left
        assert objects.uid(left) == objects.uid(patient)
        assert not objects.is_terminating(left)
        calls = [
            call
            for call in await asyncio.to_thread(log.settled, own_api_server.api)
            if call.verb == "delete"
            and call.resource == "pods"
            and call.namespace == seen.site.home
        ]

    assert {call.name for call in calls} == {"hasty"}
    assert calls[0].agent.startswith("kube-controller-manager")
