"""EndpointSlices of ShadowEndpointSlices: there without the consumer, and never for our own."""

import contextlib
from typing import Any

import msgspec
import pytest

from apis import keys, networks, objects
from apis.objects import Key, Kind, Object, named
from controllers import watches
from controllers.offloading.shadowendpointslice import forge
from controllers.offloading.shadowendpointslice.forge import EndpointAddresses
from controllers.offloading.shadowendpointslice.reconciler import (
    FOREIGN_RETRY_S,
    REFUSED_RETRY_S,
    ShadowEndpointSliceReconciler,
)
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.controller import TerminalError
from kube.informer import Change
from tests import factories
from tests.controllers import whole
from tests.controllers.support import Ledger, Told, manager_of
from tests.fakes import FakeCluster

NODE = {
    "metadata": {"name": "milan-1"},
    "spec": {"podCIDR": "10.203.0.0/16"},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.89.4.2"}]},
}
API_SERVER: Object = {"endpoints": [{"addresses": ["10.89.4.9"]}]}
REACH = EndpointAddresses(
    networks.cluster_addresses([msgspec.convert(NODE, networks.NodeAddresses)], [API_SERVER])
)


def shadow_slice(namespace: str, *addresses: str, **rest: Any) -> Object:
    labels = {keys.ORIGIN: "rome", keys.SERVICE_NAME: "web"}
    template = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    metadata = {"labels": labels, "annotations": {keys.APPLIED: "1"}}
    body = {"metadata": metadata, "spec": {"template": template}, **rest}
    return named(keys.SHADOW_ENDPOINT_SLICE, Key(namespace, "web-1"), **body)


def endpoints_reconciler(
    cluster: Cluster, peers: dict[Key, Object] | None = None, *, told: Told | None = None
) -> Any:
    known = {watches.FOREIGN_CLUSTERS: lambda: peers or {}}
    manager = manager_of(cluster, events=(told or Told(cluster)).recorder, known=known)
    made = ShadowEndpointSliceReconciler(manager)
    made.consumer, made.reach = (lambda _namespace: "rome"), (lambda _consumer: REACH)
    return made


async def test_a_slice_is_made_kept_and_owned(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "web-1")
    made = await cluster.create(
        keys.SHADOW_ENDPOINT_SLICE, shadow_slice(namespace, "10.202.0.7", "10.202.0.8")
    )
    ledger = Ledger(cluster)
    loop = endpoints_reconciler(ledger)
    await loop.reconcile(key)

    found = await cluster.get_live(keys.ENDPOINT_SLICE, key)
    assert found
    assert [one["addresses"] for one in found["endpoints"]] == [["10.202.0.7"], ["10.202.0.8"]]
    assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    labels = found["metadata"]["labels"]
    assert labels[keys.ENDPOINT_SLICE_MANAGED_BY] == keys.ENDPOINT_SLICE_MANAGER
    assert labels[keys.SERVICE_NAME] == "web"

    await loop.reconcile(key)
    await endpoints_reconciler(ledger).reconcile(key)
    assert len(ledger.writes) == 1

    await cluster.patch(keys.ENDPOINT_SLICE, key, {"endpoints": []})
    await loop.reconcile(key)
    repaired = await cluster.get_live(keys.ENDPOINT_SLICE, key)
    assert repaired
    assert len(repaired["endpoints"]) == 2


@pytest.mark.parametrize("labels", [{keys.ORIGIN: "turin"}, {keys.ORIGIN: ""}])
async def test_whose_addresses_are_meant_the_namespace_says(labels: dict[str, str]) -> None:
    """A shadow that names another cluster is told so; one that names none is its namespace's."""
    fake = FakeCluster()
    asked = shadow_slice("foo", "10.202.0.7")
    asked["metadata"]["labels"] |= labels
    key = objects.key_of(await fake.create(keys.SHADOW_ENDPOINT_SLICE, asked))
    told = Told(fake)

    with pytest.raises(TerminalError, match="of cluster rome"):
        await endpoints_reconciler(fake, told=told).reconcile(key)

    assert await fake.get_live(keys.ENDPOINT_SLICE, key) is None
    assert told.reasons == ["OriginMismatch"]
    bare = {"metadata": {"labels": {keys.ORIGIN: None}}}
    await fake.patch(keys.SHADOW_ENDPOINT_SLICE, key, bare)
    await endpoints_reconciler(fake).reconcile(key)
    assert await fake.get_live(keys.ENDPOINT_SLICE, key)


