"""A ClusterProfile for each peer, for tools that read those. Source: KEP-4322."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from controllers.__main__ import CONTROLLERS, parse
from controllers.manager import Limits
from controllers.peers.clusterprofile import forge
from controllers.peers.clusterprofile.reconciler import ClusterProfileReconciler
from kube import errors
from kube.cluster import Cluster
from tests.controllers import whole
from tests.controllers.support import NOW
from tests.fakes import FakeCluster

MILAN = Key("", "milan-profiled")
WHERE = Key(keys.LIQO_NAMESPACE, MILAN.name)
CRD = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
    namespaced=False,
)  # fmt: skip
LIMITS = Limits(makes_profiles=parse(["--cluster-profiles"], {}).limits.makes_profiles)
SAID = {
    "role": "Provider",
    "kubernetesVersion": "v1.35.4",
    "apiServerUrl": "https://milan.example",
    "conditions": [{"type": "APIServerStatus", "status": "Established", "reason": "Ready"}],
}


async def profile(cluster: Cluster, holds: Callable[[Object | None], object]) -> Object | None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(errors.NotFoundError):  # the kind is not served yet
                found = await cluster.get_live(keys.CLUSTER_PROFILE, WHERE)
                if holds(found):
                    return found
            await asyncio.sleep(0.02)


async def put_object(cluster: Cluster, kind: Kind, obj: Object) -> None:
    with contextlib.suppress(errors.AlreadyExistsError):
        await cluster.create(kind, obj)


async def comes_and_goes(cluster: Cluster) -> None:
    """A peer that answers, falls silent and goes."""
    await put_object(cluster, keys.NAMESPACE, named(keys.NAMESPACE, Key("", WHERE.namespace)))
    peer = named(keys.FOREIGN_CLUSTER, MILAN, spec={"clusterID": MILAN.name})
    made = await cluster.create(keys.FOREIGN_CLUSTER, peer)
    await cluster.patch_status(keys.FOREIGN_CLUSTER, MILAN, SAID)
    async with whole.controlling(cluster, ClusterProfileReconciler.setup, LIMITS):
        found = await profile(cluster, lambda one: health(one) == "True")
        assert found
        assert found["metadata"]["labels"]["x-k8s.io/cluster-manager"] == "liqo"
        assert found["spec"] == {"displayName": MILAN.name, "clusterManager": {"name": "liqo"}}
        assert found["status"]["version"] == {"kubernetes": "v1.35.4"}
        silent = [{"type": "APIServerStatus", "status": "Error", "reason": "Away"}]
        await cluster.patch_status(keys.FOREIGN_CLUSTER, MILAN, {"conditions": silent})
        await profile(cluster, lambda one: health(one) == "False")
        await cluster.delete(keys.FOREIGN_CLUSTER, MILAN, uid=made["metadata"]["uid"])
        await profile(cluster, lambda one: one is None)


def health(found: Object | None) -> str:
    listed: Any = ((found or {}).get("status") or {}).get("conditions") or [{}]
    return str(listed[0].get("status"))


async def test_it_follows_the_peer() -> None:
    await comes_and_goes(FakeCluster())


async def test_somebody_elses_profile_of_that_name_stays() -> None:
    cluster = FakeCluster()
    theirs = named(keys.CLUSTER_PROFILE, WHERE, spec={"clusterManager": {"name": "other"}})
    await cluster.create(keys.CLUSTER_PROFILE, theirs)
    await cluster.create(keys.FOREIGN_CLUSTER, named(keys.FOREIGN_CLUSTER, MILAN, spec={}))
    await cluster.create(
        keys.FOREIGN_CLUSTER, named(keys.FOREIGN_CLUSTER, Key("", "last"), spec={})
    )
    async with (
        whole.controlling(cluster, ClusterProfileReconciler.setup, LIMITS),
        asyncio.timeout(60),
    ):
        while not await cluster.get_live(keys.CLUSTER_PROFILE, Key(WHERE.namespace, "last")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    found = await cluster.get_live(keys.CLUSTER_PROFILE, WHERE)
    assert found
    assert found["spec"] == {"clusterManager": {"name": "other"}}


def test_of_a_consumer_nobody_asks_the_api_server() -> None:
    told = forge.status({}, {"status": {"role": "Consumer"}}, NOW)
    assert told["conditions"][0]["status"] == "Unknown"
    assert told["properties"] == [{"name": "role.liqo.io", "value": "Consumer"}]


def test_it_is_there_and_off_by_default() -> None:
    assert ClusterProfileReconciler.setup in CONTROLLERS
    assert not parse([], {}).limits.makes_profiles


@pytest.mark.cluster
async def test_on_an_api_server(own_server: Cluster, crds: None) -> None:
    group, kind = keys.CLUSTER_PROFILE.group, keys.CLUSTER_PROFILE
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {
        "name": kind.version, "served": True, "storage": True, "schema": schema,
        "subresources": {"status": {}},
    }  # fmt: skip
    names = {"plural": kind.plural, "kind": kind.kind}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    await put_object(own_server, CRD, named(CRD, Key("", f"{kind.plural}.{group}"), spec=spec))
    await comes_and_goes(own_server)
