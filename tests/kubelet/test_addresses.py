"""Pods are reached as a Configuration says, else as flags say, else by nobody."""

import pytest

from apis import keys
from apis.networks import PodNetworks
from apis.objects import Key, Object, named
from kube import errors
from kubelet import options
from kubelet.pods.addresses import PodAddressBook
from tests.fakes import FakeCluster
from tests.kube.running import running, until

PLAIN = (
    "--tenant-namespace=liqo-tenant-milan",
    "--home-cluster-id=rome",
    "--foreign-cluster-id=milan",
    "--foreign-kubeconfig-secret-name=key",
)
PAIRED = ("--remote-pod-cidr=10.1.0.0/16", "--remote-pod-cidr-remap=10.66.0.0/16")
WHERE = Key("liqo-tenant-milan", "milan")


def addresses(*flags: str) -> PodAddressBook:
    return PodAddressBook(options.parse([*PLAIN, *flags]))


def reached(known: PodNetworks | None) -> str:
    if known is None or not known.are_named:
        return "nobody is told"
    return known.remap.of("10.1.0.7")


async def configure(cluster: FakeCluster, peer: str, *pods: str) -> None:
    made = named(
        keys.CONFIGURATION,
        Key(WHERE.namespace, peer),
        metadata={"labels": {keys.REMOTE_CLUSTER_ID: peer}},
        spec={"remote": {"cidr": {"pod": ["10.1.0.0/16"]}}},
    )
    await cluster.create(keys.CONFIGURATION, made)
    await cluster.patch_status(keys.CONFIGURATION, Key(WHERE.namespace, peer), agreed(*pods))


def agreed(*pods: str) -> Object:
    return {"remote": {"cidr": {"pod": list(pods)}}}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "nobody is told"),
        (("--pod-network=10.1.0.0/16",), "10.1.0.7"),
        (PAIRED, "10.66.0.7"),
        (("--ip-fabric", *PAIRED), "10.66.0.7"),
        (("--ip-fabric",), "nobody is told"),
        (("--disable-ip-reflection", *PAIRED), "nobody is told"),
    ],
    ids=["nothing", "as they are", "flags", "flags in a fabric", "fabric alone", "switched off"],
)
def test_without_a_configuration_flags_say_it(flags: tuple[str, ...], expected: str) -> None:
    assert reached(addresses(*flags).known()) == expected


async def test_a_configuration_holds_at_once_and_one_without_sense_changes_nothing() -> None:
    cluster, known = FakeCluster(), addresses("--ip-fabric", *PAIRED)
    cluster.fail("list", errors.NotFoundError("404 page not found"), times=2)
    (informer,) = known.informers
    async with running(informer.run(cluster)):
        await informer.synced.wait()
        assert reached(known.known()) == "10.66.0.7"
        await configure(cluster, "turin", "10.99.0.0/16")
        await configure(cluster, "milan", "10.71.0.0/16")
        await until(lambda: reached(known.known()) == "10.71.0.7")
        broken = agreed("10.71.0.0/24")
        await cluster.patch_status(keys.CONFIGURATION, WHERE, broken)
        await until(lambda: (informer.get(WHERE) or {}).get("status") == broken)
        assert reached(known.known()) == "10.71.0.7"
        found = await cluster.get(keys.CONFIGURATION, WHERE)
        assert found
        await cluster.delete(keys.CONFIGURATION, WHERE, uid=found["metadata"]["uid"])
        await until(lambda: reached(known.known()) == "10.66.0.7")


def test_without_a_fabric_nothing_of_it_is_followed() -> None:
    assert addresses().informers == []
    assert addresses("--ip-fabric", "--disable-ip-reflection").informers == []