@pytest.mark.parametrize(
    ("address", "is_kept"),
    [
        ("10.202.0.7", True),
        ("192.0.2.1", True),
        ("10.203.1.1", False),
        ("10.89.4.2", False),
        ("10.89.4.9", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("fe80::1", False),
        ("224.0.0.1", False),
        ("168.63.129.16", False),
        ("100.100.100.200", False),
        ("172.17.0.9", True),
        ("172.17.0.1", False),
        ("10.88.0.1", False),
        ("0.0.0.1", False),
        ("0.255.255.255", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
    ],
    ids=[
        "their pod",
        "outside",
        "a pod of ours",
        "a node",
        "the API server",
        "loopback",
        "metadata",
        "link-local",
        "multicast",
        "metadata of Azure",
        "metadata of Alibaba Cloud",
        "a pod of theirs beside a bridge",
        "Docker's bridge on each node",
        "Podman's",
        "this network",
        "the last of it",
        "reserved",
        "broadcast",
    ],
)
def test_nobody_stands_in_for_addresses_of_this_cluster(*, address: str, is_kept: bool) -> None:
    asked = shadow_slice("foo", address)
    asked["metadata"]["uid"] = "1"

    made = forge.endpoint_slice(asked, REACH, is_reachable=True)

    assert bool(made["endpoints"]) is is_kept
    assert forge.refused(asked, REACH) == ([] if is_kept else [address])


SPELLINGS = factories.table("controllers")["shadowendpointslice"]["spellings"]


@pytest.mark.parametrize(("type_", "address"), SPELLINGS)
def test_an_address_has_one_spelling(*, type_: str, address: str) -> None:
    """Source: docs/parity.md SEC-A16; a name is no address, and no reflector sends one."""
    asked = shadow_slice("foo", address)
    asked["metadata"]["uid"] = "1"
    asked["spec"]["template"]["addressType"] = type_

    assert forge.endpoint_slice(asked, REACH, is_reachable=True)["endpoints"] == []
    assert forge.refused(asked, REACH) == [address]


@pytest.mark.parametrize("address", ["fd00::7", "2001:db8:0:1:1:1:1:1", "64:ff9b::c000:201"])
def test_an_ipv6_address_in_its_spelling_stays(address: str) -> None:
    asked = shadow_slice("foo", address)
    asked["metadata"]["uid"] = "1"
    asked["spec"]["template"]["addressType"] = "IPv6"

    assert forge.endpoint_slice(asked, REACH, is_reachable=True)["endpoints"]
    assert forge.refused(asked, REACH) == []


async def test_what_is_not_spelled_as_an_address_is_left_out_and_told(
    cluster: Cluster, namespace: str
) -> None:
    key, told = Key(namespace, "web-1"), Told(cluster)
    odd = [address for type_, address in SPELLINGS if type_ == "IPv4"]
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, shadow_slice(namespace, "10.202.0.7", *odd))

    await endpoints_reconciler(cluster, told=told).reconcile(key)

    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": True}
    assert told.reasons == ["AddressRefused"]


def test_of_annotations_goes_what_is_not_for_whoever_makes_the_slice() -> None:
    """Source: docs/parity.md § 4.11."""
    asked = shadow_slice("foo", "10.202.0.7")
    direct = {keys.DIRECT_CONNECTIONS_DATA: '{"clusterAddresses": {}}'}
    notes = {"note": "1", "endpoints.kubernetes.io/last-change-trigger-time": "now"}
    obeyed = {"prometheus.io/scrape": "true", "io.cilium/global-service": "true"}
    annotations = {keys.APPLIED: "1", **notes, **obeyed, **direct}
    asked["metadata"] |= {"uid": "1", "annotations": annotations}

    made = forge.endpoint_slice(asked, REACH, is_reachable=True)

    assert made["metadata"]["annotations"] == notes


def configuration(consumer: str) -> Object:
    pods = {
        "spec": {"remote": {"cidr": {"pod": ["10.202.0.0/16"]}}},
        "status": {"remote": {"cidr": {"pod": ["10.71.0.0/16"]}}},
    }
    labels = {keys.REMOTE_CLUSTER_ID: consumer}
    return named(keys.CONFIGURATION, Key("tenant", consumer), metadata={"labels": labels}, **pods)


def test_with_an_ip_fabric_only_agreed_networks_are_reached_and_by_their_remap() -> None:
    asked = shadow_slice("foo", "10.202.0.7", "192.0.2.1", "10.203.1.1")
    asked["metadata"]["uid"] = "1"
    own = REACH.own
    known = EndpointAddresses(
        own, networks.remap_of_peer([configuration("turin"), configuration("rome")], "rome")
    )

    made = forge.endpoint_slice(asked, known, is_reachable=True)

    assert [one["addresses"] for one in made["endpoints"]] == [["10.71.0.7"]]
    assert forge.refused(asked, known) == ["192.0.2.1", "10.203.1.1"]
    unknown = EndpointAddresses(own, networks.remap_of_peer([configuration("turin")], "rome"))
    assert forge.endpoint_slice(asked, unknown, is_reachable=True)["endpoints"] == []
    broken = configuration("rome")
    broken["spec"]["remote"]["cidr"]["pod"] = []
    with pytest.raises(ValueError, match="configuration tenant/rome"):
        networks.remap_of_peer([broken], "rome")


def peer_status(**statuses: str) -> Object:
    found = [{"type": type_, "status": status} for type_, status in statuses.items()]
    modules = {"networking": {"enabled": True, "conditions": found}}
    return {"spec": {"clusterID": "rome"}, "status": {"modules": modules}}


@pytest.mark.parametrize(
    ("foreign_cluster", "ready", "expected"),
    [
        (None, True, True),
        (None, None, True),
        (None, False, False),
        (peer_status(NetworkConnectionStatus="Established"), True, True),
        (peer_status(NetworkConnectionStatus="Error"), True, False),
        (peer_status(APIServerStatus="Error"), None, False),
    ],
)
def test_an_endpoint_is_ready_when_it_says_so_and_can_be_reached(
    *, foreign_cluster: Object | None, ready: bool | None, expected: bool
) -> None:
    asked = shadow_slice("foo", "10.202.0.7")
    asked["metadata"]["uid"] = "1"
    asked["spec"]["template"]["endpoints"][0]["conditions"] = (
        {} if ready is None else {"ready": ready}
    )
    reachable = forge.is_reachable(foreign_cluster)

    (made,) = forge.endpoint_slice(asked, REACH, is_reachable=reachable)["endpoints"]

    assert made["conditions"]["ready"] is expected


async def test_while_its_consumer_is_away_its_endpoints_stay_and_are_restored(
    cluster: Cluster, namespace: str
) -> None:
    key = Key(namespace, "web-1")
    asked = shadow_slice(namespace, "10.202.0.7", "10.202.0.8")
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, asked)
    await endpoints_reconciler(cluster).reconcile(key)
    before = await cluster.get_live(keys.ENDPOINT_SLICE, key)
    assert before

    away = endpoints_reconciler(cluster, {Key("", "rome"): peer_status(APIServerStatus="Error")})
    await away.reconcile(key)
    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": False, "10.202.0.8": False}
    await cluster.delete(keys.ENDPOINT_SLICE, key, uid=before["metadata"]["uid"])
    await away.reconcile(key)
    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": False, "10.202.0.8": False}

    back = endpoints_reconciler(
        cluster, {Key("", "rome"): peer_status(APIServerStatus="Established")}
    )
    await back.reconcile(key)
    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": True, "10.202.0.8": True}


