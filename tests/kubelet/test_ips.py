"""With an IP fabric each offloaded pod has an IP object, by which third parties reach it."""

from typing import Any

from apis import keys, objects
from apis.objects import Key, Object
from kube import errors
from kube.cache import CachedCluster
from kubelet.pods.addresses import TAKEN_RETRY_S, UNKNOWN_RETRY_S, IpReconciler
from tests import factories
from tests.fakes import FakeCluster

WEB = Key("shop", "web")


async def running(cluster: FakeCluster, address: str = "10.66.0.7", **labels: str) -> Object:
    """Create the pod, and let it have that address."""
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
    pod = await running(cluster)
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
    pod = await running(cluster)
    reconciler = IpReconciler(CachedCluster(cluster))
    await look(reconciler)

    await cluster.patch_status(keys.POD, WEB, {"podIP": "10.66.0.8"})
    await look(reconciler)
    assert (await ip(cluster))["spec"] == {"ip": "10.66.0.8"}

    await cluster.delete(keys.POD, WEB, uid=objects.uid(pod), grace_s=0)
    await look(reconciler)
    again = await running(cluster, "10.66.0.8")
    await look(reconciler)
    (owner,) = (await ip(cluster))["metadata"]["ownerReferences"]
    assert owner["uid"] == objects.uid(again)
    assert writes(cluster) == 5, "one, and then two for each change"


async def test_a_pod_that_runs_here_or_has_no_address_has_none() -> None:
    cluster = FakeCluster()
    reconciler = IpReconciler(CachedCluster(cluster))
    await running(cluster, **{keys.SHADOW_POD_LABEL: "false"})
    assert await look(reconciler) is None

    await cluster.patch(keys.POD, WEB, {"metadata": {"labels": {keys.SHADOW_POD_LABEL: "true"}}})
    await cluster.patch_status(keys.POD, WEB, {"podIP": None})
    assert await look(reconciler) is None
    assert await ip(cluster) is None


async def test_somebody_elses_of_that_name_stays() -> None:
    cluster = FakeCluster()
    await running(cluster)
    await cluster.create(keys.IP, objects.named(keys.IP, WEB, spec={"ip": "192.0.2.1"}))

    assert await look(IpReconciler(CachedCluster(cluster))) == TAKEN_RETRY_S
    assert (await ip(cluster))["spec"] == {"ip": "192.0.2.1"}


async def test_while_the_kind_is_unknown_it_is_tried_later() -> None:
    cluster = FakeCluster()
    await running(cluster)
    cluster.fail("create", errors.NotFoundError("404 page not found"), kind=keys.IP)
    reconciler = IpReconciler(CachedCluster(cluster))

    assert await reconciler.reconcile(WEB) == UNKNOWN_RETRY_S
    assert await reconciler.reconcile(WEB) is None
    assert await ip(cluster)
