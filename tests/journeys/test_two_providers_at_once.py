"""One consumer and two providers at once: who gets what, and what becomes of it.

rome uses milan and cool-firefly.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from apis import keys, naming, objects, resources
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import components, images, network, pair
from sandbox.clusters import Sandbox
from tests.documents.terminal import Terminal
from tests.journeys import tiers, world
from tests.journeys.test_three_clusters import running
from tests.journeys.three import THIRD, Three
from tests.world import is_ready

pytestmark = pytest.mark.journey

PROVIDERS = ("milan", THIRD)
SIMULATED = "simulated-0"
"""A second node of a provider, on which pods of any size seem to run."""
IMAGE = images.workload_name()


@dataclass(frozen=True)
class Spaces:
    """Namespaces of a test's own, and terminals to them."""

    three: Three
    made: list[str]

    async def new(self) -> str:
        name = f"journey-{secrets.token_hex(3)}"
        await self.three["rome"].create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
        self.made.append(name)
        return name

    def terminal(self, cluster: str) -> Terminal:
        return Terminal(self.three.kubeconfigs[cluster])

    async def types(self, line: str, *, fails: bool = False) -> str:
        """Type a command at rome."""
        return await self.terminal("rome").types(line, fails=fails)


@pytest.fixture
async def spaces(three: Three) -> AsyncIterator[Spaces]:
    found = Spaces(three, [])
    yield found
    for name in found.made:
        await world.remove(three["rome"], keys.NAMESPACE, Key("", name))


def pod(namespace: str, name: str, node: str = "", memory: str = "8Mi") -> Object:
    """Return a pod that sleeps, at ``node`` if it is named."""
    made = world.pod(namespace, name, IMAGE)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "5m", "memory": memory}}
    if node:
        made["spec"]["nodeSelector"] = {keys.HOSTNAME: node}
    return made


async def gone(cluster: ClusterClient, namespace: str, name: str) -> None:
    key = Key(namespace, name)
    await world.remove(cluster, keys.POD, key)
    await world.until_gone(cluster, keys.POD, key)


async def test_each_namespace_is_where_its_own_selector_says_and_nowhere_else(
    three: Three, spaces: Spaces
) -> None:
    rome = three["rome"]
    chosen = {await spaces.new(): place for place in PROVIDERS}
    for namespace, place in chosen.items():
        await three.offload("rome", namespace, place)
        settings = named(keys.CONFIG_MAP, Key(namespace, "settings"), data={"where": place})
        await rome.create(keys.CONFIG_MAP, settings)
        await rome.create(keys.POD, pod(namespace, "web"))

    for namespace, place in chosen.items():
        twin = naming.default_remote_namespace(namespace, "rome")
        local = await running(rome, namespace, "web")
        assert local["spec"]["nodeName"] == place
        remote = await running(three[place], twin, "web")
        assert remote["metadata"]["annotations"][keys.LOCAL_POD_UID] == objects.uid(local)
        settings = await world.until_one(
            three[place], keys.CONFIG_MAP, Key(twin, "settings"), lambda _: True
        )
        assert settings["data"] == {"where": place}
        (other,) = {*PROVIDERS} - {place}
        assert await three[other].get_live(keys.NAMESPACE, Key("", twin)) is None


async def test_each_provider_has_a_virtual_kubelet_with_credentials_of_its_own(
    three: Three, spaces: Spaces
) -> None:
    for place in PROVIDERS:
        tenant = naming.tenant_namespace(place)
        found = await three["rome"].list(Selection(keys.DEPLOYMENT, Object, tenant))
        (made,) = found.items.values()
        assert made["spec"]["template"]["spec"]["serviceAccountName"] == place
        secret = naming.kubeconfig_secret(naming.resourceslice_identity(place))
        asks = f"kubectl auth can-i get secrets/{secret} -n {tenant} --as=system:serviceaccount:"
        (other,) = {*PROVIDERS} - {place}
        assert "yes" in await spaces.types(f"{asks}{tenant}:{place}")
        assert "no" in await spaces.types(
            f"{asks}{naming.tenant_namespace(other)}:{other}", fails=True
        )


