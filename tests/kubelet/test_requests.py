"""What the virtual kubelet asks API servers about many pods at once, counted by their audit log.

``PYLIQO_TEST_PODS=1000`` and ``PYLIQO_TEST_FOREIGN=5000`` are the full size.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Informer
from kube.slim import Partial
from sandbox import audit, controlplane
from sandbox.controlplane import Plane
from tests.conftest import install_crds, size_of
from tests.factories import pod, pod_spec
from tests.kube.running import running, some_at_once, until
from tests.kubelet import sites
from tests.kubelet.milan import Milan
from tests.kubelet.sites import PATIENCE_S, Site
from tests.world import is_ready, offload, remove

pytestmark = pytest.mark.cluster

PODS: Final = size_of("PYLIQO_TEST_PODS", 40, 1000)
FOREIGN: Final = size_of("PYLIQO_TEST_FOREIGN", 100, 5000)
LINGER_S: Final = float(os.environ.get("PYLIQO_TEST_LINGER_S", "6"))
"""Longer than the virtual kubelet waits between two looks at what no event tells."""
KUBELET: Final = "pyliqo-kubelet"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("counted")) as plane:
        plane.start_namespaces()
        yield plane


@pytest.fixture
async def site(counted: Plane) -> AsyncIterator[Site]:
    await install_crds(counted.kubeconfig)
    async with (
        client.connect(counted.kubeconfig, user_agent="pyliqo-tests") as real,
        sites.prepared(real, counted.kubeconfig) as made,
    ):
        yield made


class Slow(Milan):
    """A provider whose Pods are on a node, and end when they are let: their kubelet takes time."""

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        super().__init__(cluster, namespace)
        self.lets = False

    async def reconcile(self, key: Key) -> float | None:
        again_s = await super().reconcile(key)
        pod = await self._cluster.get_live(keys.POD, key)
        if pod is not None and not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "of-milan"}
            body = {"apiVersion": "v1", "kind": "Binding", "target": target}
            metadata = {"name": key.name, "namespace": key.namespace}
            await self._cluster.post(keys.POD, key, "binding", {**body, "metadata": metadata})
        return again_s if pod is None else 0.1

    async def end(self, pod: Object) -> None:
        if self.lets:
            await super().end(pod)


class Home:
    """The pods of a namespace, seen by somebody else."""

    def __init__(self, namespace: str) -> None:
        self.pods = Informer(Selection(keys.POD, Object, namespace))

    def ready(self) -> int:
        return sum(map(is_ready, self.pods.items().values()))

    def reasons(self) -> Counter[str]:
        said = ((one.get("status") or {}) for one in self.pods.items().values())
        return Counter(str(one.get("reason")) for one in said)


async def gets_by_resource(plane: Plane, log: audit.Log) -> Counter[str]:
    """Return the GETs of the virtual kubelet, by resource."""
    calls = await asyncio.to_thread(log.settled, plane.api)
    return Counter(
        call.resource for call in calls if call.agent.startswith(KUBELET) and call.verb == "get"
    )


async def test_deleting_an_offloaded_namespace_reads_no_pod_that_a_watch_told_of(
    counted: Plane, site: Site
) -> None:
    milan, home = Slow(site.cluster, site.twin), Home(site.home)
    log, key = audit.Log(counted.audit_log), Key(site.tenant, "milan")
    async with milan.running(), running(home.pods.run(site.cluster)):
        await site.start()
        await some_at_once(site.bind(f"web-{number}") for number in range(PODS))
        await until(lambda: home.ready() == PODS, within_s=PATIENCE_S)
        await gets_by_resource(counted, log)

        await remove(site.cluster, keys.NAMESPACE, Key("", site.home))
        await until(lambda: are_ending(home.pods), within_s=PATIENCE_S)
        gone = {"spec": {"desiredMapping": {site.home: None}}}
        await site.cluster.patch(keys.NAMESPACE_MAP, key, gone)
        current = {site.home: {"remoteNamespace": site.twin, "phase": "Terminating"}}
        await site.cluster.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": current})
        await remove(site.cluster, keys.NAMESPACE, Key("", site.twin))
        await until(lambda: are_ending(milan.pods), within_s=PATIENCE_S)
        assert len(home.pods.items()) == len(milan.pods.items()) == PODS
        await asyncio.sleep(LINGER_S)  # what pods that end take
        milan.lets = True
        await until(lambda: not home.pods.items(), within_s=PATIENCE_S)
        told = await gets_by_resource(counted, log)

    sys.stderr.write(f"{PODS} pods of a namespace that goes: {dict(told)}\n")
    assert {told["pods"], told["shadowpods"]} == {0}
    assert told["namespacemaps"] <= PODS / 5


async def scheduled(site: Site, made: Object) -> None:
    """Create the pod, and let it say what the binding of a scheduler says."""
    await site.cluster.create(keys.POD, made)
    bound = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    await site.cluster.patch_status(keys.POD, objects.key_of(made), bound)


async def test_a_change_of_the_map_is_read_once_for_all_pods_that_it_concerns(
    counted: Plane, site: Site
) -> None:
    other, shelf = f"{site.name}-other", f"{site.name}-shelf"
    home, map_key = Home(other), Key(site.tenant, "milan")
    for name in (other, shelf, f"{shelf}-rome"):
        await site.cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    spec = {**pod_spec(), "nodeName": site.name}
    await some_at_once(
        scheduled(site, pod(other, f"web-{number}", spec=spec)) for number in range(FOREIGN)
    )
    log = audit.Log(counted.audit_log)
    async with running(home.pods.run(site.cluster)):
        await site.start()
        await until(lambda: home.reasons()["OffloadingBackOff"] == FOREIGN, within_s=PATIENCE_S)
        first = await gets_by_resource(counted, log)

        await offload(site.cluster, map_key, {shelf: f"{shelf}-rome"})
        shelved = pod(shelf, "web", spec=spec)
        await site.cluster.create(keys.POD, shelved)
        await until_there(site, Key(f"{shelf}-rome", "web"))
        unconcerned = await gets_by_resource(counted, log)

        wanted = {"spec": {"desiredMapping": {other: f"{other}-rome"}}}
        await site.cluster.patch(keys.NAMESPACE_MAP, map_key, wanted)
        await remove(site.cluster, keys.POD, last := Key(shelf, "web"))
        await until_pod_gone(site, last)
        concerned = await gets_by_resource(counted, log)

    said = {"at first": first, "of no concern": unconcerned, "of all": concerned}
    for what, count in said.items():
        sys.stderr.write(f"{FOREIGN} foreign pods, {what}: {count['namespacemaps']} GETs\n")
    assert unconcerned["namespacemaps"] <= 1
    assert concerned["namespacemaps"] <= 1


def are_ending(pods: Informer[Object]) -> bool:
    return all(objects.is_terminating(one) for one in pods.items().values())


async def until_there(site: Site, twin: Key) -> None:
    shadows = Informer(Selection(keys.SHADOW_POD, Partial, twin.namespace))
    async with running(shadows.run(site.cluster)):
        await until(lambda: shadows.get(twin), within_s=PATIENCE_S)


async def until_pod_gone(site: Site, key: Key) -> None:
    pods = Informer(Selection(keys.POD, Partial, key.namespace))
    async with running(pods.run(site.cluster)):
        await until(lambda: pods.synced.is_set() and not pods.get(key), within_s=PATIENCE_S)
