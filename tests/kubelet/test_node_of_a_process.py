"""The Node of the whole process on a real API server, which is both home and provider."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from kubelet.node import Heartbeat
from sandbox import api
from sandbox.controlplane import Plane
from tests.controllers import test_virtualnode
from tests.controllers.support import there
from tests.kube.running import Gate, running, until_so
from tests.kubelet.sites import Site
from tests.kubelet.test_outage import behind
from tests.kubelet.worlds import named_condition

pytestmark = pytest.mark.cluster

Sites = Callable[..., Site]


@pytest.fixture
async def sites(plane: Plane, crds: None) -> AsyncIterator[Sites]:
    """Yield what makes a site, whose process ends with the test."""
    made: list[Site] = []
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as real:

        def site(provider: Path | None = None) -> Site:
            made.append(Site(real, plane.kubeconfig, provider=provider))
            return made[-1]

        yield site
        for one in made:
            await one.end()


async def node_of_site(site: Site) -> Object | None:
    return await site.cluster.get(keys.NODE, Key("", site.name))


async def ready_condition(site: Site) -> Object:
    return named_condition(((await node_of_site(site)) or {}).get("status") or {}, "Ready")


async def until_ready(site: Site, status: str = "True") -> Object:
    """Return the Node once its condition Ready has that status."""

    async def is_so() -> bool:
        return (await ready_condition(site)).get("status") == status

    await until_so(is_so)
    return await there(site.cluster, keys.NODE, Key("", site.name))


def others(found: Object) -> dict[str, tuple[str, str]]:
    """Return status and reason of all conditions but Ready."""
    told = found["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in told if one["type"] != "Ready"}


async def test_its_conditions_follow_what_is_granted_and_a_deleted_node_comes_back(
    sites: Sites,
) -> None:
    site = sites()
    await site.prepare()
    await site.start()
    first = await until_ready(site)
    assert others(first) == {
        "MemoryPressure": ("False", "RemoteClusterHasSufficientMemory"),
        "DiskPressure": ("False", "RemoteClusterHasNoDiskPressure"),
        "PIDPressure": ("False", "RemoteClusterHasNoPIDPressure"),
    }

    await site.cluster.delete(keys.NODE, Key("", site.name), uid=objects.uid(first))

    async def is_new() -> bool:
        found = await node_of_site(site)
        return bool(found and objects.uid(found) != objects.uid(first))

    await until_so(is_new)
    assert others(await until_ready(site)) == others(first)
    await grant_cpu(site, "0")
    assert others(await until_ready(site, "False")) == {
        "MemoryPressure": ("True", "RemoteClusterHasMemoryPressure"),
        "DiskPressure": ("True", "RemoteClusterHasDiskPressure"),
        "PIDPressure": ("True", "RemoteClusterHasPIDPressure"),
    }
    await grant_cpu(site, "4")
    assert others(await until_ready(site)) == others(first)


async def test_a_label_of_an_administrator_outlives_changes_of_the_virtual_node(
    sites: Sites,
) -> None:
    site = sites()
    await site.prepare()
    await site.start()
    await until_ready(site)
    key = Key("", site.name)
    await site.cluster.patch(keys.NODE, key, {"metadata": {"labels": {"staging": "true"}}})

    suggested = {"spec": {"labels": {"tier": "gold"}}}
    await site.cluster.patch(keys.VIRTUAL_NODE, Key(site.tenant, site.name), suggested)
    await grant_cpu(site, "3")

    async def is_changed() -> bool:
        found = await there(site.cluster, keys.NODE, key)
        has_label = objects.labels(found).get("tier") == "gold"
        return has_label and found["status"]["allocatable"]["cpu"] == "3"

    await until_so(is_changed)
    assert objects.labels(await there(site.cluster, keys.NODE, key))["staging"] == "true"


async def grant_cpu(site: Site, cpu: str) -> None:
    hard = {"spec": {"resourceQuota": {"hard": {"cpu": cpu}}}}
    await site.cluster.patch(keys.VIRTUAL_NODE, Key(site.tenant, site.name), hard)


async def test_it_pings_as_often_as_its_template_says(
    sites: Sites, plane: Plane, gate: Gate, tmp_path: Path
) -> None:
    """Each second, or each hour: one sees at once that the provider is away, the other not yet."""
    way = behind(plane, gate, tmp_path)
    attentive, trusting = sites(way), sites(way)
    for site, interval in ((attentive, "1s"), (trusting, "1h")):
        await site.prepare()
        await site.start(*await pinging(site.cluster, site.name, interval))
    for site in (attentive, trusting):
        await until_ready(site)

    await gate.shut()

    await until_ready(attentive, "False")
    assert (await ready_condition(attentive))["reason"] == "ProviderNotReachable"
    assert (await ready_condition(trusting))["status"] == "True"
    await gate.open()
    await until_ready(attentive)


async def pinging(cluster: ClusterClient, unique: str, interval: str) -> list[str]:
    """Return what a VkOptionsTemplate that says so has the Deployment tell its virtual kubelet."""
    rome = await test_virtualnode.prepared_consumer(cluster, unique)
    template = Key(rome.tenant, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    patient = "--node-ping-timeout=1m"  # on a slow machine none is lost before the cut
    changes = {"spec": {"extraArgs": [f"--node-ping-interval={interval}", patient]}}
    await cluster.patch(keys.VK_OPTIONS_TEMPLATE, template, changes)
    await rome.create()
    await rome.settle()
    made = await there(cluster, keys.DEPLOYMENT, rome.deployment)
    containers = {one["name"]: one for one in made["spec"]["template"]["spec"]["containers"]}
    found = [arg for arg in containers["kubelet"]["args"] if "ping" in arg]
    assert len(found) == 2
    return found


async def test_the_secret_with_the_kubeconfig_is_in_the_namespace_of_the_virtual_node(
    sites: Sites, tmp_path: Path
) -> None:
    """It is waited for, by name and key; a namesake in another namespace leads nowhere."""
    site = sites()
    site.log = tmp_path / "log"
    await site.prepare()
    key = Key(site.tenant, site.secret)
    secret = await there(site.cluster, keys.SECRET, key)
    await site.cluster.delete(keys.SECRET, key, uid=objects.uid(secret))
    elsewhere = named(keys.SECRET, Key(site.home, site.secret), data=secret["data"])
    await site.cluster.create(keys.SECRET, elsewhere)

    await site.start()

    await until_said(site, "Secret with the kubeconfig is not there")
    wrong = {"config": secret["data"][keys.KUBECONFIG_KEY]}
    await site.cluster.create(keys.SECRET, named(keys.SECRET, key, data=wrong))
    await until_said(site, "the Secret lacks the key kubeconfig")
    assert await node_of_site(site) is None
    await site.cluster.patch(keys.SECRET, key, {"data": secret["data"]})
    await until_ready(site)


async def until_said(site: Site, text: str) -> None:
    """Wait until the process says that of its Secret."""
    assert site.log
    path = site.log

    async def is_said() -> bool:
        lines = path.read_text().splitlines()
        return any(text in line and site.secret in line for line in lines)

    await until_so(is_said)


# The lease of a node is renewed whatever its virtual kubelet is busy with (docs/parity.md H22).


SHORT_S = 4


async def test_a_loop_that_is_held_delays_no_renewal(plane: Plane, server: ClusterClient) -> None:
    name = "held"
    await server.create(keys.NODE, objects.named(keys.NODE, Key("", name)))
    beats = Heartbeat(server, name, duration_s=SHORT_S, may_write=lambda: True)
    async with running(beats.run()):
        await until_so(lambda: server.get(keys.LEASE, Key(keys.NODE_LEASE_NAMESPACE, name)))
        seen = {renewed(plane, name)}

        def is_renewed_twice() -> bool:
            seen.add(renewed(plane, name))
            return len(seen) > 2

        api.wait_until(is_renewed_twice, "two renewals", timeout_s=120)  # and holds this loop
        assert beats.is_alive()


async def test_who_does_not_lead_renews_nothing(plane: Plane, server: ClusterClient) -> None:
    name = "lost"
    await server.create(keys.NODE, objects.named(keys.NODE, Key("", name)))
    asked: list[bool] = []
    leads = [True]

    def may_write() -> bool:
        asked.append(leads[0])
        return leads[0]

    beats = Heartbeat(server, name, duration_s=SHORT_S, may_write=may_write)
    async with running(beats.run()):
        await until_so(lambda: server.get(keys.LEASE, Key(keys.NODE_LEASE_NAMESPACE, name)))
        leads[0] = False
        api.wait_until(lambda: asked[-1:] == [False], "the next attempt", timeout_s=120)
        last = renewed(plane, name)
        api.wait_until(lambda: asked[-3:] == [False] * 3, "more of them", timeout_s=120)
        assert renewed(plane, name) == last


def renewed(plane: Plane, name: str) -> str:
    """Return when the lease was renewed; it asks without any loop."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{keys.NODE_LEASE_NAMESPACE}/leases/{name}"
    found: Any = plane.api.request("GET", path)
    return str(found["spec"]["renewTime"])