async def test_slices_of_one_provider_share_its_twin_and_one_goes_alone(
    three: Three, spaces: Spaces
) -> None:
    rome, there, namespace = three["rome"], three[THIRD], await spaces.new()
    twin = naming.default_remote_namespace(namespace, "rome")
    await three.offload("rome", namespace, THIRD)
    uids = {}
    for name in ("more", "yetmore"):
        await spaces.types(
            f"liqoctl create resourceslice {name} --remote-cluster-id {THIRD} --cpu 1"
        )
        await rome.create(keys.POD, pod(namespace, name, name))
    for name in ("more", "yetmore"):
        local = await running(rome, namespace, name)
        assert local["spec"]["nodeName"] == name
        uids[name] = objects.uid(await running(there, twin, name))
    maps = await rome.list(Selection(keys.NAMESPACE_MAP, Object, naming.tenant_namespace(THIRD)))
    assert len(maps.items) == 1

    await spaces.types("liqoctl delete resourceslice more --skip-confirm")
    await world.until_gone(rome, keys.NODE, Key("", "more"))
    await world.until_gone(there, keys.POD, Key(twin, "more"))
    assert objects.uid(await running(there, twin, "yetmore")) == uids["yetmore"]
    await running(rome, namespace, "yetmore")
    await gone(rome, namespace, "yetmore")
    await spaces.types("liqoctl delete resourceslice yetmore --skip-confirm")


async def test_names_of_other_namespaces_are_known_where_twins_keep_theirs(
    three: Three, spaces: Spaces
) -> None:
    """DefaultName makes another name of each, by which alone they are known over there."""
    rome = three["rome"]
    asks = {}
    for strategy in ("EnforceSameName", "DefaultName"):
        asking, asked = await spaces.new(), await spaces.new()
        for namespace in (asking, asked):
            await spaces.types(
                f"liqoctl offload namespace {namespace} --pod-offloading-strategy Remote"
                f" --namespace-mapping-strategy {strategy}"
                f" --selector {keys.REMOTE_CLUSTER_ID}={THIRD}"
            )
        await rome.create(keys.SERVICE, tiers.service(asked, "web"))
        await rome.create(keys.POD, tiers.tier(asked, "web", IMAGE, tiers.SERVE))
        asks[strategy] = (asking, asked)

    asking, asked = asks["EnforceSameName"]
    names = [f"web.{asked}{rest}" for rest in ("", ".svc", ".svc.cluster.local")]
    await rome.create(keys.POD, tiers.asking(asking, "asks", IMAGE, {}, *names))
    await world.until_one(rome, keys.POD, Key(asking, "asks"), tiers.is_over)

    asking, asked = asks["DefaultName"]
    knows = "python3 -c 'import socket; socket.getaddrinfo(\"web.{}\", 80)'"
    twin = knows.format(naming.default_remote_namespace(asked, "rome"))
    script = f"until {twin}; do sleep 1; done; ! {knows.format(asked)}"
    await rome.create(keys.POD, world.pod(asking, "asks", IMAGE, script, restartPolicy="Never"))
    await world.until_one(rome, keys.POD, Key(asking, "asks"), tiers.is_over)