async def endpoint_addresses(cluster: Cluster, key: Key) -> dict[str, bool]:
    """Return which addresses there are, and whether each is ready."""
    found = await cluster.get_live(keys.ENDPOINT_SLICE, key)
    assert found
    return {one["addresses"][0]: one["conditions"]["ready"] for one in found["endpoints"]}


@pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
async def test_a_slice_that_the_api_server_refuses_is_told_and_tried_again_seldom(
    cluster: Cluster, namespace: str
) -> None:
    key = Key(namespace, "web-1")
    odd = shadow_slice(namespace, "10.202.0.7")
    odd["spec"]["template"]["endpoints"][0]["hostname"] = "no_host"
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, odd)
    told = Told(cluster)
    loop = endpoints_reconciler(cluster, told=told)

    assert await loop.reconcile(key) == REFUSED_RETRY_S

    assert told.reasons == ["FailedCreateEndpointSlice"]
    assert await cluster.get_live(keys.ENDPOINT_SLICE, key) is None
    template = {"template": {"endpoints": [{"addresses": ["10.202.0.7"]}]}}
    await cluster.patch(keys.SHADOW_ENDPOINT_SLICE, key, {"spec": template})
    assert await loop.reconcile(key) is None
    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": True}


class Late(CachedCluster):
    """Where somebody makes a namesake after we looked and before we write."""

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        theirs = named(kind, objects.key_of(obj), addressType="IPv4", endpoints=[])
        with contextlib.suppress(errors.AlreadyExistsError):
            await self.create(kind, theirs)
        return await super().apply(kind, obj, manager=manager)


