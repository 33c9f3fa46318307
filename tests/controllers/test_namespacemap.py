"""A provider makes twins, never adopts, and deletes only what its own record names."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys, naming, objects, providerpolicy
from apis.authentication import Binding
from apis.objects import Key, Kind, Meta, Object
from controllers import watches
from controllers.offloading.namespacemap import forge, reconciler
from controllers.offloading.namespacemap.reconciler import NamespaceMapReconciler
from kube.cluster import Cluster, Selection
from kube.controller import TerminalError
from kube.errors import BusyError, ForbiddenError, NotReachableError
from kube.ratelimit import LARGE_OBJECT, LargeWriteLimit
from tests import factories
from tests.controllers.support import (
    Known,
    Ledger,
    Told,
    bindings_known,
    end,
    make,
    manager_of,
    replica_map,
    settle,
    there,
)
from tests.fakes import FakeCluster

ACCOUNT: Final = Key("liqo", keys.CONTROLLER_MANAGER)


@dataclass
class Milan:
    """A provider with one tenant, the cluster ``rome``."""

    cluster: Ledger
    tenant: str
    unique: str

    def __post_init__(self) -> None:
        self.told = Told(self.cluster)
        self.bindings: list[tuple[Kind, Binding]] = []
        self.reconciler = self.elected()

    def elected(
        self, step: int = 1, known: Known | None = None, clock: Callable[[], float] | None = None
    ) -> NamespaceMapReconciler:
        """Return one that remembers nothing; so many seconds pass at each look of its clock."""
        seen = {**bindings_known(lambda: self.bindings), **(known or {})}
        manager = manager_of(self.cluster, events=self.told.recorder, known=seen)
        clock = clock or itertools.count(step=step).__next__
        return NamespaceMapReconciler(manager, LargeWriteLimit(clock))

    async def limit(self, **twins: object) -> None:
        await self.policy(remoteNamespaces=twins)

    async def policy(self, **spec: object) -> None:
        key = Key("", self.unique)
        obj = objects.named(keys.PROVIDER_POLICY, key, spec=spec)
        await self.cluster.apply(keys.PROVIDER_POLICY, obj, manager="tests")

    @property
    def key(self) -> Key:
        return Key(self.tenant, "milan")

    async def ask(self, **desired: str | None) -> None:
        if await self.cluster.get_live(keys.NAMESPACE_MAP, self.key) is None:
            obj = replica_map(self.tenant, "milan", self.unique, {})
            await self.cluster.create(keys.NAMESPACE_MAP, obj)
        changes = {"spec": {"desiredMapping": desired}}
        await self.cluster.patch(keys.NAMESPACE_MAP, self.key, changes)
        await self.settle()

    async def settle(self) -> None:
        await settle(self.reconciler, self.key, self.cluster)

    async def entry(self, local: str) -> Object:
        found = await there(self.cluster, keys.NAMESPACE_MAP, self.key)
        entry: Object = found["status"]["currentMapping"][local]
        return entry

    async def is_bound(self, name: str) -> bool:
        return bool(await self.bound(name))

    async def bound(self, name: str) -> set[str]:
        """Return the bindings there: the tenant's, and that of our own controllers."""
        found = await self.cluster.list(Selection(keys.ROLE_BINDING, Object, name))
        return {key.name for key in found.items} & {self.tenant, ACCOUNT.name}

    async def namespace(self, name: str) -> Object | None:
        return await self.cluster.get_live(keys.NAMESPACE, Key("", name))


async def tenant_of(cluster: Cluster, unique: str) -> Milan:
    tenant = f"liqo-tenant-{unique}"
    await cluster.create(keys.NAMESPACE, factories.tenant_namespace(tenant, unique))
    return Milan(Ledger(cluster), tenant, unique)


@pytest.fixture
async def milan(cluster: Cluster, namespace: str) -> Milan:
    return await tenant_of(cluster, namespace)


@pytest.fixture
async def fake() -> FakeCluster:
    return FakeCluster(strict=True)


