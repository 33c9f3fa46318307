"""A namespace is offloaded entry by entry, and taken back the same way."""

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Final, cast

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object
from controllers.manager import Controller
from controllers.offloading.namespaceoffloading.reconciler import NamespaceOffloadingReconciler
from controllers.offloading.placement.reconciler import PlacementReconciler
from kube.cluster import Cluster, Listing, Selection
from kube.controller import TerminalError
from kube.errors import BusyError, InvalidError, KubeError, NotReachableError
from kube.informer import Change
from tests import factories
from tests.controllers import whole
from tests.controllers.rome import Rome
from tests.controllers.support import (
    Ledger,
    T,
    Told,
    defaulted,
    end,
    ensure_namespace,
    local_map,
    make,
    there,
    virtual_node,
)
from tests.fakes import FakeCluster


@pytest.fixture
async def rome(cluster: Cluster, namespace: str) -> Rome:
    tenant = f"liqo-tenant-{namespace}"
    made = Rome(Ledger(cluster), namespace, tenant, Told(cluster))
    await made.peer("milan")
    return made


FORGED: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("milan", "milan", {keys.REPLICATED: "true", keys.ORIGIN_ID: "milan"}),
    ("milan", "milan", {}),
    ("turin", "milan", {}),
    ("turin", "turin", {}),
)
"""By a hostile peer turin, in its own tenant namespace: name, destination, further labels."""


@pytest.mark.parametrize("forged", FORGED)
async def test_a_map_that_a_peer_made_takes_the_place_of_none_of_ours(
    rome: Rome, forged: tuple[str, str, dict[str, str]]
) -> None:
    """Where the label of the map says milan and the namespace turin, or it came from there."""
    await rome.peer("turin")
    name, cluster_id, labels = forged
    where = Key(rome.home("turin"), f"{name}-2" if name == "turin" else name)
    made = local_map(where.namespace, cluster_id)
    made["metadata"]["name"] = where.name
    made["metadata"]["labels"] |= labels
    await rome.cluster.create(keys.NAMESPACE_MAP, made)

    await rome.offload()

    entry = {rome.namespace: f"{rome.namespace}-rome"}
    assert await rome.desired("milan") == entry
    assert await rome.desired("turin") == entry
    found = await there(rome.cluster, keys.NAMESPACE_MAP, where)
    assert not found["spec"].get("desiredMapping")


async def test_the_entry_the_label_and_the_rights_are_there(rome: Rome) -> None:
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()

    assert await rome.desired("milan") == {rome.namespace: f"{rome.namespace}-rome"}
    assert await rome.label() == "true"
    assert await rome.bound() == [f"liqo-node-milan-{rome.namespace}"]
    status = await rome.status()
    assert status["offloadingPhase"] == "Ready"
    assert status["remoteNamespaceName"] == f"{rome.namespace}-rome"
    assert status["observedGeneration"] == 1


async def test_the_twin_of_a_long_name_is_asked_for_and_told_by_its_short_one(rome: Rome) -> None:
    long = replace(rome, namespace=rome.namespace.ljust(naming.LABEL_LIMIT, "x"))
    await ensure_namespace(rome.cluster, long.namespace)

    await long.offload()

    twin = naming.default_remote_namespace(long.namespace, "rome")
    assert len(twin) == naming.LABEL_LIMIT
    assert await long.desired("milan") == {long.namespace: twin}
    assert (await long.status())["remoteNamespaceName"] == twin


async def test_a_namespace_that_is_deleted_is_withdrawn_at_once() -> None:
    fake = FakeCluster(strict=True)
    shop = factories.namespace("shop")
    shop["metadata"]["finalizers"] = ["example.com/holds-it"]
    await fake.create(keys.NAMESPACE, shop)
    rome = Rome(Ledger(fake), "shop", "liqo-tenant-shop", Told(fake))
    await rome.peer("milan")
    await rome.offload()
    assert await rome.desired("milan") == {"shop": "shop-rome"}

    await end(fake, keys.NAMESPACE, Key("", "shop"))
    await rome.settle()

    assert await rome.desired("milan") == {}
    assert await rome.bound() == []