async def test_all_that_is_in_a_twin_goes_volumes_too_and_it_is_offloaded_otherwise(
    three: Three, spaces: Spaces
) -> None:
    rome, there, namespace = three["rome"], three[THIRD], await spaces.new()
    twin = naming.default_remote_namespace(namespace, "rome")
    offload = (
        f"liqoctl offload namespace {namespace} --selector {keys.REMOTE_CLUSTER_ID}={THIRD}"
        " --pod-offloading-strategy Remote"
    )
    await spaces.types(offload)
    for name, size, policy in (("kept", "2Gi", "Retain"), ("ended", tiers.SIZE, "Delete")):
        await there.create(keys.PERSISTENT_VOLUME, volume(f"{namespace}-{name}", size, policy))
    await rome.create(keys.PERSISTENT_VOLUME_CLAIM, tiers.claim(namespace))
    await rome.create(keys.POD, keeping(namespace, "store", "data"))
    await rome.create(keys.DEPLOYMENT, world.deployment(namespace, "web", IMAGE, 1))
    await by_hand(there, twin)
    for where, name in ((rome, namespace), (there, twin)):
        await running(where, name, "store")
    await running(there, twin, "theirs")
    for name in ("data", "by-hand"):
        claim = await there.get_live(keys.PERSISTENT_VOLUME_CLAIM, Key(twin, name))
        assert claim
        assert world.phase(claim) == "Bound"

    await spaces.types(f"liqoctl unoffload namespace {namespace} --skip-confirm")
    await world.until_gone(there, keys.NAMESPACE, Key("", twin))
    await world.until_gone(there, keys.PERSISTENT_VOLUME, Key("", f"{namespace}-ended"))
    kept = Key("", f"{namespace}-kept")
    await world.until_one(
        there, keys.PERSISTENT_VOLUME, kept, lambda found: world.phase(found) == "Released"
    )
    await world.until(rome, keys.POD, namespace, is_web_on("rome-1"))

    await spaces.types(f"{offload} --namespace-mapping-strategy EnforceSameName")
    await rome.create(keys.POD, pod(namespace, "again"))
    assert (await running(rome, namespace, "again"))["spec"]["nodeName"] == THIRD
    await running(there, namespace, "again")
    await world.remove(there, keys.PERSISTENT_VOLUME, kept)


def volume(name: str, size: str, policy: str) -> Object:
    """Return a volume of the class that is offered; what it has is on the machine's /tmp."""
    spec = {
        "storageClassName": pair.STORAGE_CLASS,
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": f"/tmp/{name}", "type": "DirectoryOrCreate"},  # noqa: S108  # Kubernetes deletes them only there
        "persistentVolumeReclaimPolicy": policy,
    }
    return named(keys.PERSISTENT_VOLUME, Key("", name), spec=spec)


def keeping(namespace: str, name: str, claim: str) -> Object:
    made = pod(namespace, name)
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    made["spec"]["volumes"] = [claimed]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


async def by_hand(there: ClusterClient, twin: str) -> None:
    """Let the provider's administrator put things of his own into a twin."""
    claim = tiers.claim(twin)
    claim["metadata"]["name"] = "by-hand"
    claim["spec"] |= {
        "storageClassName": pair.STORAGE_CLASS,
        "resources": {"requests": {"storage": "2Gi"}},
    }
    await there.create(keys.PERSISTENT_VOLUME_CLAIM, claim)
    await there.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, Key(twin, "by-hand"), data={}))
    await there.create(keys.POD, keeping(twin, "theirs", "by-hand"))


def is_web_on(node: str) -> Callable[[world.World], bool]:
    return lambda seen: any(
        key.name.startswith("web-")
        and found["spec"].get("nodeName") == node
        and world.phase(found) == "Running"
        for key, found in seen.items()
    )


def impatient(namespace: str) -> Object:
    """Return a Deployment of one pod that leaves a node which is not ready after a second."""
    made = world.deployment(namespace, "service", IMAGE, 1)
    spec = made["spec"]["template"]["spec"]
    spec["tolerations"] = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": 1}
        for why in ("not-ready", "unreachable")
    ]  # fmt: skip
    return made


async def at_once(rome: ClusterClient, namespace: str, node: str) -> None:
    """Wait until a pod of the Deployment runs on ``node``."""
    await world.until(
        rome,
        keys.POD,
        namespace,
        lambda found: any(
            key.name.startswith("service-")
            and one["spec"].get("nodeName") == node
            and world.phase(one) == "Running"
            for key, one in found.items()
        ),
    )


