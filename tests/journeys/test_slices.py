"""From a request for resources to a virtual node, and all of it back: milan asks rome.

The other direction of the pair is peered by hand and stays in use meanwhile.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apis import keys, naming, providerpolicy, resources
from apis.objects import Key, Object, named
from apis.slices import of_virtual_node
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox.kubectl import Kubectl
from tests.conftest import size_of
from tests.journeys import world
from tests.world import is_ready

pytestmark = pytest.mark.journey

HERE, THERE = naming.tenant_namespace("rome"), naming.tenant_namespace("milan")
RESIZES = size_of("PYLIQO_RESIZES", 7, 200)
"""How often a slice is changed and the node looked at."""
POOL = Key(HERE, "mypool")
USER = naming.quota_name("mypool", "milan")


@dataclass(frozen=True)
class Peering:
    """milan uses rome."""

    milan: ClusterClient
    rome: ClusterClient
    kubeconfigs: Mapping[str, Path]
    image: str

    async def liqoctl(self, cluster: str, *args: str, fails: bool = False) -> str:
        """Type a command, and return what it says on stdout."""
        said = await world.liqoctl(self.kubeconfigs[cluster], *args)
        assert (said.code != 0) is fails, f"liqoctl {args}: {said.err}"
        return said.err if fails else said.out

    async def kubectl(self, cluster: str, *args: str) -> str:
        return await asyncio.to_thread(Kubectl(self.kubeconfigs[cluster]).run, *args)

    async def allocatable(self, node: str, **wanted: str) -> Object:
        """Return the Node once it shows ``wanted``."""
        return await world.until_one(
            self.milan,
            keys.NODE,
            Key("", node),
            lambda found: wanted.items() <= (found["status"].get("allocatable") or {}).items(),
        )

    async def gone(self, *there: tuple[ClusterClient, Any, Key]) -> None:
        for cluster, kind, key in there:
            await world.until_gone(cluster, kind, key)


@pytest.fixture
async def peering(both: world.Pair, kubeconfigs: Mapping[str, Path]) -> AsyncIterator[Peering]:
    made = Peering(both.milan, both.rome, kubeconfigs, both.image)
    remote = ("--remote-kubeconfig", str(kubeconfigs["rome"]))
    await made.liqoctl("milan", "peer", *remote, "--no-create-resource-slice")
    yield made
    await made.liqoctl("milan", "unpeer", *remote, "--timeout", "3m")


MUCH = 120 * 10**6
"""Nanocores: more than what other journeys' pods that go meanwhile give back."""
OF_MILAN = f"{keys.REPLICATION}=true"
"""Selects milan's own slices: rome is its consumer too, and replicates its own there."""


def lines(said: str) -> list[str]:
    """Return what kubectl printed, with one space between cells and AGE for ages."""
    return [
        " ".join("AGE" if re.fullmatch(r"(\d+[smh])+", word) else word for word in line.split())
        for line in said.splitlines()
    ]