async def test_what_comes_soon_after_a_large_map_was_written_waits(fake: FakeCluster) -> None:
    milan, now = await tenant_of(fake, "rome"), [0.0]
    milan.reconciler = milan.elected(clock=lambda: now[0])
    await milan.ask(**{f"foo-{number}": f"foo-{number}-rome" for number in range(LARGE_OBJECT)})
    await milan.ask(late="late-rome")
    left_s = await milan.reconciler.reconcile(milan.key)
    at_first = await milan.namespace("late-rome")
    now[0] += left_s or 0.0
    await milan.settle()

    assert left_s
    assert at_first is None
    assert (await milan.entry("late"))["phase"] == "Accepted"


DENIED: Final = {keys.REPLICATED: None, keys.ORIGIN_ID: None, keys.REPLICATION: "true"}


async def test_a_map_that_denies_whose_it_is_is_dissolved_all_the_same(fake: FakeCluster) -> None:
    """As a consumer could make it before a policy kept its marks: our finalizer tells."""
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    labels = {**DENIED, keys.REMOTE_ID: "rome"}
    await milan.cluster.patch(keys.NAMESPACE_MAP, milan.key, {"metadata": {"labels": labels}})

    await end(milan.cluster, keys.NAMESPACE_MAP, milan.key)
    await milan.settle()

    assert await milan.namespace("foo-rome") is None
    assert await milan.cluster.get_live(keys.NAMESPACE_MAP, milan.key) is None


async def test_a_twin_is_made_with_record_and_rights(milan: Milan) -> None:
    name = f"foo-{milan.unique}"

    await milan.ask(foo=name)

    twin = await milan.namespace(name)
    assert twin is not None
    assert twin["metadata"]["annotations"] == {
        keys.MANAGED_BY_NAMESPACE_MAP: f"{milan.tenant}/milan",
        keys.ORIGINAL_NAME: "foo",
    }
    assert objects.labels(twin)[keys.REMOTE_CLUSTER_ID] == milan.unique
    assert objects.labels(twin)[keys.POD_SECURITY_ENFORCE] == "baseline"
    binding = await there(milan.cluster, keys.ROLE_BINDING, Key(name, milan.tenant))
    assert binding["roleRef"]["name"] == "liqo-virtual-kubelet-remote"
    assert [each["name"] for each in binding["subjects"]] == [milan.unique]
    own = await there(milan.cluster, keys.ROLE_BINDING, Key(name, ACCOUNT.name))
    assert own["roleRef"]["name"] == "liqo-controller-manager-twin"
    assert own["subjects"] == [
        {"kind": "ServiceAccount", "namespace": "liqo", "name": ACCOUNT.name}
    ]
    assert await milan.entry("foo") == {"remoteNamespace": name, "phase": "Accepted"}


@pytest.mark.parametrize("name", ["kube-system", "default", "liqo", "liqo-tenant-turin", "kube-x"])
async def test_reserved_names_are_refused_and_the_others_served(milan: Milan, name: str) -> None:
    await milan.ask(foo=name, bar=f"bar-{milan.unique}")

    assert (await milan.entry("foo"))["phase"] == "CreationLoopBackOff"
    assert (await milan.entry("foo"))["reason"] == "NameReserved"
    assert (await milan.entry("bar"))["phase"] == "Accepted"
    assert not await milan.is_bound(name)


@pytest.mark.parametrize("name", ["UPPER", "a/b", "x.y", "-a", ".."])
async def test_what_is_no_name_is_refused_and_never_asked_for(milan: Milan, name: str) -> None:
    """The right to ask for a/b would be another one, whose lack must not keep a map from going."""
    await milan.ask(foo=name)
    refused = (await milan.entry("foo"))["reason"]
    found = await there(milan.cluster, keys.NAMESPACE_MAP, milan.key)

    await milan.ask(foo=None)

    assert refused == "InvalidName"
    assert forge.leftovers({**found, "spec": {}}, []) == {}
    left = await there(milan.cluster, keys.NAMESPACE_MAP, milan.key)
    assert not (left.get("status") or {}).get("currentMapping")