async def test_what_is_deleted_at_a_provider_that_is_cut_off_is_there_again_without_us(
    three: Three, spaces: Spaces
) -> None:
    """Meanwhile, what tolerates a lost node for a second runs again at the other provider."""
    rome, there, namespace = three["rome"], three[THIRD], await spaces.new()
    key = Key(naming.default_remote_namespace(namespace, "rome"), "web")
    await three.offload("rome", namespace, *PROVIDERS)
    await rome.create(keys.POD, pod(namespace, "web", THIRD))
    local = await running(rome, namespace, "web")
    before = await running(there, *key)
    other = Key("", "milan")
    await rome.patch(keys.NODE, other, {"spec": {"unschedulable": True}})
    await rome.create(keys.DEPLOYMENT, impatient(namespace))
    await at_once(rome, namespace, THIRD)
    await rome.patch(keys.NODE, other, {"spec": {"unschedulable": None}})

    sandbox = Sandbox()
    with network.cut(sandbox.site(THIRD).slot, sandbox.site("rome").slot):
        await there.delete(keys.POD, key, uid=objects.uid(before))
        restored = await world.until_one(
            there,
            keys.POD,
            key,
            lambda found: (
                objects.uid(found) != objects.uid(before) and world.phase(found) == "Running"
            ),
        )
        await rome.create(keys.POD, pod(namespace, "meanwhile", "milan"))
        await running(rome, namespace, "meanwhile")
        await at_once(rome, namespace, "milan")

    told = await world.until_one(
        rome,
        keys.POD,
        Key(namespace, "web"),
        lambda found: found["status"].get("podIP") == restored["status"]["podIP"],
    )
    assert objects.uid(told) == objects.uid(local)


@pytest.fixture
def grown(three: Three) -> Iterator[None]:
    """Give each provider a second node, large and without containers."""
    sandbox = Sandbox()
    sites = [sandbox.site(place) for place in PROVIDERS]
    for site in sites:
        components.simulate(site, 1)
    yield
    for site in sites:
        components.Component(site, "simulated").stop()


async def test_two_nodes_are_summed_and_pods_too_large_for_home_spread_by_what_is_free(
    three: Three, spaces: Spaces, grown: None
) -> None:
    rome, namespace = three["rome"], await spaces.new()
    for place in PROVIDERS:
        await world.until_one(three[place], keys.NODE, Key("", SIMULATED), is_ready)
        await spaces.terminal(place).types(f"kubectl taint node {SIMULATED} pyliqo.io/simulated-")
    await is_the_share_of_both_nodes(three, spaces)

    home = await rome.get_live(keys.NODE, Key("", "rome-1"))
    assert home
    cpu = int(home["status"]["allocatable"]["cpu"]) + 1
    for place, name, number in ((PROVIDERS[0], "one", 1), (PROVIDERS[1], "two", 2)):
        await spaces.types(
            f"liqoctl create resourceslice {name} --remote-cluster-id {place} --cpu {cpu * number}"
        )
        await world.until_one(rome, keys.NODE, Key("", name), is_ready)
        await spaces.types(f"kubectl label node {name} spread=here")
    await spaces.types(f"liqoctl offload namespace {namespace} --selector spread=here")
    made = world.deployment(namespace, "web", IMAGE, 4)
    requests = {"cpu": str(cpu), "memory": "8Mi"}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    await rome.create(keys.DEPLOYMENT, made)

    def places(seen: world.World) -> list[str]:
        return sorted(
            found["spec"]["nodeName"] for found in seen.values() if world.phase(found) == "Running"
        )

    seen = await world.until(
        rome, keys.POD, namespace, lambda seen: places(seen) == ["one", "two", "two"]
    )
    (left,) = [found for found in seen.values() if world.phase(found) == "Pending"]
    assert "nodeName" not in left["spec"]
    await spaces.types(f"liqoctl unoffload namespace {namespace} --skip-confirm")
    for name in ("one", "two"):
        await spaces.types(f"liqoctl delete resourceslice {name} --skip-confirm")
    for place in PROVIDERS:
        await world.remove(three[place], keys.NODE, Key("", SIMULATED))