async def test_a_slice_becomes_a_node_that_follows_it_and_goes_with_it(
    peering: Peering, capsys: pytest.CaptureFixture[str]
) -> None:
    await peering.liqoctl(
        "milan", "create", "resourceslice", "mypool", "--remote-cluster-id", "rome",
        "--cpu", "2", "--memory", "2Gi", "--pods", "20",
    )  # fmt: skip
    await world.until_one(peering.milan, keys.NODE, Key("", "mypool"), is_ready)

    shown = {
        "resourceslices.authentication.liqo.io": ("milan", HERE, "-l", OF_MILAN),
        "quotas.offloading.liqo.io": ("rome", THERE),
        "virtualnodes.offloading.liqo.io": ("milan", HERE),
    }
    said = {
        kind: lines(await peering.kubectl(cluster, "get", kind, "-n", where, *selected))
        for kind, (cluster, where, *selected) in shown.items()
    }
    assert said["resourceslices.authentication.liqo.io"] == [
        "NAME AUTHENTICATION RESOURCES AGE",
        "mypool Accepted Accepted AGE",
    ]
    quotas = said["quotas.offloading.liqo.io"]
    assert quotas == ["NAME ENFORCEMENT CORDONED AGE", f"{USER} None AGE"]
    assert said["virtualnodes.offloading.liqo.io"] == [
        "NAME CLUSTERID CREATE NODE AGE",
        "mypool rome true AGE",
    ]
    nodes = lines(await peering.kubectl("milan", "get", "nodes"))
    assert nodes[0] == "NAME STATUS ROLES AGE VERSION"
    assert re.fullmatch(r"mypool Ready agent AGE v1\.\d+\.\d+", nodes[1] if len(nodes) == 2 else
                        next(line for line in nodes if line.startswith("mypool ")))  # fmt: skip
    await peering.allocatable("mypool", cpu="2", memory="2Gi", pods="20")
    await amounts_are_told(peering, {"cpu": "2", "memory": "2Gi", "pods": "20"})

    await second_node_on_one_slice(peering)
    await node_from_a_secret(peering)
    took = sorted([await resized(peering, 3 + number % 6) for number in range(RESIZES)])
    p50, p99 = took[RESIZES // 2], took[RESIZES * 99 // 100]
    with capsys.disabled():
        sys.stdout.write(f"\nslice to node, {RESIZES} times: P50 {p50:.3f}, P99 {p99:.3f} s\n")

    await peering.liqoctl("milan", "delete", "resourceslice", "mypool")

    identity = naming.resourceslice_identity("mypool")
    await peering.gone(
        (peering.milan, keys.NODE, Key("", "mypool")),
        (peering.milan, keys.NODE, Key("", "second")),
        (peering.milan, keys.VIRTUAL_NODE, POOL),
        (peering.milan, keys.IDENTITY, Key(HERE, identity)),
        (peering.milan, keys.SECRET, Key(HERE, naming.kubeconfig_secret(identity))),
        (peering.rome, keys.RESOURCE_SLICE, Key(THERE, "mypool")),
        (peering.rome, keys.QUOTA, Key(THERE, USER)),
        (peering.rome, keys.SECRET, Key(THERE, naming.remote_certificate("mypool"))),
    )


async def amounts_are_told(peering: Peering, wanted: Mapping[str, str]) -> None:
    """Of the slice and of its virtual node, to the consumer and to the provider."""
    for cluster, peer in (("milan", "rome"), ("rome", "milan")):
        said = json.loads(await peering.liqoctl(cluster, "info", "peer", peer, "-o", "json"))[peer]
        slices = {one["name"]: one for one in said["authentication"]["resourceSlices"]}
        given = slices["mypool"]["resources"]
        assert wanted.items() <= given.items()
        nodes = {one["name"]: one for one in said["offloading"]["virtualNodes"]}
        if cluster == "milan":
            assert wanted.items() <= nodes["mypool"]["resources"].items()
            assert nodes["mypool"]["resourceSlice"] == "mypool"


async def second_node_on_one_slice(peering: Peering) -> None:
    """The resources are shared among them: the provider counts both on one Quota."""
    await peering.liqoctl(
        "milan", "create", "virtualnode", "second", "--remote-cluster-id", "rome",
        "--resource-slice-name", "mypool",
    )  # fmt: skip
    await peering.allocatable("second", cpu="2", memory="2Gi", pods="20")
    found = json.loads(await peering.liqoctl("milan", "get", "virtualnode", "second", "-o", "json"))
    assert of_virtual_node(found) == "mypool"
    table = await peering.liqoctl("milan", "get", "virtualnode")
    assert "second   rome        mypool" in table


async def node_from_a_secret(peering: Peering) -> None:
    """Without a slice: the amounts are those of the command."""
    secret = naming.kubeconfig_secret(naming.resourceslice_identity("mypool"))
    await peering.liqoctl(
        "milan", "create", "virtualnode", "third", "--remote-cluster-id", "rome",
        "--kubeconfig-secret-name", secret, "--cpu", "1", "--memory", "1Gi", "--pods", "5",
        "--timeout", "5m",
    )  # fmt: skip
    await peering.allocatable("third", cpu="1", memory="1Gi", pods="5")
    await world.until_one(peering.milan, keys.NODE, Key("", "third"), is_ready)
    await peering.liqoctl("milan", "delete", "virtualnode", "third", "-n", HERE, "--timeout", "5m")
    await peering.gone((peering.milan, keys.NODE, Key("", "third")))


async def resized(peering: Peering, cpu: int) -> float:
    """Return the seconds from the change of a slice to the change of its node."""
    begun = time.monotonic()
    changes = {"spec": {"resources": {"cpu": str(cpu)}}}
    await peering.milan.patch(keys.RESOURCE_SLICE, POOL, changes)
    await peering.allocatable("mypool", cpu=str(cpu))
    return time.monotonic() - begun


async def test_class_shared_follows_what_rome_has_free(
    peering: Peering, both: world.Pair, namespace: str
) -> None:
    """The percentage that holds, local pods that take some, a percentage that is changed."""
    await peering.liqoctl(
        "milan", "create", "rs", "mypool", "--remote-cluster-id", "rome", "--class", "shared"
    )
    await world.until_one(peering.milan, keys.NODE, Key("", "mypool"), is_ready)
    before = await same_as_told(peering, 90)

    taking = world.pod(namespace, "taking", both.image)
    requests = {"cpu": "200m", "memory": "64Mi"}
    taking["spec"]["containers"][0]["resources"] = {"requests": requests}
    await peering.rome.create(keys.POD, taking)
    await world.until_one(
        peering.rome, keys.POD, Key(namespace, "taking"), lambda pod: world.phase(pod) == "Running"
    )
    smaller = await same_as_told(peering, 90)
    assert smaller <= before - MUCH, "90 % of the 200m that a local pod took"
    await world.remove(peering.rome, keys.POD, Key(namespace, "taking"))
    await world.until_gone(peering.rome, keys.POD, Key(namespace, "taking"))
    assert await same_as_told(peering, 90) >= smaller + MUCH

    await one_piece(peering)

    await peering.liqoctl(
        "rome", "set", "sharing", "--tenant", "milan", "--sharing-percentage", "50"
    )
    await same_as_told(peering, 50)
    policy = await peering.rome.get_live(keys.PROVIDER_POLICY, Key("", "milan"))
    assert policy
    await peering.rome.delete(keys.PROVIDER_POLICY, Key("", "milan"), uid=policy["metadata"]["uid"])
    await same_as_told(peering, 90)
    await peering.liqoctl("milan", "delete", "rs", "mypool")


async def test_peer_gets_fixed_amounts_or_a_share_as_the_provider_installed_it(
    peering: Peering,
) -> None:
    """Nobody asks for an amount, nor for another class than default."""
    remote = ("--remote-kubeconfig", str(peering.kubeconfigs["rome"]))
    said = await world.liqoctl(peering.kubeconfigs["milan"], "peer", *remote)
    assert said.code == 0, said.err
    amounts = "granted cpu 4, ephemeral-storage 20Gi, memory 8Gi, pods 110"
    assert f"{amounts} (class default, as asked and fixed amounts for the rest)" in said.err
    fixed = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}
    await peering.allocatable("rome", **fixed)
    asked = await peering.milan.get_live(keys.RESOURCE_SLICE, Key(HERE, "rome"))
    assert asked
    assert asked["spec"]["class"] == "default"

    await peering.liqoctl("rome", "install", "--sharing-percentage", "80")
    await same_as_told(peering, 80, node="rome")
    again = await world.liqoctl(peering.kubeconfigs["milan"], "peer", *remote)
    assert "(class shared, 80% of what is free" in again.err

    policy = Key("", providerpolicy.DEFAULT)
    unsaid: Object = {"spec": {"sharing": None, "resourceSliceClasses": None}}
    await peering.rome.patch(keys.PROVIDER_POLICY, policy, unsaid)
    await peering.allocatable("rome", **fixed)