async def test_a_namespace_that_exists_is_never_adopted(milan: Milan) -> None:
    name = f"theirs-{milan.unique}"
    theirs = await milan.cluster.create(keys.NAMESPACE, factories.namespace(name))

    await milan.ask(foo=name)
    await milan.ask(foo=None)

    assert await milan.namespace(name) == theirs
    assert not await milan.is_bound(name)
    assert "Conflict" in milan.told.reasons


async def test_the_second_of_two_on_one_name_is_refused(milan: Milan) -> None:
    name = f"shared-{milan.unique}"
    await milan.ask(bar=name)

    await milan.ask(abc=name)
    refused = await milan.entry("abc")
    await milan.ask(abc=None)

    assert refused["phase"] == "CreationLoopBackOff"
    assert "already the twin of namespace bar" in refused["message"]
    twin = await milan.namespace(name)
    assert twin is not None
    assert not objects.is_terminating(twin)
    assert (await milan.entry("bar"))["phase"] == "Accepted"


async def test_what_is_not_asked_for_any_more_goes(milan: Milan) -> None:
    name = f"foo-{milan.unique}"
    await milan.ask(foo=name)

    await milan.ask(foo=None)

    twin = await milan.namespace(name)
    found = await there(milan.cluster, keys.NAMESPACE_MAP, milan.key)
    current = (found.get("status") or {}).get("currentMapping") or {}
    if twin is None:  # the fake's namespaces go at once
        assert current == {}
    else:
        assert objects.is_terminating(twin)
        assert current["foo"]["phase"] == "Terminating"


async def test_the_map_goes_after_its_twins() -> None:
    milan = await tenant_of(FakeCluster(strict=True), "rome")
    await milan.ask(foo="foo-rome", bar="bar-rome")
    await end(milan.cluster, keys.NAMESPACE_MAP, milan.key)

    await milan.settle()

    assert await milan.namespace("foo-rome") is None
    assert await milan.namespace("bar-rome") is None
    assert await milan.cluster.get_live(keys.NAMESPACE_MAP, milan.key) is None


HELD: Final = "example.com/held"
PROTECTION: Final = "kubernetes.io/pvc-protection"
OF_PROVIDERS: Final[dict[Kind, str]] = {
    keys.SERVICE: "service.kubernetes.io/load-balancer-cleanup",
    keys.INGRESS: "ingress.k8s.aws/resources",
    keys.PERSISTENT_VOLUME_CLAIM: PROTECTION,
}
"""What a controller of the provider waits for; on any other kind the consumer wrote it."""


@pytest.mark.parametrize("kind", reconciler.KINDS, ids=str)
async def test_what_a_consumer_holds_in_a_twin_is_released_with_the_map(kind: Kind) -> None:
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    all_ = [HELD, "foregroundDeletion", *OF_PROVIDERS.values()]
    key = Key("foo-rome", "held")
    await fake.create(kind, objects.named(kind, key, metadata={"finalizers": all_}))
    await end(milan.cluster, keys.NAMESPACE_MAP, milan.key)
    milan.cluster.writes.clear()

    await milan.reconciler.reconcile(milan.key)
    first = await fake.get_live(kind, key)
    await milan.reconciler.reconcile(milan.key)

    assert first
    assert objects.finalizers(first) == all_, "rights go before that"
    second = await fake.get_live(kind, key)
    assert second
    kept = {OF_PROVIDERS[kind]} if kind in OF_PROVIDERS else set()
    found = set(objects.finalizers(second))
    assert kept | {"foregroundDeletion"} <= found
    assert HELD not in found
    assert (PROTECTION in found) == (kind == keys.PERSISTENT_VOLUME_CLAIM), "of claims alone"
    if kind not in OF_PROVIDERS:
        assert found == {"foregroundDeletion"}
    written = [(verb, of) for verb, of, _ in milan.cluster.writes if of != str(keys.NAMESPACE_MAP)]
    assert written == [("delete", str(keys.ROLE_BINDING)), ("patch", str(kind))]
    await milan.settle()
    twin = await milan.namespace("foo-rome")
    assert twin is None or objects.is_terminating(twin)