async def test_an_entry_that_makes_no_sense_blocks_no_other(rome: Rome) -> None:
    await rome.peer("turin")
    strange = {"their": {"remoteNamespace": "x"}, rome.namespace: {"remoteNamespace": "y"}}
    turin = Key(rome.home("turin"), "turin")
    await rome.cluster.patch_status(keys.NAMESPACE_MAP, turin, {"currentMapping": strange})

    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()

    conditions = (await rome.status())["remoteNamespacesConditions"]
    ready = {name: each[-1]["status"] for name, each in conditions.items()}
    assert ready == {"milan": "True", "turin": "False"}

    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()
    assert await rome.desired("milan") == {}
    await rome.answer("milan", None)
    await rome.answer("turin", None)
    await rome.settle()
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


async def test_rights_come_before_the_entry(rome: Rome) -> None:
    await rome.offload()

    order = [kind for _, kind, _ in rome.cluster.writes]
    entry = max(
        i
        for i, (verb, kind, _) in enumerate(rome.cluster.writes)
        if (verb, kind) == ("patch", "namespacemap")
    )
    assert order.index("rolebinding") < entry


async def test_a_cluster_that_is_not_selected_gets_nothing(rome: Rome) -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    await rome.peer("turin", labels={"zone": "a"})

    await rome.offload(clusterSelector={"nodeSelectorTerms": [{"matchExpressions": [expression]}]})

    assert await rome.desired("milan") == {}
    assert list(await rome.desired("turin")) == [rome.namespace]
    assert await rome.bound() == [f"liqo-node-turin-{rome.namespace}"]
    assert (await rome.status())["offloadingPhase"] == "InProgress"
    await rome.answer("turin", "Accepted")
    await rome.settle()
    summary = {
        name: {each["type"]: (each["status"], each["reason"]) for each in found}
        for name, found in (await rome.status())["remoteNamespacesConditions"].items()
    }
    assert summary == {
        "milan": {"OffloadingRequired": ("False", "ClusterNotSelected")},
        "turin": {
            "OffloadingRequired": ("True", "ClusterSelected"),
            "Ready": ("True", "NamespaceCreated"),
        },
    }


async def test_a_cluster_no_longer_selected_keeps_its_rights_until_the_twin_is_gone(
    rome: Rome,
) -> None:
    await rome.offload()
    await rome.answer("milan", "Accepted")
    selector: Object = {"nodeSelectorTerms": [{}]}
    changes = {"spec": {"clusterSelector": selector}}
    await rome.cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, changes)

    await rome.settle()
    while_terminating = await rome.bound()
    await rome.answer("milan", None)
    await rome.settle()

    assert len(while_terminating) == 1
    assert await rome.desired("milan") == {}
    assert await rome.bound() == []
    assert (await rome.status())["offloadingPhase"] == "NoClusterSelected"


async def test_a_peer_without_a_map_does_not_hold_up_the_others(rome: Rome) -> None:
    await ensure_namespace(rome.cluster, rome.home("half"))
    node = virtual_node(rome.home("half"), f"half-{rome.namespace}", "half")
    await rome.cluster.create(keys.VIRTUAL_NODE, node)

    await rome.offload()

    assert list(await rome.desired("milan")) == [rome.namespace]


async def test_the_providers_refusal_is_shown(rome: Rome) -> None:
    await rome.offload()
    await rome.answer("milan", "CreationLoopBackOff", reason="Conflict", message="it exists")

    await rome.settle()

    status = await rome.status()
    assert status["offloadingPhase"] == "AllFailed"
    assert "it exists" in status["remoteNamespacesConditions"]["milan"][1]["message"]
    assert rome.told.reasons.count("AllFailed") == 1


async def test_unoffloading_waits_for_the_twin_and_leaves_nothing(rome: Rome) -> None:
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()
    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)

    await rome.settle()
    waiting = await rome.status()
    await rome.answer("milan", None)
    await rome.settle()

    assert waiting["offloadingPhase"] == "Terminating"
    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None
    assert await rome.desired("milan") == {}
    assert await rome.label() is None
    assert await rome.bound() == []


class Behind(Ledger):
    """A cache that shows a NamespaceOffloading as it was, as long as ``shown`` is set."""

    shown: Object | None = None

    async def get(self, kind: Kind, key: Key) -> Object | None:
        if self.shown is not None and kind == keys.NAMESPACE_OFFLOADING:
            return self.shown
        return await super().get(kind, key)

    async def keep(self, key: Key) -> None:
        self.shown = await there(self, keys.NAMESPACE_OFFLOADING, key)
        self.writes.clear()

    def written(self) -> list[str]:
        return [verb for verb, kind, _ in self.writes if kind == str(keys.NAMESPACE_OFFLOADING)]