async def one_piece(peering: Peering) -> None:
    """A device appears on rome: 90 % of it is one, or none and a word about it, as rome says."""
    device = "example.com/fpga"
    own = await peering.rome.list(Selection(keys.NODE, dict, labels=f"!{keys.NODE_TYPE}"))
    name = next(iter(own.items))
    await peering.rome.patch_status(
        keys.NODE, name, {"capacity": {device: "1"}, "allocatable": {device: "1"}}
    )
    await peering.allocatable("mypool", **{device: "1"})

    await peering.liqoctl("rome", "set", "sharing", "--tenant", "milan", "--rounding", "Down")
    await peering.allocatable("mypool", **{device: "0"})
    found = await peering.milan.get_live(keys.RESOURCE_SLICE, POOL)
    assert found
    (told,) = [one for one in found["status"]["conditions"] if one["type"] == "Resources"]
    note = f"{device}: 90% of 1 free is 0.9, granted 0 (rounding Down)"
    assert note in told["message"]
    await world.until(
        peering.rome,
        keys.EVENT,
        THERE,
        lambda events: any(note in event["message"] for event in events.values()),
    )
    gone = {"capacity": {device: None}, "allocatable": {device: None}}
    await peering.rome.patch_status(keys.NODE, name, gone)


async def same_as_told(peering: Peering, percent: int, *, node: str = "mypool") -> int:
    """Show that the node has what `liqoctl get sharing` says, and that this is the percentage.

    Returns:
        The node's CPU, in nanocores.
    """
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            told = json.loads(await peering.liqoctl("rome", "get", "sharing", "-o", "json"))
            cpu = told["resources"]["cpu"]
            found = await peering.milan.get_live(keys.NODE, Key("", node))
            shown = ((found or {}).get("status") or {}).get("allocatable") or {}
            is_so = shown.get("cpu") == cpu["shared"] == cpu["granted"]
            if is_so and told["tenant"] == "milan" and cpu["percentage"] == percent:
                break
            await asyncio.sleep(0.5)
    free, shared = resources.parse_quantity(cpu["free"]), resources.parse_quantity(cpu["shared"])
    assert shared.nanos == free.nanos * percent // 100 // 10**6 * 10**6
    return shared.nanos


