"""The same on what a real API server makes of it: twins are in another namespace of one cluster."""

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from reflector.kinds.contract import ReflectionContext, RemoteObjectOptions
from reflector.reflection import Reflection, ReflectionClients
from tests import factories
from tests.reflector import behind, pairs
from tests.reflector.looks import Seen
from tests.reflector.pairs import SIMPLE, forge_of
from tests.world import existing, remove


@pytest.fixture
async def pair(cluster: Cluster, namespace: str) -> MappedNamespace:
    remote = f"{namespace}-rome"
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", remote)))
    return MappedNamespace("rome", "milan", namespace, remote)


def reflection(cluster: Cluster, pair: MappedNamespace, kind: Kind) -> Reflection:
    live = CachedCluster(cluster)
    return Reflection(
        forge_of(kind), ReflectionContext(pair), ReflectionClients(live, live, lambda *_: None)
    )


def original(kind: Kind, namespace: str) -> Object:
    if kind == keys.SERVICE:
        return factories.service(namespace, "mine", type="NodePort")
    return pairs.original(kind, Key(namespace, "mine"))


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_twice_is_once_and_a_restart_changes_nothing(
    cluster: Cluster, pair: MappedNamespace, kind: Kind
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    await cluster.create(kind, original(kind, pair.local_namespace))
    first = reflection(cluster, pair, kind)
    await first.reconcile(here)
    twin = await cluster.get_live(kind, there)

    await first.reconcile(here)
    await reflection(cluster, pair, kind).reconcile(here)

    assert twin
    assert pair.reflects(twin)
    assert await cluster.get_live(kind, there) == twin


@pytest.mark.parametrize("kind", [keys.CONFIG_MAP, keys.SECRET, keys.SERVICE], ids=str)
async def test_changes_follow_and_drift_is_repaired(
    cluster: Cluster, pair: MappedNamespace, kind: Kind
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    field = "spec" if kind == keys.SERVICE else "data"
    change: Object = {"selector": {"app": "new"}} if kind == keys.SERVICE else {"a": "bmV3"}
    drift: Object = {"selector": {"app": "bad"}} if kind == keys.SERVICE else {"a": "YmFk"}
    await cluster.create(kind, original(kind, pair.local_namespace))
    reflecting = reflection(cluster, pair, kind)
    await reflecting.reconcile(here)

    await cluster.patch(kind, here, {field: change})
    await reflecting.reconcile(here)
    followed = await cluster.get_live(kind, there)
    await cluster.patch(kind, there, {field: drift, "metadata": {"labels": {"theirs": "1"}}})
    await reflecting.reconcile(here)
    repaired = await cluster.get_live(kind, there)

    assert followed
    assert repaired
    assert change.items() <= followed[field].items()
    assert repaired[field] == followed[field]
    assert repaired["metadata"]["labels"] == {"theirs": "1", **pair.labels()}


async def test_what_is_dropped_goes(cluster: Cluster, pair: MappedNamespace) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    await cluster.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP, pair.local_namespace))
    reflecting = reflection(cluster, pair, keys.CONFIG_MAP)
    await reflecting.reconcile(here)
    await cluster.patch(keys.CONFIG_MAP, here, {"data": {"a": None}})

    await reflecting.reconcile(here)

    twin = await existing(cluster, keys.CONFIG_MAP, there)
    assert twin["data"] == {"b": "2"}


async def test_a_service_that_becomes_cluster_ip_has_no_node_ports_any_more(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    await cluster.create(keys.SERVICE, original(keys.SERVICE, pair.local_namespace))
    reflecting = reflection(cluster, pair, keys.SERVICE)
    await reflecting.reconcile(here)
    await cluster.patch(keys.SERVICE, here, {"spec": {"type": "ClusterIP"}})

    await reflecting.reconcile(here)

    twin = await existing(cluster, keys.SERVICE, there)
    assert twin["spec"]["type"] == "ClusterIP"
    assert not twin["spec"]["ports"][0].get("nodePort")


PORTS_OF_OTHERS: dict[str, list[Object]] = {
    "another number": [{"name": "http", "port": 82, "protocol": "TCP"}],
    "one more": [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "more", "port": 82, "protocol": "TCP"},
    ],
}


