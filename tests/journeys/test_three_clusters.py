"""One consumer with two providers, one provider with two consumers, and the end of each peering.

rome uses milan and cool-firefly, which uses milan: it is a consumer and a provider at once.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from kube import errors
from kube.client import ClusterClient
from sandbox import images, install, network
from sandbox.clusters import Sandbox
from tests.journeys import scrapes, two_providers, world
from tests.journeys.three import THIRD, Three

pytestmark = pytest.mark.journey


def pod(namespace: str, node: str) -> Object:
    """Return a pod that only ``node`` may take."""
    return world.pod(
        namespace, f"on-{node}", images.workload_name(), nodeSelector={keys.REMOTE_CLUSTER_ID: node}
    )


async def running(cluster: ClusterClient, namespace: str, name: str) -> Object:
    return await world.until_one(
        cluster, keys.POD, Key(namespace, name), lambda pod: world.phase(pod) == "Running"
    )


async def test_each_consumer_sees_its_providers_and_each_provider_its_consumers(
    three: Three,
) -> None:
    expected = {
        ("rome", "milan"): "Provider",
        ("rome", "cool-firefly"): "Provider",
        ("cool-firefly", "milan"): "Provider",
        ("cool-firefly", "rome"): "Consumer",
        ("milan", "cool-firefly"): "Consumer",
    }
    for (here, of), role in expected.items():
        await world.until_one(
            three[here],
            keys.FOREIGN_CLUSTER,
            Key("", of),
            lambda found, role=role: found.get("status", {}).get("role") == role,  # type: ignore[misc]
        )
    for name in ("milan", THIRD):
        await world.until_one(
            three["rome"], keys.FOREIGN_CLUSTER, Key("", name), offers_ready_nodes
        )
    node = await three["rome"].get_live(keys.NODE, Key("", THIRD))
    assert node
    region = objects.labels(node)["topology.kubernetes.io/region"]
    assert region == install.REGIONS[THIRD], "what cool-firefly suggests, by liqoctl install"


def offers_ready_nodes(foreign_cluster: Object) -> bool:
    module = foreign_cluster.get("status", {}).get("modules", {}).get("offloading", {})
    found = {one["type"]: one["status"] for one in module.get("conditions", [])}
    return "OffloadingNodeStatus" in found and set(found.values()) == {"Ready"}


async def test_pods_of_one_name_live_side_by_side(three: Three) -> None:
    name = f"journey-{secrets.token_hex(3)}"
    for consumer in ("rome", THIRD):
        await three[consumer].create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    await three.offload("rome", name, "milan", THIRD)
    await three.offload(THIRD, name, "milan")
    for consumer, provider in (("rome", "milan"), ("rome", THIRD), (THIRD, "milan")):
        await three[consumer].create(keys.POD, pod(name, provider))

    uids = {}
    for consumer, provider in (("rome", "milan"), ("rome", THIRD), (THIRD, "milan")):
        local = await running(three[consumer], name, f"on-{provider}")
        twin = naming.default_remote_namespace(name, consumer)
        remote = await running(three[provider], twin, f"on-{provider}")
        assert local["spec"]["nodeName"] == provider
        assert remote["spec"]["nodeName"] == f"{provider}-1"
        assert remote["metadata"]["annotations"][keys.LOCAL_POD_UID] == objects.uid(local)
        uids[consumer, provider] = objects.uid(remote)
    assert len(set(uids.values())) == 3
    await each_is_told_what_its_own_pod_uses(three, uids["rome", "milan"], uids[THIRD, "milan"])

    await world.remove(three["rome"], keys.POD, Key(name, f"on-{THIRD}"))
    await world.until_gone(
        three[THIRD], keys.POD, Key(naming.default_remote_namespace(name, "rome"), f"on-{THIRD}")
    )
    assert await running(three["rome"], name, "on-milan")
    assert await running(three[THIRD], name, "on-milan")
    for consumer in ("rome", THIRD):
        key = Key(name, keys.OFFLOADING_NAME)
        await world.remove(three[consumer], keys.NAMESPACE_OFFLOADING, key)
        await world.until_gone(three[consumer], keys.NAMESPACE_OFFLOADING, key)
        await world.remove(three[consumer], keys.NAMESPACE, Key("", name))


async def each_is_told_what_its_own_pod_uses(three: Three, of_rome: str, of_third: str) -> None:
    """Both pods on milan have one name in one namespace: a UID in its cgroup tells which it is."""
    uids = {"rome": of_rome, THIRD: of_third}
    for consumer, uid in uids.items():
        [(other, other_uid)] = [item for item in uids.items() if item[0] != consumer]
        path = f"{scrapes.SCRAPE}/{{}}/metrics/cadvisor"
        async with scrapes.consumer(three[consumer]) as there:
            told = await once_told(there, path.format(consumer), uid)
            assert other_uid not in told
            with pytest.raises(errors.ForbiddenError):
                await there.get_text(path.format(other))


async def once_told(cluster: ClusterClient, path: str, mark: str) -> str:
    """Return what is said at ``path`` once ``mark`` is in it; who says it may just be starting."""
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            with contextlib.suppress(errors.KubeError):
                if mark in (told := await cluster.get_text(path)):
                    return told
            await asyncio.sleep(1)


def says_its_server(foreign_cluster: Object) -> str:
    """Return whether the API server of a provider answers, as ``rome`` tells it."""
    found = objects.find_condition(
        foreign_cluster.get("status", {}).get("conditions"), "APIServerStatus"
    )
    return str((found or {}).get("status"))


async def test_a_provider_that_falls_silent_is_told_and_is_alone_in_that(
    three: Three, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packets on the way to cool-firefly are lost: its server is well, and nothing breaks off."""
    rome, key, sandbox = three["rome"], Key("", THIRD), Sandbox()
    begun = time.monotonic()
    with network.cut(sandbox.site(THIRD).slot, sandbox.site("rome").slot):
        await world.until_one(
            rome, keys.FOREIGN_CLUSTER, key, lambda found: says_its_server(found) == "Error"
        )
        silent_s = time.monotonic() - begun
        info = ("info", "peer", "-o", "json")
        told = json.loads(await asyncio.to_thread(install.run, three.kubeconfigs["rome"], *info))
        assert told[THIRD]["authentication"]["status"] == "Unhealthy"
        assert told[THIRD]["authentication"]["alerts"]
        assert told["milan"]["authentication"]["status"] == "Healthy"
    begun = time.monotonic()
    await world.until_one(
        rome, keys.FOREIGN_CLUSTER, key, lambda found: says_its_server(found) == "Established"
    )
    back_s = time.monotonic() - begun
    with capsys.disabled():
        sys.stdout.write(f"\nsilence told after {silent_s:.2f} s, return after {back_s:.2f} s\n")


