"""Pods are reached as a Configuration says, else as flags say, else by nobody."""

from typing import Any

import pytest

from apis import keys, objects
from apis.networks import PodNetworks
from apis.objects import Key, Object, named
from kube import errors
from kube.cache import CachedCluster
from kubelet import options
from kubelet.pods.addresses import TAKEN_RETRY_S, UNKNOWN_RETRY_S, IpReconciler, PodAddressBook
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running, until
from tests.world import remove

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
        await remove(cluster, keys.CONFIGURATION, WHERE)
        await until(lambda: reached(known.known()) == "10.66.0.7")


def test_without_a_fabric_nothing_of_it_is_followed() -> None:
    assert addresses().informers == []
    assert addresses("--ip-fabric", "--disable-ip-reflection").informers == []


# With an IP fabric each offloaded pod has an IP object --------------------------------------------

WEB = Key("shop", "web")


async def running_pod(cluster: FakeCluster, address: str = "10.66.0.7", **labels: str) -> Object:
    metadata = {"labels": {keys.SHADOW_POD_LABEL: "true", **labels}}
    await cluster.create(keys.POD, factories.pod(*WEB, metadata=metadata))
    return await cluster.patch_status(keys.POD, WEB, {"podIP": address})


async def look(reconciler: IpReconciler) -> float | None:
    """Reconcile twice; return what was said the second time."""
    await reconciler.reconcile(WEB)
    return await reconciler.reconcile(WEB)


async def ip(cluster: FakeCluster) -> Any:
    return await cluster.get_live(keys.IP, WEB)


def writes(cluster: FakeCluster) -> int:
    return sum(cluster.requests[verb, "ips"] for verb in ("create", "delete", "patch", "apply"))


async def test_it_says_the_address_goes_with_the_pod_and_is_written_once() -> None:
    cluster = FakeCluster()
    pod = await running_pod(cluster)
    reconciler = IpReconciler(CachedCluster(cluster))

    assert await look(reconciler) is None
    await look(IpReconciler(CachedCluster(cluster)))  # after a restart

    made = await ip(cluster)
    assert made["spec"] == {"ip": "10.66.0.7"}
    said = {"offloading.liqo.io/pod-name": "web", "offloading.liqo.io/pod-namespace": "shop"}
    assert objects.labels(made) == said
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", objects.uid(pod))
    assert writes(cluster) == 1


async def test_another_address_or_another_pod_makes_it_anew() -> None:
    cluster = FakeCluster()
    pod = await running_pod(cluster)
    reconciler = IpReconciler(CachedCluster(cluster))
    await look(reconciler)

    await cluster.patch_status(keys.POD, WEB, {"podIP": "10.66.0.8"})
    await look(reconciler)
    assert (await ip(cluster))["spec"] == {"ip": "10.66.0.8"}

    await cluster.delete(keys.POD, WEB, uid=objects.uid(pod), grace_s=0)
    await look(reconciler)
    again = await running_pod(cluster, "10.66.0.8")
    await look(reconciler)
    (owner,) = (await ip(cluster))["metadata"]["ownerReferences"]
    assert owner["uid"] == objects.uid(again)
    assert writes(cluster) == 5, "one, and then two for each change"


async def test_a_pod_that_runs_here_or_has_no_address_has_none() -> None:
    cluster = FakeCluster()
    reconciler = IpReconciler(CachedCluster(cluster))
    await running_pod(cluster, **{keys.SHADOW_POD_LABEL: "false"})
    assert await look(reconciler) is None

    await cluster.patch(keys.POD, WEB, {"metadata": {"labels": {keys.SHADOW_POD_LABEL: "true"}}})
    await cluster.patch_status(keys.POD, WEB, {"podIP": None})
    assert await look(reconciler) is None
    assert await ip(cluster) is None


async def test_somebody_elses_of_that_name_stays() -> None:
    cluster = FakeCluster()
    await running_pod(cluster)
    await cluster.create(keys.IP, objects.named(keys.IP, WEB, spec={"ip": "192.0.2.1"}))

    assert await look(IpReconciler(CachedCluster(cluster))) == TAKEN_RETRY_S
    assert (await ip(cluster))["spec"] == {"ip": "192.0.2.1"}


async def test_while_the_kind_is_unknown_it_is_tried_later() -> None:
    cluster = FakeCluster()
    await running_pod(cluster)
    cluster.fail("create", errors.NotFoundError("404 page not found"), kind=keys.IP)
    reconciler = IpReconciler(CachedCluster(cluster))

    assert await reconciler.reconcile(WEB) == UNKNOWN_RETRY_S
    assert await reconciler.reconcile(WEB) is None
    assert await ip(cluster)


# The flags of the kubelet (docs/parity.md § 5.1).


MUST = [
    "--home-cluster-id=rome",
    "--foreign-cluster-id=milan",
    "--foreign-kubeconfig-secret-name=kubeconfig",
]


def test_defaults() -> None:
    chosen = options.parse(MUST)
    assert (chosen.node_name, chosen.listen_port, chosen.lease_s) == ("virtual-kubelet", 10250, 40)
    assert (chosen.ping_interval_s, chosen.ping_timeout_s, chosen.workers) == (10, 1, 32)
    assert chosen.create_node


def test_as_go_writes_them() -> None:
    chosen = options.parse(
        [
            *MUST,
            "--create-node=false",
            "--node-check-network=False",
            "--node-ping-interval=1m30s",
            "--node-ping-timeout=500ms",
            "--node-extra-labels=a=1,b=x=y",
            "--node-extra-annotations=",
            "--node-ip=10.0.0.1",
        ]
    )
    assert not chosen.create_node
    assert (chosen.ping_interval_s, chosen.ping_timeout_s) == (90, 0.5)
    assert chosen.extra_labels == {"a": "1", "b": "x=y"}
    assert chosen.extra_annotations == {}


@pytest.mark.parametrize(
    "flag",
    ["--create-node=maybe", "--node-ping-interval=10", "--node-ip=here", "--node-extra-labels=a"],
)
def test_nonsense_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([*MUST, flag])
    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_what_is_mandatory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse([])
    assert "--home-cluster-id" in capsys.readouterr().err