async def test_a_slice_made_in_the_same_moment_is_not_overwritten(
    cluster: Cluster, namespace: str
) -> None:
    key = Key(namespace, "web-1")
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, shadow_slice(namespace, "10.202.0.7"))

    with pytest.raises(errors.ConflictError):
        await endpoints_reconciler(Late(cluster)).reconcile(key)

    found = await cluster.get_live(keys.ENDPOINT_SLICE, key)
    assert found
    assert not found["endpoints"]
    assert await endpoints_reconciler(cluster).reconcile(key) == FOREIGN_RETRY_S


async def test_somebody_elses_slice_is_left_alone(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "web-1")
    theirs = named(keys.ENDPOINT_SLICE, key, addressType="IPv4", endpoints=[])
    before = await cluster.create(keys.ENDPOINT_SLICE, theirs)
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, shadow_slice(namespace, "10.202.0.7"))

    told = Told(cluster)
    loop = endpoints_reconciler(cluster, told=told)
    assert await loop.reconcile(key) == FOREIGN_RETRY_S

    assert await cluster.get_live(keys.ENDPOINT_SLICE, key) == before
    assert told.reasons == ["FailedCreateEndpointSlice"]
    await cluster.delete(keys.ENDPOINT_SLICE, key, uid=before["metadata"]["uid"])
    assert await loop.reconcile(key) is None
    assert await endpoint_addresses(cluster, key) == {"10.202.0.7": True}


async def test_a_right_or_room_that_is_missing_for_it_is_told() -> None:
    cluster, key = FakeCluster(), Key("shop", "web-1")
    await cluster.create(keys.SHADOW_ENDPOINT_SLICE, shadow_slice("shop", "10.202.0.7"))
    told = Told(cluster)
    loop = endpoints_reconciler(cluster, told=told)
    for said in ("exceeded quota: slices", "namespace shop is being terminated"):
        cluster.fail("apply", errors.refusal(403, {"message": said}))
        with pytest.raises(errors.ForbiddenError):
            await loop.reconcile(key)

    assert told.reasons == ["FailedCreateEndpointSlice"]
    assert await loop.reconcile(key) is None


async def test_a_node_that_has_other_addresses_has_all_looked_at_again() -> None:
    fake = FakeCluster()
    await fake.create(keys.SHADOW_ENDPOINT_SLICE, shadow_slice("shop", "10.203.0.7"))
    node, moved = (
        msgspec.convert({**NODE, "spec": {"podCIDR": one}}, networks.NodeAddresses)
        for one in ("10.203.0.0/16", "10.204.0.0/16")
    )
    async with whole.watching(fake, ShadowEndpointSliceReconciler) as made:
        for after, woken in ((node, []), (moved, [Key("shop", "web-1")])):
            assert whole.woken(made, keys.NODE, Change(Key("", "milan-1"), node, after)) == woken
