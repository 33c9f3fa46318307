"""The whole process against a real API server, which is both home and provider."""

import os
import signal
from collections.abc import AsyncIterator

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from certs import pki
from controllers.shadowpod.reconciler import ShadowPodReconciler
from kube import client, clock
from kube.client import ClusterClient
from kube.events import Recorder
from sandbox.controlplane import Plane
from tests.conftest import CRD, definition, established
from tests.kubelet.sites import Site, eventually
from tests.kubelet.worlds import named_condition, running

pytestmark = pytest.mark.cluster


@pytest.fixture
async def real(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
        yield cluster


@pytest.fixture
async def site(real: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    made = Site(real, plane.kubeconfig, f"vk-{os.urandom(3).hex()}")
    await made.prepare()
    yield made
    await made.end()


async def test_its_api_is_served_once_its_certificate_is_signed(site: Site) -> None:
    await site.start()
    authorities: list[pki.KeyPair] = []

    async def is_signed() -> bool:
        authorities.extend(filter(None, [await site.sign()]))
        return bool(authorities)

    async def is_served() -> bool:
        return await site.health(authorities[0]) == 401

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


async def test_a_pod_is_told_by_the_address_of_a_configuration_that_comes_later(site: Site) -> None:
    """No restart; until then, nobody here knows the kind, and nobody is told an address."""
    cluster, there = site.cluster, Key(site.twin, "web")
    await site.start("--ip-fabric")
    await site.bind("web")

    async def is_offloaded() -> bool:
        return bool(await cluster.get(keys.SHADOW_POD, there))

    async def status() -> Object:
        found = await cluster.get(keys.POD, Key(site.home, "web"))
        return (found or {}).get("status") or {}

    async def is_running() -> bool:
        return (await status()).get("phase") == "Running"

    async def is_reached() -> bool:
        return (await status()).get("podIP") == "10.71.0.7"

    await eventually(is_offloaded)
    recorder = Recorder(cluster, "tests", "milan")
    await ShadowPodReconciler(cluster, events=recorder, clock=clock.now).reconcile(there)
    await cluster.patch_status(keys.POD, there, running())
    await eventually(is_running)
    assert "podIP" not in await status()

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
    await eventually(is_reached)

    async def is_published() -> bool:
        found = await cluster.get(keys.IP, Key(site.home, "web"))
        return bool(found and found["spec"] == {"ip": "10.71.0.7"})

    await eventually(is_published)
    assert site.process
    assert site.process.returncode is None
