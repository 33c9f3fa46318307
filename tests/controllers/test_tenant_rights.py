"""What the controller manager gives itself in tenant namespaces."""

import itertools
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from controllers import objectquotas, watches
from controllers.authentication.tenantrights import forge
from controllers.authentication.tenantrights.reconciler import (
    NEEDING,
    TenantRightsReconciler,
    by_binding,
    by_namespace,
)
from kube.controller import TerminalError
from kube.errors import NotReachableError
from kube.informer import Change
from tests import factories
from tests.controllers.support import Ledger, end, manager_of, settle, there
from tests.fakes import FakeCluster

ACCOUNT: Final = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
SPACE: Final = "liqo-tenant-milan"
BINDING: Final = Key(SPACE, ACCOUNT.name)
WHERE: Final = Key("", SPACE)
PEER: Final = {keys.REMOTE_CLUSTER_ID: "milan"}
TENANT: Final = {keys.TENANT_NAMESPACE: "true", **PEER}


class Going(Ledger):
    """A cluster whose tenant namespace is being deleted, and still has all that it had."""

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return _going(await super().get(kind, key), kind)

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return _going(await super().get_live(kind, key), kind)


def _going(found: Object | None, kind: Kind) -> Object | None:
    if found is None or kind != keys.NAMESPACE:
        return found
    return {**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def reconciler(cluster: Ledger) -> TenantRightsReconciler:
    return TenantRightsReconciler(manager_of(cluster))


async def opened_tenant(**labels: str) -> tuple[FakeCluster, Ledger]:
    """Return a cluster with one namespace, looked at until nothing is to be done."""
    fake = FakeCluster(strict=True)
    await fake.create(keys.NAMESPACE, factories.namespace(SPACE, **labels))
    ledger = Ledger(fake)
    await settle(reconciler(ledger), WHERE, ledger)
    return fake, ledger


async def test_it_lets_itself_into_tenant_namespaces() -> None:
    fake, ledger = await opened_tenant(**TENANT)

    made = await there(fake, keys.ROLE_BINDING, BINDING)
    assert made["roleRef"]["name"] == keys.CONTROLLER_MANAGER_TENANT_ROLE
    (subject,) = made["subjects"]
    assert (subject["kind"], subject["namespace"], subject["name"]) == ("ServiceAccount", *ACCOUNT)
    assert objects.finalizers(made) == [keys.TENANT_RIGHTS_FINALIZER]
    assert watches.opens_secrets(made)
    assert [verb for verb, *_ in ledger.writes] == ["create"]


@pytest.mark.parametrize("labels", [{}, PEER], ids=["of users", "twin"])
async def test_it_has_no_such_right_elsewhere(labels: dict[str, str]) -> None:
    fake, ledger = await opened_tenant(**labels)

    assert ledger.writes == []
    assert await fake.get(keys.ROLE_BINDING, BINDING) is None


async def test_what_somebody_deletes_is_let_go_and_made_anew() -> None:
    fake, ledger = await opened_tenant(**TENANT)
    before = await there(fake, keys.ROLE_BINDING, BINDING)
    await end(fake, keys.ROLE_BINDING, BINDING)

    await settle(reconciler(ledger), WHERE, ledger)

    after = await there(fake, keys.ROLE_BINDING, BINDING)
    assert objects.uid(after) != objects.uid(before)
    assert not objects.is_terminating(after)


async def test_it_leaves_a_namespace_that_is_no_tenants_any_more() -> None:
    fake, ledger = await opened_tenant(**TENANT)
    await fake.patch(keys.NAMESPACE, WHERE, {"metadata": {"labels": {keys.TENANT_NAMESPACE: None}}})

    await settle(reconciler(ledger), WHERE, ledger)

    assert await fake.get(keys.ROLE_BINDING, BINDING) is None


async def test_a_binding_made_by_hand_becomes_its_own() -> None:
    fake = FakeCluster(strict=True)
    space = await fake.create(keys.NAMESPACE, factories.namespace(SPACE, **TENANT))
    by_hand = forge.binding(space, ACCOUNT)
    del by_hand["metadata"]["labels"], by_hand["metadata"]["finalizers"]
    await fake.create(keys.ROLE_BINDING, by_hand)
    ledger = Ledger(fake)

    await settle(reconciler(ledger), WHERE, ledger)

    found = await there(fake, keys.ROLE_BINDING, BINDING)
    assert objects.finalizers(found) == [keys.TENANT_RIGHTS_FINALIZER]
    assert objects.labels(found)[keys.REMOTE_CLUSTER_ID] == "milan"


async def test_a_binding_of_somebody_else_is_left_alone() -> None:
    fake = FakeCluster(strict=True)
    space = await fake.create(keys.NAMESPACE, factories.namespace(SPACE, **TENANT))
    theirs = forge.binding(space, ACCOUNT)
    theirs["roleRef"]["name"] = "view"
    await fake.create(keys.ROLE_BINDING, theirs)
    ledger = Ledger(fake)

    with pytest.raises(TerminalError, match="exists and is not ours"):
        await reconciler(ledger).reconcile(WHERE)
    assert ledger.writes == []


WAITING: Final = [
    named(keys.TENANT, Key(SPACE, "milan"), spec={}),
    named(keys.IDENTITY, Key(SPACE, "x"), spec={}),
    named(keys.RESOURCE_SLICE, Key(SPACE, "x"), spec={}),
    named(keys.NAMESPACE_MAP, Key(SPACE, "x"), spec={}),
    named(keys.RENEW, Key(SPACE, "x"), spec={}),
    named(keys.SECRET, Key(SPACE, "held"), metadata={"finalizers": ["crdreplicator.liqo.io/x"]}),
]


@pytest.mark.parametrize("obj", WAITING, ids=lambda obj: obj["kind"])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["kept", "deleted"])
async def test_it_stays_in_a_namespace_that_goes_until_nothing_needs_it(
    obj: Object, *, is_deleted: bool
) -> None:
    """Whether or not the binding is deleted first: names come in no order."""
    fake, _ = await opened_tenant(**TENANT)
    kinds = {kind.kind: kind for kind in (*NEEDING, keys.SECRET)}
    kind, key = kinds[obj["kind"]], objects.key_of(obj)
    await fake.create(kind, obj)
    if is_deleted:
        await end(fake, keys.ROLE_BINDING, BINDING)
    going = Going(fake)

    assert await reconciler(going).reconcile(WHERE)
    found = await there(fake, keys.ROLE_BINDING, BINDING)
    assert objects.finalizers(found) == [keys.TENANT_RIGHTS_FINALIZER]

    await fake.patch(kind, key, {"metadata": {"finalizers": None}})
    await end(fake, kind, key)
    await fake.create(keys.SECRET, factories.secret(SPACE, "nobody-holds-it"))
    assert await reconciler(going).reconcile(WHERE) is None
    last = await fake.get(keys.ROLE_BINDING, BINDING)
    assert (last is None) is is_deleted
    assert last is None or objects.finalizers(last) == []
    await settle(reconciler(going), WHERE, going)