async def test_a_full_claim_that_keeps_its_twin_is_emptied() -> None:
    """It has no room for a deletionTimestamp, and the finalizer of Kubernetes needs one."""
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    of_kubernetes = OF_PROVIDERS[keys.PERSISTENT_VOLUME_CLAIM]
    for name, size in (("full", reconciler.FULL), ("small", 10)):
        metadata = {"labels": {"a": "x" * size}, "finalizers": [of_kubernetes]}
        claim = objects.named(
            keys.PERSISTENT_VOLUME_CLAIM, Key("foo-rome", name), metadata=metadata
        )
        await fake.create(keys.PERSISTENT_VOLUME_CLAIM, claim)
    twin = Key("", "foo-rome")
    await fake.patch(keys.NAMESPACE, twin, {"metadata": {"finalizers": ["x/y"]}})
    made = await there(fake, keys.NAMESPACE, twin)
    await fake.delete(keys.NAMESPACE, twin, uid=objects.uid(made))
    fails = {"type": "NamespaceDeletionContentFailure", "status": "True"}
    await fake.patch_status(keys.NAMESPACE, twin, {"conditions": [fails]})

    await milan.ask(foo=None)

    for name, is_kept in (("full", False), ("small", True)):
        claim = await there(fake, keys.PERSISTENT_VOLUME_CLAIM, Key("foo-rome", name))
        assert bool(objects.labels(claim)) is is_kept
        assert objects.finalizers(claim) == [of_kubernetes]


async def test_what_may_not_be_released_does_not_keep_the_twin_from_its_deletion() -> None:
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    key = Key("foo-rome", "held")
    held = objects.named(keys.CONFIG_MAP, key, metadata={"finalizers": [HELD]})
    await fake.create(keys.CONFIG_MAP, held)
    fake.fail("patch", ForbiddenError("not here"), kind=keys.CONFIG_MAP)
    await end(milan.cluster, keys.NAMESPACE_MAP, milan.key)

    for _ in range(3):
        await milan.reconciler.reconcile(milan.key)

    twin = await milan.namespace("foo-rome")
    assert twin is None or objects.is_terminating(twin)


async def test_what_cannot_be_released_holds_up_the_release_of_nothing_else() -> None:
    """An object in the middle fails for ever, and a kind cannot be listed."""
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    fake.fail("list", BusyError("not these today"), kind=reconciler.KINDS[0])
    assert reconciler.KINDS[0] != keys.CONFIG_MAP
    await milan.ask(foo="foo-rome")
    names = [Key("foo-rome", f"held-{number}") for number in range(3)]
    for key in names:
        held = objects.named(keys.CONFIG_MAP, key, metadata={"finalizers": [HELD]})
        await fake.create(keys.CONFIG_MAP, held)
    full = BusyError("etcdserver: leader changed")
    milan.cluster.refuses["patch", str(keys.CONFIG_MAP), names[1]] = full

    with pytest.RaisesGroup(BusyError, BusyError):
        await reconciler.release(milan.cluster, "foo-rome")

    found = [await there(fake, keys.CONFIG_MAP, key) for key in names]
    assert [objects.finalizers(one) for one in found] == [[], [HELD], []]


async def test_a_twin_under_another_name_is_not_leaked() -> None:
    milan = await tenant_of(FakeCluster(strict=True), "rome")
    await milan.ask(foo="first")

    await milan.ask(foo="second")

    assert await milan.namespace("first") is None
    assert (await milan.entry("foo")) == {"remoteNamespace": "second", "phase": "Accepted"}


async def test_a_deletion_that_was_not_answered_is_tried_again() -> None:
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    await fake.patch(keys.NAMESPACE_MAP, milan.key, {"spec": {"desiredMapping": {"foo": None}}})
    fake.fail("delete", NotReachableError("no answer"), kind=keys.NAMESPACE)

    with pytest.raises(NotReachableError):
        await milan.reconciler.reconcile(milan.key)
    kept = await milan.entry("foo")
    await milan.settle()

    assert kept["phase"] == "Accepted"
    assert await milan.namespace("foo-rome") is None