async def test_nothing_is_written_twice_while_the_cache_is_behind() -> None:
    cluster = Behind(FakeCluster(strict=True))
    await ensure_namespace(cluster, "shop")
    rome = Rome(cluster, "shop", "liqo-tenant-shop", Told(cluster))
    await rome.peer("milan")
    await cluster.create(keys.NAMESPACE_OFFLOADING, defaulted("shop"))

    await cluster.keep(rome.key)
    for _ in range(3):
        await rome.reconciler.reconcile(rome.key)
    assert cluster.written() == ["patch", "patch_status"]

    cluster.shown = None
    await rome.answer("milan", "Accepted")
    await rome.settle()
    await end(cluster, keys.NAMESPACE_OFFLOADING, rome.key)
    await rome.settle()
    await rome.answer("milan", None)
    await cluster.keep(rome.key)
    for _ in range(3):
        await rome.reconciler.reconcile(rome.key)
    assert cluster.written() == ["patch"]  # its end, which no status has to announce
    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


class Stale(Ledger):
    """A cache that does not show yet how maps are answered."""

    async def list(self, of: Selection[T]) -> Listing[T]:
        found = await super().list(of)
        if of.kind != keys.NAMESPACE_MAP:
            return found
        maps = {key: {**cast("Object", one), "status": {}} for key, one in found.items.items()}
        return Listing(cast("dict[Key, T]", maps), found.version)


async def test_rights_stay_where_only_the_cache_does_not_show_the_twin() -> None:
    cluster = Stale(FakeCluster())
    await ensure_namespace(cluster, "shop")
    rome = Rome(cluster, "shop", "liqo-tenant-shop", Told(cluster))
    await rome.peer("milan")
    await rome.offload()
    await rome.answer("milan", "Accepted")
    changes: Object = {"spec": {"clusterSelector": {"nodeSelectorTerms": [{}]}}}

    await cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, changes)
    await rome.settle()
    while_it_is_there = await rome.bound()
    await rome.answer("milan", None)
    await rome.settle()

    assert len(while_it_is_there) == 1
    assert await rome.bound() == []


async def test_a_label_that_a_user_set_goes_with_the_offloading(rome: Rome) -> None:
    labels = {"metadata": {"labels": {keys.SCHEDULING_ENABLED: "true"}}}
    await rome.cluster.patch(keys.NAMESPACE, Key("", rome.namespace), labels)
    await rome.settle()
    assert await rome.label() == "true", "it waits for an offloading"
    await rome.offload()
    assert await rome.label() == "true"
    await end(rome.cluster, keys.NAMESPACE_OFFLOADING, rome.key)

    await rome.settle()

    assert await rome.cluster.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None
    assert await rome.label() is None
    assert rome.told.reasons == ["LabelRemoved"]

    await rome.cluster.patch(keys.NAMESPACE, Key("", rome.namespace), labels)
    await rome.settle()
    assert await rome.label() == "true", "who sets it again has pods wait for an offloading again"


async def test_strategy_local_and_back_changes_our_label(rome: Rome) -> None:
    await rome.offload()

    for strategy, label in (("Local", "false"), ("Remote", "true")):
        changes = {"spec": {"podOffloadingStrategy": strategy}}
        await rome.cluster.patch(keys.NAMESPACE_OFFLOADING, rome.key, changes)
        await rome.settle()
        assert await rome.label() == label

    assert list(await rome.desired("milan")) == [rome.namespace]


async def test_a_label_whose_offloading_never_came_is_taken_back_later(rome: Rome) -> None:
    metadata = {
        "labels": {keys.SCHEDULING_ENABLED: "true"},
        "annotations": {keys.SCHEDULING_ENABLED_BY: "admission"},
    }
    await rome.cluster.patch(keys.NAMESPACE, Key("", rome.namespace), {"metadata": metadata})

    again = await rome.reconciler.reconcile(rome.key)
    meanwhile = await rome.label()
    rome.set_back(3600)
    rome.now += timedelta(minutes=1)
    await rome.settle()

    assert again == 10
    assert meanwhile == "true"
    assert await rome.label() is None
    found = await there(rome.cluster, keys.NAMESPACE, Key("", rome.namespace))
    assert keys.SCHEDULING_ENABLED_BY not in objects.annotations(found)