async def test_a_server_that_does_not_answer_takes_no_right_away() -> None:
    fake, _ = await opened_tenant(**TENANT)
    await end(fake, keys.ROLE_BINDING, BINDING)
    fake.fail("list", NotReachableError("away"))

    with pytest.raises(NotReachableError):
        await reconciler(Going(fake)).reconcile(WHERE)
    found = await there(fake, keys.ROLE_BINDING, BINDING)
    assert objects.finalizers(found) == [keys.TENANT_RIGHTS_FINALIZER]


async def test_which_changes_matter() -> None:
    space = factories.namespace(SPACE, **TENANT)
    twin = factories.namespace("shop", **PEER)
    binding = forge.binding(space, ACCOUNT)
    other = {**binding, "roleRef": {**binding["roleRef"], "name": "view"}}

    assert list(by_namespace(Change(WHERE, None, space))) == [WHERE]
    assert list(by_namespace(Change(WHERE, space, None))) == [WHERE]
    assert list(by_namespace(Change(Key("", "shop"), None, twin))) == []
    assert list(by_binding(Change(BINDING, binding, None))) == [WHERE]
    assert list(by_binding(Change(BINDING, None, other))) == []


TWIN: Final = "shop-rome"
COUNTED: Final = (
    "count/resourceslices.authentication.liqo.io",
    "count/renews.authentication.liqo.io",
    "count/namespacemaps.offloading.liqo.io",
    "count/shadowendpointslices.offloading.liqo.io",
    "count/shadowpods.offloading.liqo.io",
)