async def test_a_provider_cordons_and_drains_a_slice_and_takes_it_back(peering: Peering) -> None:
    await peering.liqoctl(
        "milan", "create", "rs", "mypool", "--remote-cluster-id", "rome", "--cpu", "1",
        "--memory", "1Gi",
    )  # fmt: skip
    await world.until_one(peering.milan, keys.NODE, Key("", "mypool"), is_ready)
    twin = f"{DRAINED}-milan"
    await offload(peering)
    first = await running(peering, "first")
    await world.until_one(
        peering.rome,
        keys.QUOTA,
        Key(THERE, USER),
        lambda quota: quota["status"].get("used", {}).get("pods") == "1",
    )
    wide = ("quotas.offloading.liqo.io", "-n", THERE, "-o", "wide")
    used = await peering.kubectl("rome", "get", *wide)
    assert f"{USER} 5m 1 8Mi 1Gi 1 110" in " ".join(used.split())

    slice_ = ("resourceslice", "mypool", "--remote-cluster-id", "milan")
    await peering.liqoctl("rome", "cordon", *slice_)
    await world.until_one(
        peering.rome, keys.QUOTA, Key(THERE, USER), lambda quota: quota["spec"].get("cordoned")
    )
    assert await peering.milan.get_live(keys.POD, first) is not None

    await peering.liqoctl("rome", "drain", *slice_)
    await world.until_gone(peering.milan, keys.POD, first)
    await world.until_gone(peering.milan, keys.NODE, Key("", "mypool"))

    await peering.liqoctl("rome", "uncordon", *slice_)
    await world.until_one(peering.milan, keys.NODE, Key("", "mypool"), is_ready)
    await running(peering, "second")
    assert await peering.rome.get_live(keys.POD, Key(twin, "second")) is not None
    await drained_as_a_whole_and_taken_back(peering, twin)
    await world.remove(peering.milan, keys.NAMESPACE, Key("", DRAINED))
    await world.until_gone(peering.rome, keys.NAMESPACE, Key("", twin))
    await peering.liqoctl("milan", "delete", "rs", "mypool")