async def share_of_both_nodes(there: ClusterClient) -> str:
    """Return 90 % of the CPUs that both nodes have and no pod of now has asked for."""
    real = Selection(keys.NODE, Object, labels=f"!{keys.NODE_TYPE}")
    nodes = {key.name: node for key, node in (await there.list(real)).items.items()}
    assert nodes.keys() == {f"{THIRD}-1", SIMULATED}
    have = sum(
        resources.parse_quantity(node["status"]["allocatable"]["cpu"]).nanos
        for node in nodes.values()
    )
    pods = (await there.list(Selection(keys.POD, Object))).items.values()
    asked = [
        resources.parse_quantity(
            container.get("resources", {}).get("requests", {}).get("cpu", "0")
        ).nanos
        for found in pods
        if world.phase(found) in {"Running", "Pending"} and found["spec"].get("nodeName") in nodes
        for container in found["spec"]["containers"]
    ]
    return f"{(have - sum(asked)) * 90 // 100 // 10**6}m"


async def is_the_share_of_both_nodes(three: Three, spaces: Spaces) -> None:
    """A slice of class shared is 90 % of what both nodes have and no pod has asked for."""
    await spaces.types(
        f"liqoctl create resourceslice whole --remote-cluster-id {THIRD} --class shared"
    )
    whole, cpu = Key("", "whole"), ""
    async with asyncio.timeout(world.PATIENCE_S):
        while not cpu or cpu != await share_of_both_nodes(three[THIRD]):
            await asyncio.sleep(0.5)  # pods of tests before end meanwhile, which the node follows
            node = await three["rome"].get_live(keys.NODE, whole) or {}
            cpu = (node.get("status", {}).get("allocatable") or {}).get("cpu", "")
    await spaces.types("liqoctl delete resourceslice whole --skip-confirm")


async def test_two_nodes_share_a_grant_until_their_provider_enforces_none(
    three: Three, spaces: Spaces
) -> None:
    rome, namespace = three["rome"], await spaces.new()
    await three.offload("rome", namespace, THIRD)
    await spaces.types(
        f"liqoctl create resourceslice tight --remote-cluster-id {THIRD} --memory 256Mi"
    )
    warned = await spaces.types(
        f"liqoctl create virtualnode --remote-cluster-id {THIRD} --resource-slice-name tight other"
    )
    assert "WARN  the virtual nodes of resource slice" in warned
    assert "promise 512Mi of memory, it has 256Mi" in warned
    await rome.create(keys.POD, pod(namespace, "first", "tight", memory="150Mi"))
    await running(rome, namespace, "first")
    await rome.create(keys.POD, pod(namespace, "second", "other", memory="150Mi"))
    await waits(rome, Key(namespace, "second"))
    await gone(rome, namespace, "first")
    await running(rome, namespace, "second")

    await rome.create(keys.POD, pod(namespace, "third", "tight", memory="150Mi"))
    await waits(rome, Key(namespace, "third"))
    await spaces.terminal(THIRD).types("liqoctl install --no-enable-resource-enforcement")
    await running(rome, namespace, "third")
    await running(rome, namespace, "second")
    quota = await three[THIRD].get_live(
        keys.QUOTA, Key(naming.tenant_namespace("rome"), naming.quota_name("tight", "rome"))
    )
    assert quota
    assert quota["spec"]["resources"]["memory"] == "256Mi", "and 300Mi run"
    for name in ("second", "third"):
        await gone(rome, namespace, name)
    await spaces.types("liqoctl delete resourceslice tight --skip-confirm")


async def waits(rome: ClusterClient, key: Key) -> None:
    """Wait until a pod is told that the grant is used up."""

    def is_told(found: Object) -> bool:
        said = objects.find_condition(
            found.get("status", {}).get("conditions"), keys.OFFLOADED_CONDITION
        )
        return "the pod asks for 150Mi of memory, quota" in str((said or {}).get("message"))

    found = await world.until_one(rome, keys.POD, key, is_told)
    assert world.phase(found) == "Pending"