async def count_objects(fake: FakeCluster, *counted: str) -> None:
    """Make the ResourceQuota of pyliqo's own namespace count ``counted``."""
    own = named(keys.RESOURCE_QUOTA, Key(keys.LIQO_NAMESPACE, objectquotas.NAME))
    if not await fake.get(keys.RESOURCE_QUOTA, objects.key_of(own)):
        await fake.create(keys.NAMESPACE, factories.namespace(keys.LIQO_NAMESPACE))
        await fake.create(keys.RESOURCE_QUOTA, own)
    used = dict.fromkeys(counted, "0")
    await fake.patch_status(keys.RESOURCE_QUOTA, objects.key_of(own), {"used": used})


async def rights_with_tenants(fake: FakeCluster) -> objectquotas.ObjectQuotaReconciler:
    """Return the reconciler in a cluster with a tenant namespace, its Tenant, and a twin."""
    managed = {keys.APP_MANAGED_BY: "liqo", **PEER}
    for name, labels in ((SPACE, TENANT), (TWIN, PEER)):
        await fake.create(keys.NAMESPACE, factories.namespace(name, **labels))
        await fake.create(
            keys.ROLE_BINDING,
            named(keys.ROLE_BINDING, Key(name, ACCOUNT.name), metadata={"labels": managed}),
        )
    await fake.create(keys.TENANT, named(keys.TENANT, Key(SPACE, "milan"), spec={}))
    clock = itertools.count(step=objectquotas.UNCOUNTED_S).__next__
    return objectquotas.ObjectQuotaReconciler(manager_of(fake), clock)


async def hard(fake: FakeCluster, namespace: str) -> Object:
    found = await there(fake, keys.RESOURCE_QUOTA, Key(namespace, objectquotas.NAME))
    limits: Object = found["spec"]["hard"]
    return limits


async def test_numbers_of_a_consumer_are_bounded_once_the_cluster_counts_them() -> None:
    """A ResourceQuota for a kind that is not counted yet refuses every one of it."""
    fake = FakeCluster()
    reconciler = await rights_with_tenants(fake)
    assert await reconciler.reconcile(WHERE) == objectquotas.UNCOUNTED_S
    await count_objects(fake, *COUNTED[:-1])
    assert await reconciler.reconcile(WHERE) == objectquotas.UNCOUNTED_S
    assert not await fake.get(keys.RESOURCE_QUOTA, Key(SPACE, objectquotas.NAME))

    await count_objects(fake, *COUNTED)
    assert await reconciler.reconcile(WHERE) is None
    assert await reconciler.reconcile(Key("", TWIN)) is None

    assert await hard(fake, SPACE) == dict(zip(COUNTED[:3], ("64", "128", "16"), strict=True))
    assert await hard(fake, TWIN) == {COUNTED[3]: "1000", COUNTED[4]: "10000"}


async def test_the_policy_of_a_tenant_sets_its_numbers() -> None:
    fake = FakeCluster()
    reconciler = await rights_with_tenants(fake)
    await count_objects(fake, *COUNTED)
    await reconciler.reconcile(WHERE)
    spec = {"maxObjects": {"resourceSlices": 2, "shadowPods": 500}}
    await fake.create(
        keys.PROVIDER_POLICY, named(keys.PROVIDER_POLICY, Key("", "milan"), spec=spec)
    )

    await reconciler.reconcile(WHERE)

    limits = await hard(fake, SPACE)
    assert (limits[COUNTED[0]], limits[COUNTED[2]]) == ("2", "16")
    await reconciler.reconcile(Key("", TWIN))
    assert await hard(fake, TWIN) == {COUNTED[3]: "1000", COUNTED[4]: "500"}


async def test_where_a_peer_is_no_tenant_or_no_right_is_there_nothing_is_counted() -> None:
    fake = FakeCluster()
    reconciler = await rights_with_tenants(fake)
    await count_objects(fake, *COUNTED)
    tenant = await there(fake, keys.TENANT, Key(SPACE, "milan"))
    await fake.delete(keys.TENANT, Key(SPACE, "milan"), uid=objects.uid(tenant))
    binding = await there(fake, keys.ROLE_BINDING, Key(TWIN, ACCOUNT.name))
    await fake.delete(keys.ROLE_BINDING, Key(TWIN, ACCOUNT.name), uid=objects.uid(binding))
    before = fake.requests.copy()

    for name in (SPACE, TWIN):
        assert await reconciler.reconcile(Key("", name)) is None

    assert not [what for what in fake.requests - before if "resourcequotas" in what]