async def test_three_tiers_over_two_providers(
    three: Three, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, scaling, a rolling update, volumes that stay and volumes that move, and the end."""
    name = f"journey-{secrets.token_hex(3)}"
    await three["rome"].create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    await three.offload("rome", name, *two_providers.PROVIDERS, strategy="LocalAndRemote")
    shop = await two_providers.begin(three.clients, three.kubeconfigs, name)
    await shop.ask("first", two_providers.HOME_NODE, *two_providers.PROVIDERS)
    await two_providers.scaling_moves_endpoints(shop)
    counts = await two_providers.a_rolling_update_loses_no_request(shop)
    with capsys.disabled():
        sys.stdout.write(f"\n{counts}\n")

    await two_providers.ended(shop, "store-0")
    await two_providers.pods_follow_their_data(shop, "store-1", "milan", ["store-0", "store-1"])
    await two_providers.ended(shop, "store-1")
    await two_providers.cut_off(shop, THIRD)
    await two_providers.moved(shop, THIRD)
    visitors = ["store-0", "store-1", "store-2"]
    await two_providers.pods_follow_their_data(shop, "store-2", THIRD, visitors)
    await two_providers.ended(shop, "store-2")
    await two_providers.moved(shop, two_providers.HOME_NODE)
    await two_providers.pods_follow_their_data(
        shop, "store-3", two_providers.HOME_NODE, [*visitors, "store-3"]
    )

    await two_providers.nothing_is_left_elsewhere(shop)
    await two_providers.all_comes_home(shop)
    await world.remove(three["rome"], keys.NAMESPACE, Key("", name))


async def test_the_end_of_one_peering_leaves_the_others(three: Three) -> None:
    """Runs last: cool-firefly no longer uses milan, and rome goes on using both."""
    remote = f"--remote-kubeconfig={three.kubeconfigs['milan']}"
    await asyncio.to_thread(
        install.run, three.kubeconfigs[THIRD], "unpeer", remote, "--skip-confirm"
    )

    assert await three[THIRD].get_live(keys.NODE, Key("", "milan")) is None
    assert (
        await three["milan"].get_live(keys.TENANT, Key("liqo-tenant-cool-firefly", THIRD)) is None
    )
    gone = await world.until_one(
        three["milan"],
        keys.FOREIGN_CLUSTER,
        Key("", THIRD),
        lambda found: found["status"]["role"] == "Unknown",
    )
    assert not any(module["enabled"] for module in gone["status"]["modules"].values())
    for name in ("milan", THIRD):
        assert await three["rome"].get_live(keys.NODE, Key("", name))
    assert await three.role(THIRD, "rome") == "Consumer"
    said = await asyncio.to_thread(
        install.run, three.kubeconfigs["rome"], "info", "peer", THIRD, "--get", "offloading.status"
    )
    assert said.strip() == "Healthy"