async def test_an_accepted_entry_stays_so_when_the_server_does_not_answer() -> None:
    fake = FakeCluster(strict=True)
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    await end(fake, keys.ROLE_BINDING, Key("foo-rome", milan.tenant))
    fake.fail("create", NotReachableError("no answer"), kind=keys.ROLE_BINDING)

    with pytest.raises(NotReachableError):
        await milan.reconciler.reconcile(milan.key)

    assert (await milan.entry("foo"))["phase"] == "Accepted"


async def test_there_is_room_for_so_many_and_no_more(cluster: Cluster, namespace: str) -> None:
    milan = await tenant_of(cluster, namespace)
    await milan.limit(max=2)
    wanted = {name: f"{name}-{namespace}" for name in ("a", "b", "c")}

    await milan.ask(**wanted)

    phases = {name: (await milan.entry(name))["phase"] for name in wanted}
    assert sorted(phases.values()) == ["Accepted", "Accepted", "CreationLoopBackOff"]
    (left,) = (name for name, phase in phases.items() if phase != "Accepted")
    assert (await milan.entry(left))["reason"] == "TooManyNamespaces"
    assert f"providerpolicy {namespace}" in (await milan.entry(left))["message"]
    assert await milan.namespace(wanted[left]) is None

    await milan.limit(max=3)
    await milan.settle()
    assert (await milan.entry(left))["phase"] == "Accepted"


async def test_the_maps_of_a_tenant_share_its_room(fake: FakeCluster) -> None:
    """Sixteen at once, while no cache has seen what the others made."""
    milan = await tenant_of(fake, "rome")
    await milan.limit(max=1)
    behind = (await fake.list(watches.PEER_NAMESPACES)).items
    loop = milan.elected(60, {watches.PEER_NAMESPACES: lambda: behind})
    maps = [
        replica_map(milan.tenant, f"m{number}", "rome", {"a": f"a{number}-rome"})
        for number in range(16)
    ]
    for one in maps:
        await fake.create(keys.NAMESPACE_MAP, one)

    await asyncio.gather(*(loop.reconcile(objects.key_of(one)) for one in maps))

    def twins() -> list[str]:
        found = (key.name for kind, key in fake.everything() if kind == keys.NAMESPACE)
        return [name for name in found if name.endswith("-rome") and name != milan.tenant]

    (made,) = twins()
    first = Key(milan.tenant, f"m{made.removeprefix('a').removesuffix('-rome')}")
    await fake.patch(keys.NAMESPACE_MAP, first, {"spec": {"desiredMapping": {"a": None}}})
    await loop.reconcile(first)
    for one in maps:
        await loop.reconcile(objects.key_of(one))
    assert len(twins()) == 1, "what one gave back another has"
    restarted = milan.elected(60)
    for one in maps:
        await restarted.reconcile(objects.key_of(one))
    assert len(twins()) == 1


async def test_names_are_those_that_the_policy_allows(cluster: Cluster, namespace: str) -> None:
    milan = await tenant_of(cluster, namespace)
    await milan.limit(pattern=f"a-{namespace}")

    await milan.ask(a=f"a-{namespace}", b=f"b-{namespace}")

    assert (await milan.entry("a"))["phase"] == "Accepted"
    assert (await milan.entry("b"))["reason"] == "NameNotAllowed"
    assert await milan.namespace(f"b-{namespace}") is None


async def test_names_of_what_is_installed_by_others_are_kept_unless_a_pattern_opens_them(
    cluster: Cluster, namespace: str
) -> None:
    milan = await tenant_of(cluster, namespace)

    await milan.ask(a="cert-manager")
    kept = await milan.entry("a")
    await milan.ask(**{"istio-system": "istio-system"})
    await milan.limit(pattern="istio-system|.*-rome")
    await milan.settle()

    assert {"monitoring", "vault", "keda", "cattle-fleet-system"} <= naming.INSTALLED
    assert kept["reason"] == "NameReserved"
    assert kept["message"].endswith(
        f"or spec.remoteNamespaces.pattern of providerpolicy {providerpolicy.DEFAULT} opens it"
    )
    assert (await milan.entry("istio-system"))["phase"] == "Accepted"
    assert (await milan.entry("a"))["reason"] == "NameNotAllowed"
    await milan.ask(**{"a": None, "istio-system": None})