async def drained_as_a_whole_and_taken_back(peering: Peering, twin: str) -> None:
    """The tenant: nothing of milan stays on rome, and milan puts it all there again."""
    there = (
        (peering.rome, keys.NAMESPACE, Key("", twin)),
        (peering.rome, keys.RESOURCE_SLICE, Key(THERE, "mypool")),
        (peering.rome, keys.QUOTA, Key(THERE, USER)),
    )
    await peering.liqoctl("rome", "drain", "tenant", "milan", "--timeout", "5m")
    await peering.gone(*there)

    await peering.liqoctl("rome", "activate", "tenant", "milan", "--timeout", "5m")
    made = world.deployment(DRAINED, "again", peering.image, 1)
    await peering.milan.create(keys.DEPLOYMENT, made)
    await world.until(
        peering.rome,
        keys.POD,
        twin,
        lambda pods: any(
            key.name.startswith("again-") and world.phase(pod) == "Running"
            for key, pod in pods.items()
        ),
    )
    for cluster, kind, key in there:
        assert await cluster.get_live(kind, key) is not None


DRAINED = "journey-drained"


async def offload(peering: Peering, space: str = DRAINED, **more: Any) -> str:
    await peering.milan.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    key = Key(space, keys.OFFLOADING_NAME)
    spec = {"podOffloadingStrategy": "Remote", **more}
    await peering.milan.create(
        keys.NAMESPACE_OFFLOADING, named(keys.NAMESPACE_OFFLOADING, key, spec=spec)
    )
    await world.until_one(
        peering.milan,
        keys.NAMESPACE_OFFLOADING,
        key,
        lambda found: found.get("status", {}).get("offloadingPhase") == "Ready",
    )
    return space


async def running(peering: Peering, name: str, space: str = DRAINED) -> Key:
    await peering.milan.create(keys.POD, world.pod(space, name, peering.image))
    key = Key(space, name)
    await world.until_one(peering.milan, keys.POD, key, lambda pod: world.phase(pod) == "Running")
    return key


PRINTED = """\
apiVersion: authentication.liqo.io/v1beta1
kind: ResourceSlice
metadata:
  creationTimestamp: null
  name: mypool
  namespace: liqo-tenant-rome
spec:
  class: gold
  providerClusterID: rome
status: {}
"""
GOLD = Path(__file__).parents[2] / "docs" / "examples" / "gold_class.py"


