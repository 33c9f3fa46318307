"""The whole process against a real API server, which is both home and provider."""

import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apis import keys, objects
from apis.objects import Key, named
from certs import pki
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import client, clock
from kube.client import ClusterClient
from kube.events import EventRecorder
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
    async with prepared(real, plane) as made:
        yield made


@pytest.fixture
async def other(real: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    async with prepared(real, plane) as made:
        yield made


@contextlib.asynccontextmanager
async def prepared(real: ClusterClient, plane: Plane) -> AsyncIterator[Site]:
    made = Site(real, plane.kubeconfig, f"vk-{os.urandom(3).hex()}")
    await made.prepare()
    yield made
    await made.end()


async def test_its_api_is_served_once_its_certificate_is_signed(site: Site) -> None:
    await site.start()
    authorities: list[pki.Keypair] = []

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


async def test_one_pod_network_of_two_providers_is_told_apart(site: Site, other: Site) -> None:
    """Both call it 10.1.0.0/16 and their pod 10.1.0.7; each pod is told by its provider's remap."""
    networks = {site: "10.71.0.0/16", other: "10.72.0.0/16"}
    for one, network in networks.items():
        await one.start("--remote-pod-cidr=10.1.0.0/16", f"--remote-pod-cidr-remap={network}")
    for one in networks:
        await runs_there(one)

    assert [await address(one) for one in networks] == ["10.71.0.7", "10.72.0.7"]


async def runs_there(site: Site) -> None:
    """Bind a pod, let it run on the provider, and wait until that is told."""
    there = Key(site.twin, "web")
    await site.bind("web")

    async def is_offloaded() -> bool:
        return bool(await site.cluster.get(keys.SHADOW_POD, there))

    await eventually(is_offloaded)
    recorder = EventRecorder(site.cluster, "tests", "milan")
    await ShadowPodReconciler(site.cluster, events=recorder, clock=clock.now).reconcile(there)
    await site.cluster.patch_status(keys.POD, there, running())

    async def is_told() -> bool:
        found = await site.cluster.get(keys.POD, Key(site.home, "web"))
        return ((found or {}).get("status") or {}).get("phase") == "Running"

    await eventually(is_told)


async def address(site: Site) -> str:
    found = await site.cluster.get(keys.POD, Key(site.home, "web"))
    return str(((found or {}).get("status") or {}).get("podIP", ""))


async def test_a_pod_is_told_by_the_address_of_a_configuration_that_comes_later(site: Site) -> None:
    """No restart; until then, nobody here knows the kind, and nobody is told an address."""
    cluster = site.cluster
    await site.start("--ip-fabric")
    await runs_there(site)
    assert not await address(site)

    async def is_reached() -> bool:
        return await address(site) == "10.71.0.7"

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

    outside = [{"$patch": "replace"}, {"ip": "10.2.0.7"}]
    there = Key(site.twin, "web")
    await cluster.patch_status(keys.POD, there, {"podIP": "10.2.0.7", "podIPs": outside})

    async def is_told() -> bool:
        found = await cluster.get(keys.POD, Key(site.home, "web")) or {}
        told = named_condition(found.get("status") or {}, "pyliqo.io/AddressPublished")
        return told.get("reason") == "ForeignAddress"

    await eventually(is_told)
    assert not await address(site)
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

    await eventually(is_said)