@pytest.mark.parametrize("operator", ["In", "Gt"])
async def test_a_selector_that_makes_no_sense_is_said(rome: Rome, operator: str) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": []}]}
    selector = {"nodeSelectorTerms": [term]}

    with pytest.raises(TerminalError):
        await rome.offload(clusterSelector=selector)

    assert set(rome.told.reasons) == {"Invalid"}
    assert await rome.desired("milan") == {}
    [condition] = (await rome.status())["remoteNamespacesConditions"]["milan"]
    assert (condition["status"], condition["reason"]) == ("Unknown", "Invalid")


async def test_one_map_that_cannot_be_written_does_not_stop_the_next() -> None:
    fake = FakeCluster()
    for name in ("foo", "tenant"):
        await fake.create(keys.NAMESPACE, factories.namespace(name))
    rome = Rome(Ledger(fake), "foo", "tenant", Told(fake))
    await rome.peer("milan")
    await rome.peer("turin")
    await make(fake, keys.NAMESPACE_OFFLOADING, defaulted("foo"))
    fake.fail("patch", NotReachableError("no answer"), kind=keys.NAMESPACE_MAP)

    with pytest.raises(NotReachableError):
        await rome.reconciler.reconcile(rome.key)

    assert await rome.desired("milan") == {}
    assert await rome.desired("turin") == {"foo": "foo-rome"}
    await rome.settle()
    assert await rome.desired("milan") == {"foo": "foo-rome"}


async def test_a_right_that_cannot_be_given_keeps_no_other_and_no_entry() -> None:
    """Of three virtual nodes of one cluster the binding of one is somebody else's, for ever."""
    fake = FakeCluster(strict=True)
    await ensure_namespace(fake, "shop")
    rome = Rome(Ledger(fake), "shop", "liqo-tenant-shop", Told(fake))
    await rome.peer("milan")
    for name in ("second", "third"):
        await fake.create(keys.VIRTUAL_NODE, virtual_node(rome.home("milan"), name, "milan"))
    taken = objects.named(
        keys.ROLE_BINDING, Key("shop", "liqo-node-second"),
        subjects=[], roleRef={"kind": "ClusterRole", "name": "view", "apiGroup": keys.RBAC_GROUP},
    )  # fmt: skip
    await fake.create(keys.ROLE_BINDING, taken)
    await fake.create(keys.NAMESPACE_OFFLOADING, defaulted("shop"))

    with pytest.raises(TerminalError, match="exists and is not ours"):
        await rome.settle()

    assert await rome.bound() == ["liqo-node-milan-shop", "liqo-node-second", "liqo-node-third"]
    assert await rome.desired("milan") == {"shop": "shop-rome"}


async def test_a_right_that_cannot_be_taken_keeps_no_other() -> None:
    fake = FakeCluster(strict=True)
    await ensure_namespace(fake, "shop")
    rome = Rome(Ledger(fake), "shop", "liqo-tenant-shop", Told(fake))
    for cluster_id in ("bari", "milan", "turin"):
        await rome.peer(cluster_id)
    await rome.offload()
    assert len(await rome.bound()) == 3
    stays = "liqo-node-milan-shop"
    rome.cluster.refuses["delete", str(keys.ROLE_BINDING), Key("shop", stays)] = BusyError("no")
    await end(fake, keys.NAMESPACE_OFFLOADING, rome.key)

    for _ in range(3):
        with contextlib.suppress(BusyError):
            await rome.reconciler.reconcile(rome.key)

    assert await rome.bound() == [stays]
    assert await rome.desired("milan") == {}
    rome.cluster.refuses.clear()
    await rome.settle()
    assert await rome.bound() == []
    assert await fake.get_live(keys.NAMESPACE_OFFLOADING, rome.key) is None