@contextlib.asynccontextmanager
async def gold_class(kubeconfig: Path) -> AsyncIterator[None]:
    """Run the controller of class gold as it is printed, on the provider."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "GOLD_CONSUMERS": "milan"}
    process = await asyncio.create_subprocess_exec(sys.executable, str(GOLD), env=environment)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_a_slice_of_a_custom_class_becomes_the_node_that_its_controller_says(
    peering: Peering, namespace: str
) -> None:
    """The block of the documents, with a class that has a controller: nothing else is typed."""
    granted = {"cpu": "4", "memory": "16Gi", "pods": "100"}
    async with gold_class(peering.kubeconfigs["rome"]):
        kubectl = Kubectl(peering.kubeconfigs["milan"])
        await asyncio.to_thread(kubectl.run, "apply", "-f", "-", stdin=PRINTED)
        await peering.allocatable("mypool", **granted)

        found = await peering.milan.get_live(keys.RESOURCE_SLICE, POOL)
        assert found
        assert found["status"]["resources"] == granted
        told = {
            one["type"]: (one["status"], one["message"]) for one in found["status"]["conditions"]
        }
        assert told["Resources"] == ("Accepted", "granted as asked")
        quota = await peering.rome.get_live(keys.QUOTA, Key(THERE, USER))
        assert quota
        assert quota["spec"]["resources"] == granted
        virtual = await peering.milan.get_live(keys.VIRTUAL_NODE, POOL)
        assert virtual
        assert virtual["spec"]["resourceQuota"]["hard"] == granted
        node = await world.until_one(peering.milan, keys.NODE, Key("", "mypool"), is_ready)
        assert node["metadata"]["labels"]["tier"] == "gold"

        on_gold = {"nodeSelectorTerms": [{"matchExpressions": [TIER]}]}
        space = await offload(peering, f"{namespace}-gold", clusterSelector=on_gold)
        await running(peering, "web", space)
        await world.remove(peering.milan, keys.NAMESPACE, Key("", space))
        await world.until_gone(peering.rome, keys.NAMESPACE, Key("", f"{space}-milan"))
        await peering.liqoctl("milan", "delete", "rs", "mypool")
        await peering.gone(
            (peering.milan, keys.NODE, Key("", "mypool")),
            (peering.rome, keys.QUOTA, Key(THERE, USER)),
        )


TIER = {"key": "tier", "operator": "In", "values": ["gold"]}


async def test_what_is_asked_beyond_the_policy_is_told_at_home(peering: Peering) -> None:
    """Limits, classes: what the provider says no to reaches the condition at home."""
    limited: Object = {
        "limits": {"cpu": "3"}, "resourceSliceClasses": {"allowed": ["default"]},
    }  # fmt: skip
    async with world.policy(peering.rome, "milan", **limited):
        await peering.liqoctl(
            "milan", "create", "rs", "mypool", "--remote-cluster-id", "rome", "--cpu", "5",
            "--no-virtual-node",
        )  # fmt: skip
        found = await peering.milan.get_live(keys.RESOURCE_SLICE, POOL)
        assert found
        assert resources.parse_resources(found["status"]["resources"])[
            "cpu"
        ] == resources.parse_quantity(3)
        (told,) = [one for one in found["status"]["conditions"] if one["type"] == "Resources"]
        assert told["message"].endswith("cpu: 3 of 5, policy milan grants 3 in all")

        # Typed again, the command changes what its flags name, and tells the answer to that.
        again = ("create", "rs", "mypool", "--remote-cluster-id", "rome")
        said = await world.liqoctl(peering.kubeconfigs["milan"], *again, "--memory", "1Gi")
        assert (said.code, "memory 1Gi" in " ".join(said.err.split())) == (0, True), said.err
        same = await world.liqoctl(peering.kubeconfigs["milan"], *again)
        assert "is as it should be" in same.err
        after = await peering.milan.get_live(keys.RESOURCE_SLICE, POOL)
        assert after
        assert after["spec"] == {**found["spec"], "resources": {"cpu": "5", "memory": "1Gi"}}
        assert after["metadata"]["annotations"][keys.CREATE_VIRTUAL_NODE] == "false"
        assert after["metadata"]["generation"] == found["metadata"]["generation"] + 1
        other = Key(HERE, "gold")
        await peering.liqoctl(
            "milan", "create", "rs", "gold", "--remote-cluster-id", "rome", "--class", "gold",
            "--no-virtual-node",
        )  # fmt: skip
        refused = await peering.milan.get_live(keys.RESOURCE_SLICE, other)
        assert refused
        (no,) = [one for one in refused["status"]["conditions"] if one["type"] == "Resources"]
        assert (no["status"], no["reason"]) == ("Denied", "ResourceSliceClassNotAllowed")
        await peering.liqoctl("milan", "delete", "rs", "mypool")
        await peering.liqoctl("milan", "delete", "rs", "gold")


def are_counted(*plurals: str) -> Callable[[Object], bool]:
    """Return whether a ResourceQuota counts these kinds, and no others."""

    def holds(quota: Object) -> bool:
        used = (quota.get("status") or {}).get("used") or {}
        return {name.removeprefix("count/").partition(".")[0] for name in used} == {*plurals}

    return holds


async def test_the_provider_counts_what_a_consumer_has_there(
    both: world.Pair, namespace: str
) -> None:
    await both.offload(namespace)
    of_tenant = are_counted("resourceslices", "namespacemaps", "renews")
    of_twin = are_counted("shadowendpointslices", "shadowpods")
    quota = Key(both.twin(namespace), "liqo-objects")
    for key, counts in ((Key(HERE, "liqo-objects"), of_tenant), (quota, of_twin)):
        await world.until_one(both.milan, keys.RESOURCE_QUOTA, key, counts)

    count = f"count/{keys.SHADOW_POD.resource}"
    async with world.policy(both.milan, "rome", maxObjects={"shadowPods": 0}):
        await world.until_one(
            both.milan,
            keys.RESOURCE_QUOTA,
            quota,
            lambda found: found["status"]["hard"][count] == "0",
        )
        web = world.pod(namespace, "web", both.image, world.sleeping())
        await both.rome.create(keys.POD, web)
        told = await world.until(
            both.rome,
            keys.EVENT,
            namespace,
            lambda found: any(one["reason"] == "FailedReflection" for one in found.values()),
        )
        (said,) = [one for one in told.values() if one["reason"] == "FailedReflection"]
        assert "exceeded quota: liqo-objects" in said["message"]
    running = await world.until_one(
        both.rome, keys.POD, Key(namespace, "web"), lambda found: world.phase(found) == "Running"
    )
    assert running["spec"]["nodeName"]


def slice_for_rome(name: str) -> Object:
    """Return a slice as milan's administrator applies it."""
    labels = {keys.REMOTE_ID: "rome", keys.REMOTE_CLUSTER_ID: "rome", keys.REPLICATION: "true"}
    spec = {"class": "default", "providerClusterID": "rome", "resources": {"cpu": "1"}}
    return named(keys.RESOURCE_SLICE, Key(HERE, name), metadata={"labels": labels}, spec=spec)