@pytest.mark.parametrize("theirs", PORTS_OF_OTHERS.values(), ids=PORTS_OF_OTHERS)
async def test_ports_that_the_provider_puts_into_a_twin_go_again(
    cluster: Cluster, pair: MappedNamespace, theirs: list[Object]
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    await cluster.create(keys.SERVICE, factories.service(*here, ports=ports))
    reflecting = reflection(cluster, pair, keys.SERVICE)
    await reflecting.reconcile(here)

    await cluster.patch(keys.SERVICE, there, {"spec": {"ports": theirs}})
    again_s = await reflecting.reconcile(here)

    twin = await existing(cluster, keys.SERVICE, there)
    assert again_s is None
    assert [port["port"] for port in twin["spec"]["ports"]] == [80]
    await reflecting.reconcile(here)
    assert await cluster.get_live(keys.SERVICE, there) == twin


async def test_an_event_that_happens_again_is_the_same_one_at_home(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    mine = original(keys.CONFIG_MAP, pair.local_namespace)
    made = await cluster.create(keys.CONFIG_MAP, mine)
    involved = {"kind": "ConfigMap", "name": "mine", "namespace": pair.remote_namespace}
    there = Key(pair.remote_namespace, "mine.1")
    body = {"involvedObject": involved, "type": "Warning", "reason": "Odd", "count": 3}
    await cluster.create(keys.EVENT, named(keys.EVENT, there, **body))
    live, look = CachedCluster(cluster), Seen(configmaps=[made])
    reflecting = Reflection(
        forge_of(keys.EVENT),
        ReflectionContext(pair, lister=look),
        ReflectionClients(live, live, lambda *_: None),
    )
    at_home = Selection(keys.EVENT, Object, pair.local_namespace)

    await reflecting.reconcile(there)
    first = (await cluster.list(at_home)).items
    await cluster.patch(keys.EVENT, there, {"count": 4})
    await reflecting.reconcile(there)
    again = (await cluster.list(at_home)).items
    await reflecting.reconcile(there)

    assert [event["count"] for event in first.values()] == [3]
    assert [event["count"] for event in again.values()] == [4]
    assert first.keys() == again.keys()
    assert (await cluster.list(at_home)).items == again


FIXED: Object = {"immutable": True}
NO_ADDRESS: Object = {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
ANEW: dict[str, tuple[Kind, Object, Object]] = {
    "data that cannot change": (keys.CONFIG_MAP, FIXED, FIXED | {"data": {"a": "other"}}),
    "secrets that cannot change": (keys.SECRET, FIXED, FIXED | {"data": {"a": "eQ=="}}),
    "may change from now on": (keys.CONFIG_MAP, FIXED, {}),
    "another type": (keys.SECRET, {}, {"type": "shop.example/own"}),
    "headless": (keys.SERVICE, {}, NO_ADDRESS),
    "with an address": (keys.SERVICE, NO_ADDRESS, {}),
}


@pytest.mark.parametrize(("kind", "before", "after"), ANEW.values(), ids=ANEW)
async def test_what_is_made_anew_and_cannot_change_is_made_anew_there(
    cluster: Cluster, pair: MappedNamespace, kind: Kind, before: Object, after: Object
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    made = await cluster.create(kind, original(kind, pair.local_namespace) | before)
    await reflection(cluster, pair, kind).reconcile(here)
    first = await existing(cluster, kind, there)
    await cluster.delete(kind, here, uid=made["metadata"]["uid"])
    again = await cluster.create(kind, original(kind, pair.local_namespace) | after)

    assert await reflection(cluster, pair, kind).reconcile(here) is None

    twin = await existing(cluster, kind, there)
    assert pair.reflects(twin)
    assert twin["metadata"]["uid"] != first["metadata"]["uid"]
    assert event_messages(twin) == event_messages(again)


def event_messages(obj: Object) -> tuple[object, ...]:
    is_headless = (obj.get("spec") or {}).get("clusterIP") == "None"
    return obj.get("data"), obj.get("type"), obj.get("immutable"), is_headless


TYPES = {
    "Opaque": {"a": "eA=="},
    "kubernetes.io/dockercfg": {".dockercfg": "e30="},
    "kubernetes.io/dockerconfigjson": {".dockerconfigjson": "e30="},
    "kubernetes.io/basic-auth": {"username": "eA==", "password": "eQ=="},
    "kubernetes.io/ssh-auth": {"ssh-privatekey": "eA=="},
    "kubernetes.io/tls": {"tls.crt": "eA==", "tls.key": "eQ=="},
    "shop.example/own": {"b": "eA=="},
}


@pytest.mark.parametrize(("type_", "data"), TYPES.items(), ids=TYPES)
async def test_a_secret_of_each_type_goes_with_its_type(
    cluster: Cluster, pair: MappedNamespace, type_: str, data: dict[str, str]
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    body = original(keys.SECRET, pair.local_namespace) | {"type": type_, "data": data}
    await cluster.create(keys.SECRET, body)

    assert await reflection(cluster, pair, keys.SECRET).reconcile(here) is None

    twin = await existing(cluster, keys.SECRET, there)
    assert (twin["type"], twin["data"]) == (type_, data)


CLASS = "theirs.example/lb"
WALK = (
    "NodePort", "ClusterIP", "LoadBalancer", "ClusterIP", "ExternalName", "NodePort",
    "LoadBalancer", "NodePort", "ExternalName", "LoadBalancer", "ExternalName", "ClusterIP",
)  # fmt: skip
"""From a ClusterIP, each type after each other one."""


@pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
async def test_a_service_becomes_each_type_after_each_other_one(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    here, there = Key(pair.local_namespace, "web"), Key(pair.remote_namespace, "web")
    live = CachedCluster(cluster)
    offered = RemoteObjectOptions(enable_load_balancer=True, load_balancer_class=CLASS)
    context = ReflectionContext(pair, settings=offered)
    reflecting = Reflection(
        forge_of(keys.SERVICE), context, ReflectionClients(live, live, lambda *_: None)
    )
    await cluster.create(keys.SERVICE, factories.service(*here))
    await reflecting.reconcile(here)

    for type_ in WALK:
        name = f"db.{pair.local_namespace}.svc" if type_ == "ExternalName" else None
        spec = {"type": type_, "externalName": name}
        await cluster.patch(keys.SERVICE, here, {"spec": spec})
        assert await reflecting.reconcile(here) is None
        twin = await existing(cluster, keys.SERVICE, there)
        assert kind_of_service(twin) == {
            "type": type_,
            "has_address": name is None,
            "has_node_port": type_ in {"NodePort", "LoadBalancer"},
            "class": CLASS if type_ == "LoadBalancer" else None,
            "name": name and f"db.{pair.remote_namespace}.svc",
        }
        await cluster.patch(keys.SERVICE, here, {"metadata": {"labels": {"was": type_}}})
        await reflecting.reconcile(here)
        again = await existing(cluster, keys.SERVICE, there)
        assert again["spec"] == twin["spec"], "what the server gave it stays"
        await reflecting.reconcile(here)
        assert await cluster.get_live(keys.SERVICE, there) == again


def kind_of_service(twin: Object) -> Object:
    spec = twin["spec"]
    return {
        "type": spec["type"],
        "has_address": bool(spec.get("clusterIP")),
        "has_node_port": bool(spec["ports"][0].get("nodePort")),
        "class": spec.get("loadBalancerClass"),
        "name": spec.get("externalName"),
    }


async def test_a_namesake_that_took_the_place_meanwhile_is_a_conflict(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    await cluster.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP, pair.local_namespace))
    await reflection(cluster, pair, keys.CONFIG_MAP).reconcile(here)
    late = await behind.from_now_on(cluster, keys.CONFIG_MAP, pair.remote_namespace)
    await remove(cluster, keys.CONFIG_MAP, there)
    theirs = await cluster.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, there))
    await cluster.patch(keys.CONFIG_MAP, here, {"data": {"a": "3"}})
    ends = ReflectionClients(CachedCluster(cluster), late, lambda *_: None)

    with pytest.raises(errors.ConflictError):
        await Reflection(forge_of(keys.CONFIG_MAP), ReflectionContext(pair), ends).reconcile(here)

    assert await cluster.get_live(keys.CONFIG_MAP, there) == theirs


async def test_a_cache_that_is_behind_deletes_nothing(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    skipped = original(keys.CONFIG_MAP, pair.local_namespace)
    skipped["metadata"]["annotations"] = {"liqo.io/skip-reflection": "true"}
    await cluster.create(keys.CONFIG_MAP, skipped)
    late = await behind.from_now_on(cluster, keys.CONFIG_MAP, pair.local_namespace)
    unskip = {"metadata": {"annotations": {"liqo.io/skip-reflection": None}}}
    await cluster.patch(keys.CONFIG_MAP, here, unskip)
    await reflection(cluster, pair, keys.CONFIG_MAP).reconcile(here)
    ends = ReflectionClients(late, CachedCluster(cluster), lambda *_: None)

    again_s = await Reflection(forge_of(keys.CONFIG_MAP), ReflectionContext(pair), ends).reconcile(
        here
    )

    assert await cluster.get_live(keys.CONFIG_MAP, there)
    assert again_s is not None


async def test_skipping_and_deleting_remove_the_twin(
    cluster: Cluster, pair: MappedNamespace
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    made = await cluster.create(keys.SECRET, original(keys.SECRET, pair.local_namespace))
    reflecting = reflection(cluster, pair, keys.SECRET)
    for value, is_there in (("false", True), ("true", False), ("false", True)):
        annotations = {"annotations": {"liqo.io/skip-reflection": value}}
        await cluster.patch(keys.SECRET, here, {"metadata": annotations})
        await reflecting.reconcile(here)
        assert (await cluster.get_live(keys.SECRET, there) is not None) is is_there

    await cluster.delete(keys.SECRET, here, uid=made["metadata"]["uid"])
    await reflecting.reconcile(here)

    assert await cluster.get_live(keys.SECRET, there) is None


@pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_labels_that_somebody_took_are_put_back_by_the_servers_record(
    cluster: Cluster, pair: MappedNamespace, kind: Kind
) -> None:
    here, there = Key(pair.local_namespace, "mine"), Key(pair.remote_namespace, "mine")
    await cluster.create(kind, original(kind, pair.local_namespace))
    reflecting = reflection(cluster, pair, kind)
    await reflecting.reconcile(here)
    taken = dict.fromkeys((keys.ORIGIN, keys.DESTINATION))
    await cluster.patch(kind, there, {"metadata": {"labels": taken}})

    await reflecting.reconcile(here)

    twin = await existing(cluster, kind, there)
    assert pair.reflects(twin)