async def test_a_namespace_costs_another_nothing() -> None:
    """A look reads the bindings of its own namespace, however many others there are."""
    fake = FakeCluster()
    rome = Rome(Ledger(fake), "shop-0", "liqo-tenant-shop", Told(fake))
    await rome.peer("milan")
    for number in range(30):
        each = replace(rome, namespace=f"shop-{number}")
        await ensure_namespace(fake, each.namespace)
        await each.offload()
    async with whole.watching(
        fake, NamespaceOffloadingReconciler, whole.Counting, cluster_id="rome"
    ) as controller:
        await controller.reconcile(rome.key)

        manager = cast("whole.Counting", controller.manager)
        assert manager.read[keys.ROLE_BINDING] == 1


@pytest.mark.parametrize("controller", [NamespaceOffloadingReconciler, PlacementReconciler])
async def test_what_no_selector_reads_of_a_virtual_node_wakes_nobody(
    controller: type[Controller],
) -> None:
    """Such as what is granted, which changes every few seconds, or whether its Node is Ready."""
    fake = FakeCluster()
    term = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["north"]}]}
    for obj in (
        defaulted("shop"),
        defaulted("north", clusterSelector={"nodeSelectorTerms": [term]}),
    ):
        await fake.create(keys.NAMESPACE_OFFLOADING, obj)
    old, node = virtual_node("tenant", "milan", "milan"), factories.virtual_node()
    spec, taint = old["spec"], {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    granted = {**old, "spec": {**spec, "resourceQuota": {"hard": {"cpu": "2"}}}}
    labelled = {**old, "spec": {**spec, "labels": {"region": "north"}}}
    otherwise = {**old, "spec": {**spec, "labels": {"tier": "north"}}}

    async with whole.watching(fake, controller) as made:

        def woken(kind: Kind, old: Object, new: Object) -> set[Key]:
            return set(whole.woken(made, kind, Change(objects.key_of(old), old, new)))

        assert woken(keys.VIRTUAL_NODE, old, granted) == set()
        assert woken(keys.NODE, node, {**node, "spec": {"taints": [taint]}}) == set()
        assert woken(keys.VIRTUAL_NODE, old, otherwise) == set()
        assert woken(keys.VIRTUAL_NODE, old, labelled) == {Key("north", "offloading")}


async def test_system_namespaces_stay_at_home(cluster: Cluster) -> None:
    rome = Rome(Ledger(FakeCluster()), "kube-system", "tenant", Told(cluster))
    await rome.cluster.create(keys.NAMESPACE_OFFLOADING, defaulted("kube-system"))

    with pytest.raises(TerminalError, match="belongs to the system"):
        await rome.reconciler.reconcile(rome.key)


@pytest.mark.parametrize("verb", ["get", "list", "patch*", "create", "apply"])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("error", [BusyError("500"), NotReachableError("timeout")])
async def test_an_error_on_the_way_takes_no_entry_and_no_right_back(
    error: KubeError, verb: str, *, after: bool
) -> None:
    """F22: of what was offloaded nothing is touched, and the next look goes on."""
    fake = FakeCluster(strict=True)
    await ensure_namespace(fake, "shop")
    rome = Rome(Ledger(fake), "shop", "liqo-tenant-shop", Told(fake))
    await rome.peer("milan")
    await rome.offload()
    await rome.answer("milan", "Accepted")
    await rome.settle()
    before = await rome.desired("milan"), await rome.bound(), await rome.label()
    await rome.peer("turin")
    fake.fail(verb, error, after=after)

    with contextlib.suppress(KubeError, ExceptionGroup):
        await rome.reconciler.reconcile(rome.key)
    fake.heal()

    assert (await rome.desired("milan"), (await rome.bound())[: len(before[1])]) == before[:2]
    assert await rome.label() == before[2]
    await rome.settle()
    assert await rome.desired("turin") == {"shop": "shop-rome"}


async def test_a_namespace_that_finds_no_room_in_a_map_is_told_and_goes_to_the_others(
    rome: Rome,
) -> None:
    """The CRD gives a NamespaceMap room for 2,000."""
    await rome.peer("turin")
    full = InvalidError("spec.desiredMapping: Too many: 2001: must have at most 2000 items")
    where = Key(rome.home("milan"), "milan")
    rome.cluster.refuses["patch", str(keys.NAMESPACE_MAP), where] = full

    with pytest.raises(InvalidError):
        await rome.offload()

    assert list(await rome.desired("turin")) == [rome.namespace]
    assert "NotMapped" in rome.told.reasons