def is_refusal_of_two(event: Object) -> bool:
    said: tuple[str, str] = (event["reason"], event["involvedObject"]["name"])
    return said == ("ReplicationRefused", "two")


async def test_a_consumer_has_so_many_slices_and_no_more(peering: Peering) -> None:
    """The API server of the provider counts them by itself."""
    there = await peering.rome.list(Selection(keys.RESOURCE_SLICE, Object, THERE))
    most = len(there.items) + 1
    count = f"count/{keys.RESOURCE_SLICE.resource}"
    async with world.policy(peering.rome, "milan", maxObjects={"resourceSlices": most}):
        await world.until_one(
            peering.rome,
            keys.RESOURCE_QUOTA,
            Key(THERE, "liqo-objects"),
            lambda found: found.get("status", {}).get("hard", {}).get(count) == str(most),
        )

        await peering.milan.create(keys.RESOURCE_SLICE, slice_for_rome("one"))
        await world.until_one(
            peering.rome, keys.RESOURCE_SLICE, Key(THERE, "one"), lambda found: "status" in found
        )
        await peering.milan.create(keys.RESOURCE_SLICE, slice_for_rome("two"))
        refused = await world.until(
            peering.milan,
            keys.EVENT,
            HERE,
            lambda found: any(map(is_refusal_of_two, found.values())),
        )

        (said,) = filter(is_refusal_of_two, refused.values())
        assert "exceeded quota: liqo-objects" in said["message"]
        assert not await peering.rome.get_live(keys.RESOURCE_SLICE, Key(THERE, "two"))
        for name in ("one", "two"):
            await peering.liqoctl("milan", "delete", "rs", name)