async def test_strategies_are_those_that_the_policy_accepts(
    cluster: Cluster, namespace: str
) -> None:
    milan = await tenant_of(cluster, namespace)
    await milan.policy(namespaceMappingStrategies=["DefaultName"])

    await milan.ask(a=f"a-{namespace}", b=f"chosen-{namespace}", c="c")

    assert (await milan.entry("a"))["phase"] == "Accepted"
    chosen, same = await milan.entry("b"), await milan.entry("c")
    assert (chosen["reason"], same["reason"]) == ("StrategyNotAllowed", "StrategyNotAllowed")
    assert chosen["message"] == (
        f"providerpolicy {namespace} accepts no namespaceMappingStrategy SelectedName,"
        " only: DefaultName"
    )
    assert "EnforceSameName" in same["message"]


async def test_the_pod_security_level_is_the_policys_and_is_raised_but_never_lowered(
    cluster: Cluster, namespace: str
) -> None:
    milan = await tenant_of(cluster, namespace)
    name = f"a-{namespace}"

    async def level() -> str:
        found = await there(cluster, keys.NAMESPACE, Key("", name))
        return objects.labels(found)[keys.POD_SECURITY_ENFORCE]

    await milan.policy(podSecurityLevel="privileged")
    await milan.ask(a=name)
    assert await level() == "privileged"

    await milan.policy(podSecurityLevel="restricted")
    await milan.settle()
    assert await level() == "restricted"

    await milan.policy(podSecurityLevel="baseline")
    await milan.settle()
    assert await level() == "restricted"


async def test_twins_say_which_classes_the_policy_offers_as_it_changes(
    cluster: Cluster, namespace: str
) -> None:
    milan = await tenant_of(cluster, namespace)
    name = f"a-{namespace}"

    async def classes() -> dict[str, str]:
        found = await there(cluster, keys.NAMESPACE, Key("", name))
        notes = objects.annotations(found)
        names = (
            keys.OFFERED_STORAGE_CLASSES,
            keys.OFFERED_INGRESS_CLASSES,
            keys.OFFERED_STATIC_VOLUMES,
            keys.OFFERED_SERVICE_TYPES,
            keys.OFFERED_INGRESS_HOSTS,
            keys.OFFERED_ANNOTATION_DOMAINS,
        )
        return {key: notes[key] for key in names if key in notes}

    await milan.policy(storageClasses=[{"storageClassName": name} for name in ("silver", "bronze")])
    await milan.ask(a=name)
    assert await classes() == {keys.OFFERED_STORAGE_CLASSES: "silver,bronze"}

    dedicated = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    await milan.policy(
        ingressClasses=[{"ingressClassName": "outer"}],
        staticVolumes=True,
        serviceTypes=["NodePort"],
        ingressHosts={"pattern": "a.*"},
        annotationDomains=["cert-manager.io", "a.example"],
        allowedPodFields={"annotationDomains": ["k8s.v1.cni.cncf.io"], "tolerations": [dedicated]},
    )
    await milan.settle()
    said = await there(cluster, keys.NAMESPACE_MAP, milan.key)
    assert said["status"]["offered"] == {
        "serviceTypes": ["NodePort"],
        "annotationDomains": ["a.example", "cert-manager.io"],
        "podAnnotationDomains": ["k8s.v1.cni.cncf.io"],
        "podTolerations": [dedicated],
    }
    assert await classes() == {
        keys.OFFERED_INGRESS_CLASSES: "outer",
        keys.OFFERED_STATIC_VOLUMES: "true",
        keys.OFFERED_SERVICE_TYPES: "NodePort",
        keys.OFFERED_INGRESS_HOSTS: "a.*",
        keys.OFFERED_ANNOTATION_DOMAINS: "a.example,cert-manager.io",
    }

    writes = len(milan.cluster.writes)
    await milan.settle()
    assert len(milan.cluster.writes) == writes


async def test_many_entries_are_served_side_by_side_and_told_in_batches() -> None:
    fake = Parallel(strict=True)
    milan = await tenant_of(fake, "rome")
    wanted = {f"n{number}": f"n{number}-rome" for number in range(150)}

    await milan.ask(**wanted)

    found = await there(fake, keys.NAMESPACE_MAP, milan.key)
    assert {each["phase"] for each in found["status"]["currentMapping"].values()} == {"Accepted"}
    statuses = [write for write in milan.cluster.writes if write[0] == "patch_status"]
    assert len(found["status"]["currentMapping"]) == 150
    assert len(statuses) == 3
    assert fake.most == 16

    before = fake.requests.copy()
    await milan.ask(new="new-rome")
    assert (await milan.entry("new"))["phase"] == "Accepted"
    asked = fake.requests - before
    assert (asked["create", "namespaces"], asked["create", "rolebindings"]) == (1, 2)
    assert asked["get", "namespaces"] < 10  # the others cost none

    before = fake.requests.copy()
    await milan.ask(**{f"n{number}": None for number in range(100)})
    asked = fake.requests - before
    assert asked["delete", "namespaces"] == 100


class Parallel(FakeCluster):
    """Counts how many namespaces are created at once."""

    now = most = 0

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.now += kind == keys.NAMESPACE
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        made = await super().create(kind, obj)
        self.now -= kind == keys.NAMESPACE
        return made


async def test_a_map_that_claims_another_origin_is_not_served(milan: Milan) -> None:
    obj = replica_map(milan.tenant, "milan", "turin", {"foo": f"foo-{milan.unique}"})
    await milan.cluster.create(keys.NAMESPACE_MAP, obj)

    with pytest.raises(TerminalError, match="does not come from"):
        await milan.reconciler.reconcile(milan.key)

    assert await milan.namespace(f"foo-{milan.unique}") is None


async def test_a_map_outside_a_tenant_namespace_is_not_served(
    cluster: Cluster, namespace: str
) -> None:
    milan = Milan(Ledger(cluster), namespace, "rome")
    await make(cluster, keys.NAMESPACE_MAP, replica_map(namespace, "milan", "rome", {"a": "b"}))

    with pytest.raises(TerminalError, match="no tenant namespace"):
        await milan.reconciler.reconcile(milan.key)


class Racing(Ledger):
    """Somebody makes the namespace of that name between our read and our create."""

    intruder: str = ""

    async def create(self, kind: Kind, obj: Object) -> Object:
        if kind == keys.NAMESPACE and objects.key_of(obj).name == self.intruder:
            await super().create(kind, factories.namespace(self.intruder))
        return await super().create(kind, obj)


async def test_a_namespace_that_appears_meanwhile_gets_no_binding(
    cluster: Cluster, namespace: str
) -> None:
    milan = await tenant_of(cluster, namespace)
    milan.cluster = Racing(cluster)
    milan.cluster.intruder = f"foo-{namespace}"
    milan = Milan(milan.cluster, milan.tenant, milan.unique)
    await milan.limit(max=1)

    await milan.ask(foo=f"foo-{namespace}")
    await milan.ask(bar=f"bar-{namespace}")

    assert not await milan.is_bound(f"foo-{namespace}")
    assert (await milan.entry("foo"))["reason"] == "Conflict"
    assert (await milan.entry("bar"))["phase"] == "Accepted", "the other takes no room"


class Replacing(Ledger):
    """The twin is replaced by somebody's namesake while its binding is made."""

    async def create(self, kind: Kind, obj: Object) -> Object:
        key = objects.key_of(obj)
        if kind == keys.ROLE_BINDING:
            where = Key("", key.namespace)
            await end(self, keys.NAMESPACE, where)
            await super().create(keys.NAMESPACE, factories.namespace(where.name))
        return await super().create(kind, obj)


async def test_a_namespace_that_is_replaced_meanwhile_keeps_no_binding(fake: FakeCluster) -> None:
    tenant = (await tenant_of(fake, "rome")).tenant
    milan = Milan(Replacing(fake), tenant, "rome")

    await milan.ask(foo="foo-rome")

    assert not await milan.is_bound("foo-rome")
    assert (await milan.entry("foo"))["reason"] == "Conflict"


NAMES = [f"n{number}" for number in range(8)]


@settings(max_examples=60, deadline=None)
@given(
    taken=st.sets(st.sampled_from(NAMES)),
    maps=st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(NAMES)), max_size=4),
)
async def test_bindings_are_only_in_twins_of_the_tenant(
    taken: set[str], maps: list[dict[str, str]]
) -> None:
    cluster = FakeCluster(strict=True)
    milan = await tenant_of(cluster, "rome")
    for name in taken:
        await cluster.create(keys.NAMESPACE, factories.namespace(name))

    for desired in maps:
        await milan.ask(**{local: desired.get(local) for local in "abcd"})

        for kind, key in cluster.everything():
            if kind == keys.ROLE_BINDING:
                assert key.namespace not in taken
                twin = await there(cluster, keys.NAMESPACE, Key("", key.namespace))
                assert forge.owner_of(twin) == milan.key
    assert all([await milan.namespace(name) is not None for name in taken])


async def test_a_tenant_that_is_refused_gets_no_right_back(fake: FakeCluster) -> None:
    """Its controller withdrew the bindings; while the Tenant says why, nobody makes them again."""
    milan = await tenant_of(fake, "rome")
    await milan.ask(foo="foo-rome")
    where = Key(milan.tenant, "rome")
    await fake.create(keys.TENANT, objects.named(keys.TENANT, where, spec={"clusterID": "rome"}))
    refused = {"type": "Ready", "status": "False", "reason": "NameCollision", "message": "x"}
    await fake.patch_status(keys.TENANT, where, {"conditions": [refused]})
    await end(fake, keys.ROLE_BINDING, Key("foo-rome", milan.tenant))

    with pytest.raises(TerminalError, match="NameCollision"):
        await milan.reconciler.reconcile(milan.key)
    bound_meanwhile = await milan.bound("foo-rome")
    await fake.patch_status(keys.TENANT, where, {"conditions": [{**refused, "status": "True"}]})
    await milan.settle()

    assert bound_meanwhile == {ACCOUNT.name}
    assert await milan.bound("foo-rome") == {ACCOUNT.name, milan.tenant}
    # Whose Tenant is drained gets none back either, before its condition says so.
    await fake.patch(keys.TENANT, where, {"spec": {"tenantCondition": "Drained"}})
    await end(fake, keys.ROLE_BINDING, Key("foo-rome", milan.tenant))
    with pytest.raises(TerminalError, match="is drained"):
        await milan.reconciler.reconcile(milan.key)
    assert await milan.bound("foo-rome") == {ACCOUNT.name}


BOUND: Final = {
    "an account": {"kind": "ServiceAccount", "namespace": "ci-old", "name": "default"},
    "all accounts": {"kind": "Group", "name": "system:serviceaccounts:ci-old"},
    "a user": {"kind": "User", "name": "system:serviceaccount:ci-old:default"},
}


@pytest.mark.parametrize("who", BOUND)
async def test_no_namespace_takes_over_rights_of_one_that_is_gone(
    fake: FakeCluster, who: str
) -> None:
    """Rights that outlived a namespace, or stand before it, are its provider's to give."""
    milan = await tenant_of(fake, "rome")
    left = Binding(Meta(name="ci-old-admin"), subjects=[BOUND[who]])
    milan.bindings = [(keys.CLUSTER_ROLE_BINDING, left)]

    await milan.ask(a="ci-old", b="shop-rome")

    refused = await milan.entry("a")
    assert refused["reason"] == "NameBound"
    assert "clusterrolebinding ci-old-admin" in refused["message"]
    assert await milan.namespace("ci-old") is None
    assert (await milan.entry("b"))["phase"] == "Accepted"


async def test_rights_of_a_namespace_within_itself_keep_nobody_out(fake: FakeCluster) -> None:
    milan = await tenant_of(fake, "rome")
    account = {"kind": "ServiceAccount", "namespace": "shop-rome", "name": "default"}
    own = Binding(Meta(name="own", namespace="shop-rome"), subjects=[account])
    milan.bindings = [(keys.ROLE_BINDING, own)]

    await milan.ask(a="shop-rome")

    assert (await milan.entry("a"))["phase"] == "Accepted"
